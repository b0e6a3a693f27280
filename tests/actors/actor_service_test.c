/* actor_service_test.c - invalid and repeated calls of the service "actor". */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/node.h"
#include "runtime/clock.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- wrong calls ------------------------------------------------------------------------ */

static void each_invalid_call_is_answered(void **state)
{
    static const char *const methods[] = {
        "actor.create",  "actor.arguments", "actor.start",    "actor.constructed", "actor.ended",
        "actor.exiting", "actor.await",     "actor.identify", "actor.fate",        "actor.kill",
        "actor.why",     "actor.release",   "actor.find",     "actor.known",       "actor.nothing"};
    struct node_fixture *scene = *state;
    struct remote_peer *driver = &scene->driver;

    for (uint32_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        assert_int_not_equal(remote_peer_call(driver, methods[i], ""), TDM_OK);
        assert_int_not_equal(
            remote_peer_call(driver, methods[i], "iii", (int64_t)1, (int64_t)-1, (int64_t)1 << 40),
            TDM_OK);
        assert_int_not_equal(
            remote_peer_call(driver, methods[i], "b?", (const void *)"short", (size_t)5, 1),
            TDM_OK);
        assert_int_not_equal(remote_peer_call(driver, methods[i], "(s)nn", "inside"), TDM_OK);
    }
    assert_null(scene->node.actors->all);
}

/* Of zeros: an id that no actor has. */
/* A daemon that starts at the address of an earlier one is called before it has a table of actors.
 */
static void call_before_the_start_of_the_node_is_refused(void **state)
{
    static const struct tdm__peer_identity early = {.kind = TDM__PEER_DRIVER};
    struct node_fixture *scene = *state;
    struct tdm__node_placement_groups *groups = scene->node.placement_groups;
    struct remote_reply answer;
    struct tdm__incoming_call *incoming = node_fixture_incoming(scene, &answer);

    scene->node.placement_groups = NULL;
    tdm__node_serve(&scene->node, incoming);
    tdm__node_peer_closed(&scene->node, &early);
    assert_int_equal(remote_peer_wait(&scene->driver, &answer), TDM_E_AGAIN);
    scene->node.placement_groups = groups;
}

static void query_about_an_unknown_actor_is_answered(void **state)
{
    static const char *const methods[] = {"actor.fate", "actor.why"};
    struct node_fixture *scene = *state;
    const struct tdm__id none = {{0}};

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(remote_peer_call(&scene->driver, methods[i], "b?b",
                                          (const void *)none.bytes, sizeof(none.bytes), 0,
                                          (const void *)none.bytes, sizeof(none.bytes)),
                         TDM_E_ACTOR_DIED);
    }
    assert_int_equal(remote_peer_call(&scene->driver, "actor.kill", "b?b", (const void *)none.bytes,
                                      sizeof(none.bytes), 0, (const void *)none.bytes,
                                      sizeof(none.bytes)),
                     TDM_OK);
}

/* ---- constructed ------------------------------------------------------------------------ */

static tdm_status construct_as(struct node_fixture *scene, enum tdm__peer_kind kind,
                               const struct tdm__id *id, tdm_status status)
{
    struct remote_peer process;
    tdm_status reply;

    remote_peer_open(&process, scene->world.loop, kind, "process");
    process.self.id = *id;
    tdm__rpc_set_identity(process.rpc, &process.self);
    remote_peer_connect(&process, scene->address);
    reply = remote_peer_call(&process, "actor.constructed", "isss", (int64_t)status, "why",
                             "unix:/nowhere", NULL);
    remote_peer_close(&process);
    return reply;
}

static void only_the_actors_process_reports_its_construction(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    const struct tdm__id *id = &entry->spec->id;

    node_fixture_start(entry);
    assert_int_equal(construct_as(scene, TDM__PEER_WORKER, &scene->driver.self.id, TDM_OK),
                     TDM_E_NOT_FOUND);
    assert_int_equal(construct_as(scene, TDM__PEER_DRIVER, id, TDM_OK), TDM_E_NOT_FOUND);
    assert_int_equal(entry->lifecycle.state, ACTOR_STARTING);
    assert_int_equal(construct_as(scene, TDM__PEER_WORKER, id, TDM_OK), TDM_OK);
    assert_int_equal(entry->lifecycle.state, ACTOR_ALIVE);
}

