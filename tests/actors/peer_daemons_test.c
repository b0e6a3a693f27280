/* peer_daemons_test.c - each call to another node gets one reply, whatever happens to the
 * connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/node_notices.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/clock.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- calls to another node -------------------------------------------------------------- */

struct told {
    uint32_t count;
    tdm_status status;
    char detail[512];
    struct node_fixture *scene;  /* Fixture to repeat the call with; NULL to not repeat it. */
    const struct tdm__id *other; /* Id of the node to call again. */
};

static void on_reply(void *arg, struct tdm__rpc_reply *reply);

static void forward(struct node_fixture *scene, const struct tdm__id *other, struct told *told)
{
    tdm__node_query_actor(&scene->node, other, "actor.known", other, TDM__NEVER, on_reply, told);
}

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct told *told = arg;
    struct node_fixture *scene = told->scene;

    told->count++;
    told->status = reply->status;
    (void)snprintf(told->detail, sizeof(told->detail), "%s", reply->detail);
    if (scene != NULL) {
        told->scene = NULL;
        forward(scene, told->other, told);
    }
}

static bool is_told(void *arg)
{
    return ((const struct told *)arg)->count > 0;
}

static struct tdm__node_record record_of(const struct tdm__id *id)
{
    return (struct tdm__node_record){.id = *id};
}

static void simultaneous_calls_share_one_connection(void **state)
{
    struct node_fixture *scene = *state;
    struct told told[3] = {{0}, {0}, {0}};
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    for (int i = 0; i < 3; i++) {
        forward(scene, &other.self.id, &told[i]);
    }
    remote_peer_hold(&other, 3);
    assert_int_equal(other.accepted_count, 1);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(tdm__incoming_method(other.held[0]), "actor.known");
        tdm__incoming_reply_pack(remote_peer_take(&other), "");
        /* Replies arrive in the order of the calls. */
        node_fixture_run(scene, is_told, &told[i]);
        assert_int_equal(told[i].status, TDM_OK);
    }
    remote_peer_close(&other);
}

static void call_to_an_unknown_node_fails_as_lost(void **state)
{
    struct node_fixture *scene = *state;
    struct told told = {0};
    struct tdm__id unknown;

    assert_int_equal(tdm__id_generate(&unknown), TDM_OK);
    forward(scene, &unknown, &told);
    node_fixture_run(scene, is_told, &told);
    assert_int_equal(told.status, TDM_E_NODE_LOST);
    assert_non_null(strstr(told.detail, "has left the cluster"));
}

/* The record exists until the lease expires, but no process listens at the address. */
static void call_to_a_node_that_refuses_the_connection_fails_as_lost(void **state)
{
    struct node_fixture *scene = *state;
    struct told told = {0};
    struct remote_peer other;
    struct tdm__id id;

    node_fixture_other(scene, &other, "other");
    id = other.self.id;
    remote_peer_close(&other);
    forward(scene, &id, &told);
    node_fixture_run(scene, is_told, &told);
    assert_int_equal(told.status, TDM_E_NODE_LOST);
    assert_non_null(strstr(told.detail, "other"));
}

/* It is not known whether the node exists. */
static void node_that_could_not_be_looked_up_is_not_lost(void **state)
{
    struct node_fixture *scene = *state;
    struct told told = {0};
    struct remote_peer other;
    char key[TDM__STORE_KEY_BYTES];

    node_fixture_other(scene, &other, "other");
    scene->deaf.fail_pattern = tdm__store_key("node", &other.self.id, key);
    scene->deaf.fail_reads_count = 1;
    forward(scene, &other.self.id, &told);
    node_fixture_run(scene, is_told, &told);
    assert_int_equal(told.status, TDM_E_TIMEOUT);
    node_fixture_settle(scene);
    assert_int_equal(other.asked_count, 0);
    remote_peer_close(&other);
}

static void end_of_the_connection_answers_its_open_calls(void **state)
{
    struct node_fixture *scene = *state;
    struct told told[2] = {{0}, {0}};
    struct told anew = {0};
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    forward(scene, &other.self.id, &told[0]);
    forward(scene, &other.self.id, &told[1]);
    remote_peer_hold(&other, 2);
    remote_peer_cut(&other);
    for (int i = 0; i < 2; i++) {
        node_fixture_run(scene, is_told, &told[i]);
        assert_int_equal(told[i].status, TDM_E_NODE_LOST);
        assert_non_null(strstr(told[i].detail, "node other is lost"));
        tdm__incoming_fail(remote_peer_take(&other), TDM_E_CANCELED, "goes nowhere");
    }
    forward(scene, &other.self.id, &anew);
    remote_peer_hold(&other, 1);
    assert_int_equal(other.accepted_count, 2);
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_STATE, "its own words");
    node_fixture_run(scene, is_told, &anew);
    assert_int_equal(anew.status, TDM_E_STATE);
    assert_string_equal(anew.detail, "its own words");
    assert_int_equal(told[0].count + told[1].count, 2);
    remote_peer_close(&other);
}

/* ---- looks at who is there -------------------------------------------------------------- */

static void lost_node_is_reported_once(void **state)
{
    struct node_fixture *scene = *state;
    struct told told = {0};
    struct remote_peer other;
    struct tdm__node_record nodes[2];

    node_fixture_other(scene, &other, "other");
    nodes[0] = record_of(&scene->node.record.id);
    nodes[1] = record_of(&other.self.id);
    forward(scene, &other.self.id, &told);
    remote_peer_hold(&other, 1);
    assert_false(tdm__node_peers_update(&scene->node, nodes, 2));
    node_fixture_settle(scene);
    assert_int_equal(told.count, 0);
    assert_true(tdm__node_peers_update(&scene->node, nodes, 1));
    node_fixture_run(scene, is_told, &told);
    assert_int_equal(told.status, TDM_E_NODE_LOST);
    assert_false(tdm__node_peers_update(&scene->node, nodes, 1));
    assert_false(tdm__node_peers_update(&scene->node, nodes, 2)); /* The node has returned. */
    remote_peer_close(&other);
}

