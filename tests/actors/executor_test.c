/* executor_test.c - order of calls, threads, cancellation, and the end of an executor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/executor.h"

#include "runtime/clock.h"
#include "tests/support/executor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- order and threads ------------------------------------------------------------------ */

static void calls_of_a_caller_run_in_its_order(void **state)
{
    static struct pair_reply replies[100];

    (void)state;
    exec_open(&exec_plain, 0);
    for (uint8_t i = 0; i < 100; i++) {
        (void)exec_call(0, "note", i, &replies[i]);
    }
    assert_int_equal(exec_outcome(&replies[99]), TDM_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(executor_log.notes[i], i);
    }
    exec_close();
}

static void unknown_method_error_lists_the_known_ones(void **state)
{
    struct pair_reply reply;

    (void)state;
    exec_open(&exec_grouped, 0);
    (void)exec_call(0, "nota", 1, &reply);
    assert_int_equal(exec_outcome(&reply), TDM_E_NOT_FOUND);
    assert_string_equal(reply.detail,
                        "class grouped has no method \"nota\"; it has: note, gate, watch");
    exec_close();
}

static void groups_run_at_once_and_do_not_wait_for_one_another(void **state)
{
    struct pair_reply replies[4];
    struct pair_reply noted;

    (void)state;
    exec_open(&exec_grouped, 0);
    for (int i = 0; i < 3; i++) {
        (void)exec_call(0, "gate", 0, &replies[i]);
    }
    (void)exec_call(0, "watch", 0, &replies[3]);
    exec_await(&executor_log.inside, 3); /* Two calls of "slow" and one of "other" run. */
    (void)exec_call(0, "note", 5, &noted);
    assert_int_equal(exec_outcome(&noted), TDM_OK);
    /* The third call of "slow" still waits. */
    assert_int_equal(atomic_load(&executor_log.inside), 3);
    atomic_store(&executor_log.open, true);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(exec_outcome(&replies[i]), TDM_OK);
    }
    exec_close();
}

static void max_concurrency_methods_run_at_once(void **state)
{
    struct pair_reply replies[5];

    (void)state;
    exec_open(&exec_plain, 4);
    for (int i = 0; i < 5; i++) {
        (void)exec_call(i % 2, "gate", 0, &replies[i]);
    }
    exec_await(&executor_log.inside, 4);
    assert_int_equal(atomic_load(&executor_log.inside), 4);
    atomic_store(&executor_log.open, true);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(exec_outcome(&replies[i]), TDM_OK);
    }
    exec_close();
}

static void class_with_a_group_it_has_not_is_refused(void **state)
{
    struct tdm_actor_class wrong = exec_plain;
    struct tdm__executor_options options = {.actor_class = &wrong};
    struct tdm__executor *executor;

    (void)state;
    wrong.methods[0].concurrency_group = "none";
    assert_int_equal(tdm__executor_create(&options, &executor), TDM_E_INVAL);
    wrong = exec_grouped;
    wrong.concurrency_groups[1].max_concurrency = 0;
    assert_int_equal(tdm__executor_create(&options, &executor), TDM_E_INVAL);
}

static void full_mailbox_refuses(void **state)
{
    struct tdm__rpc_request request = exec_request("note", 1);
    struct pair_reply gated;
    struct pair_reply refused;

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "gate", 0, &gated);
    exec_await(&executor_log.inside, 1);
    for (int i = 0; i < 300000; i++) {
        TDM__LOOP_ENTER(executor_fixture.loop);
        assert_int_equal(tdm__conn_call(executor_fixture.conns[0], &request, NULL, NULL, NULL),
                         TDM_OK);
    }
    exec_send(0, &request, &refused);
    assert_int_equal(exec_outcome(&refused), TDM_E_AGAIN);
    assert_string_equal(refused.detail, "the mailbox is full: 300000 calls wait");
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&gated), TDM_OK);
    exec_await(&executor_log.notes_count, 300000);
    exec_close();
}

/* ---- deadlines and cancellation --------------------------------------------------------- */

static void call_that_comes_to_its_turn_too_late_never_runs(void **state)
{
    struct tdm__rpc_request request = exec_request("note", 1);
    struct pair_reply gated;
    struct pair_reply late;
    struct pair_reply after;

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "gate", 0, &gated);
    exec_await(&executor_log.inside, 1);
    request.deadline_ms = tdm__deadline_after(5);
    exec_send(0, &request, &late);
    assert_int_equal(exec_outcome(&late), TDM_E_TIMEOUT);
    /* What is left of a deadline counts from the arrival: the actor's is later than ours. */
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    atomic_store(&executor_log.open, true);
    (void)exec_call(0, "note", 2, &after);
    assert_int_equal(exec_outcome(&after), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.notes_count), 1);
    assert_int_equal(executor_log.notes[0], 2);
    exec_close();
}

