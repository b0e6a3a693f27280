/* loop_test.c - watches, timers, posted calls and nested runs of the loop. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/loop.h"

#include "runtime/clock.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 5000 };

struct fixture {
    struct tdm__loop *loop;
    int fds[2]; /* A socket pair; fds[0] is watched. */
    struct tdm__fd_watch *watch;
    struct tdm__timer *timer;
    int calls;
    int goal;
    unsigned ready;
    int64_t fired_ms;
};

static int set_up(void **state)
{
    static struct fixture fixture;

    fixture = (struct fixture){.goal = 1};
    assert_int_equal(tdm__loop_create(&fixture.loop), TDM_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fixture.fds), 0);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    tdm__fd_watch_destroy(fixture->watch);
    tdm__timer_destroy(fixture->timer);
    tdm__loop_destroy(fixture->loop);
    (void)close(fixture->fds[0]);
    (void)close(fixture->fds[1]);
    return 0;
}

static bool goal_reached(void *arg)
{
    const struct fixture *fixture = arg;

    return fixture->calls >= fixture->goal;
}

static void run_to_goal(struct fixture *fixture)
{
    assert_int_equal(
        tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__deadline_after(WAIT_MS)), TDM_OK);
}

static void send_byte(struct fixture *fixture)
{
    assert_int_equal(write(fixture->fds[1], "x", 1), 1);
}

static void read_byte(void *arg, int fd, unsigned ready)
{
    struct fixture *fixture = arg;
    char byte;

    fixture->ready = ready;
    fixture->calls++;
    if ((ready & TDM__READABLE) != 0) {
        (void)!read(fd, &byte, 1);
    }
}

static void watch_tells_what_is_ready(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], TDM__READABLE, read_byte,
                                          fixture, &fixture->watch),
                     TDM_OK);
    assert_int_equal(tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__clock_ms()),
                     TDM_E_TIMEOUT);
    send_byte(fixture);
    run_to_goal(fixture);
    assert_int_equal(fixture->ready, TDM__READABLE);

    fixture->goal++;
    assert_int_equal(tdm__fd_watch_set_events(fixture->watch, TDM__READABLE | TDM__WRITABLE),
                     TDM_OK);
    run_to_goal(fixture);
    assert_int_equal(fixture->ready, TDM__WRITABLE);
}

static void watch_is_level_triggered(void **state)
{
    struct fixture *fixture = *state;

    fixture->goal = 3;
    for (int i = 0; i < fixture->goal; i++) {
        send_byte(fixture);
    }
    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], TDM__READABLE, read_byte,
                                          fixture, &fixture->watch),
                     TDM_OK);
    run_to_goal(fixture); /* The callback reads one byte per call. */
}

static void watch_that_wants_nothing_is_silent(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], TDM__READABLE, read_byte,
                                          fixture, &fixture->watch),
                     TDM_OK);
    send_byte(fixture);
    assert_int_equal(tdm__fd_watch_set_events(fixture->watch, 0), TDM_OK);
    assert_int_equal(tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__clock_ms()),
                     TDM_E_TIMEOUT);
    assert_int_equal(tdm__fd_watch_set_events(fixture->watch, TDM__READABLE), TDM_OK);
    run_to_goal(fixture);
}

static void hang_up_shows_as_readable(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], TDM__READABLE, read_byte,
                                          fixture, &fixture->watch),
                     TDM_OK);
    assert_int_equal(shutdown(fixture->fds[1], SHUT_RDWR), 0);
    run_to_goal(fixture);
    assert_int_equal(fixture->ready & TDM__READABLE, TDM__READABLE);
}

static void again_calls_once_more_without_an_event(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], 0, read_byte, fixture,
                                          &fixture->watch),
                     TDM_OK);
    tdm__fd_watch_call_again(fixture->watch);
    tdm__fd_watch_call_again(fixture->watch);
    assert_int_equal(fixture->calls, 0);
    run_to_goal(fixture);
    assert_int_equal(fixture->ready, 0);
    fixture->goal = 2;
    assert_int_equal(tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__clock_ms()),
                     TDM_E_TIMEOUT);
}

static void note_time(void *arg)
{
    struct fixture *fixture = arg;

    fixture->calls++;
    fixture->fired_ms = tdm__clock_ms();
}

static void timer_fires_once_and_never_early(void **state)
{
    struct fixture *fixture = *state;
    int64_t deadline_ms = tdm__deadline_after(20);

    assert_int_equal(tdm__timer_create(fixture->loop, note_time, fixture, &fixture->timer), TDM_OK);
    assert_int_equal(tdm__timer_set(fixture->timer, deadline_ms), TDM_OK);
    run_to_goal(fixture);
    assert_true(fixture->fired_ms >= deadline_ms);
    fixture->goal = 2;
    assert_int_equal(tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__deadline_after(30)),
                     TDM_E_TIMEOUT);
}

