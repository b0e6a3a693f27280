/* executor_once_test.c - repeated calls, streams, and holding calls and replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/executor_fixture.h"

#include "actors/server/call.h"
#include "runtime/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- at most once ----------------------------------------------------------------------- */

static void resend(struct tdm__rpc_request *request, uint64_t sequence, uint64_t acknowledged,
                   struct pair_reply *answer)
{
    request->sequence = sequence;
    request->acknowledged = acknowledged;
    exec_send(0, request, answer);
}

static void call_that_ran_is_answered_again_and_not_run(void **state)
{
    struct tdm__rpc_request request = exec_request("note", 7);
    struct pair_reply first;
    struct pair_reply again;

    (void)state;
    exec_open(&exec_plain, 0);
    resend(&request, 1, 0, &first);
    assert_int_equal(exec_outcome(&first), TDM_OK);
    exec_cut(0);
    exec_connect(0);
    resend(&request, 1, 0, &again);
    assert_int_equal(exec_outcome(&again), TDM_OK);
    assert_int_equal(again.hash, first.hash);
    assert_int_equal(atomic_load(&executor_log.notes_count), 1);
    resend(&request, 2, 1, &again);
    assert_int_equal(exec_outcome(&again), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.notes_count), 2);
    /* The reply was acknowledged, so a correct caller does not repeat the call. */
    resend(&request, 1, 0, &again);
    assert_int_equal(exec_outcome(&again), TDM_E_PROTOCOL);
    assert_int_equal(atomic_load(&executor_log.notes_count), 2);
    exec_close();
}

static void failure_is_kept_like_any_answer(void **state)
{
    struct tdm__rpc_request request = exec_request("note", 7);
    struct pair_reply answer;

    (void)state;
    exec_open(&exec_plain, 0);
    request.packed = pair_text("no number");
    resend(&request, 1, 0, &answer);
    assert_int_equal(exec_outcome(&answer), TDM_E_TYPE);
    request.packed = exec_number(1);
    resend(&request, 1, 0, &answer);
    assert_int_equal(exec_outcome(&answer), TDM_E_TYPE);
    assert_non_null(strstr(answer.detail, "wanted an integer"));
    exec_close();
}

static void call_that_runs_is_answered_where_it_came_last(void **state)
{
    struct tdm__rpc_request request = exec_request("gate", 0);
    struct pair_reply first;
    struct pair_reply again;

    (void)state;
    exec_open(&exec_plain, 0);
    resend(&request, 1, 0, &first);
    exec_await(&executor_log.inside, 1);
    exec_cut(0);
    assert_int_equal(exec_outcome(&first), TDM_E_CLOSED);
    exec_connect(0);
    resend(&request, 1, 0, &again);
    request.method = "note";
    resend(&request, 2, 0, &first);
    (void)tdm__loop_run(executor_fixture.loop, NULL, NULL, tdm__deadline_after(5));
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&again), TDM_OK);
    assert_int_equal(exec_outcome(&first), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.inside), 0);
    exec_close();
}

/* The caller has left a cut connection, on which a copy of the call still waits to be read, and has
 * sent the call again. */
static void copy_from_an_older_connection_does_not_take_the_call_over(void **state)
{
    struct tdm__rpc_request request = exec_request("gate", 0);
    struct tdm__conn *older;
    struct tdm__conn *newer;
    struct pair_reply late;
    struct pair_reply again;

    (void)state;
    exec_open(&exec_plain, 0);
    older = executor_fixture.conns[0];
    exec_connect(0);
    newer = executor_fixture.conns[0];
    resend(&request, 1, 0, &again);
    exec_await(&executor_log.inside, 1);
    executor_fixture.conns[0] = older;
    resend(&request, 1, 0, &late);
    assert_int_equal(exec_outcome(&late), TDM_E_CLOSED);
    executor_fixture.conns[0] = newer;
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&again), TDM_OK);
    exec_close();
}

static atomic_bool name_stayed;

