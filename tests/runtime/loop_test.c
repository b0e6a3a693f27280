/* loop_test.c - watches, timers, posts and runs inside runs. */
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

struct world {
    struct tdm__loop *loop;
    int fds[2]; /* a socket pair; [0] is watched */
    struct tdm__fd_watch *watch;
    struct tdm__timer *timer;
    int calls;
    int goal;
    unsigned ready;
    int64_t fired_ms;
};

static int set_up(void **state)
{
    static struct world world;

    world = (struct world){.goal = 1};
    assert_int_equal(tdm__loop_create(&world.loop), TDM_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, world.fds), 0);
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    tdm__fd_watch_destroy(world->watch);
    tdm__timer_destroy(world->timer);
    tdm__loop_destroy(world->loop);
    (void)close(world->fds[0]);
    (void)close(world->fds[1]);
    return 0;
}

static bool goal_reached(void *arg)
{
    const struct world *world = arg;

    return world->calls >= world->goal;
}

static void run_to_goal(struct world *world)
{
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__deadline_after(WAIT_MS)),
                     TDM_OK);
}

static void send_byte(struct world *world)
{
    assert_int_equal(write(world->fds[1], "x", 1), 1);
}

static void read_byte(void *arg, int fd, unsigned ready)
{
    struct world *world = arg;
    char byte;

    world->ready = ready;
    world->calls++;
    if ((ready & TDM__READABLE) != 0) {
        (void)!read(fd, &byte, 1);
    }
}

static void a_watch_tells_what_is_ready(void **state)
{
    struct world *world = *state;

    assert_int_equal(tdm__fd_watch_create(world->loop, world->fds[0], TDM__READABLE, read_byte,
                                          world, &world->watch),
                     TDM_OK);
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__clock_ms()),
                     TDM_E_TIMEOUT);
    send_byte(world);
    run_to_goal(world);
    assert_int_equal(world->ready, TDM__READABLE);

    world->goal++;
    assert_int_equal(tdm__fd_watch_set_events(world->watch, TDM__READABLE | TDM__WRITABLE), TDM_OK);
    run_to_goal(world);
    assert_int_equal(world->ready, TDM__WRITABLE);
}

static void a_watch_is_level_triggered(void **state)
{
    struct world *world = *state;

    world->goal = 3;
    for (int i = 0; i < world->goal; i++) {
        send_byte(world);
    }
    assert_int_equal(tdm__fd_watch_create(world->loop, world->fds[0], TDM__READABLE, read_byte,
                                          world, &world->watch),
                     TDM_OK);
    run_to_goal(world); /* one byte a call */
}

static void a_watch_that_wants_nothing_is_silent(void **state)
{
    struct world *world = *state;

    assert_int_equal(tdm__fd_watch_create(world->loop, world->fds[0], TDM__READABLE, read_byte,
                                          world, &world->watch),
                     TDM_OK);
    send_byte(world);
    assert_int_equal(tdm__fd_watch_set_events(world->watch, 0), TDM_OK);
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__clock_ms()),
                     TDM_E_TIMEOUT);
    assert_int_equal(tdm__fd_watch_set_events(world->watch, TDM__READABLE), TDM_OK);
    run_to_goal(world);
}

static void a_hang_up_shows_as_readable(void **state)
{
    struct world *world = *state;

    assert_int_equal(tdm__fd_watch_create(world->loop, world->fds[0], TDM__READABLE, read_byte,
                                          world, &world->watch),
                     TDM_OK);
    assert_int_equal(shutdown(world->fds[1], SHUT_RDWR), 0);
    run_to_goal(world);
    assert_int_equal(world->ready & TDM__READABLE, TDM__READABLE);
}

static void again_calls_once_more_without_an_event(void **state)
{
    struct world *world = *state;

    assert_int_equal(
        tdm__fd_watch_create(world->loop, world->fds[0], 0, read_byte, world, &world->watch),
        TDM_OK);
    tdm__fd_watch_call_again(world->watch);
    tdm__fd_watch_call_again(world->watch);
    assert_int_equal(world->calls, 0);
    run_to_goal(world);
    assert_int_equal(world->ready, 0);
    world->goal = 2;
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__clock_ms()),
                     TDM_E_TIMEOUT);
}

static void note_time(void *arg)
{
    struct world *world = arg;

    world->calls++;
    world->fired_ms = tdm__clock_ms();
}

