/* actor_remote.c - actors that run on another node, and the loss of that node. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon of the creator's node (the owner's node) keeps an entry in a remote state for an actor
 * that runs elsewhere. It asks the other daemon by "actor.start", "actor.kill" and "actor.release";
 * the other daemon reports the final end by "actor.ended". Both sides look at the list of living
 * nodes: the owner's node loses or recreates actors of lost nodes, and a node ends actors whose
 * owner is lost. After a lost lease a node asks the owners by "actor.known" whether they still
 * count on its actors, and the nodes of its own actors by "actor.await" whether those still live:
 * a node cannot report to a lost one that it has ended the actors of the lost node.
 *
 * Every message becomes an event of actor_lifecycle.h. Messages may be lost with their connection;
 * the states REMOTE_UNSURE and the list of nodes cover that. Everything runs on the daemon's loop
 * thread. */

#include "actors/daemon/actor_remote.h"

#include "actors/daemon/actor_facts.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tdm__actor_entry_survives_node_loss(const struct actor_entry *entry)
{
    struct actor_facts facts = tdm__actor_entry_facts(entry);

    return tdm__actor_lifecycle_outlives_node(&entry->lifecycle, &facts);
}

/* ---- start on another node ---------------------------------------------------------------- */

/* Passes the other daemon's reply, `arg`, to one call that waits for the actor's start. */
static void remote_forward(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__incoming_pass_reply(incoming, arg);
}

void tdm__actor_entry_pass_reply(struct actor_entry *entry, const struct tdm__rpc_reply *reply)
{
    tdm__actor_entry_reply_waiters(entry, WAITER_FOR_START, remote_forward, (void *)reply);
}

/* Ignores the reply to a request that is not repeated. */
static void on_release_reply(void *arg, struct tdm__rpc_reply *reply)
{
    (void)arg;
    (void)reply;
}

void tdm__actor_entry_release_on_other(const struct actor_entry *entry)
{
    tdm__node_query_actor(entry->node, &entry->record.node, "actor.release", &entry->spec->id,
                          tdm__deadline_after(LEAVE_MS), on_release_reply, NULL);
}

/* Reports the other daemon's reply to "actor.start" to the actor's state machine. */
static void on_start_reply(void *arg, struct tdm__rpc_reply *reply)
{
    tdm__actor_entry_report(arg, (struct actor_event){.kind = reply->status == TDM_OK
                                                                  ? ACTOR_ON_STARTED_ELSEWHERE
                                                                  : ACTOR_ON_REFUSED_ELSEWHERE,
                                                      .status = reply->status,
                                                      .detail = reply->detail,
                                                      .reply = reply});
}

/* Returns the epoch of this node in which it wants the actor, which it has placed: the present one,
 * as far as this node knows it. */
static uint64_t owner_epoch_now(const struct actor_entry *entry)
{
    uint64_t epoch = entry->node->record.epoch;

    return epoch > entry->owner_epoch ? epoch : entry->owner_epoch;
}

void tdm__actor_entry_start_remote(struct actor_entry *entry)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        on_start_reply(
            entry, &(struct tdm__rpc_reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()});
        return;
    }
    (void)tdm__actor_start_encode(
        &(struct tdm__actor_start_message){.spec = tdm__actor_spec_to_message(entry->spec),
                                           .grant = tdm__grant_to_message(&entry->record.grant),
                                           .name_key = entry->record.name_key,
                                           .incarnation = entry->lifecycle.incarnation,
                                           .placements = entry->record.placements,
                                           .granted = (int64_t)entry->record.granted,
                                           .generation = (int64_t)entry->placed_generation,
                                           .epoch = (int64_t)entry->placed_epoch,
                                           .owner_epoch = (int64_t)owner_epoch_now(entry)},
        writer);
    tdm__node_forward(entry->node, &entry->record.node, "actor.start", tdm_writer_bytes(writer),
                      TDM__NEVER, on_start_reply, entry);
    tdm_writer_destroy(writer);
}

