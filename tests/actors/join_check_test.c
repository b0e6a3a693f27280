/* join_check_test.c - a node that could not work with the others does not join them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/join_check.h"
#include "tests/support/node_fixture.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { CHECK_MS = 5000 };

static uint64_t newest; /* Highest epoch that the last check has seen. */

static void reply(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__incoming_reply_pack(incoming, "");
}

/* Adds a node with a token to the cluster, which listens at `address` if that is not NULL. */
static struct tdm__rpc *add_node(struct node_fixture *scene, const uint8_t *token,
                                 const char *address)
{
    struct tdm__peer_identity self = pair_identity("tandemd on other");
    struct tdm__node_record record = {.pid = getpid(), .name = "other"};
    struct tdm__node_resources totals = {.name = "other"};
    struct tdm__rpc *rpc;

    TRY(tdm__id_generate(&record.id));
    totals.id = record.id;
    self.kind = TDM__PEER_DAEMON;
    self.id = record.id;
    TRY(tdm__rpc_create(scene->world.loop, &self, token, &rpc));
    tdm__rpc_set_call_handler(rpc, reply, NULL);
    (void)snprintf(record.unix_address, sizeof(record.unix_address), "unix:%s/other",
                   scene->directory);
    if (address != NULL) {
        TRY(tdm__rpc_listen(rpc, address, record.tcp_address, sizeof(record.tcp_address)));
    }
    reserve_fixture_join_as(&scene->world, &record, &totals);
    return rpc;
}

static void node_alone_joins(void **state)
{
    struct node_fixture *scene = *state;

    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
}

static void node_that_listens_joins_others_that_do(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__rpc *other = add_node(scene, pair_token, "tcp:127.0.0.1:0");

    (void)snprintf(scene->node.record.tcp_address, sizeof(scene->node.record.tcp_address),
                   "tcp:127.0.0.1:1");
    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
    tdm__rpc_destroy(other);
}

static void node_with_another_token_does_not_join(void **state)
{
    static const uint8_t wrong_token[TDM__TOKEN_BYTES] = "another token altogether";
    struct node_fixture *scene = *state;
    struct tdm__rpc *other = add_node(scene, wrong_token, "tcp:127.0.0.1:0");

    (void)snprintf(scene->node.record.tcp_address, sizeof(scene->node.record.tcp_address),
                   "tcp:127.0.0.1:1");
    assert_int_equal(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest), TDM_E_AUTH);
    assert_string_equal(tdm_error_detail(),
                        "node other of the cluster has another token than this node this: set "
                        "TANDEM_TOKEN_FILE to the same file on every node");
    tdm__rpc_destroy(other);
}

static void node_without_listen_does_not_join_nodes_that_listen(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__rpc *other = add_node(scene, pair_token, "tcp:127.0.0.1:0");

    assert_int_equal(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest), TDM_E_STATE);
    assert_string_equal(tdm_error_detail(),
                        "node this does not listen for other nodes, but the cluster has nodes this "
                        "and other: start each of them with --listen HOST");
    tdm__rpc_destroy(other);
}

static void node_does_not_join_one_that_does_not_listen(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    tdm__rpc_set_call_handler(other.rpc, reply, NULL);
    (void)snprintf(scene->node.record.tcp_address, sizeof(scene->node.record.tcp_address),
                   "tcp:127.0.0.1:1");
    assert_int_equal(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "node other does not listen"));
    remote_peer_close(&other);
}

/* Makes the node `this` of the fixture join the cluster again: its epoch is then the highest. */
static void join_last(struct node_fixture *scene)
{
    struct tdm__node_resources totals = {.name = "this"};

    TRY(tdm__id_generate(&scene->node.record.id));
    totals.id = scene->node.record.id;
    reserve_fixture_join_as(&scene->world, &scene->node.record, &totals);
}

/* Two nodes have looked before either of them joined. The later one looks once more. */
static void node_that_joined_meanwhile_is_checked(void **state)
{
    static const uint8_t wrong_token[TDM__TOKEN_BYTES] = "another token altogether";
    struct node_fixture *scene = *state;
    struct tdm__rpc *other;

    (void)snprintf(scene->node.record.tcp_address, sizeof(scene->node.record.tcp_address),
                   "tcp:127.0.0.1:1");
    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
    other = add_node(scene, wrong_token, "tcp:127.0.0.1:0");
    join_last(scene);
    assert_int_equal(tdm__join_check_again(&scene->node, CHECK_MS, CHECK_MS, newest), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), "node other of the cluster has another token"));
    tdm__rpc_destroy(other);
}

