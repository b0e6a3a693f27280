/* actor_queries.c - questions about one actor, by id or by name, wherever it lives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_entry.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "scheduler/retrying_txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_UP_MS = 5000, EARLY_MS = 3000 };

/* "actor.await"    (id, false, creator's node): its description once it lives, or its death
 * "actor.fate"     the same from one who lost the connection to it: does it live at all?
 * "actor.kill"     (id, may it be restarted?): nothing, once it is gone and its name free
 * "actor.why"      (id): why it does not live yet, in words
 * "actor.release"  its last handle is gone; from its creator */
enum actor_query_kind { AWAIT, FATE, KILL, WHY, RELEASE };

struct actor_query {
    struct tdm__node *node;
    struct tdm__incoming_call *incoming; /* owned */
    enum actor_query_kind kind;
    struct tdm__id actor;
    bool may_restart;
    bool asked_owner_node;
    struct tdm__id creators_node;    /* AWAIT: none if it is not told */
    struct tdm__actor_record record; /* where it lives, by the store */
};

static void actor_query_send(struct actor_query *actor_query);

static void actor_query_fail(struct actor_query *actor_query, tdm_status status, const char *detail)
{
    tdm__incoming_fail(actor_query->incoming, status, detail);
    free(actor_query);
}

static void actor_query_done(struct actor_query *actor_query)
{
    tdm__incoming_reply_pack(actor_query->incoming, "");
    free(actor_query);
}

/* ---- here ------------------------------------------------------------------------------- */

static void actor_query_kill_local(struct actor_entry *entry, struct actor_query *actor_query)
{
    if (actor_query->may_restart) {
        tdm__actor_entry_kill_process(entry);
        actor_query_done(actor_query);
        return;
    }
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_END, actor_query->incoming);
    free(actor_query);
    tdm__actor_entry_end(entry, true);
}

/* Only its creator counts its handles; another node's daemon asks for one there. */
static void actor_query_release_local(struct actor_entry *entry, struct actor_query *actor_query)
{
    const struct tdm__peer_identity *peer = tdm__incoming_peer(actor_query->incoming);

    if (!entry->spec->detached &&
        (peer->kind == TDM__PEER_DAEMON || tdm__id_equal(&peer->id, &entry->spec->creator))) {
        tdm__actor_entry_release(entry);
    }
    actor_query_done(actor_query);
}

static const char *why_not_alive(const struct actor_entry *entry, char *text, size_t room)
{
    const char *trouble = tdm__node_lease_store_error(entry->node);

    switch (entry->lifecycle.state) {
    case ACTOR_NEW:
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
    case ACTOR_WAITING:
        if (trouble[0] != '\0') {
            (void)snprintf(text, room, "it waits for a place: %s", trouble);
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

static void query_reply_local(struct actor_entry *entry, struct actor_query *actor_query)
{
    char text[512];

    switch (actor_query->kind) {
    case AWAIT:
    case FATE:
        if (entry->lifecycle.state != ACTOR_ALIVE) {
            tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, actor_query->incoming);
        } else if (actor_query->kind == AWAIT) {
            tdm__actor_entry_reply_description(entry, actor_query->incoming);
        } else {
            tdm__actor_entry_ping(entry, actor_query->incoming);
        }
        free(actor_query);
        break;
    case KILL:
        actor_query_kill_local(entry, actor_query);
        break;
    case WHY:
        tdm__incoming_reply_pack(actor_query->incoming, "s",
                                 why_not_alive(entry, text, sizeof(text)));
        free(actor_query);
        break;
    case RELEASE:
        actor_query_release_local(entry, actor_query);
        break;
    }
}

static void query_reply_dead(const struct actor_tombstone *actor_tombstone,
                             struct actor_query *actor_query)
{
    if (actor_query->kind == KILL || actor_query->kind == RELEASE) {
        actor_query_done(actor_query);
    } else {
        actor_query_fail(actor_query, actor_tombstone->status, actor_tombstone->text);
    }
}

/* ---- elsewhere -------------------------------------------------------------------------- */

static void actor_query_forward(struct actor_query *actor_query, const struct tdm__id *other);

/* Its node is lost: its owner_node, if that is another one, may make it anew. */
static void on_query_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct actor_query *actor_query = arg;
    struct tdm__node *node = actor_query->node;
    struct actor_entry *entry =
        node->actors == NULL ? NULL : tdm__actor_entry_find(node, &actor_query->actor);

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(actor_query->incoming, reply->packed, NULL, 0);
        free(actor_query);
    } else if (reply->status == TDM_E_NODE_LOST && entry != NULL &&
               (!tdm__actor_state_is_remote(entry->lifecycle.state) || actor_query->kind == KILL ||
                tdm__actor_entry_survives_node_loss(entry))) {
        if (actor_query->kind == KILL) {
            actor_query_kill_local(entry, actor_query);
        } else {
            tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, actor_query->incoming);
            free(actor_query);
        }
    } else if (reply->status == TDM_E_NODE_LOST && actor_query->record.recreate_on_node_loss &&
               !actor_query->asked_owner_node &&
               !tdm__id_equal(&actor_query->record.owner_node, &node->record.id)) {
        actor_query->asked_owner_node = true;
        actor_query_forward(actor_query, &actor_query->record.owner_node);
    } else {
        actor_query_fail(actor_query, reply->status, reply->detail);
    }
}

