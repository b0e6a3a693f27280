/* actor_service.c - the methods of the service "actor" of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The table in actor_serve() lists the methods. Drivers and workers of this node call create,
 * arguments, exiting and leave. A worker calls constructed about itself. Daemons of other nodes
 * call start and ended. All of them call the queries (actor_queries.c). docs/protocols
 * describes the messages, runtime/messages their encoding.
 *
 * Each function decodes its arguments, finds the entry and hands an event to the lifecycle.
 * Identities of creators are taken from the authenticated connection, never from the message.
 * Everything runs on the daemon's loop thread. */

#include "actors/daemon/actor_service.h"

#include "actors/daemon/actor_cpus.h"
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_health.h"
#include "actors/daemon/actor_holdings.h"
#include "actors/daemon/actor_names.h"
#include "actors/daemon/actor_queries.h"
#include "actors/daemon/actor_remote.h"
#include "actors/daemon/actor_start.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/placement_group_service.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails an incoming call with `status` and this thread's error detail. */
static void fail_with_detail(struct tdm__incoming_call *incoming, tdm_status status)
{
    tdm__incoming_fail(incoming, status, tdm_error_detail());
}

/* ---- create, start, constructed --------------------------------------------------------- */

/* Sets creator and job of the spec from the identity of the calling process. What the message says
 * about them is ignored. */
static void set_creator(struct tdm__node *node, struct tdm__actor_spec *spec,
                        const struct tdm__incoming_call *incoming)
{
    const struct actor_entry *creator;

    spec->creator = tdm__incoming_peer(incoming)->id;
    creator = tdm__actor_entry_find(node, &spec->creator);
    spec->job = creator == NULL ? spec->creator : creator->spec->job;
}

/* Serves the call "actor.create" (spec): adds an actor to the table and replies when it is alive or
 * has failed. */
static void serve_create(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    const tdm_value *value;
    struct tdm__actor_spec *spec;
    struct actor_entry *entry;
    tdm_status status = tdm__incoming_value(incoming, &value);

    if (status == TDM_OK && node->stopping) {
        status = tdm__fail(TDM_E_STATE, "node %s is stopping", node->record.name);
    }
    if (status == TDM_OK) {
        status = tdm__actor_spec_read(value, &spec);
    }
    if (status != TDM_OK) {
        fail_with_detail(incoming, status);
        return;
    }
    set_creator(node, spec, incoming);
    entry = tdm__actor_entry_add(node, spec);
    if (entry == NULL) {
        tdm__actor_spec_destroy(spec);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "an actor");
        return;
    }
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, incoming);
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_CREATE});
}

/* Finds the actor that waits for its constructor's arguments from the calling process; NULL if the
 * actor has ended. TDM_E_PROTOCOL if it waits for no arguments of this process. */
static tdm_status find_entry_awaiting_arguments(struct tdm__node *node,
                                                const struct tdm__incoming_call *incoming,
                                                const struct tdm__id *id,
                                                struct actor_entry **entry_out)
{
    *entry_out = tdm__actor_entry_find(node, id);
    if (*entry_out != NULL &&
        (!(*entry_out)->spec->awaits_creator_arguments ||
         !tdm__id_equal(&(*entry_out)->spec->creator, &tdm__incoming_peer(incoming)->id))) {
        return tdm__fail(TDM_E_PROTOCOL, "actor %s waits for no arguments of this process",
                         (*entry_out)->label);
    }
    return TDM_OK;
}

/* Reports to the actor's state machine that the creator cannot provide the constructor's arguments;
 * `why` is the reason. */
static void refuse_arguments(struct actor_entry *entry, const char *why)
{
    tdm__actor_entry_report(entry,
                            (struct actor_event){.kind = ACTOR_ON_ARGUMENTS_FAILED, .detail = why});
}

/* Serves the call "actor.arguments": the creator provides the constructor's arguments of an actor
 * that it created before. */
