/* loop_lock_test.c - the loop lock, and which of several threads drives. */
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

/* What the tests of this file share.  `loop_lock` guards it, except for the atomic member. */
struct fixture {
    struct tdm__loop_lock loop_lock;
    bool goal;
    int64_t count;
    uint32_t wakes_count;
    tdm_status other_status; /* Status with which the other thread started to drive. */
    atomic_bool other_is_here;
    struct tdm__loop_condition loop_condition;
    bool slept;
};

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    fixture = (struct fixture){.other_status = TDM_E_STATE};
    tdm__loop_lock_init(&fixture.loop_lock);
    tdm__loop_condition_init(&fixture.loop_condition);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&fixture.loop_lock.waiting_lockers_count), 0);
    tdm__loop_condition_fini(&fixture.loop_condition);
    tdm__loop_lock_fini(&fixture.loop_lock);
    return 0;
}

static bool goal_reached(void *arg)
{
    (void)arg;
    return fixture.goal;
}

static void count_wake(void *arg)
{
    (void)arg;
    fixture.wakes_count++;
}

static pthread_t thread_start(void *(*fn)(void *arg))
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, fn, NULL), 0);
    return thread;
}

static void thread_join(pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Releases the lock again and again until a thread waits to drive.  The caller holds the lock. */
static void await_waiter(void)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    while (TAILQ_EMPTY(&fixture.loop_lock.waiters)) {
        uint32_t depth = tdm__loop_lock_release_all(&fixture.loop_lock);

        assert_true(tdm__clock_ms() < deadline_ms);
        (void)sched_yield();
        tdm__loop_lock_reacquire(&fixture.loop_lock, depth);
    }
}

static tdm_status start_driving(int64_t deadline_ms)
{
    return tdm__loop_lock_start_driving(&fixture.loop_lock, goal_reached, NULL, deadline_ms,
                                        count_wake, NULL);
}

static void *start_driving_once(void *arg)
{
    (void)arg;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    fixture.other_status = start_driving(tdm__deadline_after(WAIT_MS));
    if (fixture.other_status == TDM_OK) {
        tdm__loop_lock_stop_driving(&fixture.loop_lock);
    }
    tdm__loop_lock_release(&fixture.loop_lock);
    return NULL;
}

static void the_lock_is_recursive(void **state)
{
    uint32_t depth;

    (void)state;
    assert_false(tdm__loop_lock_is_held(&fixture.loop_lock));
    tdm__loop_lock_acquire(&fixture.loop_lock);
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_true(tdm__loop_lock_is_held(&fixture.loop_lock));
    depth = tdm__loop_lock_release_all(&fixture.loop_lock);
    assert_int_equal(depth, 2);
    assert_false(tdm__loop_lock_is_held(&fixture.loop_lock));
    tdm__loop_lock_reacquire(&fixture.loop_lock, depth);
    tdm__loop_lock_release(&fixture.loop_lock);
    assert_true(tdm__loop_lock_is_held(&fixture.loop_lock));
    tdm__loop_lock_release(&fixture.loop_lock);
    assert_false(tdm__loop_lock_is_held(&fixture.loop_lock));
}

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__loop_lock_acquire(&fixture.loop_lock);
        fixture.count++;
        tdm__loop_lock_release(&fixture.loop_lock);
    }
    return NULL;
}

static void the_lock_excludes_other_threads(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        threads[i] = thread_start(count_up);
    }
    for (int i = 0; i < THREADS; i++) {
        thread_join(threads[i]);
    }
    assert_int_equal(fixture.count, THREADS * ROUNDS);
}

static void *lock_once(void *arg)
{
    (void)arg;
    atomic_store(&fixture.other_is_here, true);
    tdm__loop_lock_acquire(&fixture.loop_lock);
    fixture.goal = true;
    tdm__loop_lock_release(&fixture.loop_lock);
    return NULL;
}

/* A thread that holds the lock most of the time and yields it now and then must not starve
 * others. */
static void blocked_thread_gets_a_yielded_lock(void **state)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    other = thread_start(lock_once);
    while (!fixture.goal) {
        assert_true(tdm__clock_ms() < deadline_ms);
        tdm__loop_lock_yield(&fixture.loop_lock);
    }
    tdm__loop_lock_release(&fixture.loop_lock);
    thread_join(other);
}