static void canceled_call_in_line_never_runs(void **state)
{
    struct pair_reply gated;
    struct pair_reply replies[2];
    uint64_t call_id;

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "gate", 0, &gated);
    exec_await(&executor_log.inside, 1);
    call_id = exec_call(0, "note", 1, &replies[0]);
    (void)exec_call(0, "note", 2, &replies[1]);
    exec_cancel(0, call_id);
    assert_int_equal(exec_outcome(&replies[0]), TDM_E_CANCELED);
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.notes_count), 1);
    exec_close();
}

/* Only threads that wait drive the loop. */
static void method_that_runs_sees_that_it_is_canceled(void **state)
{
    struct pair_reply reply;
    uint64_t call_id;

    (void)state;
    exec_open(&exec_plain, 0);
    call_id = exec_call(0, "watch", 0, &reply);
    exec_await(&executor_log.inside, 1);
    assert_int_equal(atomic_load(&executor_log.canceled), 0);
    exec_cancel(0, call_id);
    /* The running method decides about its result. */
    assert_int_equal(exec_outcome(&reply), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.canceled), 1);
    exec_close();
}

static void method_that_runs_is_told_once_that_it_is_canceled(void **state)
{
    struct pair_reply reply;
    uint64_t call_id;

    (void)state;
    exec_open(&exec_plain, 0);
    call_id = exec_call(0, "listen", 0, &reply);
    exec_await(&executor_log.inside, 1);
    assert_int_equal(atomic_load(&executor_log.told), 0);
    exec_cancel(0, call_id);
    exec_await(&executor_log.told, 1);
    exec_cancel(0, call_id);
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&reply), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.told), 1);
    exec_close();
}

static void method_that_runs_sees_that_its_caller_has_gone(void **state)
{
    struct pair_reply reply;

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "watch", 0, &reply);
    exec_await(&executor_log.inside, 1);
    exec_cut(0);
    assert_int_equal(exec_outcome(&reply), TDM_E_CLOSED);
    exec_await(&executor_log.canceled, 1);
    exec_close();
}

/* ---- kept calls ------------------------------------------------------------------------- */

static void kept_calls_are_answered_later_on_any_thread(void **state)
{
    static struct pair_reply replies[KEPT_MAX + 1];
    struct pair_reply noted;

    (void)state;
    exec_open(&exec_asynchronous, 0);
    for (int i = 0; i <= KEPT_MAX; i++) {
        if (i == KEPT_MAX) {
            (void)exec_call(0, "note", 1, &noted);
        } else {
            (void)exec_call(0, "keep", 0, &replies[i]);
        }
    }
    exec_await(&executor_log.kept_count, KEPT_MAX);
    /* A thousand calls are under way, so the next one waits. */
    assert_int_equal(noted.count, 0);
    for (int i = 0; i < KEPT_MAX; i++) {
        if (i % 2 == 0) {
            assert_int_equal(tdm_call_reply(executor_log.kept[i], "i", (int64_t)i), TDM_OK);
        } else {
            tdm_call_fail(executor_log.kept[i], TDM_E_METHOD, "odd");
        }
    }
    for (int i = 0; i < KEPT_MAX; i++) {
        assert_int_equal(exec_outcome(&replies[i]), i % 2 == 0 ? TDM_OK : TDM_E_METHOD);
    }
    assert_int_equal(exec_outcome(&noted), TDM_OK);
    exec_close();
}

/* Callback for the cancellation of a kept call: replies to it. */
static void fail_when_canceled(void *arg, tdm_call *call)
{
    (void)atomic_fetch_add((atomic_int *)arg, 1);
    tdm_call_fail(call, TDM_E_CANCELED, "as asked");
}

static void kept_call_is_told_of_its_cancellation_unless_the_callback_was_removed(void **state)
{
    struct pair_reply replies[3];
    uint64_t call_ids[3];
    atomic_int told = 0;

    (void)state;
    exec_open(&exec_asynchronous, 0);
    for (int i = 0; i < 3; i++) {
        call_ids[i] = exec_call(0, "keep", 0, &replies[i]);
        exec_await(&executor_log.kept_count, i + 1);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_call_on_cancel(executor_log.kept[i], fail_when_canceled, &told),
                         TDM_OK);
    }
    assert_int_equal(tdm_call_on_cancel(executor_log.kept[1], NULL, NULL), TDM_OK);
    for (int i = 0; i < 3; i++) {
        exec_cancel(0, call_ids[i]);
    }
    assert_int_equal(exec_outcome(&replies[0]), TDM_E_CANCELED);
    assert_string_equal(replies[0].detail, "as asked");
    assert_int_equal(tdm_call_reply(executor_log.kept[1], ""), TDM_OK);
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    assert_int_equal(atomic_load(&told), 1);
    /* The third call is canceled already, so its callback runs at once. */
    assert_int_equal(tdm_call_is_canceled(executor_log.kept[2]), 1);
    assert_int_equal(tdm_call_on_cancel(executor_log.kept[2], fail_when_canceled, &told), TDM_OK);
    assert_int_equal(atomic_load(&told), 2);
    assert_int_equal(exec_outcome(&replies[2]), TDM_E_CANCELED);
    exec_close();
}