static const char *method_of(enum actor_query_kind kind)
{
    static const char *const methods[] = {"actor.await", "actor.fate", "actor.kill", "actor.why",
                                          "actor.release"};

    return methods[kind];
}

static void actor_query_forward(struct actor_query *actor_query, const struct tdm__id *other)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        actor_query_fail(actor_query, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm_write_array(writer, 2);
    tdm_write_bytes(writer, actor_query->actor.bytes, sizeof(actor_query->actor.bytes));
    tdm_write_bool(writer, actor_query->may_restart);
    tdm__node_forward(actor_query->node, other, method_of(actor_query->kind),
                      tdm_writer_bytes(writer), tdm__incoming_deadline(actor_query->incoming),
                      on_query_reply, actor_query);
    tdm_writer_destroy(writer);
}

/* ---- by the store ----------------------------------------------------------------------- */

/* Reads one actor's record by its key, which lies behind `arg`'s beginning. */
static tdm_status look_up_body(void *arg, struct tdm__txn *txn)
{
    struct actor_query *actor_query = arg;

    if (tdm__txn_records_count(txn) == 0) {
        return tdm__fail(TDM_E_ACTOR_DIED, "the actor has ended, and how is no longer known");
    }
    return tdm__actor_record_read(tdm__txn_record_at(txn, 0), &actor_query->record);
}

/* The start of the actor is on its way here, from the node that found this place for it; or its
 * creation, from a process whose handle was faster. */
static void wait_for_start(struct actor_query *actor_query)
{
    struct early_query *early = calloc(1, sizeof(*early));

    if (early == NULL) {
        actor_query_fail(actor_query, TDM_E_NOMEM, "a actor_query");
        return;
    }
    *early = (struct early_query){.next = actor_query->node->actors->early_queries,
                                  .actor = actor_query->actor,
                                  .incoming = actor_query->incoming,
                                  .deadline_ms = tdm__deadline_after(EARLY_MS)};
    actor_query->node->actors->early_queries = early;
    free(actor_query);
}

/* Nobody has heard of it yet. */
static void await_creation(struct actor_query *actor_query)
{
    const struct tdm__id *other = &actor_query->creators_node;

    if (tdm__id_is_none(other) || tdm__id_equal(other, &actor_query->node->record.id)) {
        wait_for_start(actor_query);
    } else {
        actor_query_forward(actor_query, other);
    }
}

static void on_owner_looked_up(void *arg, tdm_status status, const char *detail)
{
    struct actor_query *actor_query = arg;
    struct tdm__node *node = actor_query->node;

    if (status == TDM_E_ACTOR_DIED && actor_query->kind == AWAIT && node->actors != NULL) {
        await_creation(actor_query);
    } else if (status == TDM_E_ACTOR_DIED &&
               (actor_query->kind == KILL || actor_query->kind == RELEASE)) {
        actor_query_done(actor_query); /* long dead */
    } else if (status != TDM_OK || node->actors == NULL) {
        actor_query_fail(actor_query, status == TDM_OK ? TDM_E_CANCELED : status, detail);
    } else if (!tdm__id_equal(&actor_query->record.node, &node->record.id)) {
        actor_query_forward(actor_query, &actor_query->record.node);
    } else if (tdm__actor_entry_find(node, &actor_query->actor) != NULL ||
               tdm__tombstone_find(node, &actor_query->actor) != NULL) {
        actor_query_send(actor_query);
    } else {
        wait_for_start(actor_query);
    }
}

