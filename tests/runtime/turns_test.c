/* turns_test.c - one lock, several threads, and who of them drives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/turns.h"

#include "runtime/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { WAIT_MS = 10000, ROUNDS = 2000, THREADS = 4 };

/* Guarded by the lock of `turns`, unless atomic. */
struct world {
    struct tdm__turns turns;
    bool goal;
    int64_t count;
    uint32_t wakes_count;
    tdm_status taken; /* what the other thread got */
    atomic_bool other_is_here;
    struct tdm__sleeper sleeper;
    bool slept;
};

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world = (struct world){.taken = TDM_E_STATE};
    tdm__turns_init(&world.turns);
    tdm__sleeper_init(&world.sleeper);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&world.turns.lockers_count), 0);
    tdm__sleeper_fini(&world.sleeper);
    tdm__turns_fini(&world.turns);
    return 0;
}

static bool goal_reached(void *arg)
{
    (void)arg;
    return world.goal;
}

static void count_wake(void *arg)
{
    (void)arg;
    world.wakes_count++;
}

static pthread_t begin(void *(*fn)(void *arg))
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, fn, NULL), 0);
    return thread;
}

static void end(pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* With the lock held: lets go of it until somebody waits for a turn. */
static void await_waiter(void)
{
    int64_t deadline_ms = tdm__deadline_in(WAIT_MS);

    while (TAILQ_EMPTY(&world.turns.waiters)) {
        uint32_t depth = tdm__turns_unlock_all(&world.turns);

        assert_true(tdm__clock_ms() < deadline_ms);
        (void)sched_yield();
        tdm__turns_relock(&world.turns, depth);
    }
}

static tdm_status take(int64_t deadline_ms)
{
    return tdm__turns_take(&world.turns, goal_reached, NULL, deadline_ms, count_wake, NULL);
}

static void *take_once(void *arg)
{
    (void)arg;
    tdm__turns_lock(&world.turns);
    world.taken = take(tdm__deadline_in(WAIT_MS));
    if (world.taken == TDM_OK) {
        tdm__turns_leave(&world.turns);
    }
    tdm__turns_unlock(&world.turns);
    return NULL;
}

static void the_lock_is_taken_again_by_its_holder(void **state)
{
    uint32_t depth;

    (void)state;
    assert_false(tdm__turns_is_held(&world.turns));
    tdm__turns_lock(&world.turns);
    tdm__turns_lock(&world.turns);
    assert_true(tdm__turns_is_held(&world.turns));
    depth = tdm__turns_unlock_all(&world.turns);
    assert_int_equal(depth, 2);
    assert_false(tdm__turns_is_held(&world.turns));
    tdm__turns_relock(&world.turns, depth);
    tdm__turns_unlock(&world.turns);
    assert_true(tdm__turns_is_held(&world.turns));
    tdm__turns_unlock(&world.turns);
    assert_false(tdm__turns_is_held(&world.turns));
}

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__turns_lock(&world.turns);
        world.count++;
        tdm__turns_unlock(&world.turns);
    }
    return NULL;
}

static void the_lock_keeps_others_out(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        threads[i] = begin(count_up);
    }
    for (int i = 0; i < THREADS; i++) {
        end(threads[i]);
    }
    assert_int_equal(world.count, THREADS * ROUNDS);
}

static void *lock_once(void *arg)
{
    (void)arg;
    atomic_store(&world.other_is_here, true);
    tdm__turns_lock(&world.turns);
    world.goal = true;
    tdm__turns_unlock(&world.turns);
    return NULL;
}

/* Who holds the lock nearly always, and gives way now and then, starves nobody. */
static void a_locker_gets_in_when_way_is_given(void **state)
{
    int64_t deadline_ms = tdm__deadline_in(WAIT_MS);
    pthread_t other;

    (void)state;
    tdm__turns_lock(&world.turns);
    other = begin(lock_once);
    while (!world.goal) {
        assert_true(tdm__clock_ms() < deadline_ms);
        tdm__turns_give_way(&world.turns);
    }
    tdm__turns_unlock(&world.turns);
    end(other);
}

static void *sleep_once(void *arg)
{
    (void)arg;
    tdm__turns_lock(&world.turns);
    world.slept = true;
    while (!world.goal) {
        (void)tdm__turns_sleep(&world.turns, &world.sleeper, TDM__NEVER);
    }
    world.slept = false;
    tdm__turns_unlock(&world.turns);
    return NULL;
}

static void who_is_roused_gets_in_when_way_is_given(void **state)
{
    int64_t deadline_ms = tdm__deadline_in(WAIT_MS);
    pthread_t other = begin(sleep_once);
    bool roused = false;

    (void)state;
    tdm__turns_lock(&world.turns);
    while (!roused || world.slept) {
        assert_true(tdm__clock_ms() < deadline_ms);
        if (world.slept && !roused) {
            roused = true;
            world.goal = true;
            tdm__turns_rouse(&world.turns, &world.sleeper);
        }
        if (roused) {
            tdm__turns_give_way(&world.turns); /* the only moments in which the lock is free */
        } else {
            tdm__turns_relock(&world.turns, tdm__turns_unlock_all(&world.turns));
        }
    }
    tdm__turns_unlock(&world.turns);
    end(other);
}

static void a_sleep_ends_at_its_deadline(void **state)
{
    int64_t began_ms = tdm__clock_ms();

    (void)state;
    tdm__turns_lock(&world.turns);
    assert_int_equal(tdm__turns_sleep(&world.turns, &world.sleeper, tdm__deadline_in(5)),
                     TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() - began_ms >= 5);
    assert_true(tdm__turns_is_held(&world.turns));
    tdm__turns_rouse(&world.turns, &world.sleeper); /* nobody there: nothing */
    tdm__turns_unlock(&world.turns);
}

