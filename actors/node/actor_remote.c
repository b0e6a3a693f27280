/* actor_remote.c - actors that live on another node, and what becomes of them with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tdm__actor_entry_outlives_node(const struct actor_entry *entry)
{
    struct actor_facts facts = tdm__actor_entry_facts(entry);

    return tdm__actor_lifecycle_outlives_node(&entry->lifecycle, &facts);
}

/* ---- started there ---------------------------------------------------------------------- */

static void pass_on(void *arg, struct tdm__incoming *incoming)
{
    const struct tdm__reply *reply = arg;

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(incoming, reply->status, reply->detail);
    }
}

void tdm__actor_entry_pass_reply(struct actor_entry *entry, const struct tdm__reply *reply)
{
    tdm__actor_entry_answer_life(entry, pass_on, (void *)reply);
}

static void on_released_there(void *arg, struct tdm__reply *reply)
{
    (void)arg;
    (void)reply;
}

void tdm__actor_entry_release_on_other(const struct actor_entry *entry)
{
    tdm__node_ask_about(entry->node, &entry->record.node, "actor.release", &entry->spec->id,
                        tdm__deadline_in(LEAVE_MS), on_released_there, NULL);
}

static void on_started_there(void *arg, struct tdm__reply *reply)
{
    tdm__actor_entry_handle(arg, (struct actor_event){.kind = reply->status == TDM_OK
                                                                  ? ACTOR_ON_STARTED_ELSEWHERE
                                                                  : ACTOR_ON_REFUSED_ELSEWHERE,
                                                      .status = reply->status,
                                                      .detail = reply->detail,
                                                      .reply = reply});
}

void tdm__actor_entry_start_on_other(struct actor_entry *entry)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        on_started_there(
            entry, &(struct tdm__reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()});
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

static void on_ended_there(void *arg, struct tdm__reply *reply)
{
    tdm__actor_entry_handle(arg, (struct actor_event){.kind = ACTOR_ON_END_REPLY,
                                                      .status = reply->status,
                                                      .detail = reply->detail});
}

void tdm__actor_entry_end_on_other(struct actor_entry *entry)
{
    tdm__node_ask_about(entry->node, &entry->record.node, "actor.kill", &entry->spec->id,
                        tdm__deadline_in(LEAVE_MS), on_ended_there, entry);
}

static void on_home_told(void *arg, struct tdm__reply *reply)
{
    (void)arg;
    (void)reply;
}

void tdm__actor_entry_tell_home(const struct actor_entry *entry, tdm_status status,
                                const char *text)
{
    const struct tdm__actor_ended_message message = {entry->spec->id, status, text};
    tdm_writer *writer;

    if (tdm__id_is_none(&entry->home) || entry->node->stopping ||
        tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    if (tdm__actor_ended_encode(&message, writer) == TDM_OK) {
        tdm__node_forward(entry->node, &entry->home, "actor.ended", tdm_writer_bytes(writer),
                          tdm__deadline_in(LEAVE_MS), on_home_told, NULL);
    }
    tdm_writer_destroy(writer);
}

void tdm__node_actor_ended_there(struct tdm__node *node, const struct tdm__id *other,
                                 const struct tdm__id *actor, tdm_status status,
                                 const char *text)
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
                   entry->place_name);
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

void tdm__node_actors_check_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                  uint32_t nodes_count)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (tdm__actor_state_is_remote(entry->lifecycle.state)) {
            if (is_among(&entry->record.node, nodes, nodes_count)) {
                tdm__actor_entry_handle(entry,
                                        (struct actor_event){.kind = ACTOR_ON_NODE_SEEN});
            } else {
                node_lost(entry);
            }
        } else if (!tdm__id_is_none(&entry->home) &&
                   !is_among(&entry->home, nodes, nodes_count)) {
            tdm__actor_entry_handle(entry,
                                    (struct actor_event){.kind = ACTOR_ON_CREATOR_NODE_LOST});
        }
    }
}

/* ---- does its home still know it? ------------------------------------------------------- */

struct guest {
    struct tdm__node *node;
    struct tdm__id actor;
};

void tdm__node_serve_known(struct tdm__node *node, struct tdm__incoming *incoming)
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

static bool says_no(const struct tdm__reply *reply)
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

static void on_known(void *arg, struct tdm__reply *reply)
{
    struct guest *guest = arg;
    struct actor_entry *entry =
        guest->node->actors == NULL ? NULL : tdm__actor_entry_find(guest->node, &guest->actor);

    free(guest);
    if (entry != NULL && says_no(reply)) {
        tdm__actor_entry_handle(
            entry,
            (struct actor_event){
                .kind = ACTOR_ON_DISOWNED,
                .detail = "its node was lost for a while, and its creator's node gave it up"});
    }
}

void tdm__node_actors_ask_homes(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        struct guest *guest;

        if (tdm__id_is_none(&entry->home) || entry->spec->detached || entry->worker == NULL) {
            continue;
        }
        guest = malloc(sizeof(*guest));
        if (guest == NULL) {
            return; /* asked again in a second */
        }
        *guest = (struct guest){node, entry->spec->id};
        tdm__node_ask_about(node, &entry->home, "actor.known", &guest->actor,
                            tdm__deadline_in(TDM__NODE_LEASE_MS), on_known, guest);
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