static void ask_store(struct actor_query *actor_query)
{
    const struct tdm__node *node = actor_query->node;
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("actor", &actor_query->actor, key)};

    if (tdm__retrying_txn_run(node->store, patterns, 1, tdm__deadline_after(LOOK_UP_MS),
                              look_up_body, on_owner_looked_up, actor_query) != TDM_OK) {
        actor_query_fail(actor_query, TDM_E_NOMEM, tdm_error_detail());
    }
}

static void actor_query_send(struct actor_query *actor_query)
{
    struct actor_entry *entry = tdm__actor_entry_find(actor_query->node, &actor_query->actor);
    const struct actor_tombstone *actor_tombstone =
        tdm__tombstone_find(actor_query->node, &actor_query->actor);

    if (entry != NULL && entry->lifecycle.state == ACTOR_REMOTE_STARTING &&
        actor_query->kind == RELEASE) {
        actor_query_release_local(entry, actor_query);
    } else if (entry != NULL && tdm__actor_state_is_remote(entry->lifecycle.state)) {
        actor_query_forward(actor_query, &entry->record.node);
    } else if (entry != NULL) {
        query_reply_local(entry, actor_query);
    } else if (actor_tombstone != NULL) {
        query_reply_dead(actor_tombstone, actor_query);
    } else {
        ask_store(actor_query);
    }
}

static enum actor_query_kind actor_query_kind_of(const char *method)
{
    enum actor_query_kind kind = AWAIT;

    while (kind < RELEASE && strcmp(method, method_of(kind)) != 0) {
        kind++;
    }
    return kind;
}

void tdm__node_serve_actor_query(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_query *actor_query = calloc(1, sizeof(*actor_query));
    const tdm_value *value;
    struct tdm_bytes id;

    if (actor_query == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a actor_query");
        return;
    }
    *actor_query =
        (struct actor_query){.node = node,
                             .incoming = incoming,
                             .kind = actor_query_kind_of(tdm__incoming_method(incoming))};
    if (tdm__incoming_value(incoming, &value) != TDM_OK) {
        actor_query_fail(actor_query, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    id = tdm_value_bytes(tdm_value_at(value, 0));
    if (id.size_bytes != sizeof(actor_query->actor.bytes)) {
        actor_query_fail(actor_query, TDM_E_PROTOCOL,
                         "a actor_query about an actor begins with its id");
        return;
    }
    memcpy(actor_query->actor.bytes, id.data, id.size_bytes);
    actor_query->may_restart = tdm_value_bool(tdm_value_at(value, 1), 0) != 0;
    id = tdm_value_bytes(tdm_value_at(value, 2));
    if (id.size_bytes == sizeof(actor_query->creators_node.bytes)) {
        memcpy(actor_query->creators_node.bytes, id.data, id.size_bytes);
    }
    actor_query_send(actor_query);
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

/* ---- by name ---------------------------------------------------------------------------- */

/* Asked by a process, or by an entry of this node that wants whoever has its name. */
struct name_query {
    struct tdm__node *node;
    struct tdm__incoming_call *incoming; /* owned; NULL: an entry asks */
    struct tdm__id entry;
    char name[2 * TDM__ACTOR_NAME_BYTES];
    bool asked_owner_node;
    struct tdm__actor_record record;
    const struct tdm__rpc_reply *reply; /* borrowed, while it is passed on */
};

static struct actor_entry *name_query_entry(const struct name_query *name_query)
{
    return name_query->node->actors == NULL
               ? NULL
               : tdm__actor_entry_find(name_query->node, &name_query->entry);
}

/* answer: (id, class, description) */
static void query_reply_found(void *arg, struct tdm__incoming_call *incoming)
{
    const struct name_query *name_query = arg;
    char id[TDM__ID_TEXT_BYTES];

    tdm__incoming_reply_pack(incoming, "ssp", tdm__id_text(&name_query->record.actor, id),
                             name_query->record.class_name, &name_query->reply->packed);
}

static void name_query_succeed(struct name_query *name_query)
{
    struct actor_entry *entry;

    if (name_query->incoming != NULL) {
        query_reply_found(name_query, name_query->incoming);
    } else if ((entry = name_query_entry(name_query)) != NULL) {
        tdm__actor_entry_reply_waiters(entry, query_reply_found, name_query);
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_HOLDER_FOUND});
    }
    free(name_query);
}

static void name_query_fail(struct name_query *name_query, tdm_status status, const char *detail)
{
    struct actor_entry *entry;

    if (name_query->incoming != NULL) {
        tdm__incoming_fail(name_query->incoming, status, detail);
    } else if ((entry = name_query_entry(name_query)) != NULL) {
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_HOLDER_NOT_FOUND,
                                                            .status = status,
                                                            .detail = detail});
    }
    free(name_query);
}

