/* actor_queries.c - queries about one actor, by id, on whatever node it runs. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon serves a query about any actor of the cluster. It looks for the actor in this order: in
 * its own table (then the entry replies, or the query is forwarded to the actor's node), among the
 * tombstones, and in the store. A query for an actor that no one knows yet waits in early_queries,
 * or is forwarded to the creator's node. If the actor's node is lost and the actor is recreated,
 * the owner's node is asked. A tombstone of an actor that its creator's node places again does not
 * say where the actor is now, so the store is asked.
 *
 * Invariant: each query owns its incoming call and replies exactly once, then frees itself.
 * Everything runs on the daemon's loop thread. Queries by name are in actor_names.c. */

#include "actors/daemon/actor_queries.h"

#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_health.h"
#include "actors/daemon/actor_remote.h"
#include "actors/daemon/actor_start.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/store/txn.h"
#include "scheduler/retrying_txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_UP_MS = 5000, /* Milliseconds for reading a record from the store. */
    /* Milliseconds that an early query waits until its actor arrives in the table. */
    EARLY_MS = 3000
};

/* What a query about an actor asks for, and the method that asks it. */
enum actor_query_kind {
    /* "actor.await": replies with the description once the actor
     * lives, or with its death. */
    AWAIT,
    /* "actor.identify", for the queries by name: replies with a message actor_found as soon as the
     * actor has its name, or with its death. */
    IDENTIFY,
    /* "actor.fate": like AWAIT, for a caller that lost its connection; the worker is
     * pinged. */
    FATE,
    /* "actor.kill": replies once the actor is gone and its name is free. */
    KILL,
    /* "actor.end", of the daemon of the creator's node: like KILL, but the actor ends gracefully.
     */
    END,
    WHY,    /* "actor.why": replies with a text why the actor does not live yet. */
    RELEASE /* "actor.release": the last handle of the creator is gone. */
};

/* A query about the actor with a certain id. It frees itself when it has replied. */
struct actor_query {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    /* Call of the query, to which the daemon must reply, owned. */
    struct tdm__incoming_call *incoming;
    enum actor_query_kind kind; /* What the query asks for. */
    struct tdm__id actor;       /* Id of the actor in question. */
    bool may_restart;           /* For KILL: true if the actor may be restarted. */
    bool asked_owner_node;      /* True once the query was forwarded to the owner's node. */
    struct tdm__id asked;       /* Node to which the query was forwarded last. */
    /* For AWAIT: node of the creator; all zeros if it is not known. */
    struct tdm__id creators_node;
    struct tdm__actor_record record; /* The actor's record as read from the store. */
};

static void actor_query_send(struct actor_query *query);

/* Replies to the query with a failure and frees the query. */
static void actor_query_fail(struct actor_query *query, tdm_status status, const char *detail)
{
    tdm__incoming_fail(query->incoming, status, detail);
    free(query);
}

/* Replies to the query with success, without a value, and frees the query. */
static void actor_query_done(struct actor_query *query)
{
    tdm__incoming_reply_pack(query->incoming, "");
    free(query);
}

/* ---- on this node --------------------------------------------------------------------------- */

/* Carries out "actor.kill" for an actor of this node. If the actor may not restart, the caller
 * waits for the actor's end. */
static void actor_query_kill_local(struct actor_entry *entry, struct actor_query *query)
{
    if (query->may_restart) {
        tdm__actor_entry_kill_process(entry);
        actor_query_done(query);
        return;
    }
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_END, query->incoming);
    free(query);
    tdm__actor_entry_end(entry, true);
}

/* Carries out "actor.release" for an actor of this node: its last handle is gone. Only the creator
 * counts the handles; the daemon of its node may forward the release. */
static void actor_query_release_local(struct actor_entry *entry, struct actor_query *query)
{
    const struct tdm__peer_identity *peer = tdm__incoming_peer(query->incoming);

    if (!entry->spec->detached &&
        (peer->kind == TDM__PEER_DAEMON || tdm__id_equal(&peer->id, &entry->spec->creator))) {
        tdm__actor_entry_release(entry);
    }
    actor_query_done(query);
}

