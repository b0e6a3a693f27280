/* actor_queries_test.c - each query about an actor gets one reply, wherever the actor is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_queries.h"
#include "actors/daemon/actor_remote.h"
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

/* ---- questions -------------------------------------------------------------------------- */

static void ask_by(struct remote_peer *end, struct remote_reply *reply, const char *method,
                   const struct tdm__id *actor)
{
    static const struct tdm__id no_node;

    remote_peer_ask(end, reply, method, "b?b", (const void *)actor->bytes, sizeof(actor->bytes), 0,
                    (const void *)no_node.bytes, sizeof(no_node.bytes));
}

static void ask(struct node_fixture *scene, struct remote_reply *reply, const char *method,
                const struct tdm__id *actor)
{
    ask_by(&scene->driver, reply, method, actor);
}

static void expect_failure(struct node_fixture *scene, struct remote_reply *reply,
                           tdm_status status, const char *words)
{
    assert_int_equal(remote_peer_wait(&scene->driver, reply), status);
    assert_non_null(strstr(reply->detail, words));
}

static void expect_nothing(struct node_fixture *scene, struct remote_reply *reply)
{
    assert_int_equal(remote_peer_wait(&scene->driver, reply), TDM_OK);
    assert_int_equal(tdm_value_count(remote_reply_value(reply)), 0);
    remote_reply_free(reply);
}

static struct tdm__id new_id(void)
{
    struct tdm__id id;

    assert_int_equal(tdm__id_generate(&id), TDM_OK);
    return id;
}

/* ---- of the dead ------------------------------------------------------------------------ */

static void unknown_dead_actor_is_reported_without_a_cause(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__id id = new_id();
    struct remote_reply reply;

    ask(scene, &reply, "actor.fate", &id);
    expect_failure(scene, &reply, TDM_E_ACTOR_DIED, "how is no longer known");
    ask(scene, &reply, "actor.why", &id);
    expect_failure(scene, &reply, TDM_E_ACTOR_DIED, "how is no longer known");
    ask(scene, &reply, "actor.kill", &id); /* Killing a dead actor succeeds. */
    expect_nothing(scene, &reply);
    ask(scene, &reply, "actor.release", &id);
    expect_nothing(scene, &reply);
}

static void dead_actor_is_reported_and_killing_it_succeeds(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct tdm__id id = entry->spec->id;
    struct remote_reply reply;

    tdm__actor_entry_remove(entry, TDM_E_NODE_LOST, "with its node");
    ask(scene, &reply, "actor.await", &id);
    expect_failure(scene, &reply, TDM_E_NODE_LOST, "with its node");
    ask(scene, &reply, "actor.kill", &id);
    expect_nothing(scene, &reply);
    ask(scene, &reply, "actor.release", &id);
    expect_nothing(scene, &reply);
}

/* ---- of those that are not here yet ----------------------------------------------------- */

static bool holds_early(void *arg)
{
    const struct node_fixture *scene = arg;

    return scene->node.actors->early_queries != NULL;
}

/* Handles may be faster than the actors they are of. */
static void early_queries_wait_for_their_own_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct tdm__id unknown = new_id();
    struct remote_reply of_spec;
    struct remote_reply of_unknown;
    struct actor_entry *entry;

    ask(scene, &of_unknown, "actor.await", &unknown);
    ask(scene, &of_spec, "actor.await", &spec->id);
    node_fixture_run(scene, holds_early, scene);
    node_fixture_settle(scene);
    entry = tdm__actor_entry_add(&scene->node, spec);
    entry->lifecycle.state = ACTOR_STARTING;
    entry->lifecycle.reservation = ACTOR_RESERVES;
    node_fixture_start(entry);
    /* The deadline of the queries is far away. */
    tdm__node_retry_early_queries(&scene->node, 0);
    /* The query for the other actor still waits. */
    assert_non_null(scene->node.actors->early_queries);
    assert_null(scene->node.actors->early_queries->next);
    assert_non_null(entry->waiters);
    node_fixture_construct(entry);
    assert_int_equal(remote_peer_wait(&scene->driver, &of_spec), TDM_OK);
    assert_int_equal(of_unknown.count, 0);
    tdm__node_retry_early_queries(&scene->node, TDM__NEVER);
    expect_failure(scene, &of_unknown, TDM_E_ACTOR_DIED, "how is no longer known");
    assert_null(scene->node.actors->early_queries);
    remote_reply_free(&of_spec);
}