static void serve_arguments(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_entry *entry = NULL;
    struct tdm__actor_arguments_message message;
    tdm_status status = tdm__incoming_decode(incoming, tdm__actor_arguments_table(), &message);

    if (status == TDM_OK) {
        status = find_entry_awaiting_arguments(node, incoming, &message.actor, &entry);
    }
    if (status != TDM_OK) {
        fail_with_detail(incoming, status);
        return;
    }
    if (entry == NULL) {
        /* The actor has ended and does not need the arguments. */
    } else if (message.arguments.data == NULL) {
        refuse_arguments(entry, message.failure == NULL ? "?" : message.failure);
    } else if (tdm__actor_spec_set_arguments(entry->spec, message.arguments) == TDM_OK) {
        entry->waits_for[0] = '\0';
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_ARGUMENTS});
    } else {
        refuse_arguments(entry, tdm_error_detail());
    }
    tdm__incoming_reply_pack(incoming, "");
}

/* What the call "actor.start" says besides the actor's spec and record. */
struct start_request {
    uint32_t incarnation; /* Number of workers that other nodes have started for the actor. */
    uint64_t generation;  /* Generation of the store in which the actor was placed. */
    uint64_t epoch;       /* Epoch of this node in which the actor was placed on it. */
    uint64_t owner_epoch; /* Epoch of the creator's node in which it placed the actor. */
};

/* Decodes the arguments of the call "actor.start". */
static tdm_status start_message_read(struct tdm__incoming_call *incoming,
                                     struct tdm__actor_spec **spec,
                                     struct tdm__actor_record *record,
                                     struct start_request *request_out)
{
    struct tdm__actor_start_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__actor_start_table(), &message));
    TDM_TRY(tdm__grant_of_message(&message.grant, &record->grant));
    (void)snprintf(record->name_key, sizeof(record->name_key), "%s", message.name_key);
    record->placements = message.placements;
    record->granted = (uint64_t)message.granted;
    *request_out = (struct start_request){.incarnation = message.incarnation,
                                          .generation = (uint64_t)message.generation,
                                          .epoch = (uint64_t)message.epoch,
                                          .owner_epoch = (uint64_t)message.owner_epoch};
    return tdm__actor_spec_of_message(&message.spec, spec);
}

/* Fills the record of an actor that another node placed here from the actor's spec; resources and
 * name are set already. */
static void record_fill(struct tdm__actor_record *record, const struct tdm__actor_spec *spec,
                        const struct tdm__id *owner_node)
{
    record->actor = spec->id;
    record->group = spec->group;
    record->bundle = spec->bundle;
    memcpy(record->class_name, spec->class_name, sizeof(record->class_name));
    record->owner_node = *owner_node;
    record->recreate_on_node_loss = spec->max_restarts != 0 && tdm__id_is_none(&spec->group);
}

/* If this incarnation of the actor is or was on this node already, replies to "actor.start" and
 * returns true: the owner's node repeats the call when it got no reply. The call also fails if an
 * earlier incarnation, which the owner's node has given up, has not ended. The owner's node may
 * have placed this incarnation again, as `record` says, because this node was lost meanwhile: the
 * process keeps what it has if that is what it got now, and otherwise ends before another starts.
 * A tombstone tells the end of its own placement only. */
static bool reply_if_already_here(struct tdm__node *node, const struct tdm__id *actor,
                                  const struct start_request *request,
                                  const struct tdm__actor_record *record,
                                  struct tdm__incoming_call *incoming)
{
    uint32_t incarnation = request->incarnation;
    struct actor_entry *entry = tdm__actor_entry_find(node, actor);
    const struct actor_tombstone *actor_tombstone = tdm__tombstone_find(node, actor);

    if (actor_tombstone != NULL && (actor_tombstone->start_incarnation < incarnation ||
                                    actor_tombstone->placements < record->placements)) {
        actor_tombstone = NULL; /* The actor has been placed on this node again. */
    }
    if (entry != NULL && entry->record.placements < record->placements &&
        tdm__grants_equal(&entry->record.grant, &record->grant)) {
        entry->record.placements = record->placements;
        entry->owner_epoch = request->owner_epoch;
    } else if (entry != NULL && entry->record.placements < record->placements) {
        tdm__actor_entry_report(
            entry, (struct actor_event){.kind = ACTOR_ON_DISOWNED,
                                        .detail = "its node was lost for a while, and its "
                                                  "creator's node has placed it again"});
        tdm__incoming_fail(incoming, TDM_E_AGAIN, "an earlier process of the actor has not ended");
        return true;
    }
    if (entry != NULL && entry->start_incarnation < incarnation) {
        tdm__incoming_fail(incoming, TDM_E_AGAIN, "an earlier process of the actor has not ended");
    } else if (entry != NULL && entry->lifecycle.state == ACTOR_ALIVE) {
        tdm__actor_entry_reply_description(entry, incoming);
    } else if (entry != NULL) {
        tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, incoming);
    } else if (actor_tombstone != NULL) {
        tdm__incoming_fail(incoming, actor_tombstone->status, actor_tombstone->text);
    }
    return entry != NULL || actor_tombstone != NULL;
}

