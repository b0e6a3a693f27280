/* state_service.c - the lists of a node, and of the whole cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/state_service.h"
#include "actors/daemon/actor_entry.h"
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
struct state_query {
    struct tdm__node *node;
    struct tdm__incoming_call *incoming;
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

static tdm_status state_query_create(struct tdm__node *node, struct tdm__incoming_call *incoming,
                                     struct state_query **gathering_out)
{
    struct state_query *state_query = calloc(1, sizeof(*state_query));

    if (state_query == NULL || tdm_writer_create(&state_query->rows) != TDM_OK) {
        free(state_query);
        return tdm__fail(TDM_E_NOMEM, "a list");
    }
    state_query->node = node;
    state_query->incoming = incoming;
    *gathering_out = state_query;
    return TDM_OK;
}

static void state_query_fail(struct state_query *state_query, tdm_status status)
{
    tdm__incoming_fail(state_query->incoming, status, tdm_error_detail());
    tdm_writer_destroy(state_query->rows);
    free(state_query);
}

static void add_rows(struct state_query *state_query, const tdm_value *rows)
{
    for (uint32_t i = 0; i < tdm_value_count(rows); i++) {
        tdm_write_value(state_query->rows, tdm_value_at(rows, i));
        state_query->rows_count++;
    }
}

static void add_part(struct state_query *state_query, struct tdm_bytes packed)
{
    struct tdm__node_rows_message part;
    tdm_document *document = NULL;

    if (tdm_document_parse(packed, &document) != TDM_OK ||
        tdm__node_rows_decode(tdm_document_root(document), &part) != TDM_OK ||
        tdm_value_kind_of(part.rows.value) != TDM_ARRAY) {
        state_query->missing++;
    } else {
        add_rows(state_query, part.rows.value);
        state_query->silent += part.silent_processes;
        state_query->left_out += part.left_out;
    }
    tdm_document_destroy(document);
}

static void write_rows(tdm_writer *writer, const void *arg)
{
    const struct state_query *state_query = arg;

    tdm_write_array(writer, state_query->rows_count);
    tdm_write_packed(writer, tdm_writer_bytes(state_query->rows));
}

static void state_reply(struct state_query *state_query)
{
    const struct tdm__cluster_rows_message message = {
        .rows = {.write = write_rows, .arg = state_query},
        .missing_nodes = (uint32_t)state_query->missing,
        .silent_processes = (uint32_t)state_query->silent,
        .left_out = state_query->left_out};

    tdm__incoming_reply_message(state_query->incoming, tdm__cluster_rows_table(), &message);
    tdm_writer_destroy(state_query->rows);
    free(state_query);
}

static void state_query_count_down(struct state_query *state_query)
{
    state_query->pending--;
    if (state_query->pending == 0) {
        state_reply(state_query);
    }
}

static void on_part(void *arg, tdm_status status, struct tdm_bytes part)
{
    struct state_query *state_query = arg;

    if (status == TDM_OK) {
        add_part(state_query, part);
    } else {
        state_query->missing++;
    }
    state_query_count_down(state_query);
}

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    on_part(arg, reply->status, reply->packed);
}

/* This node's own part of the list. */
static void make_part(struct tdm__node *node, const char *kind, tdm__local_state_fn *fn, void *arg)
{
    tdm_writer *writer;

    if (strcmp(kind, "objects") == 0 || strcmp(kind, "calls") == 0 ||
        strcmp(kind, "each call") == 0) {
        tdm__state_query_processes(node, kind, fn, arg);
    } else if (tdm_writer_create(&writer) != TDM_OK) {
        fn(arg, TDM_E_NOMEM, (struct tdm_bytes){NULL, 0});
    } else {
        tdm__state_write_actors(writer, node);
        fn(arg, tdm_writer_status(writer), tdm_writer_bytes(writer));
        tdm_writer_destroy(writer);
    }
}

static void ask_others(struct state_query *state_query, const struct tdm__store_record *records,
                       uint32_t records_count, struct tdm_bytes question)
{
    struct tdm__node *node = state_query->node;
    struct tdm__node_record other;

    for (uint32_t i = 0; i < records_count; i++) {
        if (tdm__node_record_read(&records[i], &other) == TDM_OK &&
            !tdm__id_equal(&other.id, &node->record.id)) {
            state_query->pending++;
            tdm__node_forward(node, &other.id, "state.here", question, tdm__deadline_after(PEER_MS),
                              on_reply, state_query);
        }
    }
}

