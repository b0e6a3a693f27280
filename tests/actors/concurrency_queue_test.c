/* concurrency_queue_test.c - waiting calls, the threads that run them, and how many run at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/concurrency_queue.h"

#include "runtime/clock.h"
#include "runtime/loop/loop.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WAIT_MS = 10000, CALLS = 500, LIMIT = 4 };

static struct tdm__loop *loop;
static struct tdm__concurrency_queue call_queue;
static tdm_call calls[CALLS];
/* Guarded by the loop's lock. */
static int order[CALLS];
static int run_count;
static int inside;
static int inside_max;
static bool stay; /* Keeps methods inside run() while true. */

static void run(tdm_call *call)
{
    order[run_count++] = (int)(call - calls);
    inside++;
    inside_max = inside > inside_max ? inside : inside_max;
    while (stay) {
        uint32_t depth = tdm__loop_leave_all(loop);

        (void)sched_yield();
        tdm__loop_reenter(loop, depth);
    }
    inside--;
    tdm__concurrency_queue_call_ended(&call_queue);
}

static void open_call_queue(uint32_t limit, bool has_threads)
{
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    memset(calls, 0, sizeof(calls));
    run_count = 0;
    inside = 0;
    inside_max = 0;
    stay = false;
    tdm__concurrency_queue_init(&call_queue, loop, "test", limit, has_threads, run);
}

static void close_call_queue(void)
{
    tdm__loop_enter(loop);
    tdm__concurrency_queue_stop(&call_queue);
    tdm__loop_leave(loop);
    tdm__loop_destroy(loop);
}

static void push(int count)
{
    for (int i = 0; i < count; i++) {
        TDM__LOOP_ENTER(loop);
        tdm__concurrency_queue_push(&call_queue, &calls[i]);
    }
}

static void await(const int *value, int goal)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    bool reached = false;

    while (!reached) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)sched_yield();
        {
            TDM__LOOP_ENTER(loop);
            reached = *value >= goal;
        }
    }
}

static void without_threads_calls_run_in_order_where_work_is_done(void **state)
{
    (void)state;
    open_call_queue(1, false);
    tdm__concurrency_queue_open(&call_queue);
    push(CALLS);
    {
        TDM__LOOP_ENTER(loop);
        tdm__concurrency_queue_remove(&call_queue, &calls[1]);
        assert_int_equal(calls[1].state, TDM__CALL_RETURNED);
        while (tdm__concurrency_queue_has_work(&call_queue)) {
            tdm__concurrency_queue_run_one(&call_queue);
        }
        assert_true(tdm__concurrency_queue_is_empty(&call_queue));
    }
    assert_int_equal(run_count, CALLS - 1);
    for (int i = 1; i < CALLS - 1; i++) {
        assert_int_equal(order[i], i + 1);
    }
    close_call_queue();
}

static void threads_run_as_many_as_the_limit_says(void **state)
{
    (void)state;
    open_call_queue(LIMIT, true);
    stay = true;
    tdm__concurrency_queue_open(&call_queue);
    push(CALLS);
    await(&inside, LIMIT);
    {
        TDM__LOOP_ENTER(loop);
        assert_int_equal(call_queue.threads_count, LIMIT);
        stay = false;
    }
    await(&run_count, CALLS);
    {
        TDM__LOOP_ENTER(loop);
        assert_int_equal(inside_max, LIMIT);
    }
    close_call_queue();
}

/* A thread is made when none of those there are is free. */
static void threads_are_made_when_they_are_needed(void **state)
{
    (void)state;
    open_call_queue(LIMIT, true);
    tdm__concurrency_queue_open(&call_queue);
    for (int i = 0; i < CALLS; i++) {
        TDM__LOOP_ENTER(loop);
        tdm__concurrency_queue_push(&call_queue, &calls[i]);
        while (run_count <= i || SLIST_EMPTY(&call_queue.idle_threads)) {
            uint32_t depth = tdm__loop_leave_all(loop);

            (void)sched_yield();
            tdm__loop_reenter(loop, depth);
        }
        assert_int_equal(call_queue.threads_count, 1);
    }
    close_call_queue();
}

static void nothing_runs_before_the_lane_is_open(void **state)
{
    (void)state;
    open_call_queue(LIMIT, true);
    push(3);
    assert_int_equal(call_queue.threads_count, 0);
    {
        TDM__LOOP_ENTER(loop);
        tdm__concurrency_queue_open(&call_queue);
    }
    await(&run_count, 3);
    close_call_queue();
}

static void count_post(void *arg)
{
    TDM__LOOP_ENTER(loop);
    (*(int *)arg)++;
}

static void posts_come_first_and_do_not_count_as_calls(void **state)
{
    int posts = 0;

    (void)state;
    open_call_queue(1, false);
    tdm__concurrency_queue_open(&call_queue);
    push(1);
    tdm__loop_enter(loop);
    assert_int_equal(tdm__concurrency_queue_post(&call_queue, count_post, &posts), TDM_OK);
    tdm__concurrency_queue_run_one(&call_queue);
    assert_int_equal(posts, 1);
    assert_int_equal(run_count, 0);
    tdm__concurrency_queue_run_one(&call_queue);
    assert_int_equal(run_count, 1);
    assert_int_equal(tdm__concurrency_queue_post(&call_queue, count_post, &posts), TDM_OK);
    tdm__loop_leave(loop);
    close_call_queue(); /* A post that has not run is dropped. */
    assert_int_equal(posts, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_threads_calls_run_in_order_where_work_is_done),
        cmocka_unit_test(threads_run_as_many_as_the_limit_says),
        cmocka_unit_test(threads_are_made_when_they_are_needed),
        cmocka_unit_test(nothing_runs_before_the_lane_is_open),
        cmocka_unit_test(posts_come_first_and_do_not_count_as_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
