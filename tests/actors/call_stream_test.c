/* call_stream_test.c - streams: items in order, each once, with credit, then the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/call_stream.h"

#include "actors/client/send_queue.h"
#include "tests/support/channel_peer.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;

static tdm_stream *open_stream(const struct tdm_call_options *options)
{
    tdm_stream *stream;

    assert_int_equal(tdm_actor_stream(&peer.actor, "m", options, &stream, "i", (int64_t)1), TDM_OK);
    peer_hold(&peer, 1);
    assert_true(tdm__incoming_wants_items(peer.held[0]));
    return stream;
}

static void send_items(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i <= to; i++) {
        char packed[] = {(char)0x91, (char)i}; /* An array of one small number. */

        assert_int_equal(tdm__incoming_send_item(
                             peer.held[0], i, (struct tdm_bytes){packed, sizeof(packed)}, NULL, 0),
                         TDM_OK);
    }
}

static void expect_items(tdm_stream *stream, int64_t from, int64_t to)
{
    for (int64_t i = from; i <= to; i++) {
        int64_t number = -1;
        tdm_ref *ref;

        assert_int_equal(tdm_stream_next(stream, PEER_WAIT_MS, &ref), TDM_OK);
        assert_int_equal(tdm_get(ref, 0, "i", &number), TDM_OK);
        assert_int_equal(number, i);
        tdm_ref_release(ref);
    }
}

static void items_come_in_order_and_then_the_end(void **state)
{
    tdm_stream *stream = open_stream(NULL);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_stream_next(stream, 10, &ref), TDM_E_TIMEOUT);
    send_items(1, 16);
    expect_items(stream, 1, 10);
    send_items(17, 20);
    peer_reply(&peer, 0, pair_text("the end"));
    expect_items(stream, 11, 20);
    assert_int_equal(tdm_stream_next(stream, PEER_WAIT_MS, &ref), TDM_E_END);
    assert_int_equal(tdm_stream_next(stream, 0, &ref), TDM_E_END);
    tdm_stream_destroy(stream);
    tdm_stream_destroy(NULL);
}

static void credit_is_given_for_what_is_taken(void **state)
{
    tdm_stream *stream = open_stream(NULL);

    (void)state;
    send_items(1, 5);
    expect_items(stream, 1, 3);
    peer_settle(&peer);
    assert_int_equal(peer.items_taken, 3);
    expect_items(stream, 4, 5);
    peer_settle(&peer);
    assert_int_equal(peer.items_taken, 5);
    tdm_stream_destroy(stream);
}

static void failure_comes_after_the_items(void **state)
{
    tdm_stream *stream = open_stream(NULL);
    tdm_ref *ref;

    (void)state;
    send_items(1, 2);
    peer_fail(&peer, 0, TDM_E_METHOD, "out of ideas");
    expect_items(stream, 1, 2);
    assert_int_equal(tdm_stream_next(stream, PEER_WAIT_MS, &ref), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "out of ideas");
    tdm_stream_destroy(stream);
}

static void death_comes_after_the_items(void **state)
{
    tdm_stream *stream = open_stream(NULL);
    tdm_ref *ref;

    (void)state;
    send_items(1, 2);
    expect_items(stream, 1, 1);
    peer_die(&peer);
    expect_items(stream, 2, 2);
    assert_int_equal(tdm_stream_next(stream, PEER_WAIT_MS, &ref), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "in method m, call 1"));
    tdm_stream_destroy(stream);
}

static void stream_may_be_destroyed_before_its_end(void **state)
{
    tdm_stream *stream = open_stream(NULL);

    (void)state;
    send_items(1, 3);
    expect_items(stream, 1, 1);
    tdm_stream_destroy(stream);
    send_items(4, 4); /* These items were sent before the stream was destroyed. */
    peer_settle(&peer);
    assert_int_equal(peer.cancels_count, 1);
    peer_fail(&peer, 0, TDM_E_CANCELED, "as told");
    peer_settle(&peer);
    assert_true(tdm__send_queue_is_idle(peer.channel));
}

static void items_that_come_again_are_taken_once(void **state)
{
    const struct tdm_call_options again = {.max_retries = -1};
    tdm_stream *stream = open_stream(&again);

    (void)state;
    send_items(1, 6);
    expect_items(stream, 1, 4);
    peer_restart(&peer);
    peer_hold(&peer, 1);
    peer.items_taken = 0;
    send_items(1, 5);
    peer_settle(&peer);
    assert_int_equal(peer.items_taken, 4);
    expect_items(stream, 5, 5);
    send_items(6, 8);
    expect_items(stream, 6, 8);
    peer_settle(&peer);
    assert_int_equal(peer.items_taken, 8);
    tdm_stream_destroy(stream);
}

static void items_from_before_a_restart_may_be_taken_after_it(void **state)
{
    const struct tdm_call_options again = {.max_retries = -1};
    tdm_stream *stream = open_stream(&again);

    (void)state;
    send_items(1, 6);
    expect_items(stream, 1, 2);
    peer_settle(&peer);
    peer_restart(&peer);
    peer_hold(&peer, 1);
    expect_items(stream, 3, 4); /* The restarted actor has sent nothing yet. */
    peer_settle(&peer);
    assert_int_equal(peer.held_count, 1);
    send_items(1, 8);
    expect_items(stream, 5, 8);
    tdm_stream_destroy(stream);
}

static void deadline_ends_a_stream(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = 30};
    tdm_stream *stream = open_stream(&soon);
    tdm_ref *ref;

    (void)state;
    send_items(1, 1);
    expect_items(stream, 1, 1);
    assert_int_equal(tdm_stream_next(stream, PEER_WAIT_MS, &ref), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "no reply from actor m, in method m"));
    tdm_stream_destroy(stream);
}

static void stream_of_a_dead_actor_is_refused(void **state)
{
    tdm_stream *stream;

    (void)state;
    tdm__actor_channel_fail(peer.channel, TDM_E_ACTOR_DIED, "gone");
    assert_int_equal(tdm_actor_stream(&peer.actor, "m", NULL, &stream, ""), TDM_E_ACTOR_DIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(items_come_in_order_and_then_the_end),
        FOUND_PEER_TEST(credit_is_given_for_what_is_taken),
        FOUND_PEER_TEST(failure_comes_after_the_items),
        FOUND_PEER_TEST(death_comes_after_the_items),
        FOUND_PEER_TEST(stream_may_be_destroyed_before_its_end),
        FOUND_PEER_TEST(items_that_come_again_are_taken_once),
        FOUND_PEER_TEST(items_from_before_a_restart_may_be_taken_after_it),
        FOUND_PEER_TEST(deadline_ends_a_stream),
        FOUND_PEER_TEST(stream_of_a_dead_actor_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
