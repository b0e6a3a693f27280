/* actor_remote_test.c - an actor on another node, and messages between nodes that are lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_actions.h"
#include "actors/daemon/actor_end.h"
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
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cmocka.h>

enum {
    LIST_EPOCH = 90, /* Epoch of the list of nodes that a test gives to its node. */
    GUEST_EPOCH = 7  /* Epoch of the other node in which it has placed an actor here. */
};

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

static const tdm_value *incoming_value(struct tdm__incoming_call *incoming)
{
    const tdm_value *value;

    assert_int_equal(tdm__incoming_value(incoming, &value), TDM_OK);
    return value;
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
    tdm__node_actors_update_nodes(&pair->scene->node, pair->nodes, is_there ? 2 : 1, LIST_EPOCH);
    tdm__node_remote_actors_update_nodes(&pair->scene->node, pair->nodes, is_there ? 2 : 1, false);
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

static void unheard_start_is_repeated_with_the_same_incarnation(void **state)
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
static void unsure_start_that_is_ended_is_not_repeated_and_releases_its_placement(void **state)
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

static void actor_unwanted_meanwhile_is_ended_after_its_start(void **state)
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

static void actor_released_meanwhile_is_released_on_the_other_node(void **state)
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

/* The request of the creator was lost with its connection. */
static void release_that_was_lost_is_repeated(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_there(&pair);
    tdm__actor_entry_release(pair.entry);
    look(&pair, true);
    tdm__incoming_reply_pack(expect(&pair, "actor.release"), "");
    remote_peer_close(&pair.other);
}

/* This node was lost for a while, so that the other one ended the actor and could not report it. */
static void node_that_was_lost_asks_what_has_become_of_its_actors(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_there(&pair);
    tdm__node_remote_actors_query(&pair.scene->node);
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.other.asked_count, 1);
    tdm__node_remote_actors_doubt(&pair.scene->node);
    tdm__node_remote_actors_query(&pair.scene->node);
    tdm__incoming_fail(expect(&pair, "actor.await"), TDM_E_AGAIN, "no answer");
    node_fixture_settle(pair.scene);
    assert_false(is_gone(&pair));
    tdm__node_remote_actors_query(&pair.scene->node);
    tdm__incoming_fail(expect(&pair, "actor.await"), TDM_E_ACTOR_DIED, "ended with its creator");
    expect_end(&pair, TDM_E_ACTOR_DIED, "ended with its creator");
    remote_peer_close(&pair.other);
}

/* ---- its end ----------------------------------------------------------------------------- */

/* The store does not say in time where the other node listens: it has not been told. */
static void unsent_end_report_is_repeated(void **state)
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
static void end_is_complete_if_the_other_node_does_not_know_the_actor(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    pair.entry->lifecycle.state = ACTOR_REMOTE;
    tdm__actor_entry_end(pair.entry, true);
    tdm__incoming_fail(expect(&pair, "actor.kill"), TDM_E_ACTOR_DIED, "nobody knows of it");
    expect_end(&pair, TDM_E_ACTOR_DIED, "nobody knows of it");
    remote_peer_close(&pair.other);
}

static void end_is_complete_if_the_other_node_is_lost(void **state)
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

static void only_the_actors_node_reports_its_end(void **state)
{
    struct pair pair = open_pair(*state);
    struct node_fixture *scene = pair.scene;

    join_other(&pair);
    start_there(&pair);
    tdm__node_remote_actor_ended(
        &scene->node, &scene->driver.self.id,
        &(struct tdm__actor_ended_message){pair.actor, TDM_E_ACTOR_DIED, "a rumour", false, 0});
    assert_false(is_gone(&pair));
    remote_peer_connect(&pair.other, scene->address);
    assert_int_equal(remote_peer_call(&scene->driver, "actor.ended", "bis?i",
                                      (const void *)pair.actor.bytes, sizeof(pair.actor.bytes),
                                      (int64_t)TDM_E_ACTOR_DIED, "by a driver", 0, (int64_t)0),
                     TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(&pair.other, "actor.ended", "bis?i",
                                      (const void *)pair.actor.bytes, sizeof(pair.actor.bytes),
                                      (int64_t)TDM_OK, "is no end", 0, (int64_t)0),
                     TDM_E_PROTOCOL);
    assert_false(is_gone(&pair));
    assert_int_equal(remote_peer_call(&pair.other, "actor.ended", "bis?i",
                                      (const void *)pair.actor.bytes, sizeof(pair.actor.bytes),
                                      (int64_t)TDM_E_ACTOR_DIED, "its last words", 0, (int64_t)0),
                     TDM_OK);
    expect_end(&pair, TDM_E_ACTOR_DIED, "its last words");
    remote_peer_close(&pair.other);
}

