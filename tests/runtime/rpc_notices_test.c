/* rpc_notices_test.c - notices about a call between its start and its reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/rpc/send.h"
#include "runtime/wire/frame.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
/* The notices that a call has received. */

struct told {
    uint32_t count;
    enum tdm__call_notice notice;
    uint64_t items_taken;
    /* Call to which the notice function replies; NULL if none. */
    struct tdm__incoming_call *to_reply;
};

struct items {
    uint32_t count;
    uint64_t last_index;
    uint64_t hash;
    struct pair_reply answer;
};

static struct rpc_pair pair;
static struct told told;
static struct items items;
static uint64_t call_id;

static int set_up(void **state)
{
    (void)state;
    memset(&told, 0, sizeof(told));
    memset(&items, 0, sizeof(items));
    pair_create(&pair);
    pair_join(&pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

static void on_notice(void *arg, enum tdm__call_notice notice, uint64_t items_taken)
{
    (void)arg;
    told.count++;
    told.notice = notice;
    told.items_taken = items_taken;
    if (told.to_reply != NULL) {
        pair.held_count--;
        tdm__incoming_fail(told.to_reply, TDM_E_CANCELED, "gave up");
        told.to_reply = NULL;
    }
}

static void on_item(void *arg, uint64_t index, struct tdm__rpc_reply *item)
{
    (void)arg;
    items.count++;
    items.last_index = index;
    items.hash = pair_hash(item->packed);
    assert_int_equal(items.answer.count, 0);
}

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    (void)arg;
    pair_on_reply(&items.answer, reply);
}

/* Starts one call of "hold" and waits until it has arrived. */
static struct tdm__incoming_call *hold(void)
{
    struct tdm__rpc_request request = pair_request("hold", "x");

    request.on_item = on_item;
    request.sequence = 7;
    request.acknowledged = 3;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, on_reply, NULL, &call_id), TDM_OK);
    pair_run_until(&pair, &pair.held_count, 1);
    tdm__incoming_on_notice(pair.held[0], on_notice, NULL);
    return pair.held[0];
}

static void answer_held(void)
{
    tdm__incoming_reply(pair.held[--pair.held_count], pair_text("done"), NULL, 0);
    pair_run_until(&pair, &items.answer.count, 1);
}

static void expect_both_open(void)
{
    pair_run_for(&pair, 10);
    assert_int_equal(pair.closed, 0);
}

static void a_call_says_about_when_it_arrived(void **state)
{
    int64_t before_ms = tdm__clock_coarse_ms();
    int64_t arrived_ms;

    (void)state;
    arrived_ms = tdm__incoming_arrived(hold());
    assert_true(arrived_ms >= before_ms && arrived_ms <= tdm__clock_coarse_ms());
}

static void the_place_of_a_call_arrives_with_it(void **state)
{
    const struct tdm__incoming_call *incoming = hold();

    (void)state;
    assert_int_equal(tdm__incoming_sequence(incoming), 7);
    assert_int_equal(tdm__incoming_acknowledged(incoming), 3);
    assert_true(tdm__incoming_wants_items(incoming));
}

static void a_cancel_reaches_the_call_that_waits_and_it_is_still_replied_to(void **state)
{
    (void)state;
    (void)hold();
    tdm__conn_cancel_call(pair.conns[0], call_id, false);
    pair_run_until(&pair, &told.count, 1);
    assert_int_equal(told.notice, TDM__NOTICE_CANCEL);
    assert_int_equal(items.answer.count, 0);
    answer_held();
    assert_int_equal(items.answer.status, TDM_OK);
}

static void a_call_may_be_replied_to_inside_its_notice(void **state)
{
    (void)state;
    told.to_reply = hold();
    tdm__conn_cancel_call(pair.conns[0], call_id, false);
    pair_run_until(&pair, &items.answer.count, 1);
    assert_int_equal(items.answer.status, TDM_E_CANCELED);
    assert_string_equal(items.answer.detail, "gave up");
}

static void a_cancel_after_the_reply_says_nothing(void **state)
{
    (void)state;
    (void)hold();
    answer_held();
    tdm__conn_cancel_call(pair.conns[0], call_id, false);
    tdm__conn_cancel_call(pair.conns[0], 12345, false);
    tdm__conn_send_credit(pair.conns[0], call_id, 1);
    expect_both_open();
    assert_int_equal(told.count, 0);
}

static void items_come_in_order_before_the_reply(void **state)
{
    struct tdm__incoming_call *incoming = hold();

    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        assert_int_equal(tdm__incoming_send_item(incoming, i, pair_text("item"), NULL, 0), TDM_OK);
    }
    pair_run_until(&pair, &items.count, 100);
    assert_int_equal(items.last_index, 100);
    assert_true(items.hash == pair_hash(pair_text("item")));
    answer_held();
    assert_int_equal(items.count, 100);
}

static void unrequested_items_are_dropped(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");

    (void)state;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, on_reply, NULL, &call_id), TDM_OK);
    pair_run_until(&pair, &pair.held_count, 1);
    assert_false(tdm__incoming_wants_items(pair.held[0]));
    assert_int_equal(tdm__incoming_send_item(pair.held[0], 1, pair_text("item"), NULL, 0), TDM_OK);
    answer_held();
    assert_int_equal(items.answer.status, TDM_OK);
    assert_int_equal(items.count, 0);
}