/* Returns a text that says why the actor is not alive yet: a borrowed one, or `text` with the text
 * written to it. */
static const char *actor_entry_why_not_alive(const struct actor_entry *entry, char *text,
                                             size_t capacity)
{
    char trouble[TDM__LEASE_TROUBLE_BYTES];

    switch (entry->lifecycle.state) {
    case ACTOR_NEW:
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
    case ACTOR_WAITING:
        if (tdm__lease_status_explain(&entry->node->lease_status, trouble, sizeof(trouble))) {
            (void)snprintf(text, capacity, "it waits for a place: %s", trouble);
            return text;
        }
        return entry->waits_for[0] != '\0' ? entry->waits_for : "it waits for a place";
    case ACTOR_STARTING:
    case ACTOR_CONSTRUCTOR_FAILED:
        return "its constructor has not returned";
    case ACTOR_RESTARTING:
        return "it died and is being restarted";
    case ACTOR_ENDING:
    case ACTOR_ENDED:
        return "it is ending";
    case ACTOR_ALIVE:
    case ACTOR_REMOTE_STARTING:
    case ACTOR_REMOTE_UNSURE:
    case ACTOR_REMOTE:
    case ACTOR_REMOTE_REFUSED:
    case ACTOR_ENDED_ELSEWHERE:
        break;
    }
    return "it lives";
}

/* Carries out the query on an actor of this node. */
static void query_reply_local(struct actor_entry *entry, struct actor_query *query)
{
    struct tdm__actor_reason_message reason;
    char text[512];

    switch (query->kind) {
    case AWAIT:
    case FATE:
        if (entry->lifecycle.state != ACTOR_ALIVE) {
            tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, query->incoming);
        } else if (query->kind == AWAIT) {
            tdm__actor_entry_reply_description(entry, query->incoming);
        } else {
            tdm__actor_entry_ping(entry, query->incoming);
        }
        free(query);
        break;
    case IDENTIFY:
        tdm__actor_entry_identify(entry, query->incoming);
        free(query);
        break;
    case KILL:
        actor_query_kill_local(entry, query);
        break;
    case END:
        tdm__actor_entry_add_waiter(entry, WAITER_FOR_END, query->incoming);
        free(query);
        tdm__actor_entry_end(entry, false);
        break;
    case WHY:
        reason.text = actor_entry_why_not_alive(entry, text, sizeof(text));
        tdm__incoming_reply_message(query->incoming, tdm__actor_reason_table(), &reason);
        free(query);
        break;
    case RELEASE:
        actor_query_release_local(entry, query);
        break;
    }
}

/* Replies to the query about an actor that has ended on this node. */
static void query_reply_dead(const struct actor_tombstone *tombstone, struct actor_query *query)
{
    if (query->kind == KILL || query->kind == END || query->kind == RELEASE) {
        actor_query_done(query);
    } else {
        actor_query_fail(query, tombstone->status, tombstone->text);
    }
}

/* ---- on another node ----------------------------------------------------------------------- */

/* Defined below; it forwards the query to the daemon of another node. */
static void actor_query_forward(struct actor_query *query, const struct tdm__id *other);

/* Handles the reply of the daemon to which the query was forwarded. If its node is lost, this node
 * or the owner's node may create the actor again and is asked next. If its node cannot be reached,
 * but is not lost, the caller has to ask again. */