static void early_query_is_forwarded_to_the_node_of_the_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__id unknown = new_id();
    struct remote_reply reply;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    remote_peer_ask(&scene->driver, &reply, "actor.await", "b?b", (const void *)unknown.bytes,
                    sizeof(unknown.bytes), 0, (const void *)other.self.id.bytes,
                    sizeof(other.self.id.bytes));
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.await");
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_ACTOR_DIED, "its last words");
    expect_failure(scene, &reply, TDM_E_ACTOR_DIED, "its last words");
    remote_peer_close(&other);
}

static void queries_fail_when_the_awaited_actor_ends(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_RESTARTING);
    struct tdm__id id = entry->spec->id;
    struct remote_reply await;
    struct remote_reply fate;
    struct remote_reply killed;

    ask(scene, &await, "actor.await", &id);
    ask(scene, &fate, "actor.fate", &id);
    node_fixture_settle(scene);
    assert_int_equal(await.count + fate.count, 0);
    ask(scene, &killed, "actor.kill", &id);
    expect_failure(scene, &await, TDM_E_ACTOR_DIED, "ended while it was restarted");
    expect_failure(scene, &fate, TDM_E_ACTOR_DIED, "ended while it was restarted");
    expect_nothing(scene, &killed);
    node_fixture_run_out(scene);
}

static void why_query_returns_what_the_actor_waits_for(void **state)
{
    static const struct {
        enum actor_state state;
        const char *waits_for;
        const char *why;
    } records[] = {
        {ACTOR_PLACING, "", "it waits for a place"},
        {ACTOR_WAITING, "it waits: no GPU is free", "it waits: no GPU is free"},
        {ACTOR_STARTING, "", "its constructor has not returned"},
        {ACTOR_ALIVE, "", "it lives"},
        {ACTOR_RESTARTING, "", "it died and is being restarted"},
        {ACTOR_ENDING, "", "it is ending"},
    };
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_PLACING);
    struct remote_reply reply;

    for (uint32_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        entry->lifecycle.state = records[i].state;
        (void)snprintf(entry->waits_for, sizeof(entry->waits_for), "%s", records[i].waits_for);
        ask(scene, &reply, "actor.why", &entry->spec->id);
        assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
        assert_string_equal(tdm_value_string(tdm_value_at(remote_reply_value(&reply), 0), ""),
                            records[i].why);
        remote_reply_free(&reply);
    }
    entry->lifecycle.state = ACTOR_WAITING;
}

/* ---- who counts the handles ------------------------------------------------------------- */

static void only_the_creator_and_daemons_may_release_an_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    const struct tdm__id *id = &entry->spec->id;
    struct remote_reply reply;
    struct remote_peer ends[2]; /* The peers are another driver and a daemon. */

    for (int i = 0; i < 2; i++) {
        remote_peer_open(&ends[i], scene->world.loop, i == 0 ? TDM__PEER_DRIVER : TDM__PEER_DAEMON,
                         "another");
        remote_peer_connect(&ends[i], scene->address);
        ask_by(&ends[i], &reply, "actor.release", id);
        assert_int_equal(remote_peer_wait(&ends[i], &reply), TDM_OK);
        remote_reply_free(&reply);
        assert_int_equal(entry->lifecycle.demand, i == 1 ? ACTOR_RELEASED : ACTOR_WANTED);
        remote_peer_close(&ends[i]);
    }
    entry->lifecycle.demand = ACTOR_WANTED;
    entry->spec->detached = true;
    ask(scene, &reply, "actor.release", id);
    expect_nothing(scene, &reply);
    assert_int_equal(entry->lifecycle.demand, ACTOR_WANTED);
    entry->spec->detached = false;
    ask(scene, &reply, "actor.release", id);
    expect_nothing(scene, &reply);
    assert_int_equal(entry->lifecycle.demand, ACTOR_RELEASED);
}

/* ---- elsewhere -------------------------------------------------------------------------- */

static struct actor_entry *add_remote(struct node_fixture *scene, const struct remote_peer *other)
{
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_REMOTE);

    entry->record.node = other->self.id;
    return entry;
}