static void a_timer_fires_once_and_never_early(void **state)
{
    struct world *world = *state;
    int64_t deadline_ms = tdm__deadline_after(20);

    assert_int_equal(tdm__timer_create(world->loop, note_time, world, &world->timer), TDM_OK);
    assert_int_equal(tdm__timer_set(world->timer, deadline_ms), TDM_OK);
    run_to_goal(world);
    assert_true(world->fired_ms >= deadline_ms);
    world->goal = 2;
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__deadline_after(30)),
                     TDM_E_TIMEOUT);
}

static void a_timer_set_again_forgets_the_old_time(void **state)
{
    struct world *world = *state;
    int64_t deadline_ms = tdm__deadline_after(30);

    assert_int_equal(tdm__timer_create(world->loop, note_time, world, &world->timer), TDM_OK);
    assert_int_equal(tdm__timer_set(world->timer, tdm__clock_ms()), TDM_OK);
    assert_int_equal(tdm__timer_set(world->timer, deadline_ms), TDM_OK);
    run_to_goal(world);
    assert_true(world->fired_ms >= deadline_ms);

    assert_int_equal(tdm__timer_set(world->timer, tdm__clock_ms()), TDM_OK);
    tdm__timer_clear(world->timer);
    world->goal = 2;
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__deadline_after(10)),
                     TDM_E_TIMEOUT);
}

static void the_deadline_ends_a_run_and_not_before(void **state)
{
    struct world *world = *state;
    int64_t deadline_ms = tdm__deadline_after(25);

    assert_int_equal(tdm__loop_run(world->loop, NULL, NULL, deadline_ms), TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() >= deadline_ms);
}

/* Runs the loop inside its callback until the timer has fired. */
static void run_inside(void *arg, int fd, unsigned ready)
{
    struct world *world = arg;
    char byte;

    (void)ready;
    (void)!read(fd, &byte, 1);
    assert_int_equal(tdm__timer_set(world->timer, tdm__clock_ms()), TDM_OK);
    run_to_goal(world);
    world->calls += 10;
}

static void a_callback_may_run_the_loop(void **state)
{
    struct world *world = *state;

    assert_int_equal(tdm__timer_create(world->loop, note_time, world, &world->timer), TDM_OK);
    assert_int_equal(tdm__fd_watch_create(world->loop, world->fds[0], TDM__READABLE, run_inside,
                                          world, &world->watch),
                     TDM_OK);
    send_byte(world);
    run_to_goal(world);
    assert_int_equal(world->calls, 11);
}

static void destroy_both(void *arg, int fd, unsigned ready)
{
    struct world *world = arg;

    (void)fd;
    (void)ready;
    world->calls++;
    tdm__fd_watch_destroy(world->watch);
    world->watch = NULL;
    tdm__timer_destroy(world->timer);
    world->timer = NULL;
}

static void a_callback_may_destroy_itself_and_what_is_ready(void **state)
{
    struct world *world = *state;

    assert_int_equal(tdm__fd_watch_create(world->loop, world->fds[0], TDM__READABLE, destroy_both,
                                          world, &world->watch),
                     TDM_OK);
    assert_int_equal(tdm__timer_create(world->loop, note_time, world, &world->timer), TDM_OK);
    send_byte(world);
    tdm__fd_watch_call_again(world->watch);
    assert_int_equal(tdm__timer_set(world->timer, tdm__clock_ms()), TDM_OK);
    run_to_goal(world);
    assert_int_equal(world->fired_ms, 0);
    world->goal = 2;
    assert_int_equal(tdm__loop_run(world->loop, goal_reached, world, tdm__deadline_after(10)),
                     TDM_E_TIMEOUT);
}

enum { POSTS_PER_THREAD = 1000 };

static void count_post(void *arg)
{
    ((struct world *)arg)->calls++;
}

static void *post_many(void *arg)
{
    struct world *world = arg;

    for (int i = 0; i < POSTS_PER_THREAD; i++) {
        if (tdm__loop_post(world->loop, count_post, world) != TDM_OK) {
            return arg;
        }
    }
    return NULL;
}

static void every_post_of_every_thread_runs_once(void **state)
{
    struct world *world = *state;
    pthread_t threads[3];
    void *failed = NULL;

    world->goal = 3 * POSTS_PER_THREAD;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, world), 0);
    }
    run_to_goal(world);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(world->calls, world->goal);
}

static void post_and_run_inside(void *arg)
{
    struct world *world = arg;

    world->goal = 1;
    run_to_goal(world); /* the post that came after this one */
    world->goal = 2;
    world->calls++;
}

