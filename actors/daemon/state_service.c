/* state_service.c - the service "state": lists of one node and of the whole cluster. */
/* SPDX-License-Identifier: Apache-2.0 */

/* "state.list" collects a list of the whole cluster. Nodes are read from the store alone. For
 * actors, objects and calls, the nodes are read from the store, and each node is asked by
 * "state.here" for its part; nodes that do not reply are counted. Groups are read from the store,
 * and each node is asked for those that wait at it (state_groups.c). Lists include the actors that
 * ended last (ended_actors.c), so that they show why actors died.
 *
 * A query owns itself until it has replied. The table state_lists says what each kind of list
 * reads first. Everything runs on the daemon's loop thread. */

#include "actors/daemon/state_service.h"

#include "actors/daemon/ended_actors.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/state_groups.h"
#include "actors/daemon/state_processes.h"
#include "actors/daemon/state_records.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

enum {
    STORE_MS = 3000, /* Milliseconds for all attempts together to read from the store. */
    STORE_TRIES = 8, /* Most attempts to read from the store. */
    PEER_MS = 2000   /* Milliseconds that another node gets to reply. */
};

/* ---- the whole cluster ------------------------------------------------------------------ */

/* A list of the whole cluster that is being collected for a call "state.list". */
struct state_query {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    /* The call "state.list", to which the daemon must reply, owned. */
    struct tdm__incoming_call *incoming;
    const char *kind; /* Kind of the list, such as "actors". */
    /* Patterns of the keys of the store records that are read first. */
    const char *const *patterns;
    uint32_t patterns_count; /* Number of entries in `patterns`. */
    uint32_t tries_count;    /* Number of attempts to read the store so far. */
    /* Deadline of reading the store, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
    tdm__store_read_fn *on_records; /* Callback that receives the store's records. */
    /* Groups of the store, owned; only for the list of groups. */
    struct tdm__stored_groups *stored_groups;
    /* Packed records received so far, owned, without an array header. */
    tdm_writer *packed_records;
    uint32_t records_count_total; /* Number of records in `packed_records`. */
    /* Number of nodes whose parts of the list are missing, plus one until all nodes have been
     * asked. */
    uint32_t pending;
    uint32_t missing_nodes;    /* Number of nodes that did not reply with their parts. */
    uint64_t silent_processes; /* Number of processes of all nodes that did not reply. */
    uint64_t left_out;         /* Number of records that processes left out of their replies. */
};

/* Creates the query for a call "state.list", which waits for parts of the nodes. */
static tdm_status state_query_create(struct tdm__node *node, struct tdm__incoming_call *incoming,
                                     struct state_query **query_out)
{
    struct state_query *query = calloc(1, sizeof(*query));

    if (query == NULL || tdm_writer_create(&query->packed_records) != TDM_OK) {
        free(query);
        return tdm__fail(TDM_E_NOMEM, "a list");
    }
    query->node = node;
    query->incoming = incoming;
    *query_out = query;
    return TDM_OK;
}

/* Frees a query whose call has its reply. */
static void state_query_free(struct state_query *query)
{
    tdm_writer_destroy(query->packed_records);
    tdm__stored_groups_destroy(query->stored_groups);
    free(query);
}

/* Fails the call of a query with `status` and this thread's error detail, and frees the query. */
static void state_query_fail(struct state_query *query, tdm_status status)
{
    char trouble[TDM__LEASE_TROUBLE_BYTES];
    bool has_trouble =
        tdm__lease_status_explain(&query->node->lease_status, trouble, sizeof(trouble));

    tdm__incoming_fail(query->incoming, status, has_trouble ? trouble : tdm_error_detail());
    state_query_free(query);
}

/* Appends the records of the array `rows` to the list of the query. */
static void query_add_records(struct state_query *query, const tdm_value *rows)
{
    for (uint32_t i = 0; i < tdm_value_count(rows); i++) {
        const tdm_value *row = tdm_value_at(rows, i);

        if (query->stored_groups == NULL || tdm__stored_groups_accept(query->stored_groups, row)) {
            tdm_write_value(query->packed_records, row);
            query->records_count_total++;
        }
    }
}

/* Appends one node's part, the packed reply to "state.here", to the list of the query. */
static void query_add_part(struct state_query *query, struct tdm_bytes packed)
{
    struct tdm__node_state_list_message part;
    tdm_document *document = NULL;

    if (tdm_document_parse(packed, &document) != TDM_OK ||
        tdm__node_state_list_decode(tdm_document_root(document), &part) != TDM_OK ||
        tdm_value_kind_of(part.records.value) != TDM_ARRAY) {
        query->missing_nodes++;
    } else {
        query_add_records(query, part.records.value);
        query->silent_processes += part.silent_processes;
        query->left_out += part.left_out;
    }
    tdm_document_destroy(document);
}