static void lose_question(struct remote_peer *other, const char *method)
{
    remote_peer_hold(other, 1);
    assert_string_equal(tdm__incoming_method(other->held[0]), method);
    tdm__incoming_fail(remote_peer_take(other), TDM_E_NODE_LOST,
                       "node other is lost: its way ended");
}

/* The actor is created again on this node, and the query gets the reply of its next worker. */
static void query_waits_for_an_actor_that_survives_its_node(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct actor_entry *entry;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    entry = add_remote(scene, &other);
    entry->spec->max_restarts = 1;
    ask(scene, &reply, "actor.fate", &entry->spec->id);
    lose_question(&other, "actor.fate");
    node_fixture_settle(scene);
    assert_int_equal(reply.count, 0);
    entry->lifecycle.incarnation = 1;
    node_fixture_start(entry);
    node_fixture_construct(entry);
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
    assert_int_equal(tdm_value_uint(tdm_value_at(remote_reply_value(&reply), 5), 0), 1);
    remote_reply_free(&reply);
    remote_peer_close(&other);
}

static void query_fails_for_an_actor_lost_with_its_node(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct actor_entry *entry;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    entry = add_remote(scene, &other);
    ask(scene, &reply, "actor.await", &entry->spec->id);
    lose_question(&other, "actor.await");
    expect_failure(scene, &reply, TDM_E_NODE_LOST, "node other is lost");
    remote_peer_close(&other);
}

/* Nobody may take over what the node has, and the actor may live. */
static void query_of_an_actor_whose_node_is_silent_can_be_asked_again(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__node_record record = {.name = "other"};
    struct remote_reply reply;
    struct actor_entry *entry;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    entry = add_remote(scene, &other);
    record.id = other.self.id;
    (void)snprintf(record.unix_address, sizeof(record.unix_address), "unix:%s/other",
                   scene->directory);
    tdm__node_peers_note(&scene->node, &record, 1);
    ask(scene, &reply, "actor.fate", &entry->spec->id);
    lose_question(&other, "actor.fate");
    expect_failure(scene, &reply, TDM_E_AGAIN, "its way ended");
    tdm__node_peers_find(&scene->node, &other.self.id)->reachability.is_unreachable = true;
    ask(scene, &reply, "actor.fate", &entry->spec->id);
    lose_question(&other, "actor.fate");
    expect_failure(scene, &reply, TDM_E_ACTOR_UNAVAILABLE, "node other has not answered");
    remote_peer_close(&other);
}

/* It must not come back, wherever it is: the kill is this node's from then on. */
static void kill_that_did_not_reach_the_node_is_kept(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct actor_entry *entry;
    struct tdm__id id;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    entry = add_remote(scene, &other);
    id = entry->spec->id;
    entry->spec->max_restarts = -1;
    ask(scene, &reply, "actor.kill", &id);
    lose_question(&other, "actor.kill");
    remote_peer_hold(&other, 1); /* and again */
    assert_int_equal(entry->lifecycle.demand, ACTOR_END_REQUESTED);
    assert_false(tdm__actor_entry_survives_node_loss(entry));
    assert_int_equal(reply.count, 0);
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    expect_nothing(scene, &reply);
    assert_non_null(tdm__tombstone_find(&scene->node, &id));
    remote_peer_close(&other);
}

/* The other node has not got the request to start the actor again, and replies that an earlier
 * process of the actor has ended there. */
static void kill_of_an_actor_whose_start_was_lost_ends_the_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct actor_entry *entry;
    struct tdm__id id;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    entry = add_remote(scene, &other);
    entry->lifecycle.state = ACTOR_REMOTE_UNSURE;
    id = entry->spec->id;
    ask(scene, &reply, "actor.kill", &id);
    remote_peer_hold(&other, 1);
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    remote_peer_hold(&other, 1); /* Asked once more, as for an actor that must not come back. */
    assert_int_equal(entry->lifecycle.demand, ACTOR_END_REQUESTED);
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    expect_nothing(scene, &reply);
    assert_non_null(tdm__tombstone_find(&scene->node, &id));
    remote_peer_close(&other);
}

/* ---- by the store ----------------------------------------------------------------------- */

