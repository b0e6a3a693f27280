/* state_record.c - lists of state records of a process, with a maximum length. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/state_record.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

tdm_status tdm__state_records_begin(struct tdm__state_records *records, uint32_t count_max)
{
    *records = (struct tdm__state_records){.count_max = count_max};
    return tdm_writer_create(&records->packed);
}

tdm_writer *tdm__state_records_next(struct tdm__state_records *records)
{
    if (records->count == records->count_max) {
        records->left_out++;
        return NULL;
    }
    records->count++;
    return records->packed;
}

/* Writes the array of the list's records into the message. */
static void state_records_write(tdm_writer *writer, const void *arg)
{
    const struct tdm__state_records *records = arg;

    tdm_write_array(writer, records->count);
    tdm_write_packed(writer, tdm_writer_bytes(records->packed));
}

void tdm__state_records_end(struct tdm__state_records *records, tdm_writer *writer)
{
    const struct tdm__process_state_list_message message = {
        .records = {.write = state_records_write, .arg = records}, .left_out = records->left_out};

    (void)tdm__process_state_list_encode(&message, writer);
    tdm_writer_destroy(records->packed);
}

bool tdm__state_records_reply_begin(struct tdm__state_records *records, uint32_t count_max,
                                    const char *what, struct tdm__incoming_call *incoming)
{
    tdm_status status = tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON
                            ? tdm__state_records_begin(records, count_max)
                            : tdm__fail(TDM_E_INVAL, "only a node's daemon asks for %s", what);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
    return status == TDM_OK;
}

void tdm__state_records_reply_end(struct tdm__state_records *records,
                                  struct tdm__incoming_call *incoming)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm_writer_destroy(records->packed);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm__state_records_end(records, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}
