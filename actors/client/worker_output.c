/* worker_output.c - takes what the workers of a job have printed, for the driver's terminal. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <tandem/state.h>

/* Requests the next lines of the job from the daemon. The caller owns `*document_out`. */
static tdm_status output_request(tdm_runtime *runtime, const struct tdm__log_take_message *message,
                                 int64_t timeout_ms, tdm_document **document_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__log_take_encode(message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(runtime, "log.take", tdm_writer_bytes(writer), timeout_ms,
                                          document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Hands the pieces of a reply to fn(arg, ...). */
static void output_report(const struct tdm__log_lines_message *lines, tdm_worker_output_fn *fn,
                          void *arg)
{
    for (uint32_t i = 0; i < lines->pieces.count; i++) {
        struct tdm__worker_lines_message piece;

        tdm__message_list_read(&lines->pieces, i, &piece, sizeof(piece));
        fn(arg, &(struct tdm_worker_output){.origin = piece.origin,
                                            .text = piece.text.data,
                                            .text_bytes = piece.text.size_bytes,
                                            .is_error = piece.stream != 0});
    }
}

tdm_status tdm_take_worker_output(tdm_runtime *runtime, const char *node_id, int64_t timeout_ms,
                                  tdm_worker_output_fn *fn, void *arg)
{
    struct tdm__log_take_message message = {.node_id = node_id};
    struct tdm__log_lines_message lines = {.has_more = true};
    struct tdm_runtime_info info;

    TDM__REQUIRE(runtime);
    TDM__REQUIRE(fn);
    tdm_runtime_describe(runtime, &info);
    TDM_TRY(tdm__id_parse(info.job_id, &message.job));
    while (lines.has_more) {
        tdm_document *document;
        tdm_status status;

        TDM_TRY(output_request(runtime, &message, timeout_ms, &document));
        status = tdm__log_lines_decode(tdm_document_root(document), &lines);
        if (status == TDM_OK) {
            output_report(&lines, fn, arg);
        }
        tdm_document_destroy(document);
        TDM_TRY(status);
    }
    return TDM_OK;
}
