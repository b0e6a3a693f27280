/* state_processes.c - what the processes of a node tell of themselves: objects and calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/ask_workers.h"
#include "actors/node/state.h"
#include "actors/row.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESS_MS = 1000 };

/* One question, until all processes have answered. */
struct collecting {
    const struct tdm__node *node; /* borrowed */
    tdm__state_part_fn *fn;
    void *arg;
    tdm_writer *rows; /* owned: without a header */
    uint32_t rows_count;
    uint32_t unreadable_count; /* answers */
    uint64_t left_out;
};

/* ---- objects, and each call: rows as they are -------------------------------------------- */

static tdm_status add_rows(struct collecting *collecting, const tdm_value *answer)
{
    struct tdm__process_rows_message message;
    const tdm_value *rows;

    TDM_TRY(tdm__process_rows_decode(answer, &message));
    rows = message.rows.value;
    for (uint32_t i = 0; i < tdm_value_count(rows); i++) {
        tdm_write_value(collecting->rows, tdm_value_at(rows, i));
    }
    collecting->rows_count += tdm_value_count(rows);
    collecting->left_out += message.left_out;
    return TDM_OK;
}

static void on_rows(void *arg, const struct tdm__asked_worker *worker, struct tdm_bytes answer)
{
    struct collecting *collecting = arg;
    tdm_document *document = NULL;

    (void)worker;
    if (tdm_document_parse(answer, &document) != TDM_OK ||
        add_rows(collecting, tdm_document_root(document)) != TDM_OK) {
        collecting->unreadable_count++;
    }
    tdm_document_destroy(document);
}

/* ---- calls by method -------------------------------------------------------------------- */

static void add_method(struct collecting *collecting, const struct tdm__asked_worker *worker,
                       const struct tdm__method_calls_message *method)
{
    tdm_writer *rows = collecting->rows;
    char id[TDM__ID_TEXT_BYTES];

    tdm_write_map(rows, 11);
    tdm__row_write_text(rows, "actor", worker->actor);
    tdm__row_write_text(rows, "class_name", worker->class_name);
    tdm__row_write_text(rows, "actor_name", worker->name);
    tdm__row_write_text(rows, "node_id", tdm__id_text(&collecting->node->record.id, id));
    tdm__row_write_text(rows, "node_name", collecting->node->record.name);
    tdm__row_write_number(rows, "pid", worker->pid);
    tdm__row_write_text(rows, "method", method->method);
    tdm__row_write_number(rows, "waiting", (int64_t)method->waiting);
    tdm__row_write_number(rows, "running", (int64_t)method->running);
    tdm__row_write_number(rows, "finished", (int64_t)method->finished);
    tdm__row_write_number(rows, "failed", (int64_t)method->failed);
    collecting->rows_count++;
}

static void on_calls(void *arg, const struct tdm__asked_worker *worker, struct tdm_bytes answer)
{
    struct collecting *collecting = arg;
    struct tdm__actor_calls_message message;
    tdm_document *document = NULL;

    if (tdm_document_parse(answer, &document) != TDM_OK ||
        tdm__actor_calls_decode(tdm_document_root(document), &message) != TDM_OK) {
        collecting->unreadable_count++;
        tdm_document_destroy(document);
        return;
    }
    for (uint32_t i = 0; i < message.methods.count; i++) {
        struct tdm__method_calls_message method;

        tdm__message_list_read(&message.methods, i, &method, sizeof(method));
        add_method(collecting, worker, &method);
    }
    tdm_document_destroy(document);
}

/* ---- all of them ------------------------------------------------------------------------ */

static void write_rows(tdm_writer *writer, const void *arg)
{
    const struct collecting *collecting = arg;

    tdm_write_array(writer, collecting->rows_count);
    tdm_write_packed(writer, tdm_writer_bytes(collecting->rows));
}

static tdm_status write_part(const struct collecting *collecting, uint32_t silent_count,
                             tdm_writer *writer)
{
    const struct tdm__node_rows_message message = {
        .rows = {.write = write_rows, .arg = collecting},
        .silent_processes = silent_count + collecting->unreadable_count,
        .left_out = collecting->left_out};

    TDM_TRY(tdm_writer_status(collecting->rows));
    return tdm__node_rows_encode(&message, writer);
}

static void on_done(void *arg, uint32_t silent_count)
{
    struct collecting *collecting = arg;
    tdm_writer *writer;
    tdm_status status = tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = write_part(collecting, silent_count, writer);
        collecting->fn(collecting->arg, status, tdm_writer_bytes(writer));
        tdm_writer_destroy(writer);
    } else {
        collecting->fn(collecting->arg, status, (struct tdm_bytes){NULL, 0});
    }
    tdm_writer_destroy(collecting->rows);
    free(collecting);
}

static tdm_status ask(struct tdm__node *node, const char *kind, struct collecting *collecting)
{
    if (strcmp(kind, "calls") == 0) {
        return tdm__ask_workers(node, "observe.calls", PROCESS_MS, on_calls, on_done,
                                collecting);
    }
    return tdm__ask_processes(node, strcmp(kind, "objects") == 0 ? "object.list" : "call.list",
                              PROCESS_MS, on_rows, on_done, collecting);
}

static tdm_status begin(struct tdm__node *node, const char *kind, tdm__state_part_fn *fn,
                        void *arg)
{
    struct collecting *collecting = calloc(1, sizeof(*collecting));
    tdm_status status;

    if (collecting == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of %s", kind);
    }
    *collecting = (struct collecting){.node = node, .fn = fn, .arg = arg};
    status = tdm_writer_create(&collecting->rows);
    if (status == TDM_OK) {
        status = ask(node, kind, collecting);
    }
    if (status != TDM_OK) {
        tdm_writer_destroy(collecting->rows);
        free(collecting);
    }
    return status;
}

void tdm__state_ask_processes(struct tdm__node *node, const char *kind, tdm__state_part_fn *fn,
                              void *arg)
{
    tdm_status status = begin(node, kind, fn, arg);

    if (status != TDM_OK) {
        fn(arg, status, (struct tdm_bytes){NULL, 0});
    }
}