/* What it made may be younger than the list; what was made to it is as old as its record. */
static void node_that_was_never_listed_keeps_its_actors(void **state)
{
    struct node_fixture *scene = *state;
    struct told told = {0};
    struct tdm__node_record self = record_of(&scene->node.record.id);
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    remote_peer_connect(&other, scene->address);
    assert_int_equal(remote_peer_call(&other, "node.describe", ""), TDM_OK);
    forward(scene, &other.self.id, &told);
    remote_peer_hold(&other, 1);
    assert_false(tdm__node_peers_update(&scene->node, &self, 1));
    node_fixture_run(scene, is_told, &told);
    assert_int_equal(told.status, TDM_E_NODE_LOST);
    assert_int_equal(remote_peer_call(&other, "node.describe", ""), TDM_OK);
    remote_peer_close(&other);
}

static bool is_cut(void *arg)
{
    return ((const struct remote_peer *)arg)->conn == NULL;
}

/* The node joined in epoch 5 and was lost before this daemon received a list. */
static void node_that_came_and_went_between_two_lists_is_cut_off(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__node_record self = record_of(&scene->node.record.id);
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    other.self.node_epoch = 5;
    tdm__rpc_set_node_epoch(other.rpc, 5);
    remote_peer_connect(&other, scene->address);
    assert_int_equal(remote_peer_call(&other, "node.describe", ""), TDM_OK);
    tdm__node_peers_lose_unlisted(&scene->node, &self, 1, 4); /* It may have joined later. */
    assert_int_equal(remote_peer_call(&other, "node.describe", ""), TDM_OK);
    tdm__node_peers_lose_unlisted(&scene->node, &self, 1, 5);
    node_fixture_run(scene, is_cut, &other);
    assert_true(tdm__node_was_lost(&scene->node, &other.self.id, 5));
    assert_false(tdm__node_was_lost(&scene->node, &other.self.id, 6));
    remote_peer_close(&other);
}

static void lost_node_loses_the_actors_that_it_created(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer other;
    struct tdm__node_record nodes[2];

    node_fixture_other(scene, &other, "other");
    remote_peer_connect(&other, scene->address);
    assert_int_equal(remote_peer_call(&other, "node.describe", ""), TDM_OK);
    nodes[0] = record_of(&scene->node.record.id);
    nodes[1] = record_of(&other.self.id);
    assert_false(tdm__node_peers_update(&scene->node, nodes, 2));
    assert_true(tdm__node_peers_update(&scene->node, nodes, 1));
    node_fixture_run(scene, is_cut, &other);
    assert_int_equal(remote_peer_call(&scene->driver, "node.describe", ""), TDM_OK); /* no daemon */
    remote_peer_close(&other);
}

/* ---- the end ---------------------------------------------------------------------------- */

static void end_of_the_node_answers_open_calls(void **state)
{
    struct node_fixture *scene = *state;
    struct told sent = {0};
    struct told looked_up = {0};
    struct tdm__id unknown;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    assert_int_equal(tdm__id_generate(&unknown), TDM_OK);
    forward(scene, &other.self.id, &sent);
    remote_peer_hold(&other, 1);
    forward(scene, &unknown, &looked_up);
    tdm__node_peers_destroy(&scene->node);
    assert_int_equal(sent.status, TDM_E_NODE_LOST);
    assert_string_equal(sent.detail, "this node is stopping");
    assert_int_equal(looked_up.status, TDM_E_NODE_LOST);
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    node_fixture_settle(scene);
    assert_int_equal(sent.count + looked_up.count, 2);
    remote_peer_close(&other);
}

/* As one does that then asks the actor's owner_node. */
static void call_made_from_the_callback_of_a_lost_node_fails_at_once(void **state)
{
    struct node_fixture *scene = *state;
    struct told told = {.scene = scene};
    struct told waits = {0};
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    told.other = &other.self.id;
    forward(scene, &other.self.id, &told);
    forward(scene, &other.self.id, &waits);
    remote_peer_hold(&other, 2);
    tdm__node_peers_destroy(&scene->node);
    assert_int_equal(told.count, 2);
    assert_int_equal(told.status, TDM_E_NODE_LOST);
    assert_int_equal(waits.count, 1);
    node_fixture_settle(scene);
    assert_int_equal(other.asked_count, 2);
    remote_peer_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(simultaneous_calls_share_one_connection),
        NODE_FIXTURE_TEST(call_to_an_unknown_node_fails_as_lost),
        NODE_FIXTURE_TEST(call_to_a_node_that_refuses_the_connection_fails_as_lost),
        NODE_FIXTURE_TEST(node_that_could_not_be_looked_up_is_not_lost),
        NODE_FIXTURE_TEST(end_of_the_connection_answers_its_open_calls),
        NODE_FIXTURE_TEST(lost_node_is_reported_once),
        NODE_FIXTURE_TEST(node_that_was_never_listed_keeps_its_actors),
        NODE_FIXTURE_TEST(lost_node_loses_the_actors_that_it_created),
        NODE_FIXTURE_TEST(node_that_came_and_went_between_two_lists_is_cut_off),
        NODE_FIXTURE_TEST(end_of_the_node_answers_open_calls),
        NODE_FIXTURE_TEST(call_made_from_the_callback_of_a_lost_node_fails_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
