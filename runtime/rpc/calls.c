/* calls.c - calls that leave, and what becomes of them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* This file owns the calls that this process sends, from tdm__conn_call() to the callback of the
 * reply.
 *
 * A pending call is an entry of conn->calls. It leaves the table exactly once: when its reply
 * arrives, when its deadline passes, when its connection ends, or when its sender forgets it. The
 * first three run its callback, the last one does not. The memory of a call may belong to the
 * sender, so the callback runs after the last access to it.
 *
 * A reply whose call was forgotten is late. The endpoint's late-reply function can release
 * resources in it. All functions run on the loop's thread. runtime/wire/frame.h specifies the
 * frames. */

#include "runtime/rpc/calls.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/rpc/conn.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/receive.h"
#include "runtime/rpc/send.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Most bytes of a reply's value that is copied out of the frame. */
enum { COPIED_VALUE_BYTES_MAX = 256 };

/* Removes the pending call with the ID `id` from the connection's table and returns it, or NULL if
 * it is not pending. */
static struct tdm__rpc_call *calls_remove(struct tdm__conn *conn, uint64_t id)
{
    struct tdm__call_table_entry *entry = tdm__call_table_find(&conn->calls, id);

    if (entry != NULL) {
        tdm__call_table_remove(&conn->calls, entry);
    }
    return (struct tdm__rpc_call *)entry;
}

/* Frees the memory of a pending call unless the sender owns it. NULL is allowed. */
static void call_free(struct tdm__rpc_call *call)
{
    if (call != NULL && call->allocated_bytes > 0) {
        tdm__free_list_free(call, call->allocated_bytes);
    }
}

/* ---- completion ------------------------------------------------------------------------- */

/* Passes `reply` to the callback of a call that is no longer in the table. The callback may free
 * memory of the sender, so the call is not touched afterwards. */
static void call_complete(struct tdm__rpc_call *call, struct tdm__rpc_reply *reply)
{
    tdm__rpc_reply_fn *fn = call->fn;
    void *arg = call->arg;

    call_free(call);
    fn(arg, reply);
}

/* Removes a pending call from the table and completes it with a failure. */
static void call_fail(struct tdm__conn *conn, struct tdm__rpc_call *call, tdm_status status,
                      const char *detail)
{
    struct tdm__rpc_reply reply = {.status = status, .detail = detail};

    tdm__call_table_remove(&conn->calls, &call->entry);
    memset(reply.fds, 0xff, sizeof(reply.fds)); /* This sets all descriptors to -1. */
    call_complete(call, &reply);
}

/* Returns the packed value behind the text and the NUL of a failure; empty if absent. The
 * memory of a payload ends with a NUL. */
static struct tdm_bytes failure_value(const struct tdm__incoming_call *incoming)
{
    size_t text_bytes = strlen(incoming->payload) + 1;
    struct tdm_bytes value = {NULL, 0};

    if (text_bytes < incoming->frame.payload_bytes) {
        value.data = incoming->payload + text_bytes;
        value.size_bytes = incoming->frame.payload_bytes - text_bytes;
    }
    return value;
}

/* Fills a reply with the contents of the frame `incoming`, borrowed until the callback returns. The
 * callback may take descriptors. */
static void reply_from_incoming(struct tdm__incoming_call *incoming, struct tdm__rpc_reply *reply)
{
    bool ok = incoming->frame.status == TDM_OK;

    *reply = (struct tdm__rpc_reply){.status = incoming->frame.status,
                                     .detail = ok ? "" : incoming->payload,
                                     .fds_count = incoming->frame.fds_count};
    if (ok && incoming->fds_lost) {
        reply->incoming = incoming;
        reply->fds_lost = true;
        reply->status = TDM_E_AGAIN;
        reply->detail = "this process has no free descriptors for what the reply carries: raise "
                        "its limit of open files (ulimit -n)";
    } else if (ok) {
        reply->incoming = incoming;
        reply->packed.data = incoming->payload;
        reply->packed.size_bytes = incoming->frame.payload_bytes;
    } else {
        reply->packed = failure_value(incoming);
    }
    memset(reply->fds, 0xff, sizeof(reply->fds));
    if (reply->fds_count > 0) {
        memcpy(reply->fds, incoming->fds, reply->fds_count * sizeof(int));
    }
}

