/* state_processes.c - what the processes of a node tell of themselves: objects and calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/ask_workers.h"
#include "actors/node/state.h"
#include "actors/row.h"
#include "runtime/error.h"

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
    const tdm_value *rows;
    uint64_t left_out;

    TDM_TRY(tdm_unpack(answer, "vu", &rows, &left_out));
    for (uint32_t i = 0; i < tdm_value_count(rows); i++) {
        tdm_write_value(collecting->rows, tdm_value_at(rows, i));
    }
    collecting->rows_count += tdm_value_count(rows);
    collecting->left_out += left_out;
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

/* (method, waiting, running, finished, failed) */
static void add_method(struct collecting *collecting, const struct tdm__asked_worker *worker,
                       const tdm_value *method)
{
    static const char *const numbers[] = {"waiting", "running", "finished", "failed"};
    tdm_writer *rows = collecting->rows;
    char id[TDM__ID_TEXT_BYTES];

    tdm_write_map(rows, 11);
    tdm__row_write_text(rows, "actor", worker->actor);
    tdm__row_write_text(rows, "class_name", worker->class_name);
    tdm__row_write_text(rows, "actor_name", worker->name);
    tdm__row_write_text(rows, "node_id", tdm__id_text(&collecting->node->record.id, id));
    tdm__row_write_text(rows, "node_name", collecting->node->record.name);
    tdm__row_write_number(rows, "pid", worker->pid);
    tdm__row_write_text(rows, "method", tdm_value_string(tdm_value_at(method, 0), ""));
    for (uint32_t i = 0; i < 4; i++) {
        tdm__row_write_number(rows, numbers[i], tdm_value_int(tdm_value_at(method, i + 1), 0));
    }
    collecting->rows_count++;
}

static void on_calls(void *arg, const struct tdm__asked_worker *worker, struct tdm_bytes answer)
{
    struct collecting *collecting = arg;
    tdm_document *document;

    if (tdm_document_parse(answer, &document) != TDM_OK) {
        collecting->unreadable_count++;
        return;
    }
    for (uint32_t i = 0; i < tdm_value_count(tdm_document_root(document)); i++) {
        add_method(collecting, worker, tdm_value_at(tdm_document_root(document), i));
    }
    tdm_document_destroy(document);
}

/* ---- all of them ------------------------------------------------------------------------ */

static tdm_status write_part(const struct collecting *collecting, uint32_t silent_count,
                             tdm_writer *writer)
{
    TDM_TRY(tdm_writer_status(collecting->rows));
    tdm_write_array(writer, 3);
    tdm_write_array(writer, collecting->rows_count);
    tdm_write_packed(writer, tdm_writer_bytes(collecting->rows));
    tdm_write_uint(writer, silent_count + collecting->unreadable_count);
    tdm_write_uint(writer, collecting->left_out);
    return tdm_writer_status(writer);
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