static tdm_status named(tdm_call *call, void *self)
{
    const char *name = tdm_call_method(call);

    (void)self;
    (void)atomic_fetch_add(&executor_log.inside, 1);
    while (!atomic_load(&executor_log.open)) {
        (void)poll(NULL, 0, 1);
    }
    atomic_store(&name_stayed, tdm_call_method(call) == name && strcmp(name, "whatever") == 0);
    return TDM_OK;
}

static void repeated_call_does_not_move_the_name_of_the_running_one(void **state)
{
    static const struct tdm_actor_class any = {.name = "any", .methods = {{"*", named}}};
    struct tdm__rpc_request request = exec_request("whatever", 0);
    struct pair_reply first;
    struct pair_reply again;

    (void)state;
    exec_open(&any, 0);
    resend(&request, 1, 0, &first);
    exec_await(&executor_log.inside, 1);
    resend(&request, 1, 0, &again);
    /* The repeated call replaces the first one. */
    assert_int_equal(exec_outcome(&first), TDM_E_CLOSED);
    atomic_store(&executor_log.open, true);
    assert_int_equal(exec_outcome(&again), TDM_OK);
    assert_true(atomic_load(&name_stayed));
    exec_close();
}

static void callers_have_sequences_of_their_own(void **state)
{
    struct tdm__rpc_request request = exec_request("note", 7);
    struct pair_reply replies[CALLERS];

    (void)state;
    exec_open(&exec_plain, 0);
    request.sequence = 1;
    for (int i = 0; i < CALLERS; i++) {
        exec_send(i, &request, &replies[i]);
        assert_int_equal(exec_outcome(&replies[i]), TDM_OK);
    }
    assert_int_equal(atomic_load(&executor_log.notes_count), CALLERS);
    exec_close();
}

/* ---- streams ---------------------------------------------------------------------------- */

static atomic_int items_count;
static struct pair_reply streamed;

static void on_item(void *arg, uint64_t index, struct tdm__rpc_reply *item)
{
    (void)arg;
    (void)item;
    atomic_store(&items_count, (int)index);
}

static uint64_t begin_stream(uint8_t items)
{
    struct tdm__rpc_request request = exec_request("count", items);

    atomic_store(&items_count, 0);
    request.on_item = on_item;
    return exec_send(0, &request, &streamed);
}

static void stream_is_no_more_than_some_items_ahead(void **state)
{
    uint64_t call_id;

    (void)state;
    exec_open(&exec_plain, 0);
    call_id = begin_stream(50);
    for (int taken = 0; taken < 50; taken++) {
        int ahead = taken + TDM_STREAM_ITEMS_AHEAD < 50 ? taken + TDM_STREAM_ITEMS_AHEAD : 50;

        exec_await(&items_count, ahead);
        (void)tdm__loop_run(executor_fixture.loop, NULL, NULL, tdm__clock_ms());
        assert_int_equal(atomic_load(&items_count), ahead);
        assert_true(atomic_load(&executor_log.yielded) <= ahead);
        if (taken < 49) {
            TDM__LOOP_ENTER(executor_fixture.loop);
            tdm__conn_send_credit(executor_fixture.conns[0], call_id, (uint64_t)taken + 1);
        }
    }
    assert_int_equal(exec_outcome(&streamed), TDM_OK);
    exec_close();
}

static void unread_stream_ends(void **state)
{
    uint64_t call_id;

    (void)state;
    exec_open(&exec_plain, 0);
    call_id = begin_stream(50);
    exec_await(&items_count, TDM_STREAM_ITEMS_AHEAD);
    exec_cancel(0, call_id);
    assert_int_equal(exec_outcome(&streamed), TDM_E_CANCELED);
    (void)begin_stream(50);
    exec_await(&items_count, TDM_STREAM_ITEMS_AHEAD);
    exec_cut(0);
    exec_await(&executor_log.streams_ended, 2);
    assert_int_equal(atomic_load(&executor_log.yield_status), TDM_E_CANCELED);
    exec_close();
}

