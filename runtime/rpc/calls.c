/* calls.c - calls that leave, and what becomes of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the table -------------------------------------------------------------------------- */

tdm_status tdm__calls_init(struct calls *calls)
{
    TAILQ_INIT(&calls->in_order);
    calls->buckets = calloc(CALL_BUCKETS_MIN, sizeof(struct call *));
    if (calls->buckets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of calls");
    }
    calls->buckets_count = CALL_BUCKETS_MIN;
    return TDM_OK;
}

void tdm__calls_fini(struct calls *calls)
{
    TDM_ASSERT(calls->count == 0);
    free(calls->buckets);
    calls->buckets = NULL;
}

static struct call **bucket_of(const struct calls *calls, uint64_t id)
{
    return &calls->buckets[id & (calls->buckets_count - 1)];
}

/* Without memory the chains get longer, that is all. */
static void calls_grow(struct calls *calls)
{
    uint32_t count = 2 * calls->buckets_count;
    struct call **buckets = calloc(count, sizeof(struct call *));
    struct call *call;

    if (buckets == NULL) {
        return;
    }
    free(calls->buckets);
    calls->buckets = buckets;
    calls->buckets_count = count;
    TAILQ_FOREACH(call, &calls->in_order, link)
    {
        struct call **bucket = bucket_of(calls, call->id);

        call->next = *bucket;
        *bucket = call;
    }
}

static void calls_add(struct calls *calls, struct call *call)
{
    struct call **bucket;

    if (calls->count >= calls->buckets_count) {
        calls_grow(calls);
    }
    bucket = bucket_of(calls, call->id);
    call->next = *bucket;
    *bucket = call;
    TAILQ_INSERT_TAIL(&calls->in_order, call, link);
    calls->count++;
}

/* NULL if nobody waits for it. */
static struct call *calls_take(struct calls *calls, uint64_t id)
{
    struct call **place = bucket_of(calls, id);
    struct call *call;

    while (*place != NULL && (*place)->id != id) {
        place = &(*place)->next;
    }
    call = *place;
    if (call != NULL) {
        *place = call->next;
        TAILQ_REMOVE(&calls->in_order, call, link);
        calls->count--;
    }
    return call;
}

/* ---- completion ------------------------------------------------------------------------- */

static void fail_call(struct tdm__conn *conn, struct call *call, tdm_status status,
                      const char *detail)
{
    struct tdm__reply reply = {.status = status, .detail = detail};
    struct call *taken = calls_take(&conn->calls, call->id);

    TDM_ASSERT(taken == call);
    memset(reply.fds, 0xff, sizeof(reply.fds)); /* all -1 */
    call->fn(call->arg, &reply);
    free(call);
}

void tdm__calls_complete(struct tdm__conn *conn, struct tdm__incoming *incoming)
{
    struct call *call = calls_take(&conn->calls, incoming->frame.call_id);
    bool ok = incoming->frame.status == TDM_OK;
    struct tdm__reply reply = {.status = incoming->frame.status,
                               .detail = ok ? "" : incoming->payload,
                               .fds_count = incoming->frame.fds_count};

    if (call != NULL) {
        if (ok) {
            reply.incoming = incoming;
            reply.packed.data = incoming->payload;
            reply.packed.size_bytes = incoming->frame.payload_bytes;
        }
        memset(reply.fds, 0xff, sizeof(reply.fds));
        memcpy(reply.fds, incoming->fds, reply.fds_count * sizeof(int));
        call->fn(call->arg, &reply);
        memcpy(incoming->fds, reply.fds, incoming->frame.fds_count * sizeof(int));
        free(call);
    }
    tdm__incoming_free(incoming);
}

tdm_status tdm__reply_document(const struct tdm__reply *reply, tdm_document **document_out)
{
    return reply->incoming != NULL ? tdm__incoming_parse(reply->incoming, document_out)
                                   : tdm_document_parse(reply->packed, document_out);
}

static void fail_expired(struct tdm__conn *conn, struct call *call)
{
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    int64_t waited_ms = call->deadline_ms - call->sent_ms;

    (void)snprintf(detail, sizeof(detail), "no answer to %s from %s within %lld ms",
                   call->method, conn->label, (long long)(waited_ms > 0 ? waited_ms : 0));
    fail_call(conn, call, TDM_E_TIMEOUT, detail);
}

/* One at a time: its function may run the loop, which must then find the timer set for the
 * others. */
void tdm__calls_expire(struct tdm__conn *conn)
{
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = conn->handshake != NULL ? conn->handshake_deadline_ms : TDM__NEVER;
    struct call *expired = NULL;
    struct call *call;

    TAILQ_FOREACH(call, &conn->calls.in_order, link)
    {
        if (call->deadline_ms <= now_ms && expired == NULL) {
            expired = call;
            continue;
        }
        next_ms = call->deadline_ms < next_ms ? call->deadline_ms : next_ms;
        if (next_ms <= now_ms) {
            break; /* one more has expired: next time */
        }
    }
    if (tdm__conn_timer_by(conn, next_ms) != TDM_OK) {
        tdm__conn_finish(conn, TDM_E_NOMEM);
        return;
    }
    if (expired != NULL) {
        fail_expired(conn, expired);
    }
}

void tdm__calls_close(struct tdm__conn *conn, const char *detail)
{
    while (!TAILQ_EMPTY(&conn->calls.in_order)) {
        struct call *call = TAILQ_FIRST(&conn->calls.in_order);
        char text[TDM__ERROR_DETAIL_BYTES];

        (void)snprintf(text, sizeof(text), "no answer to %s from %s: %s", call->method,
                       conn->label, detail);
        fail_call(conn, call, TDM_E_CLOSED, text);
    }
}