static void only_asynchronous_methods_keep_calls(void **state)
{
    struct pair_reply reply;

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "keep", 0, &reply);
    assert_int_equal(exec_outcome(&reply), TDM_E_STATE);
    exec_close();
}

static void kept_call_fails_with_its_actor(void **state)
{
    struct pair_reply reply;

    (void)state;
    exec_open(&exec_asynchronous, 0);
    (void)exec_call(0, "keep", 0, &reply);
    exec_await(&executor_log.kept_count, 1);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_request_end(executor_log.executor, false);
    }
    assert_int_equal(exec_outcome(&reply), TDM_E_ACTOR_DIED);
    exec_await_end();
    assert_int_equal(tdm_call_reply(executor_log.kept[0], ""),
                     TDM_E_STATE); /* The cancellation is late and has no effect. */
    exec_close();
}

/* ---- posts and ends --------------------------------------------------------------------- */

static pthread_t posted_on;

static void note_post(void *arg)
{
    posted_on = pthread_self();
    (void)atomic_fetch_add((atomic_int *)arg, 1);
}

static void posts_run_between_methods_on_their_thread(void **state)
{
    static atomic_int posts;
    struct pair_reply gated;

    (void)state;
    atomic_store(&posts, 0);
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "gate", 0, &gated);
    exec_await(&executor_log.inside, 1);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        assert_int_equal(tdm__executor_post(executor_log.executor, note_post, &posts), TDM_OK);
    }
    (void)tdm__loop_run(executor_fixture.loop, NULL, NULL, tdm__deadline_after(3));
    assert_int_equal(atomic_load(&posts), 0);
    atomic_store(&executor_log.open, true);
    exec_await(&posts, 1);
    assert_true(pthread_equal(posted_on, executor_fixture.main_thread));
    exec_close();
}

static void end_at_once_fails_what_waits(void **state)
{
    struct pair_reply replies[3];

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "gate", 0, &replies[0]);
    exec_await(&executor_log.inside, 1);
    (void)exec_call(0, "leave", 0, &replies[1]);
    (void)exec_call(0, "note", 1, &replies[2]);
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&replies[0]), TDM_OK);
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    assert_int_equal(exec_outcome(&replies[2]), TDM_E_ACTOR_DIED);
    exec_await_end();
    assert_int_equal(atomic_load(&executor_log.notes_count), 0);
    (void)exec_call(0, "note", 1, &replies[2]);
    assert_int_equal(exec_outcome(&replies[2]), TDM_E_ACTOR_DIED);
    exec_close();
}

static void end_that_drains(const struct tdm_actor_class *actor_class)
{
    struct pair_reply replies[50];

    exec_open(actor_class, 0);
    (void)exec_call(0, "gate", 0, &replies[0]);
    exec_await(&executor_log.inside, 1);
    for (uint8_t i = 1; i < 50; i++) {
        (void)exec_call(0, "note", i, &replies[i]);
    }
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_request_end(executor_log.executor, true);
    }
    atomic_store(&executor_log.open, true);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(exec_outcome(&replies[i]), TDM_OK);
    }
    exec_await_end();
    assert_int_equal(atomic_load(&executor_log.notes_count), 49);
    exec_close();
}

static void end_that_drains_comes_after_all_calls(void **state)
{
    (void)state;
    end_that_drains(&exec_plain);
    end_that_drains(&exec_grouped);
    end_that_drains(&exec_asynchronous);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_a_caller_run_in_its_order),
        cmocka_unit_test(unknown_method_error_lists_the_known_ones),
        cmocka_unit_test(groups_run_at_once_and_do_not_wait_for_one_another),
        cmocka_unit_test(max_concurrency_methods_run_at_once),
        cmocka_unit_test(class_with_a_group_it_has_not_is_refused),
        cmocka_unit_test(full_mailbox_refuses),
        cmocka_unit_test(call_that_comes_to_its_turn_too_late_never_runs),
        cmocka_unit_test(canceled_call_in_line_never_runs),
        cmocka_unit_test(method_that_runs_sees_that_it_is_canceled),
        cmocka_unit_test(method_that_runs_is_told_once_that_it_is_canceled),
        cmocka_unit_test(method_that_runs_sees_that_its_caller_has_gone),
        cmocka_unit_test(kept_calls_are_answered_later_on_any_thread),
        cmocka_unit_test(kept_call_is_told_of_its_cancellation_unless_the_callback_was_removed),
        cmocka_unit_test(only_asynchronous_methods_keep_calls),
        cmocka_unit_test(kept_call_fails_with_its_actor),
        cmocka_unit_test(posts_run_between_methods_on_their_thread),
        cmocka_unit_test(end_at_once_fails_what_waits),
        cmocka_unit_test(end_that_drains_comes_after_all_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