/* The other node has repeated a report about an earlier placement there. */
static void late_report_of_an_earlier_placement_is_ignored(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_there(&pair);
    pair.entry->record.placements = 2;
    for (uint32_t placements = 1; placements <= 2; placements++) {
        assert_false(is_gone(&pair));
        tdm__node_remote_actor_ended(
            &pair.scene->node, &pair.other.self.id,
            &(struct tdm__actor_ended_message){pair.actor, TDM_E_ACTOR_DIED, "its last words",
                                               false, placements});
    }
    expect_end(&pair, TDM_E_ACTOR_DIED, "its last words");
    remote_peer_close(&pair.other);
}

/* ---- stopped by its node --------------------------------------------------------------- */

static bool is_placed_here(void *arg)
{
    const struct pair *pair = arg;

    return pair->entry->lifecycle.state == ACTOR_STARTING;
}

/* Tells this node that the other one has stopped the actor, because its lease has ended. */
static void report_fence(struct pair *pair)
{
    tdm__node_remote_actor_ended(&pair->scene->node, &pair->other.self.id,
                                 &(struct tdm__actor_ended_message){pair->actor, TDM_E_ACTOR_DIED,
                                                                    "its lease ended", true, 0});
}

/* The other node is still in the store, which it cannot reach, and has the actor's resources. */
static void actor_that_its_node_stopped_without_a_lease_is_placed_again(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    pair.entry->spec->max_restarts = -1;
    pair.entry->spec->placement.wanted.cpu = 0;
    start_there(&pair);
    reserve_fixture_lose(&pair.scene->world, &pair.other.self.id);
    report_fence(&pair);
    assert_int_equal(pair.entry->lifecycle.state, ACTOR_WAITING);
    node_fixture_run(pair.scene, is_placed_here, &pair);
    assert_int_equal(pair.entry->lifecycle.incarnation, 1);
    remote_peer_close(&pair.other);
}

static void actor_without_restarts_ends_when_its_node_stopped_it(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_there(&pair);
    report_fence(&pair);
    expect_end(&pair, TDM_E_ACTOR_DIED, "its lease ended");
    remote_peer_close(&pair.other);
}

/* The creator's daemon may not hear of it at once. */
static void end_is_reported_until_the_creators_node_has_replied(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *guest = node_fixture_add(scene, ACTOR_RESTARTING);
    struct tdm__node_record record = {.name = "other"};
    struct remote_peer other;
    pid_t worker;

    node_fixture_other(scene, &other, "other");
    record.id = guest->owner_node = other.self.id;
    (void)snprintf(record.unix_address, sizeof(record.unix_address), "unix:%s/other",
                   scene->directory);
    tdm__node_peers_note(&scene->node, &record, 1);
    node_fixture_start(guest);
    node_fixture_construct(guest);
    tdm__node_actors_fence(&scene->node); /* Without restarts or a name it may go on. */
    assert_int_equal(guest->lifecycle.state, ACTOR_ALIVE);
    guest->spec->max_restarts = -1;
    /* The kernel reports the end of a traced process to nobody before its tracer, this process, has
     * seen it. */
    worker = (pid_t)guest->worker->pid;
    assert_int_equal(ptrace(PTRACE_SEIZE, worker, NULL, NULL), 0);
    tdm__node_actors_fence(&scene->node);
    node_fixture_settle(scene);
    tdm__node_actors_report_ends(&scene->node); /* As the timer does. */
    node_fixture_settle(scene);
    assert_int_equal(other.asked_count, 0);
    assert_int_equal(waitpid(worker, NULL, __WALL), worker);
    node_fixture_run_out(scene); /* The worker is gone before the report. */
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.ended");
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_STORE, "not now");
    node_fixture_settle(scene);
    tdm__node_actors_report_ends(&scene->node);
    remote_peer_hold(&other, 1);
    assert_true(tdm_value_bool(tdm_value_at(incoming_value(other.held[0]), 3), false));
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    node_fixture_settle(scene);
    tdm__node_actors_report_ends(&scene->node);
    node_fixture_settle(scene);
    assert_int_equal(other.asked_count, 2);
    remote_peer_close(&other);
}