/* It is not known which items of the stream have arrived. */
static void stream_is_not_answered_again(void **state)
{
    struct tdm__rpc_request request = exec_request("count", 3);
    struct pair_reply answer;

    (void)state;
    exec_open(&exec_plain, 0);
    request.on_item = on_item;
    resend(&request, 1, 0, &answer);
    assert_int_equal(exec_outcome(&answer), TDM_OK);
    exec_cut(0);
    exec_connect(0);
    resend(&request, 1, 0, &answer);
    assert_int_equal(exec_outcome(&answer), TDM_E_CLOSED);
    assert_string_equal(answer.detail, "a stream ends with its connection");
    exec_close();
}

static void call_without_a_stream_gets_no_items(void **state)
{
    struct pair_reply answer;

    (void)state;
    exec_open(&exec_plain, 0);
    (void)exec_call(0, "count", 3, &answer);
    assert_int_equal(exec_outcome(&answer), TDM_E_STATE);
    exec_close();
}

/* ---- holding ---------------------------------------------------------------------------- */

static tdm_call *held;

static void hold_sevens(void *arg, tdm_call *arrived)
{
    (void)arg;
    assert_int_equal(tdm__call_parse(arrived), TDM_OK);
    if (tdm_value_int(tdm_value_at(arrived->arguments, 0), 0) == 7) {
        tdm__executor_hold(arrived);
        held = arrived;
    }
}

static void open_with_holds(const struct tdm_actor_class *actor_class)
{
    exec_open(actor_class, 0);
    TDM__LOOP_ENTER(executor_fixture.loop);
    tdm__executor_set_arrival_hook(executor_log.executor, hold_sevens, NULL);
}

static void held_call_holds_up_its_own_caller(const struct tdm_actor_class *actor_class)
{
    struct pair_reply replies[3];
    struct pair_reply other;

    open_with_holds(actor_class);
    (void)exec_call(0, "note", 7, &replies[0]);
    (void)exec_call(0, "note", 8, &replies[1]);
    (void)exec_call(0, "note", 9, &replies[2]);
    (void)exec_call(1, "note", 1, &other);
    assert_int_equal(exec_outcome(&other), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.notes_count), 1);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_release(held);
    }
    assert_int_equal(exec_outcome(&replies[2]), TDM_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(executor_log.notes[1 + i], 7 + i);
    }
    exec_close();
}

static void held_call_holds_up_its_own_caller_only(void **state)
{
    (void)state;
    held_call_holds_up_its_own_caller(&exec_plain);
    held_call_holds_up_its_own_caller(&exec_asynchronous);
}

static void held_call_holds_up_its_own_group_only(void **state)
{
    struct pair_reply replies[4];

    (void)state;
    open_with_holds(&exec_asynchronous);
    (void)exec_call(0, "note", 7, &replies[0]);
    (void)exec_call(0, "note", 8, &replies[1]);
    (void)exec_call(0, "note_apart", 1, &replies[2]);
    (void)exec_call(0, "note_apart", 2, &replies[3]);
    assert_int_equal(exec_outcome(&replies[2]), TDM_OK);
    assert_int_equal(exec_outcome(&replies[3]), TDM_OK);
    assert_int_equal(atomic_load(&executor_log.notes_count), 2);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_release(held);
    }
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    assert_int_equal(executor_log.notes[2], 7);
    assert_int_equal(executor_log.notes[3], 8);
    exec_close();
}

static void held_call_does_not_block_out_of_order_calls(void **state)
{
    struct pair_reply replies[2];

    (void)state;
    open_with_holds(&exec_grouped);
    (void)exec_call(0, "note", 7, &replies[0]);
    (void)exec_call(0, "note", 8, &replies[1]);
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_release_failed(held, TDM_E_OWNER_DIED, "its argument is lost");
    }
    assert_int_equal(exec_outcome(&replies[0]), TDM_E_OWNER_DIED);
    assert_string_equal(replies[0].detail, "its argument is lost");
    assert_int_equal(atomic_load(&executor_log.notes_count), 1);
    exec_close();
}

static bool three_wait(void *arg)
{
    (void)arg;
    return tdm__executor_waiting_count(executor_log.executor) == 3;
}