/* Fails if this node can start no actor of another node now: it is stopping, has no lease, or is
 * making the store agree with its table of actors. What the table lacked when that began is removed
 * from the store, the actor's name included. */
static tdm_status node_check_can_start(const struct tdm__node *node)
{
    if (node->stopping) {
        return tdm__fail(TDM_E_NODE_LOST, "node %s is stopping", node->record.name);
    }
    if (tdm__lease_status_has_ended(&node->lease_status)) {
        return tdm__fail(TDM_E_AGAIN, "node %s has no lease: %s", node->record.name,
                         node->lease_status.store_error);
    }
    if (node->actors->releases_are_paused) {
        return tdm__fail(TDM_E_AGAIN, "node %s is writing its records", node->record.name);
    }
    return TDM_OK;
}

/* Serves the call "actor.start" of the owner's daemon, which has reserved resources of this node
 * for the actor. */
static void serve_start(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    const struct tdm__id owner_node = tdm__incoming_peer(incoming)->id;
    struct tdm__actor_record record = {.node = node->record.id};
    struct tdm__actor_spec *spec;
    struct actor_entry *entry = NULL;
    struct start_request request;
    tdm_status status = start_message_read(incoming, &spec, &record, &request);

    if (status == TDM_OK && reply_if_already_here(node, &spec->id, &request, &record, incoming)) {
        tdm__actor_spec_destroy(spec);
        return;
    }
    if (status == TDM_OK) {
        record_fill(&record, spec, &owner_node);
        status = node_check_can_start(node);
        if (status == TDM_OK) {
            status = tdm__node_check_placed_epoch(node, request.epoch);
        }
        if (status == TDM_OK) {
            status = tdm__node_check_placement(node, &record, request.generation);
        }
        if (status != TDM_OK) {
            tdm__actor_spec_destroy(spec);
        }
    }
    if (status == TDM_OK) {
        entry = tdm__actor_entry_add(node, spec);
        if (entry == NULL) {
            tdm__actor_spec_destroy(spec);
            status = tdm__fail(TDM_E_NOMEM, "an actor");
        }
    }
    if (status != TDM_OK) {
        fail_with_detail(incoming, status);
        return;
    }
    entry->owner_node = owner_node;
    entry->owner_epoch = request.owner_epoch;
    entry->start_incarnation = request.incarnation;
    entry->record = record;
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, incoming);
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_START_HERE,
                                                        .incarnation = request.incarnation});
    tdm__node_retry_early_queries(node, tdm__clock_ms());
}

/* Serves the call "actor.constructed" of a worker: its actor's constructor has returned or failed.
 */
static void serve_constructed(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &tdm__incoming_peer(incoming)->id);
    struct tdm__actor_constructed_message message;

    if (entry == NULL || entry->worker == NULL ||
        tdm__incoming_peer(incoming)->kind != TDM__PEER_WORKER) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no process of an actor of this node");
        return;
    }
    if (tdm__incoming_decode(incoming, tdm__actor_constructed_table(), &message) != TDM_OK) {
        fail_with_detail(incoming, TDM_E_PROTOCOL);
        return;
    }
    tdm__actor_entry_constructed(entry, tdm__incoming_peer(incoming)->pid,
                                 (tdm_status)message.status, message.detail, message.unix_address,
                                 message.tcp_address);
    tdm__incoming_reply_pack(incoming, "");
}

/* ---- ended, exiting -------------------------------------------------------------------------- */

/* Serves the call "actor.ended" of another node's daemon: an actor owned by this node has ended
 * there. */
static void serve_ended(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *peer = tdm__incoming_peer(incoming);
    struct tdm__actor_ended_message message;

    if (peer->kind != TDM__PEER_DAEMON ||
        tdm__incoming_decode(incoming, tdm__actor_ended_table(), &message) != TDM_OK ||
        message.status >= TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL,
                           "actor.ended: (id, status, text, lease_has_ended, placements)");
        return;
    }
    tdm__node_remote_actor_ended(node, &peer->id, &message);
    tdm__incoming_reply_pack(incoming, "");
}