static void *sleep_once(void *arg)
{
    (void)arg;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    fixture.slept = true;
    while (!fixture.goal) {
        (void)tdm__loop_condition_wait(&fixture.loop_lock, &fixture.loop_condition, TDM__NEVER);
    }
    fixture.slept = false;
    tdm__loop_lock_release(&fixture.loop_lock);
    return NULL;
}

static void signaled_thread_gets_a_yielded_lock(void **state)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    pthread_t other = thread_start(sleep_once);
    bool signaled = false;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    while (!signaled || fixture.slept) {
        assert_true(tdm__clock_ms() < deadline_ms);
        if (fixture.slept && !signaled) {
            signaled = true;
            fixture.goal = true;
            tdm__loop_condition_signal(&fixture.loop_lock, &fixture.loop_condition);
        }
        if (signaled) {
            /* The lock is free only during this call. */
            tdm__loop_lock_yield(&fixture.loop_lock);
        } else {
            tdm__loop_lock_reacquire(&fixture.loop_lock,
                                     tdm__loop_lock_release_all(&fixture.loop_lock));
        }
    }
    tdm__loop_lock_release(&fixture.loop_lock);
    thread_join(other);
}

static void sleep_ends_at_its_deadline(void **state)
{
    int64_t began_ms = tdm__clock_ms();

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(tdm__loop_condition_wait(&fixture.loop_lock, &fixture.loop_condition,
                                              tdm__deadline_after(5)),
                     TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() - began_ms >= 5);
    assert_true(tdm__loop_lock_is_held(&fixture.loop_lock));
    /* Without a waiting thread this does nothing. */
    tdm__loop_condition_signal(&fixture.loop_lock, &fixture.loop_condition);
    tdm__loop_lock_release(&fixture.loop_lock);
}

static void the_next_waiter_drives_when_the_driver_stops(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(start_driving(TDM__NEVER), TDM_OK);
    assert_true(tdm__loop_lock_is_driver(&fixture.loop_lock));
    other = thread_start(start_driving_once);
    await_waiter();
    assert_int_equal(fixture.other_status, TDM_E_STATE); /* The other thread waits. */
    tdm__loop_lock_stop_driving(&fixture.loop_lock);
    tdm__loop_lock_release(&fixture.loop_lock);
    thread_join(other);
    assert_int_equal(fixture.other_status, TDM_OK);
    assert_int_equal(fixture.loop_lock.driver_starts_count, 2);
    assert_int_equal(fixture.loop_lock.driver, 0);
    assert_int_equal(fixture.wakes_count, 0); /* The driver is not the background poller. */
}

static void waiter_whose_condition_holds_does_not_drive(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(start_driving(TDM__NEVER), TDM_OK);
    other = thread_start(start_driving_once);
    await_waiter();
    fixture.goal = true;
    tdm__loop_lock_notify_waiters(&fixture.loop_lock);
    tdm__loop_lock_release(&fixture.loop_lock);
    thread_join(other);
    assert_int_equal(fixture.other_status, TDM_E_CANCELED);
    assert_true(tdm__loop_lock_is_driver(&fixture.loop_lock));
    tdm__loop_lock_stop_driving(&fixture.loop_lock);
}

static void waiting_to_drive_ends_at_the_deadline(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    fixture.loop_lock.driver = 1; /* Another thread drives and never stops. */
    assert_int_equal(start_driving(tdm__deadline_after(5)), TDM_E_TIMEOUT);
    assert_true(TAILQ_EMPTY(&fixture.loop_lock.waiters));
    fixture.loop_lock.driver = 0;
    tdm__loop_lock_release(&fixture.loop_lock);
    other = thread_start(start_driving_once);
    thread_join(other);
    assert_int_equal(fixture.other_status, TDM_OK);
}