static void the_first_to_come_drives_and_the_next_follows(void **state)
{
    pthread_t other;

    (void)state;
    tdm__turns_lock(&world.turns);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    assert_true(tdm__turns_drives(&world.turns));
    other = begin(take_once);
    await_waiter();
    assert_int_equal(world.taken, TDM_E_STATE); /* it waits */
    tdm__turns_leave(&world.turns);
    tdm__turns_unlock(&world.turns);
    end(other);
    assert_int_equal(world.taken, TDM_OK);
    assert_int_equal(world.turns.drives_count, 2);
    assert_null(world.turns.driver);
    assert_int_equal(world.wakes_count, 0); /* the driver did not stand by */
}

static void who_has_what_it_waits_for_does_not_drive(void **state)
{
    pthread_t other;

    (void)state;
    tdm__turns_lock(&world.turns);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    other = begin(take_once);
    await_waiter();
    world.goal = true;
    tdm__turns_notify(&world.turns);
    tdm__turns_unlock(&world.turns);
    end(other);
    assert_int_equal(world.taken, TDM_E_CANCELED);
    assert_true(tdm__turns_drives(&world.turns));
    tdm__turns_leave(&world.turns);
}

static void waiting_for_a_turn_ends_at_the_deadline(void **state)
{
    pthread_t other;

    (void)state;
    tdm__turns_lock(&world.turns);
    world.turns.driver = &world; /* somebody who never leaves */
    assert_int_equal(take(tdm__deadline_in(5)), TDM_E_TIMEOUT);
    assert_true(TAILQ_EMPTY(&world.turns.waiters));
    world.turns.driver = NULL;
    tdm__turns_unlock(&world.turns);
    other = begin(take_once);
    end(other);
    assert_int_equal(world.taken, TDM_OK);
}

/* The turn was offered to a thread that no longer wants it: it must not be lost. */
static void a_turn_that_is_declined_is_passed_on(void **state)
{
    pthread_t waiter;
    pthread_t sleeper;

    (void)state;
    tdm__turns_lock(&world.turns);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    waiter = begin(take_once);
    sleeper = begin(sleep_once);
    await_waiter();
    while (!world.slept) {
        tdm__turns_relock(&world.turns, tdm__turns_unlock_all(&world.turns));
    }
    world.turns.when_free = &world.sleeper;
    world.goal = true;
    tdm__turns_leave(&world.turns); /* rouses the waiter, who declines: its goal is reached */
    tdm__turns_unlock(&world.turns);
    end(waiter);
    assert_int_equal(world.taken, TDM_E_CANCELED);
    end(sleeper); /* was told that nobody drives; else it sleeps for ever */
    world.turns.when_free = NULL;
}

static void a_driver_that_stands_by_is_woken_by_who_comes(void **state)
{
    pthread_t other;

    (void)state;
    tdm__turns_lock(&world.turns);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    world.turns.driver_yields = true;
    other = begin(take_once);
    await_waiter();
    assert_true(world.wakes_count > 0);
    tdm__turns_leave(&world.turns);
    assert_false(world.turns.driver_yields);
    tdm__turns_unlock(&world.turns);
    end(other);
    assert_int_equal(world.taken, TDM_OK);
}

static void *drive_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__turns_lock(&world.turns);
        assert_int_equal(tdm__turns_take(&world.turns, NULL, NULL, tdm__deadline_in(WAIT_MS),
                                         count_wake, NULL),
                         TDM_OK);
        world.count++;
        tdm__turns_relock(&world.turns, tdm__turns_unlock_all(&world.turns)); /* it polls */
        tdm__turns_leave(&world.turns);
        tdm__turns_unlock(&world.turns);
    }
    return NULL;
}

static void every_thread_gets_its_turns(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        threads[i] = begin(drive_often);
    }
    for (int i = 0; i < THREADS; i++) {
        end(threads[i]);
    }
    assert_int_equal(world.count, THREADS * ROUNDS);
    assert_int_equal(world.turns.drives_count, THREADS * ROUNDS);
}

static void a_forked_child_finds_the_lock_free(void **state)
{
    (void)state;
    tdm__turns_lock(&world.turns);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    tdm__turns_leave(&world.turns);
    tdm__turns_unlock(&world.turns);
    /* As in the child: whoever held it is not there. */
    tdm__turns_lock(&world.turns);
    tdm__turns_unlock(&world.turns);
    tdm__turns_after_fork(&world.turns);
    assert_false(tdm__turns_is_held(&world.turns));
    tdm__turns_lock(&world.turns);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    tdm__turns_leave(&world.turns);
    tdm__turns_unlock(&world.turns);
}

#define FRAMED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRAMED(the_lock_is_taken_again_by_its_holder),
        FRAMED(the_lock_keeps_others_out),
        FRAMED(a_locker_gets_in_when_way_is_given),
        FRAMED(who_is_roused_gets_in_when_way_is_given),
        FRAMED(a_sleep_ends_at_its_deadline),
        FRAMED(the_first_to_come_drives_and_the_next_follows),
        FRAMED(who_has_what_it_waits_for_does_not_drive),
        FRAMED(waiting_for_a_turn_ends_at_the_deadline),
        FRAMED(a_turn_that_is_declined_is_passed_on),
        FRAMED(a_driver_that_stands_by_is_woken_by_who_comes),
        FRAMED(every_thread_gets_its_turns),
        FRAMED(a_forked_child_finds_the_lock_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
