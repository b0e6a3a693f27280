/* incoming.c - calls that arrive, and their replies. */
/* SPDX-License-Identifier: Apache-2.0 */
/* This file owns the calls of peers, from the arrival of the frame to the reply.
 *
 * A call is listed in conn->incoming_calls until it is replied to or its connection ends, and it
 * retains its connection. It must be replied to exactly once. After the end of the connection the
 * reply is discarded. A caller must always receive a reply: if even the failure cannot be sent, the
 * connection is closed.
 *
 * Notices (cancel, credit, closed) reach the call's notice function only while it is listed. That
 * function may reply to the call, and so free it. All functions run on the loop's thread.
 * runtime/wire/frame.h specifies the frames. */

#include "runtime/rpc/incoming.h"

#include "runtime/rpc/calls.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/conn.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/receive.h"
#include "runtime/rpc/send.h"
#include "runtime/wire/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arriving --------------------------------------------------------------------------- */

tdm_status tdm__conn_serve(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    uint64_t call_id = incoming->frame.call_id;

    if (tdm__call_table_find(&conn->incoming_calls, call_id) != NULL) {
        tdm__incoming_free(incoming);
        return tdm__fail(TDM_E_PROTOCOL, "%s sent a second call with id %llu", conn->label,
                         (unsigned long long)call_id);
    }
    tdm__conn_retain(conn);
    incoming->conn = conn;
    incoming->entry.id = call_id;
    incoming->listed = true;
    incoming->values_max = conn->rpc->values_max;
    tdm__call_table_add(&conn->incoming_calls, &incoming->entry);
    if (incoming->fds_lost) {
        tdm__incoming_fail(incoming, TDM_E_AGAIN,
                           "the called process has no free descriptors for what the call carries: "
                           "raise its limit of open files (ulimit -n)");
    } else if (conn->rpc->call_handler == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "this process serves no calls");
    } else {
        conn->rpc->call_handler(conn->rpc->call_handler_arg, incoming);
    }
    return TDM_OK;
}

/* Removes a call of the peer from the connection's table of incoming calls, if it is in there. */
static void incoming_unlist(struct tdm__incoming_call *incoming)
{
    if (incoming->listed) {
        tdm__call_table_remove(&incoming->conn->incoming_calls, &incoming->entry);
        incoming->listed = false;
    }
}

/* Runs the call's notice function, which may reply to the call and so free it. */
static void incoming_notify(struct tdm__incoming_call *incoming, enum tdm__call_notice notice)
{
    if (incoming->on_notice != NULL) {
        incoming->on_notice(incoming->on_notice_arg, notice, incoming->items_taken);
    }
}

/* Updates the number of items of the call's stream that the consumer has taken. The number only
 * grows and never exceeds the number of items sent. */
static tdm_status incoming_update_credit(struct tdm__incoming_call *call, uint64_t items_taken)
{
    if (items_taken > call->items_sent) {
        return tdm__fail(TDM_E_PROTOCOL, "%s has taken %llu items of %s, which sent %llu",
                         call->conn->label, (unsigned long long)items_taken, call->method,
                         (unsigned long long)call->items_sent);
    }
    if (items_taken > call->items_taken) {
        call->items_taken = items_taken;
        incoming_notify(call, TDM__NOTICE_CREDIT);
    }
    return TDM_OK;
}

tdm_status tdm__conn_notice(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    struct tdm__frame notice = incoming->frame;
    struct tdm__incoming_call *call =
        (struct tdm__incoming_call *)tdm__call_table_find(&conn->incoming_calls, notice.call_id);

    tdm__incoming_free(incoming);
    if (call == NULL) {
        return TDM_OK;
    }
    if (notice.kind == TDM__FRAME_CREDIT) {
        return incoming_update_credit(call, notice.sequence);
    }
    incoming_notify(call, notice.children ? TDM__NOTICE_CANCEL_CHILDREN : TDM__NOTICE_CANCEL);
    return TDM_OK;
}

void tdm__incoming_notify_closed(struct tdm__conn *conn)
{
    while (!TAILQ_EMPTY(&conn->incoming_calls.in_order)) {
        struct tdm__incoming_call *incoming =
            (struct tdm__incoming_call *)TAILQ_FIRST(&conn->incoming_calls.in_order);

        incoming_unlist(incoming);
        incoming_notify(incoming, TDM__NOTICE_CLOSED);
    }
}

void tdm__incoming_on_notice(struct tdm__incoming_call *incoming, tdm__call_notice_fn *fn,
                             void *arg)
{
    incoming->on_notice = fn;
    incoming->on_notice_arg = arg;
}

/* ---- what was called -------------------------------------------------------------------- */

const struct tdm__id *tdm__incoming_target(const struct tdm__incoming_call *incoming)
{
    return &incoming->frame.target;
}

const char *tdm__incoming_method(const struct tdm__incoming_call *incoming)
{
    return incoming->method;
}

uint64_t tdm__incoming_call_id(const struct tdm__incoming_call *incoming)
{
    return incoming->frame.call_id;
}