/* A child of its last process that still has a connection, say. */
static void construction_report_for_an_actor_without_a_process_is_refused(void **state)
{
    static const enum actor_state states[] = {ACTOR_WAITING, ACTOR_RESTARTING, ACTOR_REMOTE};
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct remote_reply reply;

    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &reply));
    for (uint32_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        entry->lifecycle.state = states[i];
        assert_int_equal(construct_as(scene, TDM__PEER_WORKER, &entry->spec->id, TDM_OK),
                         TDM_E_NOT_FOUND);
        assert_int_equal(construct_as(scene, TDM__PEER_WORKER, &entry->spec->id, TDM_E_INVAL),
                         TDM_E_NOT_FOUND);
    }
    assert_int_equal(reply.count, 0);
    entry->lifecycle.state = ACTOR_WAITING;
    tdm__actor_entry_end(entry, true);
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_E_ACTOR_DIED);
}

/* ---- start ------------------------------------------------------------------------------ */

/* Epoch of the node in which other nodes have placed their actors on it. */
enum { PLACED_EPOCH = 5 };

/* Epoch of the other node in which it has placed its actors. */
enum { OWNER_EPOCH = 3 };

/* Asks the node to start the actor with what it was granted of the node's resources, at its
 * placement of this number. */
static void ask_to_start_at(struct remote_peer *owner_node, struct remote_reply *reply,
                            const struct tdm__actor_spec *spec, const struct tdm__grant *grant,
                            uint64_t placements)
{
    struct tdm_bytes packed[2];
    tdm_writer *writers[2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_writer_create(&writers[i]), TDM_OK);
    }
    tdm__actor_spec_write(writers[0], spec);
    tdm__grant_write(writers[1], grant);
    for (int i = 0; i < 2; i++) {
        packed[i] = tdm_writer_bytes(writers[i]);
    }
    remote_peer_ask(owner_node, reply, "actor.start", "ppsuuiiii", &packed[0], &packed[1], "",
                    (uint64_t)2, placements, (int64_t)0, (int64_t)0, (int64_t)PLACED_EPOCH,
                    (int64_t)OWNER_EPOCH);
    for (int i = 0; i < 2; i++) {
        tdm_writer_destroy(writers[i]);
    }
}

static void ask_to_start_with(struct remote_peer *owner_node, struct remote_reply *reply,
                              const struct tdm__actor_spec *spec, const struct tdm__grant *grant)
{
    ask_to_start_at(owner_node, reply, spec, grant, 1);
}

static void ask_to_start(struct remote_peer *owner_node, struct remote_reply *reply,
                         const struct tdm__actor_spec *spec)
{
    const struct tdm__grant nothing = {.cpu = 0};

    ask_to_start_with(owner_node, reply, spec, &nothing);
}

/* The answers may get lost: its owner_node asks again. */
static void repeated_start_request_starts_one_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct actor_entry *entry;
    struct remote_reply replies[4];
    struct remote_peer owner_node;

    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    ask_to_start(&owner_node, &replies[0], spec);
    ask_to_start(&owner_node, &replies[1], spec);
    node_fixture_settle(scene);
    entry = scene->node.actors->all;
    assert_non_null(entry);
    assert_null(entry->next);
    assert_int_equal(entry->lifecycle.incarnation, 2);
    assert_true(tdm__id_equal(&entry->owner_node, &owner_node.self.id));
    node_fixture_construct(entry);
    ask_to_start(&owner_node, &replies[2], spec);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(remote_peer_wait(&owner_node, &replies[i]), TDM_OK);
        remote_reply_free(&replies[i]);
    }
    tdm__actor_entry_end(entry, true);
    remote_peer_hold(&owner_node, 1);
    assert_string_equal(tdm__incoming_method(owner_node.held[0]), "actor.ended");
    ask_to_start(&owner_node, &replies[3], spec);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[3]), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(replies[3].detail, "signal 9"));
    node_fixture_run_out(scene);
    tdm__actor_spec_destroy(spec);
    remote_peer_close(&owner_node);
}