/* ---- end on another node ------------------------------------------------------------------ */

/* Reports the other daemon's reply to "actor.kill" to the actor's state machine. */
static void on_end_reply(void *arg, struct tdm__rpc_reply *reply)
{
    tdm__actor_entry_report(arg, (struct actor_event){.kind = ACTOR_ON_END_REPLY,
                                                      .status = reply->status,
                                                      .detail = reply->detail});
}

/* The other daemon kills the actor if it does not end gracefully in time, before the deadline of
 * the request. */
void tdm__actor_entry_end_remote(struct actor_entry *entry, bool at_once)
{
    tdm__node_query_actor(
        entry->node, &entry->record.node, at_once ? "actor.kill" : "actor.end", &entry->spec->id,
        tdm__deadline_after(at_once ? LEAVE_MS : DRAIN_MS + LEAVE_MS), on_end_reply, entry);
}

void tdm__actor_entry_hurry_remote(const struct actor_entry *entry)
{
    tdm__node_query_actor(entry->node, &entry->record.node, "actor.kill", &entry->spec->id,
                          tdm__deadline_after(LEAVE_MS), on_release_reply, NULL);
}

/* A report of an actor's end to the daemon of its creator, which is repeated until that daemon has
 * replied. The table of actors owns it. */
struct end_report {
    struct end_report *next; /* Next report of the table. */
    struct tdm__node *node;  /* State of this node's daemon, borrowed. */
    struct tdm__id owner;    /* Node of the creator. */
    uint64_t owner_epoch;    /* Epoch of that node in which it placed the actor. */
    struct tdm__id actor;    /* Id of the actor that has ended. */
    uint32_t placements;     /* Number of the placement that has ended. */
    tdm_status status;       /* Status with which calls of the actor fail. */
    bool lease_has_ended; /* True if the actor was stopped because this node's lease has ended. */
    bool is_sent;         /* True while the report has no reply. */
    char *text;           /* Cause of the end, owned. */
};

/* Removes a report from the table and frees it. */
static void end_report_free(struct end_report *report)
{
    if (report->node->actors != NULL) {
        struct end_report **link = &report->node->actors->end_reports;

        while (*link != report) {
            link = &(*link)->next;
        }
        *link = report->next;
    }
    free(report->text);
    free(report);
}

/* Handles the reply to "actor.ended". The report is repeated while the daemon of the creator may
 * still be there: its node may also not be in the list of living nodes yet. */
static void on_end_reported(void *arg, struct tdm__rpc_reply *reply)
{
    struct end_report *report = arg;
    bool is_lost = reply->status == TDM_E_NODE_LOST || reply->status == TDM_E_TIMEOUT ||
                   reply->status == TDM_E_STORE;

    report->is_sent = false;
    if (report->node->actors == NULL || report->node->stopping || !is_lost) {
        end_report_free(report);
    }
}

/* Drops the reports to a node about actors that it placed in this epoch or earlier. A report that
 * is under way is dropped later. */
static void drop_reports_to_lost_node(struct tdm__node *node, const struct tdm__id *lost,
                                      uint64_t epoch)
{
    struct end_report *next;

    for (struct end_report *report = node->actors->end_reports; report != NULL; report = next) {
        next = report->next;
        if (!report->is_sent && tdm__id_equal(&report->owner, lost) &&
            report->owner_epoch <= epoch) {
            end_report_free(report);
        }
    }
}

/* Drops the reports to nodes that are not among the `nodes_count` nodes of the list, as described
 * for tdm__node_actors_update_nodes(). */
static void drop_reports_to_absent_nodes(struct tdm__node *node,
                                         const struct tdm__node_record *nodes, uint32_t nodes_count,
                                         uint64_t list_epoch)
{
    struct end_report *next;

    for (struct end_report *report = node->actors->end_reports; report != NULL; report = next) {
        next = report->next;
        if (!report->is_sent && report->owner_epoch <= list_epoch &&
            !tdm__node_records_contain(nodes, nodes_count, &report->owner)) {
            end_report_free(report);
        }
    }
}

