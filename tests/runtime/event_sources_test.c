/* event_sources_test.c - watches and timers that change while another source is ready. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/loop/loop.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

struct pipe_watch {
    struct tdm__fd_watch *watch;
    int fds[2];
    int calls_count;
    struct pipe_watch *other; /* Watch that is paused when this one is called. */
};

struct timer_count {
    struct tdm__timer *timer;
    int count;
    struct timer_count *other; /* Timer that is cleared when this one fires. */
};

static struct tdm__loop *loop;

static int set_up(void **state)
{
    (void)state;
    return tdm__loop_create(&loop) == TDM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__loop_destroy(loop);
    return 0;
}

static void run_for(int64_t time_ms)
{
    assert_int_equal(tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(time_ms)), TDM_E_TIMEOUT);
}

static void on_readable(void *arg, int fd, unsigned ready)
{
    struct pipe_watch *self = arg;

    (void)fd;
    if ((ready & TDM__READABLE) != 0) {
        self->calls_count++;
        assert_int_equal(tdm__fd_watch_set_events(self->watch, 0), TDM_OK);
        assert_int_equal(tdm__fd_watch_set_events(self->other->watch, 0), TDM_OK);
    }
}

static void open_ready(struct pipe_watch *self, struct pipe_watch *other)
{
    self->calls_count = 0;
    self->other = other;
    assert_int_equal(pipe2(self->fds, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(write(self->fds[1], "x", 1), 1);
    assert_int_equal(
        tdm__fd_watch_create(loop, self->fds[0], TDM__READABLE, on_readable, self, &self->watch),
        TDM_OK);
}

static void close_both(struct pipe_watch *self)
{
    tdm__fd_watch_destroy(self->watch);
    (void)close(self->fds[0]);
    (void)close(self->fds[1]);
}

static void events_that_are_no_longer_wanted_are_not_reported(void **state)
{
    struct pipe_watch first;
    struct pipe_watch second;

    (void)state;
    open_ready(&first, &second);
    open_ready(&second, &first);
    run_for(20);
    /* Both were ready at the same time. */
    assert_int_equal(first.calls_count + second.calls_count, 1);
    close_both(&first);
    close_both(&second);
}

static void on_timer(void *arg)
{
    struct timer_count *self = arg;

    self->count++;
    tdm__timer_clear(self->other->timer);
}

static void timer_cleared_by_another_ready_timer_does_not_fire(void **state)
{
    struct timer_count first = {.count = 0};
    struct timer_count second = {.count = 0, .other = &first};
    int64_t at_ms = tdm__deadline_after(5);

    (void)state;
    first.other = &second;
    assert_int_equal(tdm__timer_create(loop, on_timer, &first, &first.timer), TDM_OK);
    assert_int_equal(tdm__timer_create(loop, on_timer, &second, &second.timer), TDM_OK);
    assert_int_equal(tdm__timer_set(first.timer, at_ms), TDM_OK);
    assert_int_equal(tdm__timer_set(second.timer, at_ms), TDM_OK);
    run_for(40);
    assert_int_equal(first.count + second.count, 1);
    tdm__timer_destroy(first.timer);
    tdm__timer_destroy(second.timer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_that_are_no_longer_wanted_are_not_reported, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(timer_cleared_by_another_ready_timer_does_not_fire, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