/* This node has not read the list of nodes since the other one joined and placed the actor here. */
static void end_is_reported_to_a_node_that_is_not_listed_yet(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *guest = node_fixture_add(scene, ACTOR_RESTARTING);
    struct tdm__node_record own = {.id = scene->node.record.id};
    struct remote_peer other;
    char key[TDM__STORE_KEY_BYTES];

    node_fixture_other(scene, &other, "other");
    guest->owner_node = other.self.id;
    guest->owner_epoch = GUEST_EPOCH;
    scene->deaf.fail_pattern = tdm__store_key("node", &other.self.id, key);
    scene->deaf.fail_reads_count = 1;
    tdm__actor_entry_end(guest, true);
    node_fixture_settle(scene);
    assert_int_equal(scene->deaf.fail_reads_count, 0);
    assert_int_equal(other.asked_count, 0);
    tdm__node_actors_report_ends(&scene->node);
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.ended");
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_STORE, "not now");
    node_fixture_settle(scene);
    assert_non_null(scene->node.actors->end_reports);
    tdm__node_actors_update_nodes(&scene->node, &own, 1, GUEST_EPOCH - 1); /* An old list. */
    tdm__node_actors_lose_owner(&scene->node, &other.self.id, GUEST_EPOCH - 1);
    assert_non_null(scene->node.actors->end_reports);
    tdm__node_actors_update_nodes(&scene->node, &own, 1, GUEST_EPOCH); /* The node is lost. */

    assert_null(scene->node.actors->end_reports);
    remote_peer_close(&other);
}

/* The creator's node was lost and has joined again before it placed the actor. This node learns of
 * the loss afterwards, or from a list that was read before the other one joined. */
static void guest_that_was_placed_after_the_loss_of_its_creators_node_stays(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *guest = node_fixture_add(scene, ACTOR_RESTARTING);
    struct tdm__node_record own = {.id = scene->node.record.id};
    struct tdm__id actor = guest->spec->id;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    guest->owner_node = other.self.id;
    guest->owner_epoch = GUEST_EPOCH;
    tdm__node_actors_lose_owner(&scene->node, &other.self.id, GUEST_EPOCH - 1);
    tdm__node_actors_update_nodes(&scene->node, &own, 1, GUEST_EPOCH - 1);
    assert_ptr_equal(tdm__actor_entry_find(&scene->node, &actor), guest);
    tdm__node_actors_lose_owner(&scene->node, &other.self.id, GUEST_EPOCH);
    assert_null(tdm__actor_entry_find(&scene->node, &actor));
    node_fixture_settle(scene);
    remote_peer_close(&other);
}

/* ---- lost with its node ------------------------------------------------------------------ */

static void actor_without_restarts_is_lost_with_its_node(void **state)
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

/* It is not known whether the actor ever ran, so the start does not count as a restart. */
static void unsure_start_is_repeated_without_counting_a_restart(void **state)
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

/* The list is that of a store that has lost the node's record: nothing happened to the actor. */
static void actor_stays_on_a_node_whose_record_was_lost(void **state)
{
    struct pair pair = open_pair(*state);

    join_other(&pair);
    start_there(&pair);
    pair.entry->placed_epoch = 3;
    pair.nodes[1].epoch = 5;
    tdm__node_remote_actors_update_nodes(&pair.scene->node, pair.nodes, 2, true);
    look(&pair, true);
    assert_int_equal(pair.entry->lifecycle.state, ACTOR_REMOTE);
    pair.nodes[1].epoch = 7;
    pair.nodes[1].lives_since = 5;
    look(&pair, true); /* The node has got a new epoch without being lost. */
    assert_int_equal(pair.entry->lifecycle.state, ACTOR_REMOTE);
    pair.nodes[1].lives_since = 6;
    look(&pair, true);
    expect_end(&pair, TDM_E_NODE_LOST, "is lost with its node other");
    remote_peer_close(&pair.other);
}

/* ---- guests ------------------------------------------------------------------------------ */

static void remote_actor_ends_with_its_owner_node_unless_detached(void **state)
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

/* Asks this node whether it counts on the actor at the asking node. */
static int is_known_to(struct pair *pair, struct remote_peer *asker)
{
    static const struct tdm__id no_node;
    struct remote_reply reply;
    int known;

    remote_peer_ask(asker, &reply, "actor.known", "b?b", (const void *)pair->actor.bytes,
                    sizeof(pair->actor.bytes), 0, (const void *)no_node.bytes,
                    sizeof(no_node.bytes));
    assert_int_equal(remote_peer_wait(asker, &reply), TDM_OK);
    known = tdm_value_bool(tdm_value_at(remote_reply_value(&reply), 0), -1);
    remote_reply_free(&reply);
    return known;
}

/* A node to which the actor was moved is another one. */
static void owner_node_knows_where_its_actors_are(void **state)
{
    struct pair pair = open_pair(*state);
    struct remote_peer *driver = &pair.scene->driver;

    join_other(&pair);
    start_there(&pair);
    remote_peer_connect(&pair.other, pair.scene->address);
    assert_int_equal(is_known_to(&pair, &pair.other), 1);
    assert_int_equal(is_known_to(&pair, driver), 0);
    tdm__actor_entry_remove(pair.entry, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(is_known_to(&pair, &pair.other), 0);
    assert_int_equal(remote_peer_call(driver, "actor.known", "b", (const void *)"short", (size_t)5),
                     TDM_E_PROTOCOL);
    remote_peer_close(&pair.other);
}

/* The creator's node has placed the actor again meanwhile, or it has ended there. */
static void detached_guest_ends_when_its_creators_node_has_given_it_up(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *guest = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    guest->owner_node = other.self.id;
    guest->spec->detached = true;
    node_fixture_start(guest);
    node_fixture_construct(guest);
    tdm__node_actors_query_owners(&scene->node);
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.known");
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_NODE_LOST, "it is stopping");
    node_fixture_settle(scene);
    assert_int_equal(guest->lifecycle.state, ACTOR_ALIVE);
    tdm__node_actors_query_owners(&scene->node);
    remote_peer_hold(&other, 1);
    tdm__incoming_reply_pack(remote_peer_take(&other), "?", 0);
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.ended");
    node_fixture_run_out(scene);
    remote_peer_close(&other);
}