/* Serves the call "actor.exiting" of the worker of an actor that ends itself. */
static void serve_exiting(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &tdm__incoming_peer(incoming)->id);

    if (entry == NULL || tdm__incoming_peer(incoming)->kind != TDM__PEER_WORKER) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no actor of this node");
        return;
    }
    tdm__actor_entry_exit_requested(entry);
    tdm__incoming_reply_pack(incoming, "");
}

/* Serves the call "actor.failing" of a worker that is about to end: remembers the cause, which the
 * report of the actor's death names. */
static void serve_failing(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &tdm__incoming_peer(incoming)->id);
    struct tdm__actor_failing_message message;

    if (entry == NULL || entry->worker == NULL ||
        tdm__incoming_peer(incoming)->kind != TDM__PEER_WORKER) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no process of an actor of this node");
        return;
    }
    if (tdm__incoming_decode(incoming, tdm__actor_failing_table(), &message) != TDM_OK) {
        fail_with_detail(incoming, TDM_E_PROTOCOL);
        return;
    }
    (void)snprintf(entry->failure, sizeof(entry->failure), "%s", message.cause);
    tdm__incoming_reply_pack(incoming, "");
}

/* ---- leave ------------------------------------------------------------------------------ */

/* Replies to the call "actor.leave", `arg`, when the actors of the driver have ended. */
static void on_creator_left(void *arg)
{
    tdm__incoming_reply_pack(arg, "");
}

/* Serves the call "actor.leave" of a driver that stops: ends the actors that the driver created,
 * then replies. */
static void serve_leave(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct tdm__id creator = tdm__incoming_peer(incoming)->id;

    tdm__placement_groups_creator_gone(node, &creator);
    tdm__node_actors_end(node, tdm__node_actor_ends_with, &creator, false, on_creator_left,
                         incoming);
}

/* Serves the calls of the service "actor"; `self` is the node. */
static void actor_serve(void *self, struct tdm__incoming_call *incoming)
{
    static const struct {
        const char *method;
        void (*serve)(struct tdm__node *node, struct tdm__incoming_call *incoming);
    } methods[] = {
        {"actor.create", serve_create},
        {"actor.arguments", serve_arguments},
        {"actor.start", serve_start},
        {"actor.constructed", serve_constructed},
        {"actor.ended", serve_ended},
        {"actor.exiting", serve_exiting},
        {"actor.cpus", tdm__node_serve_actor_cpus},
        {"actor.failing", serve_failing},
        {"actor.await", tdm__node_serve_actor_query},
        {"actor.identify", tdm__node_serve_actor_query},
        {"actor.fate", tdm__node_serve_actor_query},
        {"actor.kill", tdm__node_serve_actor_query},
        {"actor.end", tdm__node_serve_actor_query},
        {"actor.why", tdm__node_serve_actor_query},
        {"actor.release", tdm__node_serve_actor_query},
        {"actor.find", tdm__node_serve_actor_find},
        {"actor.known", tdm__node_serve_actor_known},
        {"actor.leave", serve_leave},
    };

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(tdm__incoming_method(incoming), methods[i].method) == 0) {
            methods[i].serve(self, incoming);
            return;
        }
    }
    tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, tdm__incoming_method(incoming));
}

const struct tdm__service_ops tdm__actor_service = {.prefix = "actor", .serve = actor_serve};

/* ---- create and destroy ----------------------------------------------------------------- */

tdm_status tdm__node_actors_create(struct tdm__node *node)
{
    TDM_TRY(tdm__actor_table_create(node));
    return tdm__node_health_start(node);
}

void tdm__node_actors_destroy(struct tdm__node *node)
{
    if (node->actors == NULL) {
        return;
    }
    for (struct actor_entry *entry = node->actors->all, *next; entry != NULL; entry = next) {
        next = entry->next;
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "its node has stopped");
    }
    tdm__node_retry_early_queries(node, TDM__NEVER);
    tdm__node_health_stop(node);
    tdm__node_actors_drop_reports(node);
    tdm__actor_table_destroy(node);
}