tdm_status tdm__incoming_value(struct tdm__incoming_call *incoming, const tdm_value **value_out)
{
    if (incoming->document == NULL) {
        TDM_TRY(tdm__incoming_parse(incoming, &incoming->document));
    }
    *value_out = tdm_document_root(incoming->document);
    return TDM_OK;
}

tdm_status tdm__incoming_take_document(struct tdm__incoming_call *incoming,
                                       tdm_document **document_out)
{
    const tdm_value *value;

    TDM_TRY(tdm__incoming_value(incoming, &value));
    *document_out = incoming->document;
    incoming->document = NULL;
    return TDM_OK;
}

tdm_status tdm__incoming_decode(struct tdm__incoming_call *incoming,
                                const struct tdm__message *message, void *structure_out)
{
    const tdm_value *value;

    TDM_TRY(tdm__incoming_value(incoming, &value));
    return tdm__wrap(tdm__message_decode(message, value, structure_out), "%s", incoming->method);
}

int tdm__incoming_take_fd(struct tdm__incoming_call *incoming, uint32_t index)
{
    int fd = -1;

    if (index < incoming->frame.fds_count) {
        fd = incoming->fds[index];
        incoming->fds[index] = -1;
    }
    return fd;
}

uint64_t tdm__incoming_sequence(const struct tdm__incoming_call *incoming)
{
    return incoming->frame.sequence;
}

uint64_t tdm__incoming_acknowledged(const struct tdm__incoming_call *incoming)
{
    return incoming->frame.acknowledged;
}

bool tdm__incoming_wants_items(const struct tdm__incoming_call *incoming)
{
    return incoming->frame.wants_items;
}

uint32_t tdm__incoming_concurrency_group(const struct tdm__incoming_call *incoming)
{
    return incoming->frame.concurrency_group;
}

int64_t tdm__incoming_deadline(const struct tdm__incoming_call *incoming)
{
    return incoming->deadline_ms;
}

int64_t tdm__incoming_arrived(const struct tdm__incoming_call *incoming)
{
    return incoming->arrived_ms;
}

struct tdm_bytes tdm__incoming_packed(const struct tdm__incoming_call *incoming)
{
    return (struct tdm_bytes){incoming->payload, incoming->frame.payload_bytes};
}

struct tdm_bytes tdm__incoming_tail(const struct tdm__incoming_call *incoming)
{
    return (struct tdm_bytes){incoming->tail, incoming->frame.tail_bytes};
}

struct tdm__conn *tdm__incoming_conn(const struct tdm__incoming_call *incoming)
{
    return incoming->conn->state == CONN_ENDED ? NULL : incoming->conn;
}

bool tdm__incoming_is_older(const struct tdm__incoming_call *incoming,
                            const struct tdm__incoming_call *other)
{
    return other->conn->state != CONN_ENDED && incoming->conn->number < other->conn->number;
}

const struct tdm__peer_identity *tdm__incoming_peer(const struct tdm__incoming_call *incoming)
{
    return &incoming->conn->peer;
}

/* ---- replies ---------------------------------------------------------------------------- */

/* Checks that a reply or a stream item fits into a frame. `what` names it in the error, such as
 * "the reply". */
static tdm_status incoming_check_frame(const struct tdm__incoming_call *incoming, const char *what,
                                       struct tdm_bytes payload, uint32_t fds_count)
{
    const struct tdm__conn *conn = incoming->conn;
    size_t capacity = TDM__FRAME_BYTES_MAX - TDM__FRAME_HEADER_BYTES;

    if (payload.size_bytes > capacity) {
        return tdm__fail(TDM_E_LIMIT, "%s of %s has %zu bytes, a frame holds %zu", what,
                         incoming->method, payload.size_bytes, capacity);
    }
    if (fds_count > TDM__RPC_FDS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%s of %s has %u descriptors, a frame holds %d", what,
                         incoming->method, fds_count, TDM__RPC_FDS_MAX);
    }
    if (fds_count > 0 && !conn->local) {
        return tdm__fail(TDM_E_UNSUPPORTED, "%s of %s has descriptors, %s is not local", what,
                         incoming->method, conn->label);
    }
    return TDM_OK;
}

/* Sends a REPLY frame for the call. Does nothing if the connection is not open. */
static tdm_status incoming_send_reply(struct tdm__incoming_call *incoming, tdm_status reply_status,
                                      struct tdm_bytes payload, const int *fds, uint32_t fds_count)
{
    struct tdm__conn *conn = incoming->conn;
    struct tdm__frame frame = {.kind = TDM__FRAME_REPLY,
                               .cpu = tdm__current_cpu(),
                               .fds_count = fds_count,
                               .payload_bytes = (uint32_t)payload.size_bytes,
                               .call_id = incoming->frame.call_id,
                               .status = reply_status,
                               .remaining_ms = -1};

    if (conn->state != CONN_OPEN) {
        return TDM_OK;
    }
    TDM_TRY(incoming_check_frame(incoming, "the reply", payload, fds_count));
    return tdm__conn_send(conn, &frame, NULL, payload.data, NULL, fds);
}