static void stopping_node_starts_no_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct remote_reply reply;
    struct remote_peer owner_node;

    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    scene->node.stopping = true;
    ask_to_start(&owner_node, &reply, spec);
    assert_int_equal(remote_peer_wait(&owner_node, &reply),
                     TDM_E_NODE_LOST); /* The caller creates the actor again on another node. */
    assert_null(scene->node.actors->all);
    tdm__actor_spec_destroy(spec);
    remote_peer_close(&owner_node);
}

/* The request was under way while this node was lost and joined again: nothing of the placement may
 * be left in the store, and another actor may have the name. */
static void start_that_was_requested_before_the_node_joined_again_is_refused(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct remote_reply replies[3];
    struct remote_peer owner_node;

    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    scene->node.record.epoch = PLACED_EPOCH;
    scene->node.lease_status.awaits_epoch = true;
    ask_to_start(&owner_node, &replies[0], spec);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[0]), TDM_E_AGAIN);
    scene->node.lease_status.awaits_epoch = false;
    scene->node.record.epoch = PLACED_EPOCH + 1;
    ask_to_start(&owner_node, &replies[1], spec);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[1]), TDM_E_NO_RESOURCES);
    assert_null(scene->node.actors->all);
    scene->node.record.epoch = PLACED_EPOCH;
    ask_to_start(&owner_node, &replies[2], spec);
    node_fixture_settle(scene);
    assert_non_null(scene->node.actors->all);
    tdm__actor_entry_end(scene->node.actors->all, true);
    remote_peer_hold(&owner_node, 1);
    node_fixture_run_out(scene);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[2]), TDM_E_ACTOR_DIED);
    tdm__actor_spec_destroy(spec);
    remote_peer_close(&owner_node);
}

/* Without its record in the node's table the actor's name would be removed from the store. */
static void node_that_writes_its_records_starts_no_actor(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct remote_reply reply;
    struct remote_peer owner_node;

    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    assert_true(tdm__node_releases_pause(&scene->node));
    ask_to_start(&owner_node, &reply, spec);
    assert_int_equal(remote_peer_wait(&owner_node, &reply), TDM_E_AGAIN);
    assert_null(scene->node.actors->all);
    tdm__node_releases_resume(&scene->node);
    tdm__actor_spec_destroy(spec);
    remote_peer_close(&owner_node);
}

/* ---- a placement that the node cannot hold ------------------------------------------------- */

/* The node of the test has two GPUs. */
static void set_totals(struct node_fixture *scene)
{
    struct tdm__resources totals = {.cpu = 0};

    assert_int_equal(tdm__resources_add(&totals, "GPU", 2), TDM_OK);
    assert_int_equal(tdm__resources_add(&totals, "CPU", 8), TDM_OK);
    assert_int_equal(tdm__pool_init(&scene->node.totals.pool, &totals), TDM_OK);
}

/* Another node asks for a GPU that an actor of this node holds, and then for one that was granted
 * before the store lost changes. Its request is refused with TDM_E_NO_RESOURCES, so that it places
 * the actor again. */
static void placement_that_this_node_cannot_hold_is_refused(void **state)
{
    static const struct tdm__grant second_gpu = {
        .gpus_count = 1, .gpu_indices = {1}, .gpu_amount = 10000};
    static const char *const reasons[] = {"hold the resources", "before the cluster's store lost"};
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *specs[2] = {node_fixture_spec(scene, "tester"),
                                        node_fixture_spec(scene, "tester")};
    struct remote_reply first;
    struct remote_peer owner_node;

    set_totals(scene);
    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    ask_to_start_with(&owner_node, &first, specs[0], &second_gpu);
    node_fixture_settle(scene);
    assert_int_equal(first.count, 0);
    for (int i = 0; i < 2; i++) {
        struct remote_reply reply;

        scene->node.store_view.generation = (uint64_t)i;
        ask_to_start_with(&owner_node, &reply, specs[1], &second_gpu);
        assert_int_equal(remote_peer_wait(&owner_node, &reply), TDM_E_NO_RESOURCES);
        assert_non_null(strstr(reply.detail, reasons[i]));
        assert_null(tdm__actor_entry_find(&scene->node, &specs[1]->id));
    }
    tdm__actor_entry_end(scene->node.actors->all, true);
    assert_int_equal(remote_peer_wait(&owner_node, &first), TDM_E_ACTOR_DIED);
    remote_peer_hold(&owner_node, 1);
    node_fixture_run_out(scene);
    for (int i = 0; i < 2; i++) {
        tdm__actor_spec_destroy(specs[i]);
    }
    remote_peer_close(&owner_node);
}