static int64_t name_query_deadline(const struct name_query *name_query)
{
    return name_query->incoming == NULL ? TDM__NEVER : tdm__incoming_deadline(name_query->incoming);
}

static void on_description(void *arg, struct tdm__rpc_reply *reply)
{
    struct name_query *name_query = arg;
    const struct tdm__actor_record *record = &name_query->record;
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (reply->status == TDM_OK) {
        name_query->reply = reply;
        name_query_succeed(name_query);
    } else if (reply->status == TDM_E_NODE_LOST && record->recreate_on_node_loss &&
               !name_query->asked_owner_node) {
        name_query->asked_owner_node = true;
        tdm__node_query_actor(name_query->node, &record->owner_node, "actor.await", &record->actor,
                              name_query_deadline(name_query), on_description, name_query);
    } else if (reply->status == TDM_E_ACTOR_DIED) { /* its name is just on its way back */
        (void)snprintf(detail, sizeof(detail), "no actor is called %s any more: %s",
                       name_query->name, reply->detail);
        name_query_fail(name_query, TDM_E_NOT_FOUND, detail);
    } else {
        name_query_fail(name_query, reply->status, reply->detail);
    }
}

static tdm_status name_body(void *arg, struct tdm__txn *txn)
{
    struct name_query *name_query = arg;

    if (tdm__txn_records_count(txn) == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "no actor is called %s", name_query->name);
    }
    return tdm__actor_record_read(tdm__txn_record_at(txn, 0), &name_query->record);
}

static void name_found(void *arg, tdm_status status, const char *detail)
{
    struct name_query *name_query = arg;

    if (status != TDM_OK) {
        name_query_fail(name_query, status, detail);
        return;
    }
    tdm__node_query_actor(name_query->node, &name_query->record.node, "actor.await",
                          &name_query->record.actor, name_query_deadline(name_query),
                          on_description, name_query);
}

/* Of `wanted` only who asks, and where. */
static void find_by_name(const struct name_query *wanted, const char *name_space, const char *name)
{
    struct name_query *name_query = malloc(sizeof(*name_query));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {key};

    TDM_ASSERT(name_query != NULL);
    *name_query = *wanted;
    (void)snprintf(name_query->name, sizeof(name_query->name), "%s in name space %s", name,
                   name_space);
    (void)snprintf(key, sizeof(key), "name/%s/%s", name_space, name);
    if (tdm__retrying_txn_run(name_query->node->store, patterns, 1, tdm__deadline_after(LOOK_UP_MS),
                              name_body, name_found, name_query) != TDM_OK) {
        name_query_fail(name_query, TDM_E_INVAL, tdm_error_detail());
    }
}

void tdm__actor_entry_reply_name_holder(struct actor_entry *entry)
{
    struct name_query name_query = {.node = entry->node, .entry = entry->spec->id};

    find_by_name(&name_query, entry->spec->name_space, entry->spec->name);
}

void tdm__node_serve_actor_find(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    const char *name_space;
    const char *name;
    tdm_status status = tdm__incoming_unpack(incoming, "ss", &name_space, &name);

    if (status == TDM_OK && (name == NULL || strlen(name) >= TDM__ACTOR_NAME_BYTES ||
                             name_space == NULL || strlen(name_space) >= TDM__ACTOR_NAME_BYTES)) {
        status = tdm__fail(TDM_E_INVAL, "a name of an actor has 1 to %d bytes",
                           TDM__ACTOR_NAME_BYTES - 1);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    find_by_name(&(struct name_query){.node = node, .incoming = incoming}, name_space, name);
}
