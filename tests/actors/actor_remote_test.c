/* actor_remote_test.c - an actor on another node, and messages between nodes that are lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_actions.h"
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_remote.h"
#include "runtime/clock.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- an actor, and the other node -------------------------------------------------------- */

struct pair {
    struct node_fixture *scene;
    struct remote_peer other;
    struct actor_entry *entry;
    struct tdm__id actor;
    struct tdm__node_record nodes[2]; /* Records of this node and of the other one. */
};

static struct pair open_pair(struct node_fixture *scene)
{
    struct pair pair = {.scene = scene, .entry = node_fixture_add(scene, ACTOR_PLACING)};

    pair.actor = pair.entry->spec->id;
    pair.nodes[0].id = scene->node.record.id;
    return pair;
}

/* The place that was found for it is there. */
static void join_other(struct pair *pair)
{
    node_fixture_other(pair->scene, &pair->other, "other");
    pair->nodes[1].id = pair->entry->record.node = pair->other.self.id;
    (void)snprintf(pair->entry->placement_node_name, sizeof(pair->entry->placement_node_name),
                   "other");
}

/* What arrived at the other node. */
static struct tdm__incoming_call *expect(struct pair *pair, const char *method)
{
    remote_peer_hold(&pair->other, 1);
    assert_string_equal(tdm__incoming_method(pair->other.held[0]), method);
    return remote_peer_take(&pair->other);
}

static void start_on_other(struct pair *pair)
{
    pair->entry->lifecycle.state = ACTOR_PLACING;
    tdm__actor_entry_handle(pair->entry, (struct actor_event){.kind = ACTOR_ON_RESERVED_ELSEWHERE});
}

static void start_there(struct pair *pair)
{
    start_on_other(pair);
    tdm__incoming_reply_pack(expect(pair, "actor.start"), "");
    node_fixture_settle(pair->scene);
    assert_int_equal(pair->entry->lifecycle.state, ACTOR_REMOTE);
}

static void look(struct pair *pair, bool is_there)
{
    tdm__node_actors_update_nodes(&pair->scene->node, pair->nodes, is_there ? 2 : 1);
}

static bool is_gone(void *arg)
{
    const struct pair *pair = arg;

    return tdm__actor_entry_find(&pair->scene->node, &pair->actor) == NULL;
}

static void expect_end(struct pair *pair, tdm_status status, const char *words)
{
    const struct actor_tombstone *actor_tombstone;

    node_fixture_run(pair->scene, is_gone, pair);
    actor_tombstone = tdm__tombstone_find(&pair->scene->node, &pair->actor);
    assert_non_null(actor_tombstone);
    assert_int_equal(actor_tombstone->status, status);
    assert_non_null(strstr(actor_tombstone->text, words));
}

/* ---- its start --------------------------------------------------------------------------- */

static void a_start_that_nobody_heard_is_repeated_as_the_same_life(void **state)
{
    struct pair pair = open_pair(*state);
    struct tdm__incoming_call *incoming;
    const tdm_value *value;

    join_other(&pair);
    pair.entry->lifecycle.incarnation = 3;
    start_on_other(&pair);
    tdm__incoming_fail(expect(&pair, "actor.start"), TDM_E_NODE_LOST, "its way ended");
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.entry->lifecycle.state, ACTOR_REMOTE_UNSURE);
    look(&pair, true);
    incoming = expect(&pair, "actor.start");
    assert_int_equal(tdm__incoming_value(incoming, &value), TDM_OK);
    assert_int_equal(tdm_value_uint(tdm_value_at(value, 3), 0), 3);
    look(&pair, true); /* The reply is still pending. */
    tdm__incoming_reply_pack(incoming, "");
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.entry->lifecycle.state, ACTOR_REMOTE);
    look(&pair, true);
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.other.asked_count, 2);
    remote_peer_close(&pair.other);
}

static bool has_no_release(void *arg)
{
    return ((const struct pair *)arg)->scene->node.actors->pending_releases == NULL;
}

/* The other daemon may never have heard of the actor, and pending_releases nothing then. */
static void test_unsure_start_that_is_ended_is_not_repeated_and_gives_its_place_back(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_on_other(&pair);
    tdm__incoming_fail(expect(&pair, "actor.start"), TDM_E_NODE_LOST, "its way ended");
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.entry->lifecycle.state, ACTOR_REMOTE_UNSURE);
    tdm__actor_entry_end(pair.entry, true);
    tdm__incoming_fail(expect(&pair, "actor.kill"), TDM_E_NODE_LOST, "its way ended");
    node_fixture_settle(pair.scene);
    look(&pair, true);
    tdm__incoming_fail(expect(&pair, "actor.kill"), TDM_E_ACTOR_DIED, "nobody knows of it");
    node_fixture_run(pair.scene, is_gone, &pair);
    assert_non_null(pair.scene->node.actors->pending_releases);
    node_fixture_run(pair.scene, has_no_release, &pair);
    remote_peer_close(&pair.other);
}