/* Writes an array of the records received so far; a callback for the message encoder. */
static void query_write_records(tdm_writer *writer, const void *arg)
{
    const struct state_query *query = arg;

    tdm_write_array(writer, query->records_count_total);
    tdm_write_packed(writer, tdm_writer_bytes(query->packed_records));
}

/* Replies to "state.list" with the collected list and frees the query. */
static void state_reply(struct state_query *query)
{
    const struct tdm__cluster_state_list_message message = {
        .records = {.write = query_write_records, .arg = query},
        .missing_nodes = (uint32_t)query->missing_nodes,
        .silent_processes = (uint32_t)query->silent_processes,
        .left_out = query->left_out};

    if (query->stored_groups != NULL) {
        query->records_count_total +=
            tdm__stored_groups_write(query->stored_groups, query->packed_records);
    }
    tdm__incoming_reply_message(query->incoming, tdm__cluster_state_list_table(), &message);
    state_query_free(query);
}

/* Ends one wait of the query (for a node's part of the list or its failure, or for the end of
 * asking all nodes), and replies after the last. */
static void state_query_count_down(struct state_query *query)
{
    query->pending--;
    if (query->pending == 0) {
        state_reply(query);
    }
}

/* Handles one node's part of the list, or its failure. */
static void on_part_ready(void *arg, tdm_status status, struct tdm_bytes part)
{
    struct state_query *query = arg;

    if (status == TDM_OK) {
        query_add_part(query, part);
    } else {
        query->missing_nodes++;
    }
    state_query_count_down(query);
}

/* Handles the reply of another node's daemon to "state.here". */
static void on_part_reply(void *arg, struct tdm__rpc_reply *reply)
{
    on_part_ready(arg, reply->status, reply->packed);
}

/* Collects this node's part of the list and passes it to fn(arg, ...). */
static void node_collect_part(struct tdm__node *node, const char *kind, tdm__local_state_fn *fn,
                              void *arg)
{
    tdm_writer *writer;

    if (strcmp(kind, "objects") == 0 || strcmp(kind, "calls") == 0 ||
        strcmp(kind, "each call") == 0) {
        tdm__state_query_processes(node, kind, fn, arg);
    } else if (tdm_writer_create(&writer) != TDM_OK) {
        fn(arg, TDM_E_NOMEM, (struct tdm_bytes){NULL, 0});
    } else {
        if (strcmp(kind, "groups") == 0) {
            tdm__state_write_waiting_groups(writer, node);
        } else {
            tdm__state_write_actors(writer, node);
        }
        fn(arg, tdm_writer_status(writer), tdm_writer_bytes(writer));
        tdm_writer_destroy(writer);
    }
}

/* Asks the daemons of all other nodes in the store's records for their parts of the list. */
static void query_ask_other_nodes(struct state_query *query,
                                  const struct tdm__store_record *records, uint32_t records_count,
                                  struct tdm_bytes question)
{
    struct tdm__node *node = query->node;
    struct tdm__node_record other;

    for (uint32_t i = 0; i < records_count; i++) {
        if (strncmp(records[i].key, "node/", strlen("node/")) == 0 &&
            tdm__node_record_read(&records[i], &other) == TDM_OK &&
            !tdm__id_equal(&other.id, &node->record.id)) {
            query->pending++;
            tdm__node_forward(node, &other.id, "state.here", question, tdm__deadline_after(PEER_MS),
                              on_part_reply, query);
        }
    }
}

/* Asks all nodes in the store's records for their parts of the list. */
static void query_ask_nodes(struct state_query *query, const struct tdm__store_record *records,
                            uint32_t records_count)
{
    const struct tdm__state_list_message message = {query->kind};
    tdm_writer *question;

    if (tdm_writer_create(&question) != TDM_OK) {
        state_query_fail(query, TDM_E_NOMEM);
        return;
    }
    (void)tdm__state_list_encode(&message, question);
    /* One for this node's own part, and one until all nodes have been asked. */
    query->pending = 2;
    node_collect_part(query->node, query->kind, on_part_ready, query);
    query_ask_other_nodes(query, records, records_count, tdm_writer_bytes(question));
    state_query_count_down(query);
    tdm_writer_destroy(question);
}

/* Reads the store's records of query->patterns, with which collecting the list starts. */
static void query_read_store(struct state_query *query)
{
    const struct tdm__store *store = query->node->store;

    query->tries_count++;
    store->ops->read(query->node->store, query->patterns, query->patterns_count, query->deadline_ms,
                     query->on_records, query);
}

