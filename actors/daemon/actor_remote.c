/* actor_remote.c - actors that live on another node, and what becomes of them with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_entry.h"
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

/* ---- started there ---------------------------------------------------------------------- */

static void remote_forward(void *arg, struct tdm__incoming_call *incoming)
{
    const struct tdm__rpc_reply *reply = arg;

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(incoming, reply->status, reply->detail);
    }
}

void tdm__actor_entry_pass_reply(struct actor_entry *entry, const struct tdm__rpc_reply *reply)
{
    tdm__actor_entry_reply_waiters(entry, remote_forward, (void *)reply);
}

static void on_released_there(void *arg, struct tdm__rpc_reply *reply)
{
    (void)arg;
    (void)reply;
}

void tdm__actor_entry_release_on_other(const struct actor_entry *entry)
{
    tdm__node_query_actor(entry->node, &entry->record.node, "actor.release", &entry->spec->id,
                          tdm__deadline_after(LEAVE_MS), on_released_there, NULL);
}

static void on_started_there(void *arg, struct tdm__rpc_reply *reply)
{
    tdm__actor_entry_handle(arg, (struct actor_event){.kind = reply->status == TDM_OK
                                                                  ? ACTOR_ON_STARTED_ELSEWHERE
                                                                  : ACTOR_ON_REFUSED_ELSEWHERE,
                                                      .status = reply->status,
                                                      .detail = reply->detail,
                                                      .reply = reply});
}

void tdm__actor_entry_start_remote(struct actor_entry *entry)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        on_started_there(
            entry, &(struct tdm__rpc_reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()});
        return;
    }
    (void)tdm__actor_start_encode(
        &(struct tdm__actor_start_message){.spec = tdm__actor_spec_to_message(entry->spec),
                                           .grant = tdm__grant_to_message(&entry->record.grant),
                                           .name_key = entry->record.name_key,
                                           .incarnation = entry->lifecycle.incarnation},
        writer);
    tdm__node_forward(entry->node, &entry->record.node, "actor.start", tdm_writer_bytes(writer),
                      TDM__NEVER, on_started_there, entry);
    tdm_writer_destroy(writer);
}

/* ---- ended there ------------------------------------------------------------------------ */

static void on_ended_there(void *arg, struct tdm__rpc_reply *reply)
{
    tdm__actor_entry_handle(arg, (struct actor_event){.kind = ACTOR_ON_END_REPLY,
                                                      .status = reply->status,
                                                      .detail = reply->detail});
}

void tdm__actor_entry_end_remote(struct actor_entry *entry)
{
    tdm__node_query_actor(entry->node, &entry->record.node, "actor.kill", &entry->spec->id,
                          tdm__deadline_after(LEAVE_MS), on_ended_there, entry);
}

static void on_owner_notified(void *arg, struct tdm__rpc_reply *reply)
{
    (void)arg;
    (void)reply;
}

void tdm__actor_entry_notify_owner(const struct actor_entry *entry, tdm_status status,
                                   const char *text)
{
    const struct tdm__actor_ended_message message = {entry->spec->id, status, text};
    tdm_writer *writer;

    if (tdm__id_is_none(&entry->owner_node) || entry->node->stopping ||
        tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    if (tdm__actor_ended_encode(&message, writer) == TDM_OK) {
        tdm__node_forward(entry->node, &entry->owner_node, "actor.ended", tdm_writer_bytes(writer),
                          tdm__deadline_after(LEAVE_MS), on_owner_notified, NULL);
    }
    tdm_writer_destroy(writer);
}

void tdm__node_remote_actor_ended(struct tdm__node *node, const struct tdm__id *other,
                                  const struct tdm__id *actor, tdm_status status, const char *text)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, actor);

    if (entry != NULL && tdm__id_equal(&entry->record.node, other)) {
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_ENDED_ELSEWHERE,
                                                            .status = status,
                                                            .detail = text});
    }
}