static void one_unwanted_meanwhile_is_ended_when_it_has_started(void **state)
{
    struct pair pair = open_pair(*state);
    struct tdm__incoming_call *start;

    join_other(&pair);
    start_on_other(&pair);
    start = expect(&pair, "actor.start");
    tdm__actor_entry_end(pair.entry, true);
    tdm__actor_entry_end(pair.entry, true); /* asked once */
    tdm__incoming_reply_pack(expect(&pair, "actor.kill"), "");
    node_fixture_settle(pair.scene);
    assert_false(is_gone(&pair)); /* The end may overtake the start. */
    tdm__incoming_reply_pack(start, "");
    tdm__incoming_reply_pack(expect(&pair, "actor.kill"), "");
    expect_end(&pair, TDM_E_ACTOR_DIED, "ended with its creator");
    remote_peer_close(&pair.other);
}

static void one_released_meanwhile_is_released_there(void **state)
{
    struct pair pair = open_pair(*state);
    struct tdm__incoming_call *start;

    join_other(&pair);
    start_on_other(&pair);
    start = expect(&pair, "actor.start");
    tdm__actor_entry_release(pair.entry);
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.other.asked_count, 1);
    tdm__incoming_reply_pack(start, "");
    tdm__incoming_reply_pack(expect(&pair, "actor.release"), "");
    remote_peer_close(&pair.other);
}

/* ---- its end ----------------------------------------------------------------------------- */

/* The store does not say in time where the other node listens: it has not been told. */
static void an_end_that_did_not_leave_is_repeated(void **state)
{
    struct pair pair = open_pair(*state);
    char key[TDM__STORE_KEY_BYTES];

    join_other(&pair);
    pair.entry->lifecycle.state = ACTOR_REMOTE;
    pair.scene->deaf.fail_pattern = tdm__store_key("node", &pair.other.self.id, key);
    pair.scene->deaf.fail_reads_count = 1;
    tdm__actor_entry_end(pair.entry, true);
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.scene->deaf.fail_reads_count, 0);
    assert_int_equal(pair.other.asked_count, 0);
    assert_false(is_gone(&pair));
    look(&pair, true);
    tdm__incoming_reply_pack(expect(&pair, "actor.kill"), "");
    expect_end(&pair, TDM_E_ACTOR_DIED, "ended with its creator");
    remote_peer_close(&pair.other);
}

/* Its start was lost, or all that the other node knew of it. */
static void an_end_is_over_when_the_other_node_knows_of_none(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    pair.entry->lifecycle.state = ACTOR_REMOTE;
    tdm__actor_entry_end(pair.entry, true);
    tdm__incoming_fail(expect(&pair, "actor.kill"), TDM_E_ACTOR_DIED, "nobody knows of it");
    expect_end(&pair, TDM_E_ACTOR_DIED, "nobody knows of it");
    remote_peer_close(&pair.other);
}

static void an_end_is_over_when_the_other_node_is(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    /* A restart is allowed, but the actor is not wanted any more. */
    pair.entry->spec->max_restarts = -1;
    start_there(&pair);
    tdm__actor_entry_end(pair.entry, true);
    tdm__incoming_fail(expect(&pair, "actor.kill"), TDM_E_NODE_LOST, "its way ended");
    node_fixture_settle(pair.scene);
    assert_false(is_gone(&pair));
    look(&pair, false);
    expect_end(&pair, TDM_E_ACTOR_DIED, "is lost with its node other");
    remote_peer_close(&pair.other);
}

static void only_its_own_node_tells_of_its_end(void **state)
{
    struct pair pair = open_pair(*state);
    struct node_fixture *scene = pair.scene;

    join_other(&pair);
    start_there(&pair);
    tdm__node_remote_actor_ended(&scene->node, &scene->driver.self.id, &pair.actor,
                                 TDM_E_ACTOR_DIED, "a rumour");
    assert_false(is_gone(&pair));
    remote_peer_connect(&pair.other, scene->address);
    assert_int_equal(remote_peer_call(&scene->driver, "actor.ended", "bis",
                                      (const void *)pair.actor.bytes, sizeof(pair.actor.bytes),
                                      (int64_t)TDM_E_ACTOR_DIED, "by a driver"),
                     TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(&pair.other, "actor.ended", "bis",
                                      (const void *)pair.actor.bytes, sizeof(pair.actor.bytes),
                                      (int64_t)TDM_OK, "is no end"),
                     TDM_E_PROTOCOL);
    assert_false(is_gone(&pair));
    assert_int_equal(remote_peer_call(&pair.other, "actor.ended", "bis",
                                      (const void *)pair.actor.bytes, sizeof(pair.actor.bytes),
                                      (int64_t)TDM_E_ACTOR_DIED, "its last words"),
                     TDM_OK);
    expect_end(&pair, TDM_E_ACTOR_DIED, "its last words");
    remote_peer_close(&pair.other);
}

