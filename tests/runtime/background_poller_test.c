/* background_poller_test.c - the background poller drives a loop that no other thread drives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/background_poller.h"

#include "runtime/clock.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 10000, ROUNDS = 20, TAKEN_OVER_MS = 50 };

/* What the tests of this file share. */
struct fixture {
    struct tdm__loop *loop;
    struct tdm__background_poller *background_poller;
    atomic_int calls;
    pthread_t caller; /* Thread that ran the last callback; guarded by the loop lock. */
    tdm_status nested;
};

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    fixture = (struct fixture){.nested = TDM_E_STATE};
    assert_int_equal(tdm__loop_create(&fixture.loop), TDM_OK);
    assert_int_equal(tdm__background_poller_start(fixture.loop, &fixture.background_poller),
                     TDM_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__background_poller_stop(fixture.background_poller);
    tdm__loop_destroy(fixture.loop);
    return 0;
}

static void note(void *arg)
{
    (void)arg;
    fixture.caller = pthread_self();
    atomic_fetch_add(&fixture.calls, 1);
}

static bool was_called(void *arg)
{
    (void)arg;
    return atomic_load(&fixture.calls) > 0;
}

/* Waits for the calls without driving the loop, like a method that computes. */
static void await_calls(int count)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    while (atomic_load(&fixture.calls) < count) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)sched_yield();
    }
}

static void the_poller_soon_drives_a_loop_without_a_driver(void **state)
{
    int64_t fastest_ms = WAIT_MS;

    (void)state;
    for (int i = 1; i <= ROUNDS; i++) {
        int64_t began_ms;

        /* Drive the loop for a moment. */
        (void)tdm__loop_run(fixture.loop, NULL, NULL, tdm__clock_ms());
        began_ms = tdm__clock_ms();
        assert_int_equal(tdm__loop_post(fixture.loop, note, NULL), TDM_OK);
        await_calls(i);
        if (tdm__clock_ms() - began_ms < fastest_ms) {
            fastest_ms = tdm__clock_ms() - began_ms;
        }
    }
    assert_true(fastest_ms < TAKEN_OVER_MS);
}

static void thread_that_runs_the_loop_drives_it_itself(void **state)
{
    int own_count = 0;
    struct tdm__timer *timer;

    (void)state;
    assert_int_equal(tdm__loop_post(fixture.loop, note, NULL), TDM_OK);
    await_calls(1); /* The background poller runs now. */
    for (int i = 0; i < ROUNDS; i++) {
        TDM__LOOP_ENTER(fixture.loop);

        atomic_store(&fixture.calls, 0);
        assert_int_equal(tdm__timer_create(fixture.loop, note, NULL, &timer), TDM_OK);
        assert_int_equal(tdm__timer_set(timer, tdm__deadline_after(3)), TDM_OK);
        assert_int_equal(
            tdm__loop_run(fixture.loop, was_called, NULL, tdm__deadline_after(WAIT_MS)), TDM_OK);
        own_count += pthread_equal(fixture.caller, pthread_self()) != 0 ? 1 : 0;
        tdm__timer_destroy(timer);
    }
    assert_true(own_count > 0); /* On a very busy machine the poller may be faster sometimes. */
}

static void *run_until_called(void *arg)
{
    (void)arg;
    (void)tdm__loop_run(fixture.loop, was_called, NULL, tdm__deadline_after(WAIT_MS));
    return NULL;
}

static bool timer_fired(void *arg)
{
    return *(const bool *)arg;
}

static void fire(void *arg)
{
    *(bool *)arg = true;
}

/* A callback that waits for events of its own while another thread wants to drive. */
static void wait_inside(void *arg)
{
    struct tdm__timer *timer;
    bool fired = false;

    (void)arg;
    assert_int_equal(tdm__timer_create(fixture.loop, fire, &fired, &timer), TDM_OK);
    assert_int_equal(tdm__timer_set(timer, tdm__deadline_after(20)), TDM_OK);
    fixture.nested = tdm__loop_run(fixture.loop, timer_fired, &fired, tdm__deadline_after(WAIT_MS));
    tdm__timer_destroy(timer);
    note(NULL);
}

static void nested_run_is_not_interrupted(void **state)
{
    pthread_t other;

    (void)state;
    assert_int_equal(tdm__loop_post(fixture.loop, wait_inside, NULL), TDM_OK);
    assert_int_equal(pthread_create(&other, NULL, run_until_called, NULL), 0);
    await_calls(1);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(fixture.nested, TDM_OK);
}

/* Acquires the lock again and again, like a program that makes calls and never waits for them. */
static void acquiring_the_lock_does_not_delay_the_poller_for_long(void **state)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    (void)state;
    assert_int_equal(tdm__loop_post(fixture.loop, note, NULL), TDM_OK);
    while (atomic_load(&fixture.calls) < 1) {
        assert_true(tdm__clock_ms() < deadline_ms);
        tdm__loop_leave(tdm__loop_enter(fixture.loop));
    }
}

static void the_poller_stops_at_once_in_every_state(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        tdm__background_poller_stop(
            fixture.background_poller); /* The poller has just started, or sleeps, or drives. */
        assert_int_equal(tdm__background_poller_start(fixture.loop, &fixture.background_poller),
                         TDM_OK);
        if (i % 2 == 0) {
            atomic_store(&fixture.calls, 0);
            assert_int_equal(tdm__loop_post(fixture.loop, note, NULL), TDM_OK);
            await_calls(1);
        }
    }
}

static void forked_child_can_acquire_the_lock(void **state)
{
    int wait_status = -1;
    pid_t pid;

    (void)state;
    assert_int_equal(tdm__loop_post(fixture.loop, note, NULL), TDM_OK);
    await_calls(1);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tdm__loop_after_fork(fixture.loop);
        tdm__loop_leave(tdm__loop_enter(fixture.loop));
        _exit(tdm__loop_lock_of(fixture.loop)->driver != 0 ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_poller_soon_drives_a_loop_without_a_driver, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(thread_that_runs_the_loop_drives_it_itself, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nested_run_is_not_interrupted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(acquiring_the_lock_does_not_delay_the_poller_for_long,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_poller_stops_at_once_in_every_state, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forked_child_can_acquire_the_lock, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