static void timer_set_again_forgets_the_old_time(void **state)
{
    struct fixture *fixture = *state;
    int64_t deadline_ms = tdm__deadline_after(30);

    assert_int_equal(tdm__timer_create(fixture->loop, note_time, fixture, &fixture->timer), TDM_OK);
    assert_int_equal(tdm__timer_set(fixture->timer, tdm__clock_ms()), TDM_OK);
    assert_int_equal(tdm__timer_set(fixture->timer, deadline_ms), TDM_OK);
    run_to_goal(fixture);
    assert_true(fixture->fired_ms >= deadline_ms);

    assert_int_equal(tdm__timer_set(fixture->timer, tdm__clock_ms()), TDM_OK);
    tdm__timer_clear(fixture->timer);
    fixture->goal = 2;
    assert_int_equal(tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__deadline_after(10)),
                     TDM_E_TIMEOUT);
}

static void the_deadline_ends_a_run_and_not_before(void **state)
{
    struct fixture *fixture = *state;
    int64_t deadline_ms = tdm__deadline_after(25);

    assert_int_equal(tdm__loop_run(fixture->loop, NULL, NULL, deadline_ms), TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() >= deadline_ms);
}

/* Runs the loop inside its callback until the timer has fired. */
static void run_inside(void *arg, int fd, unsigned ready)
{
    struct fixture *fixture = arg;
    char byte;

    (void)ready;
    (void)!read(fd, &byte, 1);
    assert_int_equal(tdm__timer_set(fixture->timer, tdm__clock_ms()), TDM_OK);
    run_to_goal(fixture);
    fixture->calls += 10;
}

static void callback_may_run_the_loop(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__timer_create(fixture->loop, note_time, fixture, &fixture->timer), TDM_OK);
    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], TDM__READABLE, run_inside,
                                          fixture, &fixture->watch),
                     TDM_OK);
    send_byte(fixture);
    run_to_goal(fixture);
    assert_int_equal(fixture->calls, 11);
}

static void destroy_both(void *arg, int fd, unsigned ready)
{
    struct fixture *fixture = arg;

    (void)fd;
    (void)ready;
    fixture->calls++;
    tdm__fd_watch_destroy(fixture->watch);
    fixture->watch = NULL;
    tdm__timer_destroy(fixture->timer);
    fixture->timer = NULL;
}

static void callback_may_destroy_itself_and_what_is_ready(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__fd_watch_create(fixture->loop, fixture->fds[0], TDM__READABLE,
                                          destroy_both, fixture, &fixture->watch),
                     TDM_OK);
    assert_int_equal(tdm__timer_create(fixture->loop, note_time, fixture, &fixture->timer), TDM_OK);
    send_byte(fixture);
    tdm__fd_watch_call_again(fixture->watch);
    assert_int_equal(tdm__timer_set(fixture->timer, tdm__clock_ms()), TDM_OK);
    run_to_goal(fixture);
    assert_int_equal(fixture->fired_ms, 0);
    fixture->goal = 2;
    assert_int_equal(tdm__loop_run(fixture->loop, goal_reached, fixture, tdm__deadline_after(10)),
                     TDM_E_TIMEOUT);
}

enum { POSTS_PER_THREAD = 1000 };

static void count_post(void *arg)
{
    ((struct fixture *)arg)->calls++;
}

static void *post_many(void *arg)
{
    struct fixture *fixture = arg;

    for (int i = 0; i < POSTS_PER_THREAD; i++) {
        if (tdm__loop_post(fixture->loop, count_post, fixture) != TDM_OK) {
            return arg;
        }
    }
    return NULL;
}

static void every_post_of_every_thread_runs_once(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[3];
    void *failed = NULL;

    fixture->goal = 3 * POSTS_PER_THREAD;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, fixture), 0);
    }
    run_to_goal(fixture);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(fixture->calls, fixture->goal);
}

static void post_and_run_inside(void *arg)
{
    struct fixture *fixture = arg;

    fixture->goal = 1;
    run_to_goal(fixture); /* Runs the call that was posted after this one. */
    fixture->goal = 2;
    fixture->calls++;
}

static void post_that_waits_does_not_hold_up_the_next(void **state)
{
    struct fixture *fixture = *state;

    fixture->goal = 2;
    assert_int_equal(tdm__loop_post(fixture->loop, post_and_run_inside, fixture), TDM_OK);
    assert_int_equal(tdm__loop_post(fixture->loop, count_post, fixture), TDM_OK);
    assert_int_equal(fixture->calls, 0);
    run_to_goal(fixture);
}

static void post_that_never_ran_is_freed(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__loop_post(fixture->loop, count_post, fixture), TDM_OK);
}

#define LOOP_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* ---- several threads -------------------------------------------------------------------- */

enum { THREADS = 4, RUNS = 300 };

