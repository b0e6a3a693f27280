/* state_objects.c - the objects of a node, asked of its processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/ask_workers.h"
#include "actors/node/state.h"
#include "runtime/error.h"

#include <stdlib.h>

enum { PROCESS_MS = 1000 };

/* One question, until all processes have answered. */
struct collecting {
    tdm__state_part_fn *fn;
    void *arg;
    tdm_writer *rows; /* owned: without a header */
    uint32_t rows_count;
    uint32_t unreadable_count; /* answers */
    uint64_t left_out;
};

static tdm_status add_objects(struct collecting *collecting, const tdm_value *answer)
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

static void on_objects(void *arg, const struct tdm__asked_worker *worker,
                       struct tdm_bytes answer)
{
    struct collecting *collecting = arg;
    tdm_document *document = NULL;

    (void)worker;
    if (tdm_document_parse(answer, &document) != TDM_OK ||
        add_objects(collecting, tdm_document_root(document)) != TDM_OK) {
        collecting->unreadable_count++;
    }
    tdm_document_destroy(document);
}

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

static tdm_status begin(struct tdm__node *node, tdm__state_part_fn *fn, void *arg)
{
    struct collecting *collecting = calloc(1, sizeof(*collecting));
    tdm_status status;

    if (collecting == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of objects");
    }
    collecting->fn = fn;
    collecting->arg = arg;
    status = tdm_writer_create(&collecting->rows);
    if (status == TDM_OK) {
        status = tdm__ask_processes(node, "object.list", PROCESS_MS, on_objects, on_done,
                                    collecting);
    }
    if (status != TDM_OK) {
        tdm_writer_destroy(collecting->rows);
        free(collecting);
    }
    return status;
}

void tdm__state_gather_objects(struct tdm__node *node, tdm__state_part_fn *fn, void *arg)
{
    tdm_status status = begin(node, fn, arg);

    if (status != TDM_OK) {
        fn(arg, status, (struct tdm_bytes){NULL, 0});
    }
}
