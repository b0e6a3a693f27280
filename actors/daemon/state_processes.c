/* state_processes.c - what the processes of a node tell of themselves: objects and calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/state_record.h"
#include "actors/daemon/state_service.h"
#include "actors/daemon/worker_query.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESS_MS = 1000 };

/* One question, until all processes have answered. */
struct process_state_query {
    const struct tdm__node *node; /* borrowed */
    tdm__local_state_fn *fn;
    void *arg;
    tdm_writer *records; /* owned: without a header */
    uint32_t rows_count;
    uint32_t unreadable_count; /* answers */
    uint64_t left_out;
};

/* ---- objects, and each call: rows as they are -------------------------------------------- */

static tdm_status add_rows(struct process_state_query *process_state_query, const tdm_value *reply)
{
    struct tdm__process_rows_message message;
    const tdm_value *records;

    TDM_TRY(tdm__process_rows_decode(reply, &message));
    records = message.rows.value;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        tdm_write_value(process_state_query->records, tdm_value_at(records, i));
    }
    process_state_query->rows_count += tdm_value_count(records);
    process_state_query->left_out += message.left_out;
    return TDM_OK;
}

static void on_rows(void *arg, const struct tdm__queried_worker *worker, struct tdm_bytes reply)
{
    struct process_state_query *process_state_query = arg;
    tdm_document *document = NULL;

    (void)worker;
    if (tdm_document_parse(reply, &document) != TDM_OK ||
        add_rows(process_state_query, tdm_document_root(document)) != TDM_OK) {
        process_state_query->unreadable_count++;
    }
    tdm_document_destroy(document);
}

/* ---- calls by method -------------------------------------------------------------------- */

static void add_method(struct process_state_query *process_state_query,
                       const struct tdm__queried_worker *worker,
                       const struct tdm__method_calls_message *method)
{
    tdm_writer *records = process_state_query->records;
    char id[TDM__ID_TEXT_BYTES];

    tdm_write_map(records, 11);
    tdm__state_record_write_text(records, "actor", worker->actor);
    tdm__state_record_write_text(records, "class_name", worker->class_name);
    tdm__state_record_write_text(records, "actor_name", worker->name);
    tdm__state_record_write_text(records, "node_id",
                                 tdm__id_text(&process_state_query->node->record.id, id));
    tdm__state_record_write_text(records, "node_name", process_state_query->node->record.name);
    tdm__state_record_write_int(records, "pid", worker->pid);
    tdm__state_record_write_text(records, "method", method->method);
    tdm__state_record_write_int(records, "waiting", (int64_t)method->waiting);
    tdm__state_record_write_int(records, "running", (int64_t)method->running);
    tdm__state_record_write_int(records, "finished", (int64_t)method->finished);
    tdm__state_record_write_int(records, "failed", (int64_t)method->failed);
    process_state_query->rows_count++;
}

static void on_calls(void *arg, const struct tdm__queried_worker *worker, struct tdm_bytes reply)
{
    struct process_state_query *process_state_query = arg;
    struct tdm__actor_calls_message message;
    tdm_document *document = NULL;

    if (tdm_document_parse(reply, &document) != TDM_OK ||
        tdm__actor_calls_decode(tdm_document_root(document), &message) != TDM_OK) {
        process_state_query->unreadable_count++;
        tdm_document_destroy(document);
        return;
    }
    for (uint32_t i = 0; i < message.methods.count; i++) {
        struct tdm__method_calls_message method;

        tdm__message_list_read(&message.methods, i, &method, sizeof(method));
        add_method(process_state_query, worker, &method);
    }
    tdm_document_destroy(document);
}

/* ---- all of them ------------------------------------------------------------------------ */

static void write_rows(tdm_writer *writer, const void *arg)
{
    const struct process_state_query *process_state_query = arg;

    tdm_write_array(writer, process_state_query->rows_count);
    tdm_write_packed(writer, tdm_writer_bytes(process_state_query->records));
}

static tdm_status write_part(const struct process_state_query *process_state_query,
                             uint32_t silent_count, tdm_writer *writer)
{
    const struct tdm__node_rows_message message = {
        .rows = {.write = write_rows, .arg = process_state_query},
        .silent_processes = silent_count + process_state_query->unreadable_count,
        .left_out = process_state_query->left_out};

    TDM_TRY(tdm_writer_status(process_state_query->records));
    return tdm__node_rows_encode(&message, writer);
}

static void on_done(void *arg, uint32_t silent_count)
{
    struct process_state_query *process_state_query = arg;
    tdm_writer *writer;
    tdm_status status = tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = write_part(process_state_query, silent_count, writer);
        process_state_query->fn(process_state_query->arg, status, tdm_writer_bytes(writer));
        tdm_writer_destroy(writer);
    } else {
        process_state_query->fn(process_state_query->arg, status, (struct tdm_bytes){NULL, 0});
    }
    tdm_writer_destroy(process_state_query->records);
    free(process_state_query);
}

static tdm_status state_query_send(struct tdm__node *node, const char *kind,
                                   struct process_state_query *process_state_query)
{
    if (strcmp(kind, "calls") == 0) {
        return tdm__query_workers(node, "worker.method_metrics", PROCESS_MS, on_calls, on_done,
                                  process_state_query);
    }
    return tdm__query_processes(node, strcmp(kind, "objects") == 0 ? "object.list" : "call.list",
                                PROCESS_MS, on_rows, on_done, process_state_query);
}

static tdm_status state_query_begin(struct tdm__node *node, const char *kind,
                                    tdm__local_state_fn *fn, void *arg)
{
    struct process_state_query *process_state_query = calloc(1, sizeof(*process_state_query));
    tdm_status status;

    if (process_state_query == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of %s", kind);
    }
    *process_state_query = (struct process_state_query){.node = node, .fn = fn, .arg = arg};
    status = tdm_writer_create(&process_state_query->records);
    if (status == TDM_OK) {
        status = state_query_send(node, kind, process_state_query);
    }
    if (status != TDM_OK) {
        tdm_writer_destroy(process_state_query->records);
        free(process_state_query);
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