/* Frees a call after its reply, and releases the call's reference to its connection. */
static void incoming_release(struct tdm__incoming_call *incoming)
{
    incoming_unlist(incoming);
    tdm__conn_release(incoming->conn);
    tdm__incoming_free(incoming);
}

tdm_status tdm__incoming_send_item(struct tdm__incoming_call *incoming, uint64_t index,
                                   struct tdm_bytes packed, const int *fds, uint32_t fds_count)
{
    struct tdm__conn *conn = incoming->conn;
    struct tdm__frame frame = {.kind = TDM__FRAME_ITEM,
                               .cpu = tdm__current_cpu(),
                               .fds_count = fds_count,
                               .payload_bytes = (uint32_t)packed.size_bytes,
                               .call_id = incoming->frame.call_id,
                               .remaining_ms = -1,
                               .sequence = index};

    TDM_ASSERT(index > incoming->items_sent);
    if (conn->state != CONN_OPEN) {
        return tdm__fail(TDM_E_CLOSED, "item %llu of %s: the connection with %s has ended",
                         (unsigned long long)index, incoming->method, conn->label);
    }
    TDM_TRY(incoming_check_frame(incoming, "an item", packed, fds_count));
    TDM_TRY(tdm__conn_send(conn, &frame, NULL, packed.data, NULL, fds));
    incoming->items_sent = index;
    return TDM_OK;
}

/* Sends a failure with the packed value `packed` behind its text: the text, a NUL, and the value.
 */
static tdm_status incoming_send_failure_with(struct tdm__incoming_call *incoming, tdm_status status,
                                             const char *detail, struct tdm_bytes packed)
{
    size_t text_bytes = strnlen(detail, TDM__ERROR_DETAIL_BYTES);
    struct tdm_bytes payload = {NULL, text_bytes + 1 + packed.size_bytes};
    char *bytes = malloc(payload.size_bytes);
    tdm_status sent;

    if (bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a failure of %zu bytes", payload.size_bytes);
    }
    memcpy(bytes, detail, text_bytes);
    bytes[text_bytes] = '\0';
    memcpy(bytes + text_bytes + 1, packed.data, packed.size_bytes);
    payload.data = bytes;
    sent = incoming_send_reply(incoming, status, payload, NULL, 0);
    free(bytes);
    return sent;
}

/* Sends a failure as the reply to the call. If that is impossible, closes the connection, because
 * the peer must learn of the failure. */
static void incoming_send_failure(struct tdm__incoming_call *incoming, tdm_status status,
                                  const char *detail)
{
    struct tdm_bytes text = {detail, strnlen(detail, TDM__ERROR_DETAIL_BYTES)};

    if (incoming_send_reply(incoming, status, text, NULL, 0) != TDM_OK) {
        tdm__conn_close(incoming->conn);
    }
}

void tdm__incoming_reply(struct tdm__incoming_call *incoming, struct tdm_bytes packed,
                         const int *fds, uint32_t fds_count)
{
    tdm_status status = incoming_send_reply(incoming, TDM_OK, packed, fds, fds_count);

    if (status != TDM_OK) {
        incoming_send_failure(incoming, status, tdm_error_detail());
    }
    incoming_release(incoming);
}

void tdm__incoming_reply_pack(struct tdm__incoming_call *incoming, const char *format, ...)
{
    struct tdm__conn *conn = incoming->conn;
    tdm_status status;
    va_list args;

    if (conn->state == CONN_ENDED) {
        incoming_release(incoming);
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

void tdm__incoming_reply_message(struct tdm__incoming_call *incoming,
                                 const struct tdm__message *message, const void *structure)
{
    struct tdm__conn *conn = incoming->conn;

    if (conn->state == CONN_ENDED) {
        incoming_release(incoming);
        return;
    }
    tdm_writer_clear(conn->rpc->writer);
    if (tdm__message_encode(message, structure, conn->rpc->writer) != TDM_OK) {
        tdm__incoming_fail(incoming, tdm_writer_status(conn->rpc->writer), tdm_error_detail());
        return;
    }
    tdm__incoming_reply(incoming, tdm_writer_bytes(conn->rpc->writer), NULL, 0);
}

void tdm__incoming_fail(struct tdm__incoming_call *incoming, tdm_status status, const char *detail)
{
    incoming_send_failure(incoming, status, detail);
    incoming_release(incoming);
}

void tdm__incoming_fail_with(struct tdm__incoming_call *incoming, tdm_status status,
                             const char *detail, struct tdm_bytes packed)
{
    if (packed.size_bytes == 0 ||
        incoming_send_failure_with(incoming, status, detail, packed) != TDM_OK) {
        incoming_send_failure(incoming, status, detail);
    }
    incoming_release(incoming);
}

void tdm__incoming_pass_reply(void *incoming, struct tdm__rpc_reply *reply)
{
    if (reply->status == TDM_OK) {
        tdm__incoming_reply(incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(incoming, reply->status, reply->detail);
    }
}