/* Records in the frame which descriptors the callback took from `reply`, so that they are not
 * closed. */
static void incoming_record_taken_fds(struct tdm__incoming_call *incoming,
                                      const struct tdm__rpc_reply *reply)
{
    if (incoming->frame.fds_count > 0) {
        memcpy(incoming->fds, reply->fds, incoming->frame.fds_count * sizeof(int));
    }
}

/* Passes a frame to the callback of its call: as item number `item` of the stream, or as the reply
 * if `item` is 0. */
static void call_deliver(struct tdm__incoming_call *incoming, struct tdm__rpc_call *call,
                         uint64_t item)
{
    struct tdm__rpc_reply reply;

    reply_from_incoming(incoming, &reply);
    if (item > 0) {
        call->on_item(call->arg, item, &reply);
    } else {
        call_complete(call, &reply);
    }
    incoming_record_taken_fds(incoming, &reply);
}

/* Passes a frame whose call was forgotten to the endpoint's late-reply function. Failures without a
 * value and empty replies are discarded. */
static void call_deliver_late(struct tdm__conn *conn, struct tdm__incoming_call *incoming,
                              uint64_t item)
{
    const struct tdm__rpc *rpc = conn->rpc;
    struct tdm__rpc_reply reply;

    if (rpc->on_late_reply == NULL) {
        return;
    }
    reply_from_incoming(incoming, &reply);
    if (reply.packed.size_bytes <= 1 && !reply.fds_lost) {
        return;
    }
    rpc->on_late_reply(rpc->on_late_reply_arg, conn, incoming->frame.call_id, item, &reply);
    incoming_record_taken_fds(incoming, &reply);
}

void tdm__calls_complete(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    struct tdm__rpc_call *call = calls_remove(conn, incoming->frame.call_id);

    if (call != NULL) {
        call_deliver(incoming, call, 0);
    } else {
        call_deliver_late(conn, incoming, 0);
    }
    tdm__incoming_free(incoming);
}

/* Small values are copied, because their frame's memory is several times as large and can be reused
 * for the next frame. */
tdm_status tdm__rpc_reply_document(const struct tdm__rpc_reply *reply, tdm_document **document_out)
{
    bool borrows = reply->incoming != NULL && reply->packed.size_bytes > COPIED_VALUE_BYTES_MAX;

    return borrows ? tdm__incoming_parse(reply->incoming, document_out)
                   : tdm_document_parse(reply->packed, document_out);
}

tdm_status tdm__rpc_reply_lost_document(const struct tdm__rpc_reply *reply,
                                        tdm_document **document_out)
{
    struct tdm_bytes packed = {reply->incoming->payload, reply->incoming->frame.payload_bytes};

    TDM_ASSERT(reply->fds_lost);
    return tdm_document_parse(packed, document_out);
}

tdm_status tdm__calls_deliver_item(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    uint64_t index = incoming->frame.sequence;
    struct tdm__rpc_call *call =
        (struct tdm__rpc_call *)tdm__call_table_find(&conn->calls, incoming->frame.call_id);
    tdm_status status = TDM_OK;

    if (call != NULL && index <= call->last_item) {
        status =
            tdm__fail(TDM_E_PROTOCOL, "%s sent item %llu of %s after item %llu", conn->label,
                      (unsigned long long)index, call->method, (unsigned long long)call->last_item);
    } else if (call != NULL && call->on_item != NULL) {
        call->last_item = index;
        call_deliver(incoming, call, index); /* The callback may forget the call. */
    } else if (call == NULL) {
        call_deliver_late(conn, incoming, index);
    }
    tdm__incoming_free(incoming);
    return status;
}

