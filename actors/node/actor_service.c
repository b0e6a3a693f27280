/* actor_service.c - the calls about actors that a daemon answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_UP_MS = 5000 };

static void fail_here(struct tdm__incoming *incoming, tdm_status status)
{
    tdm__incoming_fail(incoming, status, tdm_error_detail());
}

/* An id as raw bytes: alone, or the only value of an array. */
static tdm_status read_id(struct tdm__incoming *incoming, struct tdm__id *id)
{
    const void *bytes;
    size_t size_bytes;

    TDM_TRY(tdm__incoming_unpack(incoming, "b", &bytes, &size_bytes));
    if (size_bytes != sizeof(id->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "an id of %zu bytes, not %zu", size_bytes,
                         sizeof(id->bytes));
    }
    memcpy(id->bytes, bytes, sizeof(id->bytes));
    return TDM_OK;
}

/* ---- create, start, constructed --------------------------------------------------------- */

static void serve_create(struct tdm__node *node, struct tdm__incoming *incoming)
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
        fail_here(incoming, status);
        return;
    }
    spec->creator = tdm__incoming_peer(incoming)->id; /* not what it says, but who it is */
    entry = tdm__actor_entry_add(node, spec, ACTOR_PLACING);
    if (entry == NULL) {
        tdm__actor_spec_destroy(spec);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "an actor");
        return;
    }
    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, false, incoming);
    tdm__actor_entry_place(entry);
}

static tdm_status read_start(struct tdm__incoming *incoming, struct tdm__actor_spec **spec,
                             struct tdm__actor_record *record)
{
    const tdm_value *value;

    TDM_TRY(tdm__incoming_value(incoming, &value));
    TDM_TRY(tdm__grant_read(tdm_value_at(value, 1), &record->grant));
    (void)snprintf(record->name_key, sizeof(record->name_key), "%s",
                   tdm_value_string(tdm_value_at(value, 2), ""));
    return tdm__actor_spec_read(tdm_value_at(value, 0), spec);
}

/* From another node's daemon, which has reserved the place. */
static void serve_start(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct tdm__actor_record record = {.node = node->record.id};
    struct tdm__actor_spec *spec;
    struct actor_entry *entry = NULL;
    tdm_status status = read_start(incoming, &spec, &record);

    if (status == TDM_OK && node->stopping) {
        tdm__actor_spec_destroy(spec);
        status = tdm__fail(TDM_E_NODE_LOST, "node %s is stopping", node->record.name);
    }
    if (status == TDM_OK) {
        entry = tdm__actor_entry_add(node, spec, ACTOR_STARTING);
    }
    if (entry == NULL) {
        fail_here(incoming, status == TDM_OK ? TDM_E_NOMEM : status);
        return;
    }
    entry->home = tdm__incoming_peer(incoming)->id;
    record.actor = spec->id;
    record.group = spec->group;
    record.bundle = spec->bundle;
    memcpy(record.class_name, spec->class_name, sizeof(record.class_name));
    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, false, incoming);
    tdm__actor_entry_start(entry, &record);
}

static void serve_constructed(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &tdm__incoming_peer(incoming)->id);
    int64_t status;
    const char *detail;
    const char *unix_address;
    const char *tcp_address;

    if (entry == NULL || tdm__incoming_peer(incoming)->kind != TDM__PEER_WORKER) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no actor of this node");
        return;
    }
    if (tdm__incoming_unpack(incoming, "isss", &status, &detail, &unix_address, &tcp_address) !=
        TDM_OK) {
        fail_here(incoming, TDM_E_PROTOCOL);
        return;
    }
    tdm__actor_entry_constructed(entry, tdm__incoming_peer(incoming)->pid, (tdm_status)status,
                                 detail, unix_address, tcp_address);
    tdm__incoming_reply_pack(incoming, "");
}

/* ---- questions about one actor, wherever it lives --------------------------------------- */