static void on_query_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct actor_query *query = arg;
    struct tdm__node *node = query->node;
    struct actor_entry *entry =
        node->actors == NULL ? NULL : tdm__actor_entry_find(node, &query->actor);

    if (reply->status == TDM_OK && entry != NULL && query->kind == KILL && !query->may_restart) {
        /* The other daemon may not have got the request to start the actor again, and has replied
         * because an earlier process of the actor has ended there. */
        actor_query_kill_local(entry, query);
    } else if (reply->status == TDM_OK) {
        tdm__incoming_reply(query->incoming, reply->packed, NULL, 0);
        free(query);
    } else if (reply->status == TDM_E_NODE_LOST && entry != NULL &&
               (!tdm__actor_state_is_remote(entry->lifecycle.state) || query->kind == KILL ||
                tdm__actor_entry_survives_node_loss(entry))) {
        if (query->kind == KILL) {
            actor_query_kill_local(entry, query);
        } else if (query->kind == RELEASE) {
            actor_query_release_local(entry, query);
        } else if (query->kind == IDENTIFY) {
            tdm__actor_entry_identify(entry, query->incoming);
            free(query);
        } else {
            tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, query->incoming);
            free(query);
        }
    } else if (reply->status == TDM_E_NODE_LOST && query->record.recreate_on_node_loss &&
               !query->asked_owner_node &&
               !tdm__id_equal(&query->record.owner_node, &node->record.id)) {
        query->asked_owner_node = true;
        actor_query_forward(query, &query->record.owner_node);
    } else if (reply->status == TDM_E_NODE_LOST) {
        char text[TDM__ERROR_DETAIL_BYTES / 2];

        actor_query_fail(
            query, tdm__node_peer_explain(node, &query->asked, reply->detail, text, sizeof(text)),
            text);
    } else {
        actor_query_fail(query, reply->status, reply->detail);
    }
}

/* Returns the method name of a kind of query. */
static const char *query_method(enum actor_query_kind kind)
{
    static const char *const methods[] = {"actor.await",  "actor.identify", "actor.fate",
                                          "actor.kill",   "actor.end",      "actor.why",
                                          "actor.release"};

    return methods[kind];
}

/* Forwards the query to the daemon of another node. */
static void actor_query_forward(struct actor_query *query, const struct tdm__id *other)
{
    const struct tdm__actor_query_message message = {.actor = query->actor,
                                                     .may_restart = query->may_restart};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        actor_query_fail(query, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    (void)tdm__actor_query_encode(&message, writer);
    query->asked = *other;
    tdm__node_forward(query->node, other, query_method(query->kind), tdm_writer_bytes(writer),
                      tdm__incoming_deadline(query->incoming), on_query_reply, query);
    tdm_writer_destroy(writer);
}

/* ---- looked up in the store -------------------------------------------------------------- */

/* Body of the transaction that reads the actor's record into the query. */
static tdm_status query_look_up_body(void *arg, struct tdm__txn *txn)
{
    struct actor_query *query = arg;

    if (tdm__txn_records_count(txn) == 0) {
        return tdm__fail(TDM_E_ACTOR_DIED, "the actor has ended, and how is no longer known");
    }
    return tdm__actor_record_read(tdm__txn_record_at(txn, 0), &query->record);
}

/* Lets the query wait as an early query. One of two messages is on its way: the start of the actor,
 * from the node that reserved resources here, or its creation, from a process whose handle was
 * faster. */
static void query_wait_for_start(struct actor_query *query)
{
    struct early_query *early = calloc(1, sizeof(*early));

    if (early == NULL) {
        actor_query_fail(query, TDM_E_NOMEM, "a query about an actor");
        return;
    }
    *early = (struct early_query){.next = query->node->actors->early_queries,
                                  .actor = query->actor,
                                  .incoming = query->incoming,
                                  .deadline_ms = tdm__deadline_after(EARLY_MS)};
    query->node->actors->early_queries = early;
    free(query);
}

/* Lets the query wait, here or on the creator's node, for the creation of an actor that is not in
 * the store. */
static void query_await_creation(struct actor_query *query)
{
    const struct tdm__id *other = &query->creators_node;

    if (tdm__id_is_none(other) || tdm__id_equal(other, &query->node->record.id)) {
        query_wait_for_start(query);
    } else {
        actor_query_forward(query, other);
    }
}

/* Handles the store's reply with the actor's record: forwards the query to the actor's node, or
 * handles the query here. */
static void on_owner_looked_up(void *arg, tdm_status status, const char *detail)
{
    struct actor_query *query = arg;
    struct tdm__node *node = query->node;
    const struct actor_tombstone *tombstone =
        node->actors == NULL ? NULL : tdm__tombstone_find(node, &query->actor);
    bool owner_asks =
        tdm__id_equal(&tdm__incoming_peer(query->incoming)->id, &query->record.owner_node);

    if (status == TDM_E_ACTOR_DIED && query->kind == AWAIT && node->actors != NULL) {
        query_await_creation(query);
    } else if (status == TDM_E_ACTOR_DIED &&
               (query->kind == KILL || query->kind == END || query->kind == RELEASE)) {
        actor_query_done(query); /* The actor has ended long ago. */
    } else if (status != TDM_OK || node->actors == NULL) {
        actor_query_fail(query, status == TDM_OK ? TDM_E_CANCELED : status, detail);
    } else if (!tdm__id_equal(&query->record.node, &node->record.id)) {
        actor_query_forward(query, &query->record.node);
    } else if (tdm__actor_entry_find(node, &query->actor) != NULL) {
        actor_query_send(query);
    } else if (tombstone != NULL && tombstone->status == TDM_E_ACTOR_RESTARTING &&
               query->kind != AWAIT && query->kind != FATE && !owner_asks) {
        actor_query_forward(query, &query->record.owner_node); /* That node places it again. */
    } else if (tombstone != NULL) {
        query_reply_dead(tombstone, query);
    } else {
        query_wait_for_start(query);
    }
}

/* Reads the record of the query's actor from the store. */
static void query_ask_store(struct actor_query *query)
{
    const struct tdm__node *node = query->node;
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("actor", &query->actor, key)};

    if (tdm__retrying_txn_run(node->store, patterns, 1, tdm__deadline_after(LOOK_UP_MS),
                              query_look_up_body, on_owner_looked_up, query) != TDM_OK) {
        actor_query_fail(query, TDM_E_NOMEM, tdm_error_detail());
    }
}