/* Reads the store again, or fails the query after STORE_TRIES attempts. The connection to the store
 * may drop at any time, and reading again does no harm. */
static void query_retry_or_fail(struct state_query *query, tdm_status status)
{
    if (status == TDM_E_STORE && query->tries_count < STORE_TRIES) {
        query_read_store(query);
    } else {
        state_query_fail(query, status);
    }
}

/* Handles the store's reply with the nodes, which are then asked for their parts. */
static void on_nodes_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    if (status != TDM_OK) {
        query_retry_or_fail(arg, status);
    } else {
        query_ask_nodes(arg, records, records_count);
    }
}

/* Handles the store's reply with the groups and the nodes, which are then asked for the groups that
 * wait at them. */
static void on_groups_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                           uint32_t records_count)
{
    struct state_query *query = arg;

    if (status != TDM_OK) {
        query_retry_or_fail(query, status);
        return;
    }
    status = tdm__stored_groups_create(records, records_count, &query->stored_groups);
    if (status != TDM_OK) {
        state_query_fail(query, status);
    } else {
        query_ask_nodes(query, records, records_count);
    }
}

/* Handles the store's records of nodes, which are the whole list: replies to "state.list". */
static void on_node_records(void *arg, tdm_status status, const struct tdm__store_record *records,
                            uint32_t records_count)
{
    struct state_query *query = arg;
    tdm_document *document = NULL;
    tdm_writer *writer;

    if (status != TDM_OK) {
        query_retry_or_fail(query, status);
        return;
    }
    status = tdm_writer_create(&writer);
    if (status != TDM_OK) {
        state_query_fail(query, status);
        return;
    }
    tdm__state_write_nodes(writer, records, records_count);
    if (tdm_document_parse(tdm_writer_bytes(writer), &document) == TDM_OK) {
        query_add_records(query, tdm_document_root(document));
    } else {
        query->missing_nodes++;
    }
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    state_reply(query);
}

/* ---- the service "state" ---------------------------------------------------------------- */

/* How to collect one kind of list. */
struct state_list {
    const char *kind; /* Kind of the list, such as "actors". */
    /* Patterns of the keys of the store records that are read first. */
    const char *patterns[2];
    uint32_t patterns_count;        /* Number of entries in `patterns`. */
    tdm__store_read_fn *on_records; /* Callback that receives the records of `patterns`. */
};

/* All kinds of lists, and how to collect them. */
static const struct state_list state_lists[] = {
    {"actors", {"node/*"}, 1, on_nodes_read},
    {"objects", {"node/*"}, 1, on_nodes_read},
    {"calls", {"node/*"}, 1, on_nodes_read},
    {"each call", {"node/*"}, 1, on_nodes_read},
    {"nodes", {"node/*", "free/*"}, 2, on_node_records},
    {"groups", {"group/*", "node/*"}, 2, on_groups_read},
};

/* Serves the call "state.list": collects the list `kind` of the whole cluster. */
static void serve_list(struct tdm__node *node, struct tdm__incoming_call *incoming,
                       const char *kind)
{
    struct state_query *query;

    if (state_query_create(node, incoming, &query) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    for (size_t i = 0; i < sizeof(state_lists) / sizeof(state_lists[0]); i++) {
        if (strcmp(kind, state_lists[i].kind) == 0) {
            query->kind = state_lists[i].kind;
            query->patterns = state_lists[i].patterns;
            query->patterns_count = state_lists[i].patterns_count;
            query->on_records = state_lists[i].on_records;
            query->deadline_ms = tdm__deadline_after(STORE_MS);
            query_read_store(query);
            return;
        }
    }
    (void)tdm__fail(TDM_E_INVAL, "there is no list of %s", kind);
    state_query_fail(query, TDM_E_INVAL);
}

/* Replies to the call "state.here", `arg`, with this node's part of the list. */
static void on_part_for_other_node(void *arg, tdm_status status, struct tdm_bytes part)
{
    if (status == TDM_OK) {
        tdm__incoming_reply(arg, part, NULL, 0);
    } else {
        tdm__incoming_fail(arg, status, tdm_error_detail());
    }
}

/* Serves the calls of the service "state". */
static void state_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    struct tdm__state_list_message message;

    if (tdm__incoming_decode(incoming, tdm__state_list_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (strcmp(method, "state.list") == 0) {
        serve_list(self, incoming, message.kind);
    } else if (strcmp(method, "state.here") == 0) {
        node_collect_part(self, message.kind, on_part_for_other_node, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

const struct tdm__service_ops tdm__state_service = {.prefix = "state", .serve = state_serve};
