/* lost_nodes_test.c - processes of a lost node are refused, in every way that they can arrive. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/lost_nodes.h"

#include "runtime/rpc/send.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct tdm__id node_a = {.bytes = {1}};
static const struct tdm__id node_b = {.bytes = {2}};

static void epoch_of_a_lost_node_only_grows(void **state)
{
    struct tdm__lost_nodes lost = {0};

    (void)state;
    assert_false(tdm__lost_nodes_contain(&lost, &node_a, 0));
    assert_int_equal(tdm__lost_nodes_add(&lost, &node_a, 7), TDM_OK);
    assert_int_equal(tdm__lost_nodes_add(&lost, &node_a, 5), TDM_OK);
    assert_int_equal(lost.count, 1);
    assert_true(tdm__lost_nodes_contain(&lost, &node_a, 0));
    assert_true(tdm__lost_nodes_contain(&lost, &node_a, 7));
    assert_false(tdm__lost_nodes_contain(&lost, &node_a, 8));
    assert_false(tdm__lost_nodes_contain(&lost, &node_b, 7));
    tdm__lost_nodes_fini(&lost);
    assert_int_equal(lost.count, 0);
}

static void full_table_replaces_the_oldest(void **state)
{
    struct tdm__lost_nodes lost = {0};
    struct tdm__id node = {.bytes = {0}};

    (void)state;
    for (uint32_t i = 0; i <= TDM__LOST_NODES_MAX; i++) {
        memcpy(node.bytes, &i, sizeof(i));
        assert_int_equal(tdm__lost_nodes_add(&lost, &node, 1), TDM_OK);
    }
    assert_int_equal(lost.count, TDM__LOST_NODES_MAX);
    assert_true(tdm__lost_nodes_contain(&lost, &node, 1));
    memset(&node, 0, sizeof(node));
    assert_false(tdm__lost_nodes_contain(&lost, &node, 1));
    tdm__lost_nodes_fini(&lost);
}

/* ---- connections ------------------------------------------------------------------------ */

static struct rpc_pair pair;

/* The left endpoint is on node A in this epoch. */
static void be_in_epoch(uint64_t epoch)
{
    struct tdm__peer_identity left = pair_identity("left");

    left.node = node_a;
    left.node_epoch = epoch;
    tdm__rpc_set_identity(pair.rpcs[0], &left);
}

static int open_pair(void **state)
{
    (void)state;
    pair_create(&pair);
    be_in_epoch(3);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

static void handshake_carries_the_epoch(void **state)
{
    (void)state;
    pair_join(&pair);
    assert_int_equal(tdm__conn_peer(pair.conns[1])->node_epoch, 3);
    assert_true(tdm__id_equal(&tdm__conn_peer(pair.conns[1])->node, &node_a));
    assert_int_equal(tdm__conn_peer(pair.conns[0])->node_epoch, 0);
}

/* A request that the lost process sent before lies in the socket when its node is lost. */
static void connection_of_a_lost_node_is_closed_and_its_request_dropped(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct pair_reply reply = {0};

    (void)state;
    pair_join(&pair);
    assert_int_equal(tdm__rpc_lose_node(pair.rpcs[1], &node_a, 2), TDM_OK);
    assert_true(tdm__conn_is_open(pair.conns[1]));
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &reply, NULL), TDM_OK);
    tdm__rpc_flush(pair.rpcs[0]);
    assert_int_equal(tdm__rpc_lose_node(pair.rpcs[1], &node_a, 3), TDM_OK);
    pair_run_until(&pair, &reply.count, 1);
    assert_int_equal(reply.status, TDM_E_CLOSED);
    assert_int_equal(pair.served, 0);
}

/* A reply that lies in the socket is not delivered either. */
static void reply_of_a_lost_node_is_dropped(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");
    struct pair_reply reply = {0};

    (void)state;
    pair_join(&pair);
    assert_int_equal(tdm__conn_call(pair.conns[1], &request, pair_on_reply, &reply, NULL), TDM_OK);
    pair_run_until(&pair, &pair.held_count, 1);
    tdm__incoming_reply(pair.held[0], pair_text("late"), NULL, 0);
    pair.held_count = 0;
    tdm__rpc_flush(pair.rpcs[0]);
    assert_int_equal(tdm__rpc_lose_node(pair.rpcs[1], &node_a, 3), TDM_OK);
    pair_run_until(&pair, &reply.count, 1);
    assert_int_equal(reply.status, TDM_E_CLOSED);
}

static void handshake_of_a_lost_node_is_refused_until_its_epoch_is_higher(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    char address[64];
    struct tdm__conn *conn;

    (void)state;
    (void)snprintf(address, sizeof(address), "unix:/tmp/lost_nodes_test.%d", (int)getpid());
    assert_int_equal(tdm__rpc_listen(pair.rpcs[1], address, NULL, 0), TDM_OK);
    assert_int_equal(tdm__rpc_lose_node(pair.rpcs[1], &node_a, 3), TDM_OK);
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], address, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_E_CLOSED);
    assert_int_equal(pair.served, 0);
    be_in_epoch(4);
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], address, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_OK);
    assert_int_equal(pair.served, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epoch_of_a_lost_node_only_grows),
        cmocka_unit_test(full_table_replaces_the_oldest),
        cmocka_unit_test_setup_teardown(handshake_carries_the_epoch, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(connection_of_a_lost_node_is_closed_and_its_request_dropped,
                                        open_pair, close_pair),
        cmocka_unit_test_setup_teardown(reply_of_a_lost_node_is_dropped, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(
            handshake_of_a_lost_node_is_refused_until_its_epoch_is_higher, open_pair, close_pair),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