/* ---- calling ---------------------------------------------------------------------------- */

static tdm_status check_request(const struct tdm__conn *conn,
                                const struct tdm__request *request, size_t method_bytes)
{
    size_t room = TDM__FRAME_BYTES_MAX - TDM__FRAME_HEADER_BYTES - method_bytes;

    if (!tdm__frame_method_is_valid(request->method, method_bytes)) {
        return tdm__fail(TDM_E_INVAL, "\"%.80s\" is no method: 1 to %d printable characters",
                         request->method, TDM__RPC_NAME_BYTES_MAX);
    }
    if (conn->state >= CONN_CLOSING) {
        return tdm__fail(TDM_E_CLOSED, "%s cannot be called: the connection with %s is closed",
                         request->method, conn->label);
    }
    if (request->packed.size_bytes > room) {
        return tdm__fail(TDM_E_LIMIT, "a call of %s with %zu bytes, a frame holds %zu",
                         request->method, request->packed.size_bytes, room);
    }
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

static tdm_status expect_reply(struct tdm__conn *conn, const struct tdm__request *request,
                               tdm__reply_fn *fn, void *arg)
{
    struct call *call = malloc(sizeof(*call));
    tdm_status status;

    if (call == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a call of %s", request->method);
    }
    status = tdm__conn_timer_by(conn, request->deadline_ms);
    if (status != TDM_OK) {
        free(call);
        return status;
    }
    call->id = conn->calls.last_id;
    call->sent_ms = request->deadline_ms == TDM__NEVER ? 0 : tdm__clock_ms();
    call->deadline_ms = request->deadline_ms;
    call->fn = fn;
    call->arg = arg;
    memcpy(call->method, request->method, strlen(request->method) + 1);
    calls_add(&conn->calls, call);
    return TDM_OK;
}

tdm_status tdm__conn_call(struct tdm__conn *conn, const struct tdm__request *request,
                          tdm__reply_fn *fn, void *arg, uint64_t *call_id_out)
{
    size_t method_bytes = strlen(request->method);
    struct tdm__frame frame = {.kind = TDM__FRAME_CALL,
                               .cpu = tdm__this_cpu(),
                               .fds_count = request->fds_count,
                               .method_bytes = (uint32_t)method_bytes,
                               .payload_bytes = (uint32_t)request->packed.size_bytes,
                               .target = request->target,
                               .left_ms = tdm__deadline_left(request->deadline_ms)};
    tdm_status status;

    TDM_TRY(check_request(conn, request, method_bytes));
    frame.call_id = ++conn->calls.last_id;
    if (fn != NULL) {
        TDM_TRY(expect_reply(conn, request, fn, arg));
    }
    status = tdm__conn_send(conn, &frame, request->method, request->packed.data, request->fds);
    if (status != TDM_OK) {
        free(calls_take(&conn->calls, frame.call_id));
        return status;
    }
    if (call_id_out != NULL) {
        *call_id_out = frame.call_id;
    }
    return TDM_OK;
}

void tdm__conn_forget(struct tdm__conn *conn, uint64_t call_id)
{
    if (conn->calls.buckets != NULL) {
        free(calls_take(&conn->calls, call_id));
    }
}

/* ---- calling and waiting ---------------------------------------------------------------- */

struct wait {
    bool done;
    tdm_status status;
    char detail[TDM__ERROR_DETAIL_BYTES]; /* others may fail before the waiter looks */
    tdm_document **document_out;
    int *fds_out;            /* may be NULL */
    uint32_t *fds_count_out; /* in: room */
};

static void wait_over(void *arg, struct tdm__reply *reply)
{
    struct wait *wait = arg;

    wait->done = true;
    wait->status = reply->status;
    if (reply->status != TDM_OK) {
        (void)snprintf(wait->detail, sizeof(wait->detail), "%s", reply->detail);
        return;
    }
    if (wait->document_out != NULL) {
        wait->status = tdm__reply_document(reply, wait->document_out);
        (void)snprintf(wait->detail, sizeof(wait->detail), "%s", tdm_error_detail());
    }
    if (wait->fds_out != NULL && wait->status == TDM_OK) {
        uint32_t room = *wait->fds_count_out;

        *wait->fds_count_out = reply->fds_count < room ? reply->fds_count : room;
        for (uint32_t i = 0; i < *wait->fds_count_out; i++) {
            wait->fds_out[i] = reply->fds[i];
            reply->fds[i] = -1;
        }
    }
}

static bool wait_is_over(void *arg)
{
    return ((struct wait *)arg)->done;
}

tdm_status tdm__conn_call_wait(struct tdm__conn *conn, const struct tdm__request *request,
                               tdm_document **document_out, int *fds_out,
                               uint32_t *fds_count_out)
{
    struct wait wait = {.document_out = document_out};
    uint64_t call_id = 0;
    tdm_status status;
    TDM__ENTER(conn->loop);

    wait.fds_out = fds_out;
    wait.fds_count_out = fds_count_out;
    TDM_TRY(tdm__conn_call(conn, request, wait_over, &wait, &call_id));
    tdm__conn_retain(conn);
    /* The connection's timer ends the wait: the loop needs no deadline of its own. */
    status = tdm__loop_run(conn->loop, wait_is_over, &wait, TDM__NEVER);
    if (status != TDM_OK) {
        tdm__conn_forget(conn, call_id);
    }
    tdm__conn_release(conn);
    if (status == TDM_OK && wait.status != TDM_OK) {
        status = tdm__fail(wait.status, "%s", wait.detail);
    }
    return status;
}
