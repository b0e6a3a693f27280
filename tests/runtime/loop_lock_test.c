/* loop_lock_test.c - one lock, several threads, and who of them drives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/loop_lock.h"

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

/* Guarded by the lock of `loop_lock`, unless atomic. */
struct world {
    struct tdm__loop_lock loop_lock;
    bool goal;
    int64_t count;
    uint32_t wakes_count;
    tdm_status taken; /* what the other thread got */
    atomic_bool other_is_here;
    struct tdm__loop_condition loop_condition;
    bool slept;
};

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world = (struct world){.taken = TDM_E_STATE};
    tdm__loop_lock_init(&world.loop_lock);
    tdm__loop_condition_init(&world.loop_condition);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&world.loop_lock.waiting_lockers_count), 0);
    tdm__loop_condition_fini(&world.loop_condition);
    tdm__loop_lock_fini(&world.loop_lock);
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
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    while (TAILQ_EMPTY(&world.loop_lock.waiters)) {
        uint32_t depth = tdm__loop_lock_release_all(&world.loop_lock);

        assert_true(tdm__clock_ms() < deadline_ms);
        (void)sched_yield();
        tdm__loop_lock_reacquire(&world.loop_lock, depth);
    }
}

static tdm_status take(int64_t deadline_ms)
{
    return tdm__loop_lock_start_driving(&world.loop_lock, goal_reached, NULL, deadline_ms,
                                        count_wake, NULL);
}

static void *take_once(void *arg)
{
    (void)arg;
    tdm__loop_lock_acquire(&world.loop_lock);
    world.taken = take(tdm__deadline_after(WAIT_MS));
    if (world.taken == TDM_OK) {
        tdm__loop_lock_stop_driving(&world.loop_lock);
    }
    tdm__loop_lock_release(&world.loop_lock);
    return NULL;
}

static void the_lock_is_taken_again_by_its_holder(void **state)
{
    uint32_t depth;

    (void)state;
    assert_false(tdm__loop_lock_is_held(&world.loop_lock));
    tdm__loop_lock_acquire(&world.loop_lock);
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_true(tdm__loop_lock_is_held(&world.loop_lock));
    depth = tdm__loop_lock_release_all(&world.loop_lock);
    assert_int_equal(depth, 2);
    assert_false(tdm__loop_lock_is_held(&world.loop_lock));
    tdm__loop_lock_reacquire(&world.loop_lock, depth);
    tdm__loop_lock_release(&world.loop_lock);
    assert_true(tdm__loop_lock_is_held(&world.loop_lock));
    tdm__loop_lock_release(&world.loop_lock);
    assert_false(tdm__loop_lock_is_held(&world.loop_lock));
}

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__loop_lock_acquire(&world.loop_lock);
        world.count++;
        tdm__loop_lock_release(&world.loop_lock);
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
    tdm__loop_lock_acquire(&world.loop_lock);
    world.goal = true;
    tdm__loop_lock_release(&world.loop_lock);
    return NULL;
}

/* Who holds the lock nearly always, and gives way now and then, starves nobody. */
static void a_locker_gets_in_when_way_is_given(void **state)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    other = begin(lock_once);
    while (!world.goal) {
        assert_true(tdm__clock_ms() < deadline_ms);
        tdm__loop_lock_yield(&world.loop_lock);
    }
    tdm__loop_lock_release(&world.loop_lock);
    end(other);
}

static void *sleep_once(void *arg)
{
    (void)arg;
    tdm__loop_lock_acquire(&world.loop_lock);
    world.slept = true;
    while (!world.goal) {
        (void)tdm__loop_condition_wait(&world.loop_lock, &world.loop_condition, TDM__NEVER);
    }
    world.slept = false;
    tdm__loop_lock_release(&world.loop_lock);
    return NULL;
}

static void who_is_roused_gets_in_when_way_is_given(void **state)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    pthread_t other = begin(sleep_once);
    bool signaled = false;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    while (!signaled || world.slept) {
        assert_true(tdm__clock_ms() < deadline_ms);
        if (world.slept && !signaled) {
            signaled = true;
            world.goal = true;
            tdm__loop_condition_signal(&world.loop_lock, &world.loop_condition);
        }
        if (signaled) {
            tdm__loop_lock_yield(&world.loop_lock); /* the only moments in which the lock is free */
        } else {
            tdm__loop_lock_reacquire(&world.loop_lock,
                                     tdm__loop_lock_release_all(&world.loop_lock));
        }
    }
    tdm__loop_lock_release(&world.loop_lock);
    end(other);
}

static void a_sleep_ends_at_its_deadline(void **state)
{
    int64_t began_ms = tdm__clock_ms();

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(
        tdm__loop_condition_wait(&world.loop_lock, &world.loop_condition, tdm__deadline_after(5)),
        TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() - began_ms >= 5);
    assert_true(tdm__loop_lock_is_held(&world.loop_lock));
    tdm__loop_condition_signal(&world.loop_lock, &world.loop_condition); /* nobody there: nothing */
    tdm__loop_lock_release(&world.loop_lock);
}