/* ---- lost with its node ------------------------------------------------------------------ */

static void who_may_not_return_is_lost_with_its_node(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    pair.entry->spec->max_restarts = 1;
    start_there(&pair);
    assert_true(tdm__actor_entry_survives_node_loss(pair.entry));
    pair.entry->lifecycle.incarnation = 1;
    assert_false(tdm__actor_entry_survives_node_loss(pair.entry));
    look(&pair, false);
    expect_end(&pair, TDM_E_NODE_LOST, "is lost with its node other");
    remote_peer_close(&pair.other);
}

static bool is_placed_here(void *arg)
{
    const struct pair *pair = arg;

    return pair->entry->lifecycle.state == ACTOR_STARTING;
}

/* It is not known whether the actor ever ran, so the start does not count as a restart. */
static void an_unsure_start_is_made_anew_without_counting(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_on_other(&pair);
    tdm__incoming_fail(expect(&pair, "actor.start"), TDM_E_NODE_LOST, "its way ended");
    node_fixture_settle(pair.scene);
    reserve_fixture_lose(&pair.scene->world, &pair.other.self.id);
    look(&pair, false);
    node_fixture_run(pair.scene, is_placed_here, &pair);
    assert_int_equal(pair.entry->lifecycle.incarnation, 0);
    remote_peer_close(&pair.other);
}

/* ---- guests ------------------------------------------------------------------------------ */

static void a_guest_ends_with_its_owner_unless_detached(void **state)
{
    struct pair pair = open_pair(*state);
    struct actor_entry *detached = node_fixture_add(*state, ACTOR_WAITING);

    join_other(&pair);
    pair.entry->lifecycle.state = ACTOR_WAITING;
    pair.entry->owner_node = detached->owner_node = pair.other.self.id;
    detached->spec->detached = true;
    look(&pair, true);
    assert_false(is_gone(&pair));
    look(&pair, false);
    assert_true(is_gone(&pair));
    assert_int_equal(detached->lifecycle.state, ACTOR_WAITING);
    remote_peer_close(&pair.other);
}

static void an_owner_node_knows_its_actors(void **state)
{
    struct pair pair = open_pair(*state);
    struct remote_peer *driver = &pair.scene->driver;
    struct remote_reply reply;

    for (int known = 1; known >= 0; known--) {
        remote_peer_ask(driver, &reply, "actor.known", "b", (const void *)pair.actor.bytes,
                        sizeof(pair.actor.bytes));
        assert_int_equal(remote_peer_wait(driver, &reply), TDM_OK);
        assert_int_equal(tdm_value_bool(tdm_value_at(remote_reply_value(&reply), 0), -1), known);
        remote_reply_free(&reply);
        if (known == 1) {
            tdm__actor_entry_remove(pair.entry, TDM_E_ACTOR_DIED, "over");
        }
    }
    assert_int_equal(remote_peer_call(driver, "actor.known", "b", (const void *)"short", (size_t)5),
                     TDM_E_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(a_start_that_nobody_heard_is_repeated_as_the_same_life),
        NODE_FIXTURE_TEST(test_unsure_start_that_is_ended_is_not_repeated_and_gives_its_place_back),
        NODE_FIXTURE_TEST(one_unwanted_meanwhile_is_ended_when_it_has_started),
        NODE_FIXTURE_TEST(one_released_meanwhile_is_released_there),
        NODE_FIXTURE_TEST(an_end_that_did_not_leave_is_repeated),
        NODE_FIXTURE_TEST(an_end_is_over_when_the_other_node_knows_of_none),
        NODE_FIXTURE_TEST(an_end_is_over_when_the_other_node_is),
        NODE_FIXTURE_TEST(only_its_own_node_tells_of_its_end),
        NODE_FIXTURE_TEST(who_may_not_return_is_lost_with_its_node),
        NODE_FIXTURE_TEST(an_unsure_start_is_made_anew_without_counting),
        NODE_FIXTURE_TEST(a_guest_ends_with_its_owner_unless_detached),
        NODE_FIXTURE_TEST(an_owner_node_knows_its_actors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