/* The earlier of the two stays in the cluster; nodes of the first check are not asked again. */
static void node_that_joined_later_or_long_before_is_not_checked_again(void **state)
{
    static const uint8_t wrong_token[TDM__TOKEN_BYTES] = "another token altogether";
    struct node_fixture *scene = *state;
    struct tdm__rpc *before = add_node(scene, pair_token, "tcp:127.0.0.1:0");
    struct tdm__rpc *after;

    (void)snprintf(scene->node.record.tcp_address, sizeof(scene->node.record.tcp_address),
                   "tcp:127.0.0.1:1");
    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
    scene->node.record.tcp_address[0] = '\0'; /* Now the node before would be a reason to refuse. */
    join_last(scene);
    after = add_node(scene, wrong_token, "tcp:127.0.0.1:0");
    TRY(tdm__join_check_again(&scene->node, CHECK_MS, CHECK_MS, newest));
    tdm__rpc_destroy(after);
    tdm__rpc_destroy(before);
}

/* The record of a dead node stays until its lease has ended. */
static void dead_node_is_passed_over(void **state)
{
    struct node_fixture *scene = *state;

    tdm__rpc_destroy(add_node(scene, pair_token, "tcp:127.0.0.1:0"));
    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
}

/* The node of an earlier daemon in the same directory, which was killed. */
static void node_is_not_taken_for_its_predecessor(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__node_record record = scene->node.record;
    struct tdm__node_resources totals = {.name = "this"};

    TRY(tdm__id_generate(&record.id));
    totals.id = record.id;
    reserve_fixture_join_as(&scene->world, &record, &totals);
    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
}

/* A daemon that is stopped accepts connections, but says nothing. */
static void silent_node_is_passed_over_at_the_deadline(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    TRY(tdm__join_check(&scene->node, CHECK_MS, 50, &newest));
    assert_int_equal(other.held_count, 1);
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    remote_peer_close(&other);
}

/* Makes the store of the node fail the next `count` reads of the list of nodes. */
static void lose_reads(struct node_fixture *scene, uint32_t count)
{
    scene->deaf.fail_pattern = "node/*";
    scene->deaf.fail_reads_count = count;
}

static void lost_request_to_the_store_is_repeated(void **state)
{
    struct node_fixture *scene = *state;

    lose_reads(scene, 2);
    TRY(tdm__join_check(&scene->node, CHECK_MS, CHECK_MS, &newest));
    assert_int_equal(scene->deaf.fail_reads_count, 0);
}

static void store_that_never_replies_is_named(void **state)
{
    struct node_fixture *scene = *state;

    lose_reads(scene, UINT32_MAX);
    assert_int_equal(tdm__join_check(&scene->node, 200, CHECK_MS, &newest), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "times in 200 ms: "));
    assert_non_null(strstr(tdm_error_detail(), "Check that Redis answers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(node_alone_joins),
        NODE_FIXTURE_TEST(node_that_listens_joins_others_that_do),
        NODE_FIXTURE_TEST(node_with_another_token_does_not_join),
        NODE_FIXTURE_TEST(node_that_joined_meanwhile_is_checked),
        NODE_FIXTURE_TEST(node_that_joined_later_or_long_before_is_not_checked_again),
        NODE_FIXTURE_TEST(node_without_listen_does_not_join_nodes_that_listen),
        NODE_FIXTURE_TEST(node_does_not_join_one_that_does_not_listen),
        NODE_FIXTURE_TEST(dead_node_is_passed_over),
        NODE_FIXTURE_TEST(node_is_not_taken_for_its_predecessor),
        NODE_FIXTURE_TEST(silent_node_is_passed_over_at_the_deadline),
        NODE_FIXTURE_TEST(lost_request_to_the_store_is_repeated),
        NODE_FIXTURE_TEST(store_that_never_replies_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