static void answer_about(struct tdm__node *node, struct actor_entry *entry,
                         struct tdm__incoming *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    (void)node;
    if (strcmp(method, "actor.await") == 0) {
        if (entry->state == ACTOR_ALIVE) {
            tdm__actor_entry_answer_described(entry, incoming);
        } else {
            tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, false, incoming);
        }
    } else if (strcmp(method, "actor.fate") == 0) {
        tdm__actor_entry_wait(entry, WAITS_FOR_END, false, incoming);
    } else {
        tdm__actor_entry_wait(entry, WAITS_FOR_END, true, incoming);
        tdm__actor_entry_end(entry, true);
    }
}

/* A question that another node must answer. */
struct question {
    struct tdm__node *node;
    struct tdm__incoming *incoming;
    struct tdm__id actor;
};

static void on_answer(void *arg, struct tdm__reply *reply)
{
    struct tdm__incoming *incoming = arg;

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(incoming, reply->status, reply->detail);
    }
}

static void pass_question(struct tdm__node *node, const struct tdm__id *other,
                          const struct tdm__id *actor, struct tdm__incoming *incoming)
{
    tdm__node_ask_about(node, other, tdm__incoming_method(incoming), actor,
                        tdm__incoming_deadline(incoming), on_answer, incoming);
}

static void on_actor_record(void *arg, tdm_status status, const struct tdm__record *records,
                            uint32_t records_count)
{
    struct question *question = arg;
    struct tdm__actor_record record;

    if (status == TDM_OK && records_count == 0 &&
        strcmp(tdm__incoming_method(question->incoming), "actor.kill") == 0) {
        tdm__incoming_reply_pack(question->incoming, ""); /* long dead */
        free(question);
        return;
    }
    if (status == TDM_OK && records_count == 0) {
        status = tdm__fail(TDM_E_ACTOR_DIED, "the actor has ended, and how is no longer known");
    }
    if (status == TDM_OK) {
        status = tdm__actor_record_read(&records[0], &record);
    }
    if (status == TDM_OK && tdm__id_equal(&record.node, &question->node->record.id)) {
        status =
            tdm__fail(TDM_E_ACTOR_DIED, "the actor is not on the node that should have it");
    }
    if (status == TDM_OK) {
        pass_question(question->node, &record.node, &question->actor, question->incoming);
    } else {
        fail_here(question->incoming, status);
    }
    free(question);
}

static void ask_store(struct tdm__node *node, const struct tdm__id *actor,
                      struct tdm__incoming *incoming)
{
    struct question *question = calloc(1, sizeof(*question));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("actor", actor, key)};

    if (question == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a question");
        return;
    }
    *question = (struct question){node, incoming, *actor};
    node->store->ops->read(node->store, patterns, 1, tdm__deadline_in(LOOK_UP_MS),
                           on_actor_record, question);
}

static void serve_question(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct tdm__id actor;
    struct actor_entry *entry;
    const struct tombstone *tombstone;
    tdm_status status = read_id(incoming, &actor);

    if (status != TDM_OK) {
        fail_here(incoming, status);
        return;
    }
    entry = tdm__actor_entry_find(node, &actor);
    tombstone = tdm__tombstone_find(node, &actor);
    if (entry != NULL && entry->state == ACTOR_REMOTE) {
        pass_question(node, &entry->record.node, &actor, incoming);
    } else if (entry != NULL) {
        answer_about(node, entry, incoming);
    } else if (tombstone != NULL && strcmp(tdm__incoming_method(incoming), "actor.kill") == 0) {
        tdm__incoming_reply_pack(incoming, "");
    } else if (tombstone != NULL) {
        tdm__incoming_fail(incoming, tombstone->status, tombstone->text);
    } else {
        ask_store(node, &actor, incoming);
    }
}

/* ---- find by name ----------------------------------------------------------------------- */

struct finding {
    struct tdm__node *node;
    struct tdm__incoming *incoming;
    char name[2 * TDM__ACTOR_NAME_BYTES];
    struct tdm__actor_record record;
};