/* This node was lost, and the other one has placed the actor on it again, with other resources. The
 * first process ends, and its end is not that of the actor. */
static void actor_that_was_placed_again_with_other_resources_starts_again(void **state)
{
    static const struct tdm__grant grants[] = {
        {.gpus_count = 1, .gpu_indices = {0}, .gpu_amount = 10000},
        {.gpus_count = 1, .gpu_indices = {1}, .gpu_amount = 10000}};
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct remote_reply replies[3];
    struct remote_peer owner_node;
    struct actor_entry *entry;

    set_totals(scene);
    node_fixture_other(scene, &owner_node, "owner_node");
    remote_peer_connect(&owner_node, scene->address);
    ask_to_start_at(&owner_node, &replies[0], spec, &grants[0], 1);
    node_fixture_settle(scene);
    ask_to_start_at(&owner_node, &replies[1], spec, &grants[1], 2);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[1]), TDM_E_AGAIN);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[0]), TDM_E_ACTOR_DIED);
    assert_null(scene->node.actors->all);
    ask_to_start_at(&owner_node, &replies[2], spec, &grants[1], 2);
    node_fixture_settle(scene);
    entry = tdm__actor_entry_find(&scene->node, &spec->id);
    assert_non_null(entry);
    assert_int_equal(entry->record.placements, 2);
    assert_int_equal(entry->record.grant.gpu_indices[0], 1);
    node_fixture_construct(entry);
    assert_int_equal(remote_peer_wait(&owner_node, &replies[2]), TDM_OK);
    remote_reply_free(&replies[2]);
    tdm__actor_entry_end(entry, true);
    remote_peer_hold(&owner_node, 2); /* Reports of both ends. */
    node_fixture_run_out(scene);
    tdm__actor_spec_destroy(spec);
    remote_peer_close(&owner_node);
}

/* Callback of the reply to "actor.create", which counts it. */
static void on_created(void *arg, struct tdm__rpc_reply *reply)
{
    (void)reply;
    ++*(uint32_t *)arg;
}

static bool is_waiting(void *arg)
{
    return ((const struct actor_entry *)arg)->lifecycle.state == ACTOR_WAITING;
}

static bool is_starting(void *arg)
{
    return ((const struct actor_entry *)arg)->lifecycle.state == ACTOR_STARTING;
}

/* A driver creates an actor. The store has lost the record of another actor, and grants the new one
 * the GPUs that it holds. The new actor waits, and gets the GPUs when they are free. */
static void actor_waits_for_resources_that_the_store_grants_twice(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    struct actor_entry *holder = node_fixture_add(scene, ACTOR_ALIVE);
    struct tdm__rpc_request request = {.method = "actor.create", .deadline_ms = TDM__NEVER};
    struct actor_entry *entry;
    uint32_t replies = 0;
    tdm_writer *writer;

    set_totals(scene);
    holder->record.grant =
        (struct tdm__grant){.gpus_count = 1, .gpu_indices = {1}, .gpu_amount = 10000};
    assert_int_equal(tdm__resources_add(&spec->placement.wanted, "GPU", 2), TDM_OK);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__actor_spec_write(writer, spec);
    request.packed = tdm_writer_bytes(writer);
    assert_int_equal(tdm__conn_call(scene->driver.conn, &request, on_created, &replies, NULL),
                     TDM_OK);
    node_fixture_settle(scene);
    entry = tdm__actor_entry_find(&scene->node, &spec->id);
    assert_non_null(entry);
    node_fixture_run(scene, is_waiting, entry);
    assert_null(entry->worker);
    holder->lifecycle.state = ACTOR_REMOTE; /* It has moved. */
    for (int i = 0; i < 2; i++) {           /* The first time the reservation is given back. */
        node_fixture_settle(scene);
        tdm__node_actors_retry(&scene->node);
    }
    node_fixture_run(scene, is_starting, entry);
    assert_int_equal(entry->record.grant.gpus_count, 2);
    assert_int_equal(replies, 0);
    tdm__actor_entry_end(entry, true);
    tdm__actor_entry_remove(holder, TDM_E_ACTOR_DIED, "over");
    node_fixture_run_out(scene);
    tdm_writer_destroy(writer);
    tdm__actor_spec_destroy(spec);
}

