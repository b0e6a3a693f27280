/* actor_remote.c - actors that live on another node, and what becomes of them with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The other node did not say so itself, or nobody knows. */
static bool is_unreachable(tdm_status status)
{
    return status == TDM_E_NODE_LOST || status == TDM_E_STORE;
}

bool tdm__actor_entry_outlives_node(const struct actor_entry *entry)
{
    return entry->state == ACTOR_REMOTE && !entry->unwanted && !entry->node->stopping &&
           tdm__id_is_none(&entry->spec->group) &&
           (entry->start_unsure || tdm__actor_entry_may_restart(entry));
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

static void on_released_there(void *arg, struct tdm__reply *reply)
{
    (void)arg;
    (void)reply;
}

static void on_started_there(void *arg, struct tdm__reply *reply)
{
    struct actor_entry *entry = arg;

    entry->start_pending = false;
    entry->start_unsure = is_unreachable(reply->status);
    if (entry->start_unsure && !entry->node->stopping) {
        return; /* its node is asked again, until it answers or its lease has ended */
    }
    if (reply->status != TDM_OK) {
        tdm__actor_entry_give_place_back(entry); /* the other node did, if it could */
    }
    tdm__actor_entry_answer_life(entry, pass_on, reply);
    if (reply->status != TDM_OK && !entry->end_pending) {
        tdm__actor_entry_remove(entry, reply->status, reply->detail);
    } else if (entry->unwanted) {
        tdm__actor_entry_end(entry, true);
    } else if (entry->released) {
        tdm__node_ask_about(entry->node, &entry->record.node, "actor.release", &entry->spec->id,
                            tdm__deadline_in(LEAVE_MS), on_released_there, NULL);
    }
}

void tdm__actor_entry_start_on_other(struct actor_entry *entry)
{
    tdm_writer *writer;

    entry->state = ACTOR_REMOTE;
    entry->start_unsure = false;
    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__actor_entry_give_place_back(entry);
        tdm__actor_entry_remove(entry, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm_write_array(writer, 4);
    tdm__actor_spec_write(writer, entry->spec);
    tdm__grant_write(writer, &entry->record.grant);
    tdm_write_string(writer, entry->record.name_key);
    tdm_write_uint(writer, entry->incarnation);
    entry->start_pending = true;
    tdm__node_forward(entry->node, &entry->record.node, "actor.start", tdm_writer_bytes(writer),
                      TDM__NEVER, on_started_there, entry);
    tdm_writer_destroy(writer);
}

/* ---- ended there ------------------------------------------------------------------------ */

/* The answer to the start may still be under way: whoever comes last removes the entry.  Unless
 * the other node says that it is gone, or was never there, it is asked again, for as long as
 * that node has its lease. */
static void on_ended_there(void *arg, struct tdm__reply *reply)
{
    struct actor_entry *entry = arg;

    entry->end_pending = false;
    if (reply->status != TDM_OK && reply->status != TDM_E_ACTOR_DIED &&
        !entry->node->stopping) {
        return;
    }
    if (!entry->start_pending) {
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED,
                                reply->status == TDM_OK ? "ended with its creator"
                                                        : reply->detail);
    }
}

void tdm__actor_entry_end_on_other(struct actor_entry *entry)
{
    entry->unwanted = true;
    if (!entry->end_pending) {
        entry->end_pending = true;
        tdm__node_ask_about(entry->node, &entry->record.node, "actor.kill", &entry->spec->id,
                            tdm__deadline_in(LEAVE_MS), on_ended_there, entry);
    }
}

static void on_home_told(void *arg, struct tdm__reply *reply)
{
    (void)arg;
    (void)reply;
}

void tdm__actor_entry_tell_home(const struct actor_entry *entry, tdm_status status,
                                const char *text)
{
    tdm_writer *writer;

    if (tdm__id_is_none(&entry->home) || entry->node->stopping ||
        tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    if (tdm_pack(writer, "bis", (const void *)entry->spec->id.bytes,
                 sizeof(entry->spec->id.bytes), (int64_t)status, text) == TDM_OK) {
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

    if (entry != NULL && entry->state == ACTOR_REMOTE && !entry->start_pending &&
        !entry->end_pending && tdm__id_equal(&entry->record.node, other)) {
        tdm__actor_entry_remove(entry, status, text);
    }
}

/* ---- lost with its node ----------------------------------------------------------------- */

static void node_lost(struct actor_entry *entry)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "actor %s is lost with its node %s", entry->label,
                   entry->place_name);
    if (!tdm__actor_entry_outlives_node(entry)) {
        tdm__actor_entry_give_place_back(entry); /* nobody else will */
        tdm__actor_entry_remove(entry, entry->unwanted ? TDM_E_ACTOR_DIED : TDM_E_NODE_LOST,
                                text);
        return;
    }
    tdm__log(TDM__INFO, "actors", "%s: it is placed anew", text);
    entry->incarnation += entry->start_unsure ? 0 : 1;
    entry->start_unsure = false;
    entry->may_hold_place = true;
    tdm__actor_entry_place(entry);
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

static void check_other(struct actor_entry *entry, bool is_there)
{
    if (entry->start_pending || entry->end_pending) {
        return; /* an answer comes, or the end of the connection */
    }
    if (!is_there) {
        node_lost(entry);
    } else if (entry->start_unsure) {
        tdm__actor_entry_start_on_other(entry);
    } else if (entry->unwanted) {
        tdm__actor_entry_end_on_other(entry);
    }
}

void tdm__node_actors_check_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                  uint32_t nodes_count)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->state == ACTOR_REMOTE) {
            check_other(entry, is_among(&entry->record.node, nodes, nodes_count));
        } else if (!tdm__id_is_none(&entry->home) && !entry->spec->detached &&
                   !is_among(&entry->home, nodes, nodes_count)) {
            tdm__actor_entry_end(entry, true); /* it would outlive its creator */
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
    if (entry != NULL && entry->worker != NULL && entry->state != ACTOR_ENDING &&
        says_no(reply)) {
        tdm__log(TDM__WARN, "actors", "actor %s is stopped: its creator's node has given it up",
                 entry->label);
        (void)snprintf(entry->failure, sizeof(entry->failure),
                       "its node was lost for a while, and its creator's node gave it up");
        tdm__actor_entry_end(entry, true);
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
        bool is_claimed = entry->spec->name[0] != '\0' || entry->spec->max_restarts != 0 ||
                          entry->record.grant.gpus_count > 0;

        next = entry->next;
        if (!is_claimed || entry->worker == NULL || entry->place_is_lost) {
            continue;
        }
        tdm__log(TDM__WARN, "actors", "actor %s is stopped: its node's lease has ended",
                 entry->label);
        (void)snprintf(entry->failure, sizeof(entry->failure),
                       "its node lost its lease and stopped it");
        if (tdm__id_is_none(&entry->home) && tdm__id_is_none(&entry->spec->group) &&
            entry->state != ACTOR_ENDING) {
            entry->place_is_lost = true; /* this node places it anew, if it may */
            tdm__actor_entry_kill_process(entry);
        } else {
            tdm__actor_entry_end(entry, true);
        }
    }
}