/* The driving was offered to a thread that no longer wants it.  The next thread must get it. */
static void driving_that_is_declined_is_passed_on(void **state)
{
    pthread_t waiter;
    pthread_t sleeper;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(start_driving(TDM__NEVER), TDM_OK);
    waiter = thread_start(start_driving_once);
    sleeper = thread_start(sleep_once);
    await_waiter();
    while (!fixture.slept) {
        tdm__loop_lock_reacquire(&fixture.loop_lock,
                                 tdm__loop_lock_release_all(&fixture.loop_lock));
    }
    fixture.loop_lock.undriven_condition = &fixture.loop_condition;
    fixture.goal = true;
    /* This wakes the waiter, which declines because its goal is reached. */
    tdm__loop_lock_stop_driving(&fixture.loop_lock);
    tdm__loop_lock_release(&fixture.loop_lock);
    thread_join(waiter);
    assert_int_equal(fixture.other_status, TDM_E_CANCELED);
    /* The condition was signaled because no thread drives; otherwise this blocks. */
    thread_join(sleeper);
    fixture.loop_lock.undriven_condition = NULL;
}

static void waiter_wakes_a_driver_that_yields(void **state)
{
    pthread_t other;

    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(start_driving(TDM__NEVER), TDM_OK);
    fixture.loop_lock.driver_yields = true;
    other = thread_start(start_driving_once);
    await_waiter();
    assert_true(fixture.wakes_count > 0);
    tdm__loop_lock_stop_driving(&fixture.loop_lock);
    assert_false(fixture.loop_lock.driver_yields);
    tdm__loop_lock_release(&fixture.loop_lock);
    thread_join(other);
    assert_int_equal(fixture.other_status, TDM_OK);
}

static void *drive_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__loop_lock_acquire(&fixture.loop_lock);
        assert_int_equal(tdm__loop_lock_start_driving(&fixture.loop_lock, NULL, NULL,
                                                      tdm__deadline_after(WAIT_MS), count_wake,
                                                      NULL),
                         TDM_OK);
        fixture.count++;
        tdm__loop_lock_reacquire(&fixture.loop_lock,
                                 /* A driver releases the lock while it polls. */
                                 tdm__loop_lock_release_all(&fixture.loop_lock));
        tdm__loop_lock_stop_driving(&fixture.loop_lock);
        tdm__loop_lock_release(&fixture.loop_lock);
    }
    return NULL;
}

static void every_thread_gets_the_lock(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        threads[i] = thread_start(drive_often);
    }
    for (int i = 0; i < THREADS; i++) {
        thread_join(threads[i]);
    }
    assert_int_equal(fixture.count, THREADS * ROUNDS);
    assert_int_equal(fixture.loop_lock.driver_starts_count, THREADS * ROUNDS);
}

static void forked_child_finds_the_lock_free(void **state)
{
    (void)state;
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(start_driving(TDM__NEVER), TDM_OK);
    tdm__loop_lock_stop_driving(&fixture.loop_lock);
    tdm__loop_lock_release(&fixture.loop_lock);
    /* As in the child, the thread that held the lock does not exist. */
    tdm__loop_lock_acquire(&fixture.loop_lock);
    tdm__loop_lock_release(&fixture.loop_lock);
    tdm__loop_lock_after_fork(&fixture.loop_lock);
    assert_false(tdm__loop_lock_is_held(&fixture.loop_lock));
    tdm__loop_lock_acquire(&fixture.loop_lock);
    assert_int_equal(start_driving(TDM__NEVER), TDM_OK);
    tdm__loop_lock_stop_driving(&fixture.loop_lock);
    tdm__loop_lock_release(&fixture.loop_lock);
}

#define FRAMED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRAMED(the_lock_is_recursive),
        FRAMED(the_lock_excludes_other_threads),
        FRAMED(blocked_thread_gets_a_yielded_lock),
        FRAMED(signaled_thread_gets_a_yielded_lock),
        FRAMED(sleep_ends_at_its_deadline),
        FRAMED(the_next_waiter_drives_when_the_driver_stops),
        FRAMED(waiter_whose_condition_holds_does_not_drive),
        FRAMED(waiting_to_drive_ends_at_the_deadline),
        FRAMED(driving_that_is_declined_is_passed_on),
        FRAMED(waiter_wakes_a_driver_that_yields),
        FRAMED(every_thread_gets_the_lock),
        FRAMED(forked_child_finds_the_lock_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