/* ---- arguments -------------------------------------------------------------------------- */

static tdm_status send_arguments(struct node_fixture *scene, const struct tdm__id *actor,
                                 const char *why)
{
    return remote_peer_call(&scene->driver, "actor.arguments", "bns", (const void *)actor->bytes,
                            sizeof(actor->bytes), why);
}

static void arguments_are_accepted_only_for_an_actor_that_waits_for_them(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    const struct tdm__id id = entry->spec->id;

    assert_int_equal(send_arguments(scene, &id, "lost"), TDM_E_PROTOCOL);
    entry->spec->awaits_creator_arguments = true;
    entry->spec->creator = scene->node.record.id; /* another process's */
    assert_int_equal(send_arguments(scene, &id, "lost"), TDM_E_PROTOCOL);
    assert_non_null(tdm__actor_entry_find(&scene->node, &id));
    entry->spec->creator = scene->driver.self.id;
    assert_int_equal(send_arguments(scene, &id, "the value is lost"), TDM_OK);
    assert_non_null(strstr(tdm__tombstone_find(&scene->node, &id)->text, "the value is lost"));
    /* The actor has ended, so late arguments are ignored. */
    assert_int_equal(send_arguments(scene, &id, "again"), TDM_OK);
}

/* ---- leave ------------------------------------------------------------------------------ */

static void leaving_driver_waits_for_the_end_of_its_actors(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_PLACING);
    struct actor_entry *detached = node_fixture_add(scene, ACTOR_PLACING);
    struct actor_entry *other = node_fixture_add(scene, ACTOR_PLACING);
    struct remote_reply reply;

    detached->spec->detached = true;
    other->spec->creator = scene->node.record.id;
    remote_peer_ask(&scene->driver, &reply, "actor.leave", "");
    node_fixture_settle(scene);
    assert_int_equal(entry->lifecycle.demand, ACTOR_UNWANTED);
    assert_int_equal(detached->lifecycle.demand, ACTOR_WANTED);
    assert_int_equal(other->lifecycle.demand, ACTOR_WANTED);
    assert_int_equal(reply.count, 0);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
    remote_reply_free(&reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(each_invalid_call_is_answered),
        NODE_FIXTURE_TEST(call_before_the_start_of_the_node_is_refused),
        NODE_FIXTURE_TEST(query_about_an_unknown_actor_is_answered),
        NODE_FIXTURE_TEST(only_the_actors_process_reports_its_construction),
        NODE_FIXTURE_TEST(construction_report_for_an_actor_without_a_process_is_refused),
        NODE_FIXTURE_TEST(repeated_start_request_starts_one_actor),
        NODE_FIXTURE_TEST(stopping_node_starts_no_actor),
        NODE_FIXTURE_TEST(node_that_writes_its_records_starts_no_actor),
        NODE_FIXTURE_TEST(start_that_was_requested_before_the_node_joined_again_is_refused),
        NODE_FIXTURE_TEST(placement_that_this_node_cannot_hold_is_refused),
        NODE_FIXTURE_TEST(actor_that_was_placed_again_with_other_resources_starts_again),
        NODE_FIXTURE_TEST(actor_waits_for_resources_that_the_store_grants_twice),
        NODE_FIXTURE_TEST(arguments_are_accepted_only_for_an_actor_that_waits_for_them),
        NODE_FIXTURE_TEST(leaving_driver_waits_for_the_end_of_its_actors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
