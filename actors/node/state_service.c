/* state_service.c - the lists of a node, and of the whole cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "actors/node/state.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

enum { STORE_MS = 3000, STORE_TRIES = 8, PEER_MS = 2000 };

/* ---- the dead --------------------------------------------------------------------------- */

tdm_status tdm__node_state_create(struct tdm__node *node)
{
    node->state = calloc(1, sizeof(*node->state));
    if (node->state == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the table of the dead");
    }
    tdm__services_add(node->services, &tdm__state_service, node);
    return TDM_OK;
}

void tdm__node_state_destroy(struct tdm__node *node)
{
    for (size_t i = 0;
         node->state != NULL && i < sizeof(node->state->ended) / sizeof(node->state->ended[0]);
         i++) {
        free(node->state->ended[i].bytes);
    }
    free(node->state);
    node->state = NULL;
}

void tdm__node_state_ended(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text)
{
    struct tdm__node_state *state = node->state;
    tdm_writer *writer;
    struct tdm_bytes row;
    void *copy;

    if (state == NULL || node->stopping || tdm__actor_state_is_remote(entry->lifecycle.state) ||
        tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    tdm__state_write_actor(writer, entry, text);
    row = tdm_writer_bytes(writer);
    copy = tdm_writer_status(writer) == TDM_OK ? malloc(row.size_bytes) : NULL;
    if (copy != NULL) {
        memcpy(copy, row.data, row.size_bytes);
        free(state->ended[state->ended_next].bytes);
        state->ended[state->ended_next].bytes = copy;
        state->ended[state->ended_next].size_bytes = row.size_bytes;
        state->ended_next =
            (state->ended_next + 1) % (sizeof(state->ended) / sizeof(state->ended[0]));
    }
    state->ended_count++;
    tdm_writer_destroy(writer);
}

/* ---- the whole cluster ------------------------------------------------------------------ */

/* A list on its way together: [row …] of each node, kept until the last has answered. */
struct gathering {
    struct tdm__node *node;
    struct tdm__incoming *incoming;
    const char *kind;
    const char *const *patterns; /* of the records that are read first */
    uint32_t patterns_count;
    uint32_t tries_count;
    int64_t deadline_ms; /* of reading them */
    tdm__store_read_fn *on_records;
    tdm_writer *rows; /* owned: rows without a header */
    uint32_t rows_count;
    uint32_t pending;
    uint32_t missing;
    uint64_t silent; /* processes of the others */
    uint64_t left_out;
};

static tdm_status gathering_create(struct tdm__node *node, struct tdm__incoming *incoming,
                                   struct gathering **gathering_out)
{
    struct gathering *gathering = calloc(1, sizeof(*gathering));

    if (gathering == NULL || tdm_writer_create(&gathering->rows) != TDM_OK) {
        free(gathering);
        return tdm__fail(TDM_E_NOMEM, "a list");
    }
    gathering->node = node;
    gathering->incoming = incoming;
    *gathering_out = gathering;
    return TDM_OK;
}

static void gathering_fails(struct gathering *gathering, tdm_status status)
{
    tdm__incoming_fail(gathering->incoming, status, tdm_error_detail());
    tdm_writer_destroy(gathering->rows);
    free(gathering);
}

static void add_rows(struct gathering *gathering, const tdm_value *rows)
{
    for (uint32_t i = 0; i < tdm_value_count(rows); i++) {
        tdm_write_value(gathering->rows, tdm_value_at(rows, i));
        gathering->rows_count++;
    }
}

static void add_part(struct gathering *gathering, struct tdm_bytes packed)
{
    struct tdm__node_rows_message part;
    tdm_document *document = NULL;

    if (tdm_document_parse(packed, &document) != TDM_OK ||
        tdm__node_rows_decode(tdm_document_root(document), &part) != TDM_OK ||
        tdm_value_kind_of(part.rows.value) != TDM_ARRAY) {
        gathering->missing++;
    } else {
        add_rows(gathering, part.rows.value);
        gathering->silent += part.silent_processes;
        gathering->left_out += part.left_out;
    }
    tdm_document_destroy(document);
}

static void write_rows(tdm_writer *writer, const void *arg)
{
    const struct gathering *gathering = arg;

    tdm_write_array(writer, gathering->rows_count);
    tdm_write_packed(writer, tdm_writer_bytes(gathering->rows));
}

static void answer(struct gathering *gathering)
{
    const struct tdm__cluster_rows_message message = {
        .rows = {.write = write_rows, .arg = gathering},
        .missing_nodes = (uint32_t)gathering->missing,
        .silent_processes = (uint32_t)gathering->silent,
        .left_out = gathering->left_out};

    tdm__incoming_reply_message(gathering->incoming, tdm__cluster_rows_table(), &message);
    tdm_writer_destroy(gathering->rows);
    free(gathering);
}

static void one_less(struct gathering *gathering)
{
    gathering->pending--;
    if (gathering->pending == 0) {
        answer(gathering);
    }
}

static void on_part(void *arg, tdm_status status, struct tdm_bytes part)
{
    struct gathering *gathering = arg;

    if (status == TDM_OK) {
        add_part(gathering, part);
    } else {
        gathering->missing++;
    }
    one_less(gathering);
}

static void on_reply(void *arg, struct tdm__reply *reply)
{
    on_part(arg, reply->status, reply->packed);
}

/* This node's own part of the list. */
static void make_part(struct tdm__node *node, const char *kind, tdm__state_part_fn *fn,
                      void *arg)
{
    tdm_writer *writer;

    if (strcmp(kind, "objects") == 0 || strcmp(kind, "calls") == 0 ||
        strcmp(kind, "each call") == 0) {
        tdm__state_ask_processes(node, kind, fn, arg);
    } else if (tdm_writer_create(&writer) != TDM_OK) {
        fn(arg, TDM_E_NOMEM, (struct tdm_bytes){NULL, 0});
    } else {
        tdm__state_write_actors(writer, node);
        fn(arg, tdm_writer_status(writer), tdm_writer_bytes(writer));
        tdm_writer_destroy(writer);
    }
}

static void ask_others(struct gathering *gathering, const struct tdm__record *records,
                       uint32_t records_count, struct tdm_bytes question)
{
    struct tdm__node *node = gathering->node;
    struct tdm__node_record other;

    for (uint32_t i = 0; i < records_count; i++) {
        if (tdm__node_record_read(&records[i], &other) == TDM_OK &&
            !tdm__id_equal(&other.id, &node->record.id)) {
            gathering->pending++;
            tdm__node_forward(node, &other.id, "state.here", question,
                              tdm__deadline_in(PEER_MS), on_reply, gathering);
        }
    }
}

/* Each node has its part of the list. */
static void ask_nodes(struct gathering *gathering, const struct tdm__record *records,
                      uint32_t records_count)
{
    const struct tdm__state_list_message message = {gathering->kind};
    tdm_writer *question;

    if (tdm_writer_create(&question) != TDM_OK) {
        gathering_fails(gathering, TDM_E_NOMEM);
        return;
    }
    (void)tdm__state_list_encode(&message, question);
    gathering->pending = 2; /* itself, and one until all have been asked */
    make_part(gathering->node, gathering->kind, on_part, gathering);
    ask_others(gathering, records, records_count, tdm_writer_bytes(question));
    one_less(gathering);
    tdm_writer_destroy(question);
}

static void read_records(struct gathering *gathering)
{
    const struct tdm__store *store = gathering->node->store;

    gathering->tries_count++;
    store->ops->read(gathering->node->store, gathering->patterns, gathering->patterns_count,
                     gathering->deadline_ms, gathering->on_records, gathering);
}

/* The connection to the store may drop at any time: to read once more harms nobody. */
static void records_fail(struct gathering *gathering, tdm_status status)
{
    if (status == TDM_E_STORE && gathering->tries_count < STORE_TRIES) {
        read_records(gathering);
    } else {
        gathering_fails(gathering, status);
    }
}

static void on_node_records(void *arg, tdm_status status, const struct tdm__record *records,
                            uint32_t records_count)
{
    if (status != TDM_OK) {
        records_fail(arg, status);
    } else {
        ask_nodes(arg, records, records_count);
    }
}

/* Nodes and groups are in the store, all of them. */
static void on_records(void *arg, tdm_status status, const struct tdm__record *records,
                       uint32_t records_count)
{
    struct gathering *gathering = arg;
    tdm_document *document = NULL;
    tdm_writer *writer;

    if (status != TDM_OK) {
        records_fail(gathering, status);
        return;
    }
    status = tdm_writer_create(&writer);
    if (status != TDM_OK) {
        gathering_fails(gathering, status);
        return;
    }
    if (records_count > 0 && strncmp(records[0].key, "group/", strlen("group/")) == 0) {
        tdm__state_write_groups(writer, records, records_count);
    } else {
        tdm__state_write_nodes(writer, records, records_count);
    }
    if (tdm_document_parse(tdm_writer_bytes(writer), &document) == TDM_OK) {
        add_rows(gathering, tdm_document_root(document));
    } else {
        gathering->missing++;
    }
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    answer(gathering);
}

/* ---- the service "state" ---------------------------------------------------------------- */

/* What a list begins with. */
struct beginning {
    const char *kind;
    const char *patterns[2];
    uint32_t patterns_count;
    tdm__store_read_fn *on_records;
};

static const struct beginning beginnings[] = {
    {"actors", {"node/*"}, 1, on_node_records}, {"objects", {"node/*"}, 1, on_node_records},
    {"calls", {"node/*"}, 1, on_node_records},  {"nodes", {"node/*", "free/*"}, 2, on_records},
    {"groups", {"group/*"}, 1, on_records},     {"each call", {"node/*"}, 1, on_node_records},
};

static void serve_list(struct tdm__node *node, struct tdm__incoming *incoming, const char *kind)
{
    struct gathering *gathering;

    if (gathering_create(node, incoming, &gathering) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        if (strcmp(kind, beginnings[i].kind) == 0) {
            gathering->kind = beginnings[i].kind;
            gathering->patterns = beginnings[i].patterns;
            gathering->patterns_count = beginnings[i].patterns_count;
            gathering->on_records = beginnings[i].on_records;
            gathering->deadline_ms = tdm__deadline_in(STORE_MS);
            read_records(gathering);
            return;
        }
    }
    (void)tdm__fail(TDM_E_INVAL, "there is no list of %s", kind);
    gathering_fails(gathering, TDM_E_INVAL);
}

static void on_own_part(void *arg, tdm_status status, struct tdm_bytes part)
{
    if (status == TDM_OK) {
        tdm__incoming_reply(arg, part, NULL, 0);
    } else {
        tdm__incoming_fail(arg, status, tdm_error_detail());
    }
}

static void state_serve(void *self, struct tdm__incoming *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    struct tdm__state_list_message message;

    if (tdm__incoming_decode(incoming, tdm__state_list_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (strcmp(method, "state.list") == 0) {
        serve_list(self, incoming, message.kind);
    } else if (strcmp(method, "state.here") == 0) {
        make_part(self, message.kind, on_own_part, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

const struct tdm__service_ops tdm__state_service = {.prefix = "state", .serve = state_serve};
