/* node_changes_test.c - calls to actors of a node that does not answer, is lost, or comes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/node_changes.h"

#include "actors/common/node_change.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "tests/support/channel_peer.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;
static const struct tdm__id node = {.bytes = {9, 9}};
static const struct tdm_call_options once_more = {.max_retries = 1};

/* ---- a scripted daemon ------------------------------------------------------------------ */

static void serve_changes(void *arg, struct tdm__incoming_call *incoming)
{
    if (!tdm__node_change_serve(arg, incoming)) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no change of a node");
    }
}

/* The actor's process is on `node` in this epoch when it next accepts a connection. */
static void be_on_node(uint64_t epoch)
{
    struct tdm__peer_identity identity = pair_identity("peer");

    identity.node = node;
    identity.node_epoch = epoch;
    tdm__rpc_set_identity(peer.rpc, &identity);
}

static int open_peer(void **state)
{
    *state = &peer;
    peer_create(&peer);
    tdm__rpc_set_call_handler(peer.runtime->rpc, serve_changes, peer.runtime);
    peer_settle(&peer); /* The daemon is connected; the actor follows. */
    be_on_node(5);
    peer_found(&peer);
    (void)tdm__id_text(&node, peer.channel->info.node_id);
    return 0;
}

static int close_peer(void **state)
{
    (void)state;
    peer_destroy(&peer);
    return 0;
}

/* Sends the change and returns the status of the reply. */
static tdm_status tell_over(struct tdm__conn *conn, enum tdm__node_change kind, uint64_t epoch,
                            const char *text)
{
    const struct tdm__node_change_message message = {
        .kind = kind, .node = node, .epoch = epoch, .text = text};
    struct tdm__rpc_request request = {.method = TDM__NODE_CHANGE_METHOD,
                                       .deadline_ms = tdm__deadline_after(PEER_WAIT_MS)};
    struct pair_reply reply = {0};
    tdm_writer *writer;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__node_change_encode(&message, writer), TDM_OK);
    request.packed = tdm_writer_bytes(writer);
    assert_int_equal(tdm__conn_call(conn, &request, pair_on_reply, &reply, NULL), TDM_OK);
    tdm_writer_destroy(writer);
    peer_settle(&peer);
    assert_int_equal(reply.count, 1);
    return reply.status;
}

static void tell(enum tdm__node_change kind, uint64_t epoch, const char *text)
{
    assert_int_equal(tell_over(peer.daemon_conn, kind, epoch, text), TDM_OK);
}

static void expect_unavailable(tdm_ref *ref)
{
    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, ""), TDM_E_ACTOR_UNAVAILABLE);
    assert_non_null(strstr(tdm_error_detail(), "node far is silent"));
    tdm_ref_release(ref);
}

/* ---- a node that does not answer --------------------------------------------------------- */

static void call_ends_unless_it_may_be_retried(void **state)
{
    tdm_ref *plain = peer_call(&peer, 1, NULL);
    tdm_ref *retried = peer_call(&peer, 2, &once_more);

    (void)state;
    peer_hold(&peer, 2);
    tell(TDM__NODE_UNREACHABLE, 0, "node far is silent");
    expect_unavailable(plain);
    assert_int_equal(tdm_get(retried, 20, ""), TDM_E_TIMEOUT);
    peer_complete(&peer, 1);
    peer_expect_result(retried, 2);
    peer_complete(&peer, 0); /* A late reply is ignored. */
    peer_settle(&peer);
}

static void later_call_fails_at_once_until_the_node_answers(void **state)
{
    tdm_ref *ref;

    (void)state;
    tell(TDM__NODE_UNREACHABLE, 0, "node far is silent");
    assert_int_equal(tdm_actor_call(&peer.actor, "m", &ref, "i", (int64_t)1),
                     TDM_E_ACTOR_UNAVAILABLE);
    assert_non_null(strstr(tdm_error_detail(), "node far is silent"));
    tell(TDM__NODE_REACHABLE, 0, "");
    ref = peer_call(&peer, 2, NULL);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(ref, 2);
}

static void call_to_another_node_goes_on(void **state)
{
    tdm_ref *ref;

    (void)state;
    (void)snprintf(peer.channel->info.node_id, sizeof(peer.channel->info.node_id), "here");
    ref = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 1);
    tell(TDM__NODE_UNREACHABLE, 0, "node far is silent");
    peer_complete(&peer, 0);
    peer_expect_result(ref, 1);
}

/* ---- a lost node ------------------------------------------------------------------------- */