static void items_of_a_forgotten_call_are_dropped(void **state)
{
    struct tdm__incoming_call *incoming = hold();

    (void)state;
    tdm__conn_forget_call(pair.conns[0], call_id);
    assert_int_equal(tdm__incoming_send_item(incoming, 1, pair_text("item"), NULL, 0), TDM_OK);
    expect_both_open();
    assert_int_equal(items.count, 0);
}

static void growing_credit_is_reported_once_each(void **state)
{
    struct tdm__incoming_call *incoming = hold();

    (void)state;
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(tdm__incoming_send_item(incoming, i, pair_text("item"), NULL, 0), TDM_OK);
    }
    tdm__conn_send_credit(pair.conns[0], call_id, 1);
    tdm__conn_send_credit(pair.conns[0], call_id, 1);
    tdm__conn_send_credit(pair.conns[0], call_id, 3);
    pair_run_until(&pair, &told.count, 2);
    assert_int_equal(told.notice, TDM__NOTICE_CREDIT);
    assert_int_equal(told.items_taken, 3);
    expect_both_open();
    assert_int_equal(told.count, 2);
}

static void the_end_of_the_connection_is_reported_once_and_items_fail(void **state)
{
    struct tdm__incoming_call *incoming = hold();

    (void)state;
    tdm__conn_close(pair.conns[0]);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.notice, TDM__NOTICE_CLOSED);
    assert_int_equal(tdm__incoming_send_item(incoming, 1, pair_text("item"), NULL, 0),
                     TDM_E_CLOSED);
}

static void the_end_may_be_replied_to_inside_its_notice(void **state)
{
    (void)state;
    told.to_reply = hold();
    tdm__conn_close(pair.conns[1]);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(told.count, 1);
    assert_int_equal(items.answer.status, TDM_E_CLOSED);
}

/* ---- what no honest peer sends ---------------------------------------------------------- */

static void send_raw(struct tdm__conn *conn, enum tdm__frame_kind kind, uint64_t id,
                     uint64_t sequence)
{
    const struct tdm__frame frame = {.kind = kind,
                                     .call_id = id,
                                     .remaining_ms = kind == TDM__FRAME_CALL ? 1000 : -1,
                                     .method_bytes = kind == TDM__FRAME_CALL ? 4 : 0,
                                     .sequence = sequence};

    assert_int_equal(tdm__conn_send(conn, &frame, "hold", "", NULL, NULL), TDM_OK);
}

static void expect_protocol_end(uint32_t end, const char *why)
{
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(pair.reasons[end], TDM_E_PROTOCOL);
    assert_non_null(strstr(pair.details[end], why));
}

static void notices_of_unknown_calls_are_ignored(void **state)
{
    (void)state;
    send_raw(pair.conns[0], TDM__FRAME_CANCEL, 99, 0);
    send_raw(pair.conns[0], TDM__FRAME_CREDIT, UINT64_MAX, UINT64_MAX);
    send_raw(pair.conns[0], TDM__FRAME_ITEM, 99, 1);
    send_raw(pair.conns[0], TDM__FRAME_REPLY, 99, 0);
    expect_both_open();
}

static void credit_for_items_never_sent_ends_the_connection(void **state)
{
    struct tdm__incoming_call *incoming = hold();

    (void)state;
    assert_int_equal(tdm__incoming_send_item(incoming, 1, pair_text("item"), NULL, 0), TDM_OK);
    send_raw(pair.conns[0], TDM__FRAME_CREDIT, call_id, 2);
    expect_protocol_end(1, "left (pid");
    assert_int_equal(told.notice, TDM__NOTICE_CLOSED);
}

static void an_item_out_of_order_ends_the_connection(void **state)
{
    (void)state;
    (void)hold();
    send_raw(pair.conns[1], TDM__FRAME_ITEM, call_id, 2);
    send_raw(pair.conns[1], TDM__FRAME_ITEM, call_id, 2);
    expect_protocol_end(0, "sent item 2 of hold after item 2");
    assert_int_equal(items.count, 1);
    assert_int_equal(items.answer.status, TDM_E_CLOSED);
}

static void a_second_call_with_the_same_id_ends_the_connection(void **state)
{
    (void)state;
    (void)hold();
    send_raw(pair.conns[0], TDM__FRAME_CALL, call_id, 0);
    expect_protocol_end(1, "a second call with id");
    assert_int_equal(pair.served, 1);
}

#define NOTICE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NOTICE_TEST(a_call_says_about_when_it_arrived),
        NOTICE_TEST(the_place_of_a_call_arrives_with_it),
        NOTICE_TEST(a_cancel_reaches_the_call_that_waits_and_it_is_still_replied_to),
        NOTICE_TEST(a_call_may_be_replied_to_inside_its_notice),
        NOTICE_TEST(a_cancel_after_the_reply_says_nothing),
        NOTICE_TEST(items_come_in_order_before_the_reply),
        NOTICE_TEST(unrequested_items_are_dropped),
        NOTICE_TEST(items_of_a_forgotten_call_are_dropped),
        NOTICE_TEST(growing_credit_is_reported_once_each),
        NOTICE_TEST(the_end_of_the_connection_is_reported_once_and_items_fail),
        NOTICE_TEST(the_end_may_be_replied_to_inside_its_notice),
        NOTICE_TEST(notices_of_unknown_calls_are_ignored),
        NOTICE_TEST(credit_for_items_never_sent_ends_the_connection),
        NOTICE_TEST(an_item_out_of_order_ends_the_connection),
        NOTICE_TEST(a_second_call_with_the_same_id_ends_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