/* Fails a pending call with TDM_E_TIMEOUT. The message names the time that the sender allowed. */
static void call_fail_expired(struct tdm__conn *conn, struct tdm__rpc_call *call)
{
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    int64_t waited_ms = call->deadline_ms - call->sent_ms;

    (void)snprintf(detail, sizeof(detail), "no reply to %s from %s within %lld ms", call->method,
                   conn->label, (long long)(waited_ms > 0 ? waited_ms : 0));
    call_fail(conn, call, TDM_E_TIMEOUT, detail);
}

/* Fails one call at a time, because its callback may run the loop, which must then find the timer
 * set for the other calls. */
tdm_status tdm__calls_fail_expired(struct tdm__conn *conn)
{
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = conn->handshake != NULL ? conn->handshake_deadline_ms : TDM__NEVER;
    struct tdm__rpc_call *expired = NULL;
    struct tdm__call_table_entry *entry;

    TAILQ_FOREACH(entry, &conn->calls.in_order, link)
    {
        struct tdm__rpc_call *call = (struct tdm__rpc_call *)entry;

        if (call->deadline_ms <= now_ms && expired == NULL) {
            expired = call;
            continue;
        }
        next_ms = call->deadline_ms < next_ms ? call->deadline_ms : next_ms;
        if (next_ms <= now_ms) {
            break;
        }
    }
    TDM_TRY(tdm__conn_set_timer(conn, next_ms));
    if (expired != NULL) {
        call_fail_expired(conn, expired);
    }
    return TDM_OK;
}

void tdm__calls_fail_all(struct tdm__conn *conn, const char *detail)
{
    while (!TAILQ_EMPTY(&conn->calls.in_order)) {
        struct tdm__rpc_call *call = (struct tdm__rpc_call *)TAILQ_FIRST(&conn->calls.in_order);
        char text[TDM__ERROR_DETAIL_BYTES];

        (void)snprintf(text, sizeof(text), "no reply to %s from %s: %s", call->method, conn->label,
                       detail);
        call_fail(conn, call, TDM_E_CLOSED, text);
    }
}

/* ---- calling ---------------------------------------------------------------------------- */

/* Checks that the packed value and the tail of a request fit into a frame. */
static tdm_status request_check_size(const struct tdm__rpc_request *request, size_t method_bytes)
{
    size_t capacity = TDM__FRAME_BYTES_MAX - TDM__FRAME_HEADER_BYTES - method_bytes;
    size_t packed = request->packed.size_bytes;
    size_t tail = request->tail.size_bytes;

    if (packed > capacity || tail > capacity - packed) {
        return tdm__fail(TDM_E_LIMIT,
                         "a call of %s with %zu bytes and %zu behind them, a frame "
                         "holds %zu",
                         request->method, packed, tail, capacity);
    }
    if (tail > 0 && (packed == 0 || packed > TDM__FRAME_HEAD_BYTES_MAX)) {
        return tdm__fail(TDM_E_LIMIT,
                         "a call of %s with %zu bytes before its tail, there are 1 "
                         "to %d",
                         request->method, packed, TDM__FRAME_HEAD_BYTES_MAX);
    }
    return TDM_OK;
}

/* Checks everything that can make a request invalid on this connection. */
static tdm_status request_check(const struct tdm__conn *conn,
                                const struct tdm__rpc_request *request, size_t method_bytes)
{
    if (!tdm__frame_method_is_valid(request->method, method_bytes)) {
        return tdm__fail(TDM_E_INVAL, "\"%.80s\" is no method: 1 to %d printable characters",
                         request->method, TDM__RPC_NAME_BYTES_MAX);
    }
    if (conn->state >= CONN_CLOSING) {
        return tdm__fail(TDM_E_CLOSED, "%s cannot be called: the connection with %s is closed",
                         request->method, conn->label);
    }
    TDM_TRY(request_check_size(request, method_bytes));
    if (request->fds_count > TDM__RPC_FDS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "a call of %s with %u descriptors, a frame holds %d",
                         request->method, request->fds_count, TDM__RPC_FDS_MAX);
    }
    if (request->fds_count > 0 && !conn->local) {
        return tdm__fail(TDM_E_UNSUPPORTED, "a call of %s with descriptors, %s is not local",
                         request->method, conn->label);
    }
    return TDM_OK;
}

