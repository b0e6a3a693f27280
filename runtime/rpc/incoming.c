/* incoming.c - calls that arrive, and their answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"

#include <stdio.h>
#include <string.h>

void tdm__conn_serve(struct tdm__conn *conn, struct tdm__incoming *incoming)
{
    tdm__conn_retain(conn);
    incoming->conn = conn;
    if (conn->rpc->serve == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "this process serves no calls");
        return;
    }
    conn->rpc->serve(conn->rpc->serve_arg, incoming);
}

const struct tdm__id *tdm__incoming_target(const struct tdm__incoming *incoming)
{
    return &incoming->frame.target;
}

const char *tdm__incoming_method(const struct tdm__incoming *incoming)
{
    return incoming->method;
}

uint64_t tdm__incoming_call_id(const struct tdm__incoming *incoming)
{
    return incoming->frame.call_id;
}

tdm_status tdm__incoming_value(struct tdm__incoming *incoming, const tdm_value **value_out)
{
    if (incoming->document == NULL) {
        TDM_TRY(tdm__incoming_parse(incoming, &incoming->document));
    }
    *value_out = tdm_document_root(incoming->document);
    return TDM_OK;
}

tdm_status tdm__incoming_take_document(struct tdm__incoming *incoming,
                                       tdm_document **document_out)
{
    const tdm_value *value;

    TDM_TRY(tdm__incoming_value(incoming, &value));
    *document_out = incoming->document;
    incoming->document = NULL;
    return TDM_OK;
}

tdm_status tdm__incoming_unpack(struct tdm__incoming *incoming, const char *format, ...)
{
    const tdm_value *value;
    tdm_status status;
    va_list args;

    TDM_TRY(tdm__incoming_value(incoming, &value));
    va_start(args, format);
    status = tdm_unpack_va(value, format, args);
    va_end(args);
    return tdm__wrap(status, "%s", incoming->method);
}

int tdm__incoming_take_fd(struct tdm__incoming *incoming, uint32_t index)
{
    int fd = -1;

    if (index < incoming->frame.fds_count) {
        fd = incoming->fds[index];
        incoming->fds[index] = -1;
    }
    return fd;
}

int64_t tdm__incoming_deadline(const struct tdm__incoming *incoming)
{
    return incoming->deadline_ms;
}

struct tdm__conn *tdm__incoming_conn(const struct tdm__incoming *incoming)
{
    return incoming->conn->state == CONN_ENDED ? NULL : incoming->conn;
}

const struct tdm__identity *tdm__incoming_peer(const struct tdm__incoming *incoming)
{
    return &incoming->conn->peer;
}

/* ---- answers ---------------------------------------------------------------------------- */

static tdm_status send_reply(struct tdm__incoming *incoming, tdm_status reply_status,
                             struct tdm_bytes payload, const int *fds, uint32_t fds_count)
{
    struct tdm__conn *conn = incoming->conn;
    struct tdm__frame frame = {.kind = TDM__FRAME_REPLY,
                               .cpu = tdm__this_cpu(),
                               .fds_count = fds_count,
                               .payload_bytes = (uint32_t)payload.size_bytes,
                               .call_id = incoming->frame.call_id,
                               .status = reply_status,
                               .left_ms = -1};

    if (conn->state != CONN_OPEN) {
        return TDM_OK; /* goes nowhere */
    }
    if (payload.size_bytes > TDM__FRAME_BYTES_MAX - TDM__FRAME_HEADER_BYTES) {
        return tdm__fail(TDM_E_LIMIT, "the reply of %s has %zu bytes, a frame holds %u",
                         incoming->method, payload.size_bytes,
                         TDM__FRAME_BYTES_MAX - TDM__FRAME_HEADER_BYTES);
    }
    if (fds_count > TDM__RPC_FDS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "the reply of %s has %u descriptors, a frame holds %d",
                         incoming->method, fds_count, TDM__RPC_FDS_MAX);
    }
    if (fds_count > 0 && !conn->local) {
        return tdm__fail(TDM_E_UNSUPPORTED, "the reply of %s has descriptors, %s is not local",
                         incoming->method, conn->label);
    }
    return tdm__conn_send(conn, &frame, NULL, payload.data, fds);
}

static void release(struct tdm__incoming *incoming)
{
    tdm__conn_release(incoming->conn);
    tdm__incoming_free(incoming);
}

/* The caller must hear something: if even the failure cannot be sent, the connection ends. */
static void reply_failure(struct tdm__incoming *incoming, tdm_status status, const char *detail)
{
    struct tdm_bytes text = {detail, strnlen(detail, TDM__ERROR_DETAIL_BYTES)};

    if (send_reply(incoming, status, text, NULL, 0) != TDM_OK) {
        tdm__conn_close(incoming->conn);
    }
}

void tdm__incoming_reply(struct tdm__incoming *incoming, struct tdm_bytes packed,
                         const int *fds, uint32_t fds_count)
{
    tdm_status status = send_reply(incoming, TDM_OK, packed, fds, fds_count);

    if (status != TDM_OK) {
        reply_failure(incoming, status, tdm_error_detail());
    }
    release(incoming);
}

void tdm__incoming_reply_pack(struct tdm__incoming *incoming, const char *format, ...)
{
    struct tdm__conn *conn = incoming->conn;
    tdm_status status;
    va_list args;

    if (conn->state == CONN_ENDED) {
        release(incoming);
        return;
    }
    tdm_writer_clear(conn->rpc->writer);
    va_start(args, format);
    status = tdm_pack_va(conn->rpc->writer, format, args);
    va_end(args);
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    tdm__incoming_reply(incoming, tdm_writer_bytes(conn->rpc->writer), NULL, 0);
}

void tdm__incoming_fail(struct tdm__incoming *incoming, tdm_status status, const char *detail)
{
    reply_failure(incoming, status, detail);
    release(incoming);
}