/* Each node has its part of the list. */
static void ask_nodes(struct state_query *state_query, const struct tdm__store_record *records,
                      uint32_t records_count)
{
    const struct tdm__state_list_message message = {state_query->kind};
    tdm_writer *question;

    if (tdm_writer_create(&question) != TDM_OK) {
        state_query_fail(state_query, TDM_E_NOMEM);
        return;
    }
    (void)tdm__state_list_encode(&message, question);
    state_query->pending = 2; /* itself, and one until all have been asked */
    make_part(state_query->node, state_query->kind, on_part, state_query);
    ask_others(state_query, records, records_count, tdm_writer_bytes(question));
    state_query_count_down(state_query);
    tdm_writer_destroy(question);
}

static void read_records(struct state_query *state_query)
{
    const struct tdm__store *store = state_query->node->store;

    state_query->tries_count++;
    store->ops->read(state_query->node->store, state_query->patterns, state_query->patterns_count,
                     state_query->deadline_ms, state_query->on_records, state_query);
}

/* The connection to the store may drop at any time: to read once more harms nobody. */
static void records_fail(struct state_query *state_query, tdm_status status)
{
    if (status == TDM_E_STORE && state_query->tries_count < STORE_TRIES) {
        read_records(state_query);
    } else {
        state_query_fail(state_query, status);
    }
}

static void on_node_records(void *arg, tdm_status status, const struct tdm__store_record *records,
                            uint32_t records_count)
{
    if (status != TDM_OK) {
        records_fail(arg, status);
    } else {
        ask_nodes(arg, records, records_count);
    }
}

/* Nodes and groups are in the store, all of them. */
static void on_records(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    struct state_query *state_query = arg;
    tdm_document *document = NULL;
    tdm_writer *writer;

    if (status != TDM_OK) {
        records_fail(state_query, status);
        return;
    }
    status = tdm_writer_create(&writer);
    if (status != TDM_OK) {
        state_query_fail(state_query, status);
        return;
    }
    if (records_count > 0 && strncmp(records[0].key, "group/", strlen("group/")) == 0) {
        tdm__state_write_groups(writer, records, records_count);
    } else {
        tdm__state_write_nodes(writer, records, records_count);
    }
    if (tdm_document_parse(tdm_writer_bytes(writer), &document) == TDM_OK) {
        add_rows(state_query, tdm_document_root(document));
    } else {
        state_query->missing++;
    }
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    state_reply(state_query);
}

/* ---- the service "state" ---------------------------------------------------------------- */

/* What a list begins with. */
struct state_record_head {
    const char *kind;
    const char *patterns[2];
    uint32_t patterns_count;
    tdm__store_read_fn *on_records;
};

static const struct state_record_head state_record_heads[] = {
    {"actors", {"node/*"}, 1, on_node_records}, {"objects", {"node/*"}, 1, on_node_records},
    {"calls", {"node/*"}, 1, on_node_records},  {"nodes", {"node/*", "free/*"}, 2, on_records},
    {"groups", {"group/*"}, 1, on_records},     {"each call", {"node/*"}, 1, on_node_records},
};

static void serve_list(struct tdm__node *node, struct tdm__incoming_call *incoming,
                       const char *kind)
{
    struct state_query *state_query;

    if (state_query_create(node, incoming, &state_query) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    for (size_t i = 0; i < sizeof(state_record_heads) / sizeof(state_record_heads[0]); i++) {
        if (strcmp(kind, state_record_heads[i].kind) == 0) {
            state_query->kind = state_record_heads[i].kind;
            state_query->patterns = state_record_heads[i].patterns;
            state_query->patterns_count = state_record_heads[i].patterns_count;
            state_query->on_records = state_record_heads[i].on_records;
            state_query->deadline_ms = tdm__deadline_after(STORE_MS);
            read_records(state_query);
            return;
        }
    }
    (void)tdm__fail(TDM_E_INVAL, "there is no list of %s", kind);
    state_query_fail(state_query, TDM_E_INVAL);
}

static void on_own_part(void *arg, tdm_status status, struct tdm_bytes part)
{
    if (status == TDM_OK) {
        tdm__incoming_reply(arg, part, NULL, 0);
    } else {
        tdm__incoming_fail(arg, status, tdm_error_detail());
    }
}

static void state_serve(void *self, struct tdm__incoming_call *incoming)
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