/* What the store has of an actor that this node does not know. */
static struct tdm__id put_record(struct node_fixture *scene, const struct tdm__id *node,
                                 const struct tdm__id *owner_node)
{
    const struct tdm__actor_record record = {.actor = new_id(),
                                             .node = *node,
                                             .owner_node = *owner_node,
                                             .recreate_on_node_loss = true,
                                             .class_name = "tester"};

    node_fixture_put(scene, &record);
    return record.actor;
}

static void owner_node_is_asked_once_after_the_actors_node_is_lost(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer other;
    struct remote_peer owner_node;
    struct tdm__id id;

    node_fixture_other(scene, &other, "other");
    node_fixture_other(scene, &owner_node, "owner_node");
    id = put_record(scene, &other.self.id, &owner_node.self.id);
    ask(scene, &reply, "actor.fate", &id);
    lose_question(&other, "actor.fate");
    lose_question(&owner_node, "actor.fate");
    expect_failure(scene, &reply, TDM_E_NODE_LOST, "is lost");
    node_fixture_settle(scene);
    assert_int_equal(other.asked_count + owner_node.asked_count, 2);
    remote_peer_close(&other);
    remote_peer_close(&owner_node);
}

/* This node has stopped an actor with its lease. Others are sent to the owner's node, which places
 * the actor again, and the owner's node gets a reply: it would ask here again. */
static void owner_node_that_asks_for_a_stopped_actor_is_not_asked_back(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct tdm__actor_record record = {.actor = entry->spec->id,
                                       .node = scene->node.record.id,
                                       .recreate_on_node_loss = true,
                                       .class_name = "tester"};
    struct remote_peer owner_node;
    struct remote_reply reply;

    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    record.owner_node = owner_node.self.id;
    node_fixture_put(scene, &record);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_RESTARTING, "stopped with the lease");
    ask_by(&owner_node, &reply, "actor.why", &record.actor);
    assert_int_equal(remote_peer_wait(&owner_node, &reply), TDM_E_ACTOR_RESTARTING);
    assert_int_equal(owner_node.asked_count, 0);
    ask(scene, &reply, "actor.why", &record.actor);
    remote_peer_hold(&owner_node, 1);
    tdm__incoming_fail(remote_peer_take(&owner_node), TDM_E_ACTOR_DIED, "its last words");
    expect_failure(scene, &reply, TDM_E_ACTOR_DIED, "its last words");
    remote_peer_close(&owner_node);
}

/* According to the store the actor is on this node, but its start has not arrived. */
static void query_waits_for_an_actor_whose_start_has_not_arrived(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct tdm__id id;

    id = put_record(scene, &scene->node.record.id, &scene->node.record.id);
    ask(scene, &reply, "actor.fate", &id);
    node_fixture_run(scene, holds_early, scene);
    tdm__node_retry_early_queries(&scene->node, TDM__NEVER);
    expect_failure(scene, &reply, TDM_E_ACTOR_DIED, "how is no longer known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(unknown_dead_actor_is_reported_without_a_cause),
        NODE_FIXTURE_TEST(dead_actor_is_reported_and_killing_it_succeeds),
        NODE_FIXTURE_TEST(early_queries_wait_for_their_own_actor),
        NODE_FIXTURE_TEST(early_query_is_forwarded_to_the_node_of_the_actor),
        NODE_FIXTURE_TEST(queries_fail_when_the_awaited_actor_ends),
        NODE_FIXTURE_TEST(why_query_returns_what_the_actor_waits_for),
        NODE_FIXTURE_TEST(only_the_creator_and_daemons_may_release_an_actor),
        NODE_FIXTURE_TEST(query_waits_for_an_actor_that_survives_its_node),
        NODE_FIXTURE_TEST(query_of_an_actor_whose_node_is_silent_can_be_asked_again),
        NODE_FIXTURE_TEST(query_fails_for_an_actor_lost_with_its_node),
        NODE_FIXTURE_TEST(kill_that_did_not_reach_the_node_is_kept),
        NODE_FIXTURE_TEST(owner_node_is_asked_once_after_the_actors_node_is_lost),
        NODE_FIXTURE_TEST(kill_of_an_actor_whose_start_was_lost_ends_the_actor),
        NODE_FIXTURE_TEST(owner_node_that_asks_for_a_stopped_actor_is_not_asked_back),
        NODE_FIXTURE_TEST(query_waits_for_an_actor_whose_start_has_not_arrived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