static void cut_call_of_class(const struct tdm_actor_class *actor_class)
{
    struct pair_reply replies[3];

    open_with_holds(actor_class);
    (void)exec_call(0, "note", 7, &replies[0]);
    (void)exec_call(0, "note", 8, &replies[1]);
    (void)exec_call(0, "note", 9, &replies[2]);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        assert_int_equal(
            tdm__loop_run(executor_fixture.loop, three_wait, NULL, tdm__deadline_after(10000)),
            TDM_OK);
        tdm__executor_release_disconnected(held, "its connection has ended");
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(exec_outcome(&replies[i]), TDM_E_CLOSED);
    }
    assert_int_equal(atomic_load(&executor_log.notes_count), 0);
    exec_close();
}

static void cut_call_takes_those_behind_it_along(void **state)
{
    (void)state;
    cut_call_of_class(&exec_plain);
    cut_call_of_class(&exec_asynchronous);
}

static void held_call_can_be_canceled(void **state)
{
    struct pair_reply replies[2];
    uint64_t call_id;

    (void)state;
    open_with_holds(&exec_plain);
    call_id = exec_call(0, "note", 7, &replies[0]);
    (void)exec_call(0, "note", 8, &replies[1]);
    exec_cancel(0, call_id);
    assert_int_equal(exec_outcome(&replies[0]), TDM_E_CANCELED);
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_release(held); /* This simulates the end of fetching the arguments. */
    }
    exec_close();
}

/* A method may go on for hours after its reply: its caller, silent since, is forgotten. */
static void call_that_was_answered_does_not_need_its_caller(void **state)
{
    struct pair_reply replies[2];
    uint64_t call_id;

    (void)state;
    open_with_holds(&exec_plain);
    call_id = exec_call(0, "note", 7, &replies[0]);
    (void)exec_call(0, "note", 8, &replies[1]);
    exec_cancel(0, call_id);
    assert_int_equal(exec_outcome(&replies[1]), TDM_OK);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        assert_true(held->is_replied);
        assert_null(held->client_session);
        tdm__executor_release(held);
    }
    exec_close();
}

static void hold_reply(void *arg, tdm_call *answered, struct tdm__method_reply *answer)
{
    (void)arg;
    (void)answer;
    tdm__executor_hold_reply(answered);
    held = answered;
    (void)atomic_fetch_add(&executor_log.canceled, 1);
}

static void reply_may_wait(void **state)
{
    struct pair_reply answer;

    (void)state;
    exec_open(&exec_plain, 0);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_set_reply_hook(executor_log.executor, hold_reply, NULL);
    }
    (void)exec_call(0, "note", 3, &answer);
    exec_await(&executor_log.canceled, 1);
    (void)tdm__loop_run(executor_fixture.loop, NULL, NULL, tdm__deadline_after(5));
    assert_int_equal(answer.count, 0);
    {
        TDM__LOOP_ENTER(executor_fixture.loop);
        tdm__executor_release_reply(held);
    }
    assert_int_equal(exec_outcome(&answer), TDM_OK);
    assert_int_equal(answer.size_bytes, 2);
    exec_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_that_ran_is_answered_again_and_not_run),
        cmocka_unit_test(failure_is_kept_like_any_answer),
        cmocka_unit_test(call_that_runs_is_answered_where_it_came_last),
        cmocka_unit_test(copy_from_an_older_connection_does_not_take_the_call_over),
        cmocka_unit_test(repeated_call_does_not_move_the_name_of_the_running_one),
        cmocka_unit_test(callers_have_sequences_of_their_own),
        cmocka_unit_test(stream_is_no_more_than_some_items_ahead),
        cmocka_unit_test(unread_stream_ends),
        cmocka_unit_test(stream_is_not_answered_again),
        cmocka_unit_test(call_without_a_stream_gets_no_items),
        cmocka_unit_test(held_call_holds_up_its_own_caller_only),
        cmocka_unit_test(held_call_holds_up_its_own_group_only),
        cmocka_unit_test(held_call_does_not_block_out_of_order_calls),
        cmocka_unit_test(cut_call_takes_those_behind_it_along),
        cmocka_unit_test(held_call_can_be_canceled),
        cmocka_unit_test(call_that_was_answered_does_not_need_its_caller),
        cmocka_unit_test(reply_may_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