struct crowd {
    struct tdm__loop *loop;
    int64_t fired_count; /* Guarded by the loop lock. */
};

static void fire(void *arg)
{
    *(bool *)arg = true;
}

static bool has_fired(void *arg)
{
    return *(const bool *)arg;
}

/* Each thread waits for timers of its own, whichever thread drives. */
static void *wait_for_timers(void *arg)
{
    struct crowd *crowd = arg;
    TDM__LOOP_ENTER(crowd->loop);

    for (int i = 0; i < RUNS; i++) {
        struct tdm__timer *timer = NULL;
        bool fired = false;

        assert_int_equal(tdm__timer_create(crowd->loop, fire, &fired, &timer), TDM_OK);
        assert_int_equal(tdm__timer_set(timer, tdm__clock_ms() + i % 2), TDM_OK);
        assert_int_equal(
            tdm__loop_run(crowd->loop, has_fired, &fired, tdm__deadline_after(WAIT_MS)), TDM_OK);
        tdm__timer_destroy(timer);
        crowd->fired_count++;
    }
    return NULL;
}

static void each_thread_waits_for_its_own_events(void **state)
{
    struct fixture *fixture = *state;
    struct crowd crowd = {.loop = fixture->loop};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_timers, &crowd), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(crowd.fired_count, THREADS * RUNS);
}

static void *drive_to_goal(void *arg)
{
    run_to_goal(arg);
    return NULL;
}

static void await_driver(struct fixture *fixture)
{
    bool driven = false;

    while (!driven) {
        TDM__LOOP_ENTER(fixture->loop);

        driven = tdm__loop_lock_of(fixture->loop)->driver != 0;
    }
}

static void count_call(void *arg)
{
    struct fixture *fixture = arg;

    fixture->calls++;
}

static void never(void *arg)
{
    (void)arg;
    fail_msg("a timer that was destroyed has fired");
}

static void leave_unread(void *arg, int fd, unsigned ready)
{
    (void)arg;
    (void)fd;
    (void)ready;
}

/* The driver may be using the sources at that moment. */
static void sources_destroyed_by_another_thread_are_not_called(void **state)
{
    struct fixture *fixture = *state;
    pthread_t driver;

    assert_int_equal(pthread_create(&driver, NULL, drive_to_goal, fixture), 0);
    await_driver(fixture);
    for (int i = 0; i < RUNS; i++) {
        struct tdm__fd_watch *watch = NULL;
        struct tdm__timer *timer = NULL;
        int fds[2];
        TDM__LOOP_ENTER(fixture->loop);

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        assert_int_equal(
            tdm__fd_watch_create(fixture->loop, fds[0], TDM__READABLE, leave_unread, NULL, &watch),
            TDM_OK);
        assert_int_equal(tdm__timer_create(fixture->loop, never, NULL, &timer), TDM_OK);
        assert_int_equal(tdm__timer_set(timer, tdm__deadline_after(1000000)), TDM_OK);
        assert_int_equal(write(fds[1], "x", 1), 1);
        if (i % 2 == 0) { /* Give the driver the chance to see the event. */
            tdm__loop_reenter(fixture->loop, tdm__loop_leave_all(fixture->loop));
        }
        tdm__fd_watch_destroy(watch);
        tdm__timer_destroy(timer);
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
    assert_int_equal(tdm__loop_post(fixture->loop, count_call, fixture), TDM_OK);
    assert_int_equal(pthread_join(driver, NULL), 0);
}

static void condition_that_another_thread_fulfils_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    pthread_t driver;

    assert_int_equal(pthread_create(&driver, NULL, drive_to_goal, fixture), 0);
    await_driver(fixture);
    {
        TDM__LOOP_ENTER(fixture->loop);
        fixture->calls = fixture->goal;
        tdm__loop_wake(fixture->loop);
    }
    assert_int_equal(pthread_join(driver, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(watch_tells_what_is_ready),
        LOOP_TEST(watch_is_level_triggered),
        LOOP_TEST(watch_that_wants_nothing_is_silent),
        LOOP_TEST(hang_up_shows_as_readable),
        LOOP_TEST(again_calls_once_more_without_an_event),
        LOOP_TEST(timer_fires_once_and_never_early),
        LOOP_TEST(timer_set_again_forgets_the_old_time),
        LOOP_TEST(the_deadline_ends_a_run_and_not_before),
        LOOP_TEST(callback_may_run_the_loop),
        LOOP_TEST(callback_may_destroy_itself_and_what_is_ready),
        LOOP_TEST(every_post_of_every_thread_runs_once),
        LOOP_TEST(post_that_waits_does_not_hold_up_the_next),
        LOOP_TEST(post_that_never_ran_is_freed),
        cmocka_unit_test_setup_teardown(each_thread_waits_for_its_own_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sources_destroyed_by_another_thread_are_not_called, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(condition_that_another_thread_fulfils_ends_the_run, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