/* Sends a report to the daemon of the creator. */
static void end_report_send(struct end_report *report)
{
    const struct tdm__actor_ended_message message = {.actor = report->actor,
                                                     .status = report->status,
                                                     .text = report->text,
                                                     .lease_has_ended = report->lease_has_ended,
                                                     .placements = report->placements};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return; /* Without memory the report is sent later. */
    }
    if (tdm__actor_ended_encode(&message, writer) == TDM_OK) {
        report->is_sent = true;
        tdm__node_forward(report->node, &report->owner, "actor.ended", tdm_writer_bytes(writer),
                          tdm__deadline_after(LEAVE_MS), on_end_reported, report);
    }
    tdm_writer_destroy(writer);
}

void tdm__actor_entry_notify_owner(const struct actor_entry *entry, tdm_status status,
                                   const char *text)
{
    struct end_report *report;

    if (tdm__id_is_none(&entry->owner_node) || entry->node->stopping) {
        return;
    }
    report = calloc(1, sizeof(*report));
    if (report != NULL) {
        report->text = strdup(text);
    }
    if (report == NULL || report->text == NULL) {
        free(report);
        tdm__log(TDM__ERROR, "actors", "out of memory: the end of %s is not reported",
                 entry->label);
        return;
    }
    report->node = entry->node;
    report->owner = entry->owner_node;
    report->owner_epoch = entry->owner_epoch;
    report->actor = entry->spec->id;
    report->placements = entry->record.placements;
    report->status = status;
    report->lease_has_ended = entry->lifecycle.kill == ACTOR_KILLED_WITHOUT_LEASE;
    report->next = entry->node->actors->end_reports;
    entry->node->actors->end_reports = report;
    end_report_send(report);
}

void tdm__node_actors_report_ends(struct tdm__node *node)
{
    struct end_report *next;

    for (struct end_report *report = node->actors->end_reports; report != NULL; report = next) {
        next = report->next;
        if (!report->is_sent) {
            end_report_send(report);
        }
    }
}

void tdm__node_actors_drop_reports(struct tdm__node *node)
{
    while (node->actors->end_reports != NULL) {
        end_report_free(node->actors->end_reports);
    }
}

void tdm__node_remote_actor_ended(struct tdm__node *node, const struct tdm__id *other,
                                  const struct tdm__actor_ended_message *message)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &message->actor);

    /* A late report may be about an earlier placement on the same node. */
    if (entry != NULL && tdm__id_equal(&entry->record.node, other) &&
        message->placements >= entry->record.placements) {
        tdm__actor_entry_report(entry, (struct actor_event){.kind = message->lease_has_ended
                                                                        ? ACTOR_ON_FENCED_ELSEWHERE
                                                                        : ACTOR_ON_ENDED_ELSEWHERE,
                                                            .status = (tdm_status)message->status,
                                                            .detail = message->text});
    }
}

/* ---- loss of a node ----------------------------------------------------------------------- */

/* Returns the record of the node with this ID among the `nodes_count` nodes, or NULL. */
static const struct tdm__node_record *find_record(const struct tdm__node_record *nodes,
                                                  uint32_t nodes_count, const struct tdm__id *id)
{
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (tdm__id_equal(&nodes[i].id, id)) {
            return &nodes[i];
        }
    }
    return NULL;
}

/* Reports to the actor's state machine that the actor's node is lost. */
static void actor_entry_report_node_lost(struct actor_entry *entry)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "actor %s is lost with its node %s", entry->label,
                   entry->placement_node_name);
    entry->is_lost_with_node = true;
    tdm__actor_entry_report(entry,
                            (struct actor_event){.kind = ACTOR_ON_NODE_LOST, .detail = text});
}

/* Returns whether the node of the actor was lost since the actor was placed on it. `now` is the
 * record of that node in the list of living nodes; NULL if the list lacks it. A list that was read
 * before the node joined and the actor was placed tells nothing. */