static void a_post_that_waits_does_not_hold_up_the_next(void **state)
{
    struct world *world = *state;

    world->goal = 2;
    assert_int_equal(tdm__loop_post(world->loop, post_and_run_inside, world), TDM_OK);
    assert_int_equal(tdm__loop_post(world->loop, count_post, world), TDM_OK);
    assert_int_equal(world->calls, 0);
    run_to_goal(world);
}

static void a_post_that_never_ran_is_freed(void **state)
{
    struct world *world = *state;

    assert_int_equal(tdm__loop_post(world->loop, count_post, world), TDM_OK);
}

#define LOOP_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* ---- several threads -------------------------------------------------------------------- */

enum { THREADS = 4, RUNS = 300 };

struct crowd {
    struct tdm__loop *loop;
    int64_t fired_count; /* guarded by the loop's lock */
};

static void fire(void *arg)
{
    *(bool *)arg = true;
}

static bool has_fired(void *arg)
{
    return *(const bool *)arg;
}

/* Each waits for timers of its own, whoever drives. */
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

static void threads_wait_for_what_is_theirs(void **state)
{
    struct world *world = *state;
    struct crowd crowd = {.loop = world->loop};
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

static void await_driver(struct world *world)
{
    bool driven = false;

    while (!driven) {
        TDM__LOOP_ENTER(world->loop);

        driven = tdm__loop_lock_of(world->loop)->driver != NULL;
    }
}

static void count_call(void *arg)
{
    struct world *world = arg;

    world->calls++;
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

/* The driver may have them in its hands at that moment. */
static void what_another_thread_destroys_is_never_called_again(void **state)
{
    struct world *world = *state;
    pthread_t driver;

    assert_int_equal(pthread_create(&driver, NULL, drive_to_goal, world), 0);
    await_driver(world);
    for (int i = 0; i < RUNS; i++) {
        struct tdm__fd_watch *watch = NULL;
        struct tdm__timer *timer = NULL;
        int fds[2];
        TDM__LOOP_ENTER(world->loop);

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        assert_int_equal(
            tdm__fd_watch_create(world->loop, fds[0], TDM__READABLE, leave_unread, NULL, &watch),
            TDM_OK);
        assert_int_equal(tdm__timer_create(world->loop, never, NULL, &timer), TDM_OK);
        assert_int_equal(tdm__timer_set(timer, tdm__deadline_after(1000000)), TDM_OK);
        assert_int_equal(write(fds[1], "x", 1), 1);
        if (i % 2 == 0) { /* the driver sees that there is something to read */
            tdm__loop_reenter(world->loop, tdm__loop_leave_all(world->loop));
        }
        tdm__fd_watch_destroy(watch);
        tdm__timer_destroy(timer);
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
    assert_int_equal(tdm__loop_post(world->loop, count_call, world), TDM_OK);
    assert_int_equal(pthread_join(driver, NULL), 0);
}

static void a_goal_that_another_thread_reaches_ends_the_run(void **state)
{
    struct world *world = *state;
    pthread_t driver;

    assert_int_equal(pthread_create(&driver, NULL, drive_to_goal, world), 0);
    await_driver(world);
    {
        TDM__LOOP_ENTER(world->loop);
        world->calls = world->goal;
        tdm__loop_wake(world->loop);
    }
    assert_int_equal(pthread_join(driver, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(a_watch_tells_what_is_ready),
        LOOP_TEST(a_watch_is_level_triggered),
        LOOP_TEST(a_watch_that_wants_nothing_is_silent),
        LOOP_TEST(a_hang_up_shows_as_readable),
        LOOP_TEST(again_calls_once_more_without_an_event),
        LOOP_TEST(a_timer_fires_once_and_never_early),
        LOOP_TEST(a_timer_set_again_forgets_the_old_time),
        LOOP_TEST(the_deadline_ends_a_run_and_not_before),
        LOOP_TEST(a_callback_may_run_the_loop),
        LOOP_TEST(a_callback_may_destroy_itself_and_what_is_ready),
        LOOP_TEST(every_post_of_every_thread_runs_once),
        LOOP_TEST(a_post_that_waits_does_not_hold_up_the_next),
        LOOP_TEST(a_post_that_never_ran_is_freed),
        cmocka_unit_test_setup_teardown(threads_wait_for_what_is_theirs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_another_thread_destroys_is_never_called_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_goal_that_another_thread_reaches_ends_the_run, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