/* Returns the sender's memory for the pending call, or allocates memory with the method's name
 * behind the call. */
static struct tdm__rpc_call *call_alloc(const struct tdm__rpc_request *request)
{
    struct tdm__rpc_call *call = request->call;
    size_t method_bytes;

    if (call != NULL) {
        call->allocated_bytes = 0;
        call->method = request->method;
        return call;
    }
    method_bytes = strlen(request->method) + 1;
    call = tdm__free_list_alloc(sizeof(*call) + method_bytes);
    if (call != NULL) {
        call->allocated_bytes = sizeof(*call) + method_bytes;
        call->method = memcpy(call + 1, request->method, method_bytes);
    }
    return call;
}

/* Adds a pending call with the ID conn->last_call_id to the table, and sets the connection's timer
 * for the call's deadline. */
static tdm_status call_register(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                                tdm__rpc_reply_fn *fn, void *arg)
{
    struct tdm__rpc_call *call = call_alloc(request);
    tdm_status status;

    if (call == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a call of %s", request->method);
    }
    status = tdm__conn_set_timer(conn, request->deadline_ms);
    if (status != TDM_OK) {
        call_free(call);
        return status;
    }
    call->entry.id = conn->last_call_id;
    call->sent_ms = request->deadline_ms == TDM__NEVER ? 0 : tdm__clock_ms();
    call->deadline_ms = request->deadline_ms;
    call->fn = fn;
    call->on_item = request->on_item;
    call->arg = arg;
    call->last_item = 0;
    tdm__call_table_add(&conn->calls, &call->entry);
    return TDM_OK;
}

tdm_status tdm__conn_call(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                          tdm__rpc_reply_fn *fn, void *arg, uint64_t *call_id_out)
{
    size_t method_bytes = strlen(request->method);
    struct tdm__frame frame = {.kind = TDM__FRAME_CALL,
                               .cpu = tdm__current_cpu(),
                               .fds_count = request->fds_count,
                               .method_bytes = (uint32_t)method_bytes,
                               .payload_bytes = (uint32_t)request->packed.size_bytes,
                               .tail_bytes = (uint32_t)request->tail.size_bytes,
                               .target = request->target,
                               .remaining_ms = tdm__deadline_remaining_ms(request->deadline_ms),
                               .sequence = request->sequence,
                               .acknowledged = request->acknowledged,
                               .concurrency_group = request->concurrency_group,
                               .wants_items = request->on_item != NULL};
    tdm_status status;

    TDM_TRY(request_check(conn, request, method_bytes));
    frame.call_id = ++conn->last_call_id;
    if (fn != NULL) {
        TDM_TRY(call_register(conn, request, fn, arg));
    }
    status = tdm__conn_send(conn, &frame, request->method, request->packed.data, request->tail.data,
                            request->fds);
    if (status != TDM_OK) {
        call_free(calls_remove(conn, frame.call_id));
        return status;
    }
    if (call_id_out != NULL) {
        *call_id_out = frame.call_id;
    }
    return TDM_OK;
}

void tdm__conn_forget_call(struct tdm__conn *conn, uint64_t call_id)
{
    call_free(calls_remove(conn, call_id));
}

/* Sends a notice (cancel or credit) about a pending call to the peer. A failure ends the
 * connection, because a stream without credit would never continue. */
static void call_send_notice(struct tdm__conn *conn, const struct tdm__frame *frame)
{
    if (conn->state < CONN_CLOSING && tdm__call_table_find(&conn->calls, frame->call_id) != NULL &&
        tdm__conn_send(conn, frame, NULL, NULL, NULL, NULL) != TDM_OK) {
        tdm__conn_close(conn);
    }
}