/* ---- lost with its node ----------------------------------------------------------------- */

static void node_lost(struct actor_entry *entry)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "actor %s is lost with its node %s", entry->label,
                   entry->placement_node_name);
    tdm__actor_entry_handle(entry,
                            (struct actor_event){.kind = ACTOR_ON_NODE_LOST, .detail = text});
}

static bool is_among(const struct tdm__id *id, const struct tdm__node_record *nodes,
                     uint32_t nodes_count)
{
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (tdm__id_equal(&nodes[i].id, id)) {
            return true;
        }
    }
    return false;
}

void tdm__node_actors_update_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (tdm__actor_state_is_remote(entry->lifecycle.state)) {
            if (is_among(&entry->record.node, nodes, nodes_count)) {
                tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_NODE_SEEN});
            } else {
                node_lost(entry);
            }
        } else if (!tdm__id_is_none(&entry->owner_node) &&
                   !is_among(&entry->owner_node, nodes, nodes_count)) {
            tdm__actor_entry_handle(entry,
                                    (struct actor_event){.kind = ACTOR_ON_CREATOR_NODE_LOST});
        }
    }
}

/* ---- does its owner_node still know it? -------------------------------------------------------
 */

struct remote_owned_actor {
    struct tdm__node *node;
    struct tdm__id actor;
};

void tdm__node_serve_actor_known(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct tdm__id id;
    const void *bytes;
    size_t size_bytes;

    if (tdm__incoming_unpack(incoming, "b", &bytes, &size_bytes) != TDM_OK ||
        size_bytes != sizeof(id.bytes)) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, "which actor?");
        return;
    }
    memcpy(id.bytes, bytes, sizeof(id.bytes));
    tdm__incoming_reply_pack(incoming, "?", tdm__actor_entry_find(node, &id) != NULL);
}

static bool reply_is_refusal(const struct tdm__rpc_reply *reply)
{
    tdm_document *document;
    bool no;

    if (reply->status != TDM_OK || tdm_document_parse(reply->packed, &document) != TDM_OK) {
        return false;
    }
    no = !tdm_value_bool(tdm_value_at(tdm_document_root(document), 0), 1);
    tdm_document_destroy(document);
    return no;
}

static void on_actor_known_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct remote_owned_actor *remote_owned_actor = arg;
    struct actor_entry *entry =
        remote_owned_actor->node->actors == NULL
            ? NULL
            : tdm__actor_entry_find(remote_owned_actor->node, &remote_owned_actor->actor);

    free(remote_owned_actor);
    if (entry != NULL && reply_is_refusal(reply)) {
        tdm__actor_entry_handle(
            entry,
            (struct actor_event){
                .kind = ACTOR_ON_DISOWNED,
                .detail = "its node was lost for a while, and its creator's node gave it up"});
    }
}

void tdm__node_actors_query_owners(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        struct remote_owned_actor *remote_owned_actor;

        if (tdm__id_is_none(&entry->owner_node) || entry->spec->detached || entry->worker == NULL) {
            continue;
        }
        remote_owned_actor = malloc(sizeof(*remote_owned_actor));
        if (remote_owned_actor == NULL) {
            return; /* asked again in a second */
        }
        *remote_owned_actor = (struct remote_owned_actor){node, entry->spec->id};
        tdm__node_query_actor(node, &entry->owner_node, "actor.known", &remote_owned_actor->actor,
                              tdm__deadline_after(TDM__NODE_LEASE_MS), on_actor_known_reply,
                              remote_owned_actor);
    }
}

/* ---- fenced ----------------------------------------------------------------------------- */

void tdm__node_actors_fence(struct tdm__node *node)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        tdm__actor_entry_handle(
            entry, (struct actor_event){.kind = ACTOR_ON_LEASE_ENDING,
                                        .detail = "its node lost its lease and stopped it"});
    }
}