/* The node that asks must not end an actor that goes on without its creator's node. */
static void stopping_node_gives_no_actor_up(void **state)
{
    struct pair pair = open_pair(*state);
    struct remote_reply reply;

    join_other(&pair);
    start_there(&pair);
    remote_peer_connect(&pair.other, pair.scene->address);
    pair.scene->node.stopping = true;
    remote_peer_ask(&pair.other, &reply, "actor.known", "b?b", (const void *)pair.actor.bytes,
                    sizeof(pair.actor.bytes), 0, (const void *)pair.actor.bytes,
                    sizeof(pair.actor.bytes));
    assert_int_equal(remote_peer_wait(&pair.other, &reply), TDM_E_NODE_LOST);
    remote_peer_close(&pair.other);
}

/* A driver that stops ends its actors gracefully; one that has gone does not. */
static void graceful_end_on_another_node_can_be_hurried(void **state)
{
    struct pair pair = open_pair(*state);
    struct tdm__incoming_call *end;

    join_other(&pair);
    start_there(&pair);
    tdm__actor_entry_end(pair.entry, false);
    tdm__actor_entry_end(pair.entry, false);
    end = expect(&pair, "actor.end");
    tdm__actor_entry_end(pair.entry, true);
    tdm__actor_entry_end(pair.entry, true);
    tdm__incoming_reply_pack(expect(&pair, "actor.kill"), "");
    node_fixture_settle(pair.scene);
    assert_int_equal(pair.other.asked_count, 3);
    assert_false(is_gone(&pair));
    tdm__incoming_reply_pack(end, "");
    expect_end(&pair, TDM_E_ACTOR_DIED, "ended with its creator");
    remote_peer_close(&pair.other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(actor_that_its_node_stopped_without_a_lease_is_placed_again),
        NODE_FIXTURE_TEST(actor_without_restarts_ends_when_its_node_stopped_it),
        NODE_FIXTURE_TEST(end_is_reported_until_the_creators_node_has_replied),
        NODE_FIXTURE_TEST(end_is_reported_to_a_node_that_is_not_listed_yet),
        NODE_FIXTURE_TEST(guest_that_was_placed_after_the_loss_of_its_creators_node_stays),
        NODE_FIXTURE_TEST(unheard_start_is_repeated_with_the_same_incarnation),
        NODE_FIXTURE_TEST(unsure_start_that_is_ended_is_not_repeated_and_releases_its_placement),
        NODE_FIXTURE_TEST(actor_unwanted_meanwhile_is_ended_after_its_start),
        NODE_FIXTURE_TEST(actor_released_meanwhile_is_released_on_the_other_node),
        NODE_FIXTURE_TEST(release_that_was_lost_is_repeated),
        NODE_FIXTURE_TEST(node_that_was_lost_asks_what_has_become_of_its_actors),
        NODE_FIXTURE_TEST(unsent_end_report_is_repeated),
        NODE_FIXTURE_TEST(end_is_complete_if_the_other_node_does_not_know_the_actor),
        NODE_FIXTURE_TEST(end_is_complete_if_the_other_node_is_lost),
        NODE_FIXTURE_TEST(only_the_actors_node_reports_its_end),
        NODE_FIXTURE_TEST(late_report_of_an_earlier_placement_is_ignored),
        NODE_FIXTURE_TEST(actor_without_restarts_is_lost_with_its_node),
        NODE_FIXTURE_TEST(unsure_start_is_repeated_without_counting_a_restart),
        NODE_FIXTURE_TEST(actor_stays_on_a_node_whose_record_was_lost),
        NODE_FIXTURE_TEST(remote_actor_ends_with_its_owner_node_unless_detached),
        NODE_FIXTURE_TEST(detached_guest_ends_when_its_creators_node_has_given_it_up),
        NODE_FIXTURE_TEST(stopping_node_gives_no_actor_up),
        NODE_FIXTURE_TEST(owner_node_knows_where_its_actors_are),
        NODE_FIXTURE_TEST(graceful_end_on_another_node_can_be_hurried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