void tdm__conn_cancel_call(struct tdm__conn *conn, uint64_t call_id, bool children)
{
    call_send_notice(conn, &(struct tdm__frame){.kind = TDM__FRAME_CANCEL,
                                                .cpu = tdm__current_cpu(),
                                                .call_id = call_id,
                                                .remaining_ms = -1,
                                                .children = children});
}

void tdm__conn_send_credit(struct tdm__conn *conn, uint64_t call_id, uint64_t items_taken)
{
    call_send_notice(conn, &(struct tdm__frame){.kind = TDM__FRAME_CREDIT,
                                                .cpu = tdm__current_cpu(),
                                                .call_id = call_id,
                                                .remaining_ms = -1,
                                                .sequence = items_taken});
}

/* ---- calling and waiting ---------------------------------------------------------------- */

/* State of one tdm__conn_call_wait(), on the stack of that function. */
struct wait {
    bool done;         /* Whether the call has completed. */
    tdm_status status; /* Outcome of the call, valid once `done` is true. */
    /* Text of the call's failure, copied because other failures may replace tdm_error_detail()
     * before the waiting function continues. */
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_document **document_out; /* Receives the value of the reply; NULL discards the value. */
    int *fds_out;                /* Receives the descriptors of the reply; NULL closes them. */
    /* Capacity of `fds_out` before the reply, number of its descriptors afterwards. */
    uint32_t *fds_count_out;
};

/* Stores the reply in the state of the waiting tdm__conn_call_wait(). */
static void call_wait_on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct wait *wait = arg;

    wait->done = true;
    wait->status = reply->status;
    if (reply->status != TDM_OK) {
        (void)snprintf(wait->detail, sizeof(wait->detail), "%s", reply->detail);
        if (reply->fds_lost && wait->document_out != NULL &&
            tdm__rpc_reply_lost_document(reply, wait->document_out) != TDM_OK) {
            wait->status = TDM_E_PROTOCOL;
        }
        return;
    }
    if (wait->document_out != NULL) {
        wait->status = tdm__rpc_reply_document(reply, wait->document_out);
        (void)snprintf(wait->detail, sizeof(wait->detail), "%s", tdm_error_detail());
    }
    if (wait->fds_out != NULL && wait->status == TDM_OK) {
        uint32_t capacity = *wait->fds_count_out;

        *wait->fds_count_out = reply->fds_count < capacity ? reply->fds_count : capacity;
        for (uint32_t i = 0; i < *wait->fds_count_out; i++) {
            wait->fds_out[i] = reply->fds[i];
            reply->fds[i] = -1;
        }
    }
}

/* Tells the loop whether the call of tdm__conn_call_wait() has completed. */
static bool call_wait_is_done(void *arg)
{
    return ((struct wait *)arg)->done;
}

tdm_status tdm__conn_call_wait(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                               tdm_document **document_out, int *fds_out, uint32_t *fds_count_out)
{
    struct wait wait = {.document_out = document_out};
    uint64_t call_id = 0;
    tdm_status status;
    TDM__LOOP_ENTER(conn->loop);

    wait.fds_out = fds_out;
    wait.fds_count_out = fds_count_out;
    TDM_TRY(tdm__conn_call(conn, request, call_wait_on_reply, &wait, &call_id));
    tdm__conn_retain(conn);
    /* The connection's timer ends the wait, so the loop needs no deadline. */
    status = tdm__loop_run(conn->loop, call_wait_is_done, &wait, TDM__NEVER);
    if (status != TDM_OK) {
        tdm__conn_forget_call(conn, call_id);
    }
    tdm__conn_release(conn);
    if (status == TDM_OK && wait.status != TDM_OK) {
        status = tdm__fail(wait.status, "%s", wait.detail);
    }
    return status;
}