static void the_first_to_come_drives_and_the_next_follows(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    assert_true(tdm__loop_lock_is_driver(&world.loop_lock));
    other = begin(take_once);
    await_waiter();
    assert_int_equal(world.taken, TDM_E_STATE); /* it waits */
    tdm__loop_lock_stop_driving(&world.loop_lock);
    tdm__loop_lock_release(&world.loop_lock);
    end(other);
    assert_int_equal(world.taken, TDM_OK);
    assert_int_equal(world.loop_lock.driver_starts_count, 2);
    assert_null(world.loop_lock.driver);
    assert_int_equal(world.wakes_count, 0); /* the driver did not stand by */
}

static void who_has_what_it_waits_for_does_not_drive(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    other = begin(take_once);
    await_waiter();
    world.goal = true;
    tdm__loop_lock_notify_waiters(&world.loop_lock);
    tdm__loop_lock_release(&world.loop_lock);
    end(other);
    assert_int_equal(world.taken, TDM_E_CANCELED);
    assert_true(tdm__loop_lock_is_driver(&world.loop_lock));
    tdm__loop_lock_stop_driving(&world.loop_lock);
}

static void waiting_to_drive_ends_at_the_deadline(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    world.loop_lock.driver = &world; /* somebody who never leaves */
    assert_int_equal(take(tdm__deadline_after(5)), TDM_E_TIMEOUT);
    assert_true(TAILQ_EMPTY(&world.loop_lock.waiters));
    world.loop_lock.driver = NULL;
    tdm__loop_lock_release(&world.loop_lock);
    other = begin(take_once);
    end(other);
    assert_int_equal(world.taken, TDM_OK);
}

/* The turn was offered to a thread that no longer wants it: it must not be lost. */
static void driving_that_is_declined_is_passed_on(void **state)
{
    pthread_t waiter;
    pthread_t loop_condition;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    waiter = begin(take_once);
    loop_condition = begin(sleep_once);
    await_waiter();
    while (!world.slept) {
        tdm__loop_lock_reacquire(&world.loop_lock, tdm__loop_lock_release_all(&world.loop_lock));
    }
    world.loop_lock.undriven_condition = &world.loop_condition;
    world.goal = true;
    tdm__loop_lock_stop_driving(
        &world.loop_lock); /* rouses the waiter, who declines: its goal is reached */
    tdm__loop_lock_release(&world.loop_lock);
    end(waiter);
    assert_int_equal(world.taken, TDM_E_CANCELED);
    end(loop_condition); /* was told that nobody drives; else it sleeps for ever */
    world.loop_lock.undriven_condition = NULL;
}

static void a_driver_that_stands_by_is_woken_by_who_comes(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    world.loop_lock.driver_yields = true;
    other = begin(take_once);
    await_waiter();
    assert_true(world.wakes_count > 0);
    tdm__loop_lock_stop_driving(&world.loop_lock);
    assert_false(world.loop_lock.driver_yields);
    tdm__loop_lock_release(&world.loop_lock);
    end(other);
    assert_int_equal(world.taken, TDM_OK);
}

static void *drive_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__loop_lock_acquire(&world.loop_lock);
        assert_int_equal(tdm__loop_lock_start_driving(&world.loop_lock, NULL, NULL,
                                                      tdm__deadline_after(WAIT_MS), count_wake,
                                                      NULL),
                         TDM_OK);
        world.count++;
        tdm__loop_lock_reacquire(&world.loop_lock,
                                 tdm__loop_lock_release_all(&world.loop_lock)); /* it polls */
        tdm__loop_lock_stop_driving(&world.loop_lock);
        tdm__loop_lock_release(&world.loop_lock);
    }
    return NULL;
}

static void every_thread_gets_the_lock(void **state)
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
    assert_int_equal(world.loop_lock.driver_starts_count, THREADS * ROUNDS);
}

static void a_forked_child_finds_the_lock_free(void **state)
{
    (void)state;
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    tdm__loop_lock_stop_driving(&world.loop_lock);
    tdm__loop_lock_release(&world.loop_lock);
    /* As in the child: whoever held it is not there. */
    tdm__loop_lock_acquire(&world.loop_lock);
    tdm__loop_lock_release(&world.loop_lock);
    tdm__loop_lock_after_fork(&world.loop_lock);
    assert_false(tdm__loop_lock_is_held(&world.loop_lock));
    tdm__loop_lock_acquire(&world.loop_lock);
    assert_int_equal(take(TDM__NEVER), TDM_OK);
    tdm__loop_lock_stop_driving(&world.loop_lock);
    tdm__loop_lock_release(&world.loop_lock);
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
        FRAMED(waiting_to_drive_ends_at_the_deadline),
        FRAMED(driving_that_is_declined_is_passed_on),
        FRAMED(a_driver_that_stands_by_is_woken_by_who_comes),
        FRAMED(every_thread_gets_the_lock),
        FRAMED(a_forked_child_finds_the_lock_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