static bool has_no_connection(void *arg)
{
    return ((const struct channel_peer *)arg)->actor_conn == NULL;
}

static bool has_connection(void *arg)
{
    return ((const struct channel_peer *)arg)->actor_conn != NULL;
}

/* The call has arrived once. Its actor is in the lost epoch until it joins again. */
static void connection_of_the_lost_epoch_ends_and_none_follows_before_a_higher_one(void **state)
{
    tdm_ref *ref = peer_call(&peer, 1, NULL);

    (void)state;
    /* The daemon calls it the same node before and after. */
    (void)snprintf(peer.channel->info.node_id, sizeof(peer.channel->info.node_id), "here");
    peer_hold(&peer, 1);
    tell(TDM__NODE_LOST, 4, ""); /* An earlier epoch, in which the process is not. */
    assert_true(has_connection(&peer));
    tell(TDM__NODE_LOST, 5, "");
    peer_run_until(&peer, has_no_connection, &peer);
    assert_int_equal(tdm_get(ref, 100, ""), TDM_E_TIMEOUT);
    assert_int_equal(peer.runs_count, 1);
    assert_int_equal(peer.repeats_count, 0);
    be_on_node(6);
    peer_run_until(&peer, has_connection, &peer);
    peer_hold(&peer, 1);
    assert_int_equal(peer.repeats_count, 1);
    peer_complete(&peer, 0);
    peer_expect_result(ref, 1);
}

/* Its daemon says that it lives, and nobody that its node is silent. */
static void call_to_a_process_without_connection_ends_unless_it_may_be_retried(void **state)
{
    tdm_ref *plain = peer_call(&peer, 1, NULL);
    tdm_ref *retried = peer_call(&peer, 2, &once_more);

    (void)state;
    (void)snprintf(peer.channel->info.node_id, sizeof(peer.channel->info.node_id), "here");
    peer.runtime->unreachable_ms = 60000;
    peer_hold(&peer, 2);
    tell(TDM__NODE_LOST, 5, ""); /* Its handshakes fail from now on. */
    peer_run_until(&peer, has_no_connection, &peer);
    assert_int_equal(tdm_get(plain, 100, ""), TDM_E_TIMEOUT);
    peer.channel->lost_since_ms -= 10000; /* The daemon allows more. */
    assert_int_equal(tdm_get(plain, 1100, ""), TDM_E_TIMEOUT);
    peer.runtime->unreachable_ms = 5000;
    assert_int_equal(tdm_get(plain, PEER_WAIT_MS, ""), TDM_E_ACTOR_UNAVAILABLE);
    assert_non_null(strstr(tdm_error_detail(), "there has been no connection to its process for"));
    tdm_ref_release(plain);
    be_on_node(6);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(retried, 2);
}

static void own_epoch_is_stated_in_later_handshakes(void **state)
{
    (void)state;
    tell(TDM__NODE_EPOCH, 12, "");
    peer_cut(&peer);
    peer_run_until(&peer, has_no_connection, &peer);
    peer_run_until(&peer, has_connection, &peer);
    assert_int_equal(tdm__conn_peer(peer.actor_conn)->node_epoch, 12);
}

static void only_the_daemon_is_believed(void **state)
{
    tdm_ref *ref = peer_call(&peer, 1, NULL);

    (void)state;
    peer_hold(&peer, 1);
    assert_int_equal(tell_over(peer.actor_conn, TDM__NODE_LOST, 9, ""), TDM_E_NOT_FOUND);
    assert_int_equal(tell_over(peer.daemon_conn, (enum tdm__node_change)77, 0, ""), TDM_E_PROTOCOL);
    peer_complete(&peer, 0);
    peer_expect_result(ref, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(call_ends_unless_it_may_be_retried, open_peer, close_peer),
        cmocka_unit_test_setup_teardown(later_call_fails_at_once_until_the_node_answers, open_peer,
                                        close_peer),
        cmocka_unit_test_setup_teardown(call_to_another_node_goes_on, open_peer, close_peer),
        cmocka_unit_test_setup_teardown(
            connection_of_the_lost_epoch_ends_and_none_follows_before_a_higher_one, open_peer,
            close_peer),
        cmocka_unit_test_setup_teardown(
            call_to_a_process_without_connection_ends_unless_it_may_be_retried, open_peer,
            close_peer),
        cmocka_unit_test_setup_teardown(own_epoch_is_stated_in_later_handshakes, open_peer,
                                        close_peer),
        cmocka_unit_test_setup_teardown(only_the_daemon_is_believed, open_peer, close_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
