/* state_processes.c - collects the objects and calls of the processes of a node. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Objects and single calls are asked of all processes of the node ("object.list", "call.list"),
 * which reply with records that are copied unchanged. Counts of calls by method are asked of the
 * workers ("worker.method_metrics") and become one record for each method. The result is the reply
 * of "state.here", passed to a callback exactly once. A process that does not reply in PROCESS_MS
 * is counted as silent. Everything runs on the daemon's loop thread. */

#include "actors/daemon/state_processes.h"

#include "actors/common/state_record.h"
#include "actors/daemon/worker_query.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* Milliseconds that a process gets to reply. */
enum { PROCESS_MS = 1000 };

/* A request for the objects or calls of this node that waits for the replies of the processes. */
struct process_state_query {
    const struct tdm__node *node; /* State of this node's daemon, borrowed. */
    tdm__local_state_fn *fn;      /* Callback that receives the collected list. */
    void *arg;                    /* First argument of `fn`. */
    /* Packed records received so far, owned, without an array header. */
    tdm_writer *records;
    uint32_t records_count;    /* Number of records in `records`. */
    uint32_t unreadable_count; /* Number of replies that could not be decoded. */
    /* Number of records that the processes left out of their replies. */
    uint64_t left_out;
};

/* ---- objects and single calls ------------------------------------------------------------ */

/* Appends the records of one process's reply to the list of the query. */
static tdm_status query_add_records(struct process_state_query *query, const tdm_value *reply)
{
    struct tdm__process_state_list_message message;
    const tdm_value *records;

    TDM_TRY(tdm__process_state_list_decode(reply, &message));
    records = message.records.value;
    if (tdm_value_kind_of(records) != TDM_ARRAY) {
        return tdm__fail(TDM_E_PROTOCOL, "the records of a process are not an array");
    }
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        tdm_write_value(query->records, tdm_value_at(records, i));
    }
    query->records_count += tdm_value_count(records);
    query->left_out += message.left_out;
    return TDM_OK;
}

/* Handles the reply of one process with its objects or calls. */
static void on_records_reply(void *arg, const struct tdm__queried_worker *worker,
                             struct tdm_bytes reply)
{
    struct process_state_query *query = arg;
    tdm_document *document = NULL;

    (void)worker;
    if (tdm_document_parse(reply, &document) != TDM_OK ||
        query_add_records(query, tdm_document_root(document)) != TDM_OK) {
        query->unreadable_count++;
    }
    tdm_document_destroy(document);
}

/* ---- calls by method -------------------------------------------------------------------- */

/* Appends a record with the counts of one method of an actor to the list of the query. */
static void query_add_method(struct process_state_query *query,
                             const struct tdm__queried_worker *worker,
                             const struct tdm__method_calls_message *method)
{
    tdm_writer *records = query->records;
    char id[TDM__ID_TEXT_BYTES];

    tdm_write_map(records, 11);
    tdm__state_record_write_text(records, "actor", worker->actor);
    tdm__state_record_write_text(records, "class_name", worker->class_name);
    tdm__state_record_write_text(records, "actor_name", worker->name);
    tdm__state_record_write_text(records, "node_id", tdm__id_text(&query->node->record.id, id));
    tdm__state_record_write_text(records, "node_name", query->node->record.name);
    tdm__state_record_write_int(records, "pid", worker->pid);
    tdm__state_record_write_text(records, "method", method->method);
    tdm__state_record_write_int(records, "waiting", (int64_t)method->waiting);
    tdm__state_record_write_int(records, "running", (int64_t)method->running);
    tdm__state_record_write_int(records, "finished", (int64_t)method->finished);
    tdm__state_record_write_int(records, "failed", (int64_t)method->failed);
    query->records_count++;
}

/* Handles a worker's reply with the counts of its methods. */
static void on_method_metrics_reply(void *arg, const struct tdm__queried_worker *worker,
                                    struct tdm_bytes reply)
{
    struct process_state_query *query = arg;
    struct tdm__actor_calls_message message;
    tdm_document *document = NULL;

    if (tdm_document_parse(reply, &document) != TDM_OK ||
        tdm__actor_calls_decode(tdm_document_root(document), &message) != TDM_OK) {
        query->unreadable_count++;
        tdm_document_destroy(document);
        return;
    }
    for (uint32_t i = 0; i < message.methods.count; i++) {
        struct tdm__method_calls_message method;

        tdm__message_list_read(&message.methods, i, &method, sizeof(method));
        query_add_method(query, worker, &method);
    }
    tdm_document_destroy(document);
}

/* ---- the whole list ---------------------------------------------------------------------- */

/* Writes an array of the records received so far; a callback for the message encoder. */
static void query_write_records(tdm_writer *writer, const void *arg)
{
    const struct process_state_query *query = arg;

    tdm_write_array(writer, query->records_count);
    tdm_write_packed(writer, tdm_writer_bytes(query->records));
}

/* Writes the reply to "state.here": the records received, the number of processes without a
 * readable reply, and the number of records that processes left out. */
static tdm_status query_write_reply(const struct process_state_query *query, uint32_t silent_count,
                                    tdm_writer *writer)
{
    const struct tdm__node_state_list_message message = {
        .records = {.write = query_write_records, .arg = query},
        .silent_processes = silent_count + query->unreadable_count,
        .left_out = query->left_out};

    TDM_TRY(tdm_writer_status(query->records));
    return tdm__node_state_list_encode(&message, writer);
}

/* Handles the end of the query to the processes: passes the list to the callback and frees the
 * query. */
static void on_query_done(void *arg, uint32_t silent_count)
{
    struct process_state_query *query = arg;
    tdm_writer *writer;
    tdm_status status = tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = query_write_reply(query, silent_count, writer);
        query->fn(query->arg, status, tdm_writer_bytes(writer));
        tdm_writer_destroy(writer);
    } else {
        query->fn(query->arg, status, (struct tdm_bytes){NULL, 0});
    }
    tdm_writer_destroy(query->records);
    free(query);
}

/* Asks the processes of the node by the method that returns records of `kind`. */
static tdm_status state_query_send(struct tdm__node *node, const char *kind,
                                   struct process_state_query *query)
{
    if (strcmp(kind, "calls") == 0) {
        return tdm__query_workers(node, "worker.method_metrics", PROCESS_MS,
                                  on_method_metrics_reply, on_query_done, query);
    }
    return tdm__query_processes(node, strcmp(kind, "objects") == 0 ? "object.list" : "call.list",
                                PROCESS_MS, on_records_reply, on_query_done, query);
}

/* Creates a query for records of `kind` and sends its requests to the processes of the node. */
static tdm_status state_query_begin(struct tdm__node *node, const char *kind,
                                    tdm__local_state_fn *fn, void *arg)
{
    struct process_state_query *query = calloc(1, sizeof(*query));
    tdm_status status;

    if (query == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of %s", kind);
    }
    *query = (struct process_state_query){.node = node, .fn = fn, .arg = arg};
    status = tdm_writer_create(&query->records);
    if (status == TDM_OK) {
        status = state_query_send(node, kind, query);
    }
    if (status != TDM_OK) {
        tdm_writer_destroy(query->records);
        free(query);
    }
    return status;
}

void tdm__state_query_processes(struct tdm__node *node, const char *kind, tdm__local_state_fn *fn,
                                void *arg)
{
    tdm_status status = state_query_begin(node, kind, fn, arg);

    if (status != TDM_OK) {
        fn(arg, status, (struct tdm_bytes){NULL, 0});
    }
}