/* answer: (id, class, description) */
static void on_description(void *arg, struct tdm__reply *reply)
{
    struct finding *finding = arg;
    char id[TDM__ID_TEXT_BYTES];
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (reply->status == TDM_OK) {
        tdm__incoming_reply_pack(finding->incoming, "ssp",
                                 tdm__id_text(&finding->record.actor, id),
                                 finding->record.class_name, &reply->packed);
    } else if (reply->status == TDM_E_ACTOR_DIED) { /* its name is just on its way back */
        (void)snprintf(detail, sizeof(detail), "no actor is called %s any more: %s",
                       finding->name, reply->detail);
        tdm__incoming_fail(finding->incoming, TDM_E_NOT_FOUND, detail);
    } else {
        tdm__incoming_fail(finding->incoming, reply->status, reply->detail);
    }
    free(finding);
}

static void on_name_record(void *arg, tdm_status status, const struct tdm__record *records,
                           uint32_t records_count)
{
    struct finding *finding = arg;

    if (status == TDM_OK && records_count == 0) {
        status = tdm__fail(TDM_E_NOT_FOUND, "no actor is called %s", finding->name);
    }
    if (status == TDM_OK) {
        status = tdm__actor_record_read(&records[0], &finding->record);
    }
    if (status != TDM_OK) {
        fail_here(finding->incoming, status);
        free(finding);
        return;
    }
    tdm__node_ask_about(finding->node, &finding->record.node, "actor.await",
                        &finding->record.actor, tdm__incoming_deadline(finding->incoming),
                        on_description, finding);
}

static void serve_find(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct finding *finding = calloc(1, sizeof(*finding));
    const char *name_space;
    const char *name;
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {key};
    tdm_status status = finding == NULL
                            ? tdm__fail(TDM_E_NOMEM, "a look-up")
                            : tdm__incoming_unpack(incoming, "ss", &name_space, &name);

    if (status == TDM_OK &&
        (name == NULL || strlen(name) >= TDM__ACTOR_NAME_BYTES || name_space == NULL ||
         strlen(name_space) >= TDM__ACTOR_NAME_BYTES)) {
        status = tdm__fail(TDM_E_INVAL, "a name of an actor has 1 to %d bytes",
                           TDM__ACTOR_NAME_BYTES - 1);
    }
    if (status != TDM_OK) {
        fail_here(incoming, status);
        free(finding);
        return;
    }
    finding->node = node;
    finding->incoming = incoming;
    (void)snprintf(finding->name, sizeof(finding->name), "%s in name space %s", name,
                   name_space);
    (void)snprintf(key, sizeof(key), "name/%s/%s", name_space, name);
    node->store->ops->read(node->store, patterns, 1, tdm__deadline_in(LOOK_UP_MS),
                           on_name_record, finding);
}

/* ---- leave, list ------------------------------------------------------------------------ */

static bool is_creator(const struct tdm__actor_spec *spec, const void *key)
{
    return !spec->detached && tdm__id_equal(&spec->creator, key);
}

static void has_left(void *arg)
{
    tdm__incoming_reply_pack(arg, "");
}

static void serve_leave(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct tdm__id creator = tdm__incoming_peer(incoming)->id;

    tdm__node_groups_creator_gone(node, &creator);
    tdm__node_actors_end(node, is_creator, &creator, false, has_left, incoming);
}

static void serve_list(struct tdm__node *node, struct tdm__incoming *incoming)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        fail_here(incoming, TDM_E_NOMEM);
        return;
    }
    tdm__node_actors_list(node, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

void tdm__node_actors_serve(void *self, struct tdm__incoming *incoming)
{
    static const struct {
        const char *method;
        void (*serve)(struct tdm__node *node, struct tdm__incoming *incoming);
    } methods[] = {
        {"actor.create", serve_create},
        {"actor.start", serve_start},
        {"actor.constructed", serve_constructed},
        {"actor.await", serve_question},
        {"actor.fate", serve_question},
        {"actor.kill", serve_question},
        {"actor.find", serve_find},
        {"actor.leave", serve_leave},
        {"actor.list", serve_list},
    };

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(tdm__incoming_method(incoming), methods[i].method) == 0) {
            methods[i].serve(self, incoming);
            return;
        }
    }
    tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, tdm__incoming_method(incoming));
}