/* Carries out the query on this node, forwards it to the actor's node, or asks the store where the
 * actor is. */
static void actor_query_send(struct actor_query *query)
{
    struct actor_entry *entry = tdm__actor_entry_find(query->node, &query->actor);
    const struct actor_tombstone *tombstone = tdm__tombstone_find(query->node, &query->actor);

    if (entry != NULL && entry->lifecycle.state == ACTOR_REMOTE_STARTING &&
        query->kind == RELEASE) {
        actor_query_release_local(entry, query);
    } else if (entry != NULL && tdm__actor_state_is_remote(entry->lifecycle.state)) {
        actor_query_forward(query, &entry->record.node);
    } else if (entry != NULL) {
        query_reply_local(entry, query);
    } else if (tombstone != NULL && tombstone->status != TDM_E_ACTOR_RESTARTING) {
        query_reply_dead(tombstone, query);
    } else {
        query_ask_store(query);
    }
}

/* Returns the kind of query that the method name, such as "actor.kill", stands for. */
static enum actor_query_kind actor_query_kind_of(const char *method)
{
    enum actor_query_kind kind = AWAIT;

    while (kind < RELEASE && strcmp(method, query_method(kind)) != 0) {
        kind++;
    }
    return kind;
}

void tdm__node_serve_actor_query(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_query *query = calloc(1, sizeof(*query));
    struct tdm__actor_query_message message;

    if (query == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a query about an actor");
        return;
    }
    *query = (struct actor_query){.node = node,
                                  .incoming = incoming,
                                  .kind = actor_query_kind_of(tdm__incoming_method(incoming))};
    if (tdm__incoming_decode(incoming, tdm__actor_query_table(), &message) != TDM_OK) {
        actor_query_fail(query, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    query->actor = message.actor;
    query->may_restart = message.may_restart;
    query->creators_node = message.creators_node;
    actor_query_send(query);
}

void tdm__node_retry_early_queries(struct tdm__node *node, int64_t now_ms)
{
    struct early_query *early = node->actors->early_queries;

    node->actors->early_queries = NULL;
    while (early != NULL) {
        struct early_query *next = early->next;

        if (tdm__actor_entry_find(node, &early->actor) != NULL) {
            tdm__node_serve_actor_query(node, early->incoming);
            free(early);
        } else if (early->deadline_ms <= now_ms) {
            tdm__incoming_fail(early->incoming, TDM_E_ACTOR_DIED,
                               "the actor has ended, and how is no longer known");
            free(early);
        } else {
            early->next = node->actors->early_queries;
            node->actors->early_queries = early;
        }
        early = next;
    }
}
