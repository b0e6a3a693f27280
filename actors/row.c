/* row.c - the rows of a process, as many as a list may have. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/row.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

tdm_status tdm__rows_begin(struct tdm__rows *rows, uint32_t count_max)
{
    *rows = (struct tdm__rows){.count_max = count_max};
    return tdm_writer_create(&rows->packed);
}

tdm_writer *tdm__rows_next(struct tdm__rows *rows)
{
    if (rows->count == rows->count_max) {
        rows->left_out++;
        return NULL;
    }
    rows->count++;
    return rows->packed;
}

static void write_rows(tdm_writer *writer, const void *arg)
{
    const struct tdm__rows *rows = arg;

    tdm_write_array(writer, rows->count);
    tdm_write_packed(writer, tdm_writer_bytes(rows->packed));
}

void tdm__rows_end(struct tdm__rows *rows, tdm_writer *writer)
{
    const struct tdm__process_rows_message message = {
        .rows = {.write = write_rows, .arg = rows}, .left_out = rows->left_out};

    (void)tdm__process_rows_encode(&message, writer);
    tdm_writer_destroy(rows->packed);
}

bool tdm__rows_begin_answer(struct tdm__rows *rows, uint32_t count_max, const char *what,
                            struct tdm__incoming *incoming)
{
    tdm_status status = tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON
                            ? tdm__rows_begin(rows, count_max)
                            : tdm__fail(TDM_E_INVAL, "only a node's daemon asks for %s", what);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
    return status == TDM_OK;
}

void tdm__rows_answer(struct tdm__rows *rows, struct tdm__incoming *incoming)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm_writer_destroy(rows->packed);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm__rows_end(rows, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}