static bool placement_was_lost(const struct actor_entry *entry, const struct tdm__node_record *now)
{
    return now == NULL || (now->epoch > entry->placed_epoch &&
                           (now->lives_since == 0 || now->lives_since > entry->placed_epoch));
}

void tdm__node_remote_actors_update_nodes(struct tdm__node *node,
                                          const struct tdm__node_record *nodes,
                                          uint32_t nodes_count, bool is_held)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        const struct tdm__node_record *now = find_record(nodes, nodes_count, &entry->record.node);

        next = entry->next;
        if (!tdm__actor_state_is_remote(entry->lifecycle.state)) {
            continue;
        }
        if (is_held && now != NULL && now->epoch > entry->placed_epoch) {
            entry->placed_epoch = now->epoch; /* Only the node's record was lost. */
        }
        if (placement_was_lost(entry, now)) {
            actor_entry_report_node_lost(entry);
        } else {
            tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_NODE_SEEN});
        }
    }
}

/* Returns whether the actor was placed on this node by the node `owner`. */
static bool is_guest_of(const struct actor_entry *entry, const struct tdm__id *owner)
{
    return !tdm__actor_state_is_remote(entry->lifecycle.state) &&
           !tdm__id_is_none(&entry->owner_node) && tdm__id_equal(&entry->owner_node, owner);
}

void tdm__node_actors_lose_owner(struct tdm__node *node, const struct tdm__id *lost, uint64_t epoch)
{
    struct actor_entry *next;

    drop_reports_to_lost_node(node, lost, epoch);
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (is_guest_of(entry, lost) && entry->owner_epoch <= epoch) {
            tdm__actor_entry_report(entry,
                                    (struct actor_event){.kind = ACTOR_ON_CREATOR_NODE_LOST});
        }
    }
}

void tdm__node_actors_update_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count, uint64_t list_epoch)
{
    struct actor_entry *next;

    drop_reports_to_absent_nodes(node, nodes, nodes_count, list_epoch);
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (is_guest_of(entry, &entry->owner_node) && entry->owner_epoch <= list_epoch &&
            !tdm__node_records_contain(nodes, nodes_count, &entry->owner_node)) {
            tdm__actor_entry_report(entry,
                                    (struct actor_event){.kind = ACTOR_ON_CREATOR_NODE_LOST});
        }
    }
}

/* ---- confirmation by the owner's node ----------------------------------------------------- */

/* A pending call "actor.known" to the daemon of an actor's owner; the actor may have left the table
 * when the reply arrives. */
struct owner_query {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    struct tdm__id actor;   /* Id of the actor whose owner's daemon is asked. */
};

void tdm__node_serve_actor_known(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct tdm__actor_query_message query;
    struct tdm__actor_known_message reply;
    const struct actor_entry *entry;

    if (tdm__incoming_decode(incoming, tdm__actor_query_table(), &query) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    if (node->stopping) { /* Its actors leave the table, and detached ones go on elsewhere. */
        tdm__incoming_fail(incoming, TDM_E_NODE_LOST, "the node is stopping");
        return;
    }
    entry = tdm__actor_entry_find(node, &query.actor);
    reply.is_known = entry != NULL && tdm__actor_state_is_remote(entry->lifecycle.state) &&
                     tdm__id_equal(&entry->record.node, &tdm__incoming_peer(incoming)->id);
    tdm__incoming_reply_message(incoming, tdm__actor_known_table(), &reply);
}

/* True if the daemon of the owner's node replied to "actor.known" that it does not know the actor.
 */
static bool reply_is_refusal(const struct tdm__rpc_reply *reply)
{
    struct tdm__actor_known_message message;
    tdm_document *document;
    bool no;

    if (reply->status != TDM_OK || tdm_document_parse(reply->packed, &document) != TDM_OK) {
        return false;
    }
    no = tdm__actor_known_decode(tdm_document_root(document), &message) == TDM_OK &&
         !message.is_known;
    tdm_document_destroy(document);
    return no;
}

/* Handles the reply to "actor.known": ends the actor if the daemon of its owner has given it up,
 * and otherwise lets its worker take part in the present epoch of this node. */
static void on_actor_known_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct owner_query *owner_query = arg;
    struct actor_entry *entry = owner_query->node->actors == NULL
                                    ? NULL
                                    : tdm__actor_entry_find(owner_query->node, &owner_query->actor);

    free(owner_query);
    if (entry != NULL && reply->status == TDM_OK && !reply_is_refusal(reply)) {
        tdm__node_notices_confirm(entry);
    } else if (entry != NULL && reply_is_refusal(reply)) {
        entry->is_disowned = true;
        tdm__actor_entry_report(
            entry,
            (struct actor_event){
                .kind = ACTOR_ON_DISOWNED,
                .detail = "its node was lost for a while, and its creator's node gave it up"});
    }
}

void tdm__node_actors_query_owners(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        struct owner_query *owner_query;

        if (tdm__id_is_none(&entry->owner_node) || entry->worker == NULL) {
            continue;
        }
        owner_query = malloc(sizeof(*owner_query));
        if (owner_query == NULL) {
            return; /* Without memory the query is repeated after a second. */
        }
        *owner_query = (struct owner_query){node, entry->spec->id};
        tdm__node_query_actor(node, &entry->owner_node, "actor.known", &owner_query->actor,
                              tdm__deadline_after(TDM__NODE_REJOIN_MS), on_actor_known_reply,
                              owner_query);
    }
}

/* ---- own actors after a lost lease --------------------------------------------------------- */

/* A pending call "actor.await" about an actor of this node that runs on another node; the actor may
 * have left the table or been placed again when the reply arrives. */
struct remote_query {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    struct tdm__id actor;   /* ID of the actor. */
    uint32_t incarnation;   /* Incarnation of the actor when the call was sent. */
};

/* Handles what the other node says of an actor: only a death and a restart that this node has to
 * make are news. Without an answer the query is repeated after a second. */
static void on_remote_query_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct remote_query query = *(struct remote_query *)arg;
    struct actor_entry *entry =
        query.node->actors == NULL ? NULL : tdm__actor_entry_find(query.node, &query.actor);
    bool has_died = reply->status == TDM_E_ACTOR_DIED;
    bool is_fenced = reply->status == TDM_E_ACTOR_RESTARTING;

    free(arg);
    if (entry == NULL || entry->lifecycle.incarnation != query.incarnation ||
        (reply->status != TDM_OK && !has_died && !is_fenced)) {
        return;
    }
    entry->may_have_ended_elsewhere = false;
    if (has_died || is_fenced) {
        tdm__actor_entry_report(entry,
                                (struct actor_event){.kind = is_fenced ? ACTOR_ON_FENCED_ELSEWHERE
                                                                       : ACTOR_ON_ENDED_ELSEWHERE,
                                                     .status = TDM_E_ACTOR_DIED,
                                                     .detail = reply->detail});
    }
}

void tdm__node_remote_actors_doubt(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        entry->may_have_ended_elsewhere = entry->lifecycle.state == ACTOR_REMOTE;
    }
}

void tdm__node_remote_actors_query(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        struct remote_query *query;

        if (!entry->may_have_ended_elsewhere || entry->lifecycle.state != ACTOR_REMOTE) {
            entry->may_have_ended_elsewhere = false;
            continue;
        }
        query = malloc(sizeof(*query));
        if (query == NULL) {
            return; /* Without memory the query is repeated after a second. */
        }
        *query = (struct remote_query){node, entry->spec->id, entry->lifecycle.incarnation};
        tdm__node_query_actor(node, &entry->record.node, "actor.await", &query->actor,
                              tdm__deadline_after(LEAVE_MS), on_remote_query_reply, query);
    }
}

/* ---- fencing ------------------------------------------------------------------------------ */

void tdm__node_actors_fence(struct tdm__node *node)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_LEASE_ENDING,
                                                            .detail = TDM__LEASE_ENDED_TEXT});
    }
}
