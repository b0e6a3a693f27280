/* send_queue.c - the calls of a channel: their order, what is sent again, when they are given up.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/send_queue.h"

#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/client/call_arguments.h"
#include "actors/client/call_retry.h"
#include "actors/client/call_stream.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWERS_UNACKNOWLEDGED_MAX = 64 };

void tdm__send_queue_init(struct tdm__actor_channel *channel)
{
    TAILQ_INIT(&channel->waiting);
    TAILQ_INIT(&channel->in_flight);
    TAILQ_INIT(&channel->retry_paused);
    channel->deadline_timer_at_ms = TDM__NEVER;
    channel->last_sequence = channel->runtime->last_sequence;
    channel->acknowledged = channel->last_sequence;
}

void tdm__send_queue_fini(struct tdm__actor_channel *channel)
{
    tdm_runtime *runtime = channel->runtime;

    TDM_ASSERT(tdm__send_queue_is_idle(channel));
    if (channel->last_sequence > runtime->last_sequence) {
        runtime->last_sequence = channel->last_sequence;
    }
    tdm__timer_destroy(channel->deadline_timer);
    tdm__timer_destroy(channel->retry_timer);
}

bool tdm__send_queue_is_idle(const struct tdm__actor_channel *channel)
{
    return TAILQ_EMPTY(&channel->waiting) && TAILQ_EMPTY(&channel->in_flight) &&
           TAILQ_EMPTY(&channel->retry_paused);
}

static void send_queue_remove(struct tdm__pending_call *pending_call)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    struct tdm__pending_calls *list = pending_call->in_flight      ? &channel->in_flight
                                      : pending_call->retry_paused ? &channel->retry_paused
                                                                   : &channel->waiting;

    TAILQ_REMOVE(list, pending_call, entry);
    pending_call->in_flight = false;
    pending_call->retry_paused = false;
}

/* No reply is awaited any more. */
static void send_queue_forget_call(struct tdm__pending_call *pending_call)
{
    if (pending_call->call_id != 0) {
        tdm__conn_forget_call(pending_call->channel->conn, pending_call->call_id);
        pending_call->call_id = 0;
    }
}

static void send_queue_finish_call(struct tdm__pending_call *pending_call, tdm_status status,
                                   const char *detail, tdm_document *document)
{
    send_queue_remove(pending_call);
    tdm__pending_call_complete(pending_call, status, detail, document);
    tdm__pending_call_destroy(pending_call);
}

static void fail_expired(struct tdm__pending_call *pending_call)
{
    const struct tdm__actor_channel *channel = pending_call->channel;
    char reason[160];

    (void)snprintf(reason, sizeof(reason), "no answer from actor %s%s", channel->label,
                   pending_call->in_flight               ? ""
                   : pending_call->retry_paused          ? ": it failed, and was to be made again"
                   : channel->state == TDM__CHANNEL_OPEN ? ": an argument is not there yet"
                                                         : ": it is not there yet");
    tdm__pending_call_fail(pending_call, TDM_E_TIMEOUT, reason);
    send_queue_remove(pending_call);
    tdm__pending_call_destroy(pending_call);
}

/* ---- answers ---------------------------------------------------------------------------- */

/* Calls acknowledge the answers that came before; a caller that falls silent says it once. */
static void send_queue_acknowledge(struct tdm__actor_channel *channel)
{
    struct tdm__rpc_request request = {.target = channel->id,
                                       .method = TDM__ACKNOWLEDGE_METHOD,
                                       .packed = {"\x90", 1},
                                       .deadline_ms = TDM__NEVER,
                                       .acknowledged = channel->last_sequence};

    if (channel->state == TDM__CHANNEL_OPEN && tdm__send_queue_is_idle(channel) &&
        channel->last_sequence - channel->acknowledged >= ANSWERS_UNACKNOWLEDGED_MAX) {
        channel->acknowledged = channel->last_sequence;
        if (tdm__conn_call(channel->conn, &request, NULL, NULL, NULL) != TDM_OK) {
            tdm__log(TDM__DEBUG, "channel", "acknowledging answers of %s: %s", channel->label,
                     tdm_error_detail());
        }
    }
}

/* The call has been answered: with `document`, or not so well. */
static void send_queue_take_reply(struct tdm__pending_call *pending_call, uint64_t call_id,
                                  tdm_status status, const char *detail, tdm_document *document)
{
    struct tdm__actor_channel *channel = pending_call->channel;

    if (status == TDM_OK) {
        tdm__reply_pins_acknowledge(channel->runtime, channel->conn, call_id, 0, document);
    }
    channel->holders_count++;
    if (status == TDM_E_TIMEOUT && tdm__clock_ms() >= pending_call->deadline_ms) {
        fail_expired(pending_call); /* decided on this side */
    } else {
        send_queue_finish_call(pending_call, status, detail, document);
    }
    tdm__actor_channels_flush(channel->runtime);
    send_queue_acknowledge(channel);
    tdm__actor_channel_release(channel);
}

/* Until it is here the call is not answered: where the connection ends midway, it is sent again
 * and its result offered once more. */
static void on_pulled(void *arg, tdm_status status, const char *detail, struct tdm__large *large)
{
    struct tdm__pending_call *pending_call = arg;
    tdm_document *document = NULL;

    pending_call->pull = NULL;
    if (status == TDM_E_CLOSED && !tdm__conn_is_open(pending_call->channel->conn)) {
        return; /* what became of the actor decides */
    }
    if (status == TDM_OK) {
        status = tdm__large_document(large, &document);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    send_queue_take_reply(pending_call, pending_call->pulled_call_id, status, detail, document);
}

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct tdm__pending_call *pending_call = arg;
    struct tdm__actor_channel *channel = pending_call->channel;
    tdm_document *document = NULL;
    tdm_status status = reply->status;
    const char *detail = reply->detail;
    uint64_t call_id = pending_call->call_id;

    pending_call->call_id = 0;
    if (status == TDM_E_CLOSED && !tdm__conn_is_open(channel->conn)) {
        return; /* what became of the actor decides */
    }
    channel->lost_since_ms = 0;
    if (tdm__retry_is_due(pending_call, status)) {
        send_queue_remove(pending_call);
        tdm__retry_pause(pending_call);
        tdm__send_queue_flush(channel);
        return;
    }
    if (status == TDM_OK && tdm__pull_is_offer(reply->packed)) {
        pending_call->pulled_call_id = call_id;
        status = tdm__pull_start(channel->runtime, channel->conn, reply->packed, on_pulled,
                                 pending_call, &pending_call->pull);
        if (status == TDM_OK) {
            return;
        }
        detail = tdm_error_detail();
    } else if (status == TDM_OK) {
        status = tdm__result_document(channel->runtime, channel->conn, reply, &document);
        detail = status == TDM_OK ? "" : tdm_error_detail();
    }
    send_queue_take_reply(pending_call, call_id, status, detail, document);
}

/* Credit is for what came on this connection: after a resend the actor counts anew, and there
 * is none for what the one before it sent. */
void tdm__send_queue_send_credit(struct tdm__pending_call *pending_call, uint64_t items_taken)
{
    uint64_t credit =
        items_taken < pending_call->items_received ? items_taken : pending_call->items_received;

    if (credit > 0 && pending_call->call_id != 0 && pending_call->channel->conn != NULL) {
        tdm__conn_send_credit(pending_call->channel->conn, pending_call->call_id, credit);
    }
}

/* An item that has been offered keeps its place while it is fetched. */
struct coming_item {
    struct tdm__actor_channel *channel; /* held */
    uint64_t call_id;
    uint64_t index;
    tdm_ref *ref; /* held */
};

static void on_item_pulled(void *arg, tdm_status status, const char *detail,
                           struct tdm__large *large)
{
    struct coming_item *coming = arg;
    struct tdm__actor_channel *channel = coming->channel;
    tdm_runtime *runtime = channel->runtime;
    tdm_document *document = NULL;

    if (status == TDM_OK) {
        status = tdm__large_document(large, &document);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    if (status == TDM_OK) {
        tdm__reply_pins_acknowledge(runtime, channel->conn, coming->call_id, coming->index,
                                    document);
    }
    tdm__ref_complete(coming->ref, status == TDM_E_CLOSED ? TDM_E_VALUE_LOST : status, detail,
                      document);
    runtime->results_arrived = true;
    tdm_ref_release(coming->ref);
    free(coming);
    tdm__actor_channels_flush(runtime);
    tdm__actor_channel_release(channel);
}

static tdm_status fetch_item(struct tdm__pending_call *pending_call, uint64_t index,
                             struct tdm_bytes offer)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    struct coming_item *coming = calloc(1, sizeof(*coming));
    struct tdm__pull *pull;
    tdm_status status;

    if (coming == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an item of a stream");
    }
    *coming =
        (struct coming_item){.channel = channel, .call_id = pending_call->call_id, .index = index};
    status = tdm__pull_start(channel->runtime, channel->conn, offer, on_item_pulled, coming, &pull);
    if (status != TDM_OK) {
        free(coming);
        return status;
    }
    channel->holders_count++;
    status = tdm__stream_add_pending_item(pending_call->stream, index, &coming->ref);
    if (status != TDM_OK) {
        tdm__pull_abandon(pull);
        channel->holders_count--;
        free(coming);
    }
    return status;
}

static void on_item(void *arg, uint64_t index, struct tdm__rpc_reply *item)
{
    struct tdm__pending_call *pending_call = arg;
    struct tdm__actor_channel *channel = pending_call->channel;
    tdm_document *document = NULL;
    tdm_status status;

    pending_call->items_received = index;
    if (tdm__pull_is_offer(item->packed)) {
        status = pending_call->settled ? tdm__pull_decline(channel->conn, item->packed)
                                       : fetch_item(pending_call, index, item->packed);
        if (status != TDM_OK) {
            tdm__pending_call_complete(pending_call, status, tdm_error_detail(), NULL);
        }
        return;
    }
    status = tdm__result_document(channel->runtime, channel->conn, item, &document);
    if (status == TDM_OK) {
        tdm__reply_pins_acknowledge(channel->runtime, channel->conn, pending_call->call_id, index,
                                    document);
    }
    if (pending_call->settled) {
        tdm_document_destroy(document); /* nobody takes it: what it lent is given back */
        return;
    }
    tdm__stream_add_item(pending_call->stream, index, status, tdm_error_detail(), document);
}

/* ---- sending ---------------------------------------------------------------------------- */

/* Answers up to the first that is missing. */
static uint64_t acknowledged_with(const struct tdm__pending_call *pending_call)
{
    const struct tdm__pending_call *first = TAILQ_FIRST(&pending_call->channel->in_flight);

    return (first == NULL ? pending_call : first)->sequence - 1;
}

/* On this node: what is large need not travel. */
static bool is_same_node(const struct tdm__actor_channel *channel)
{
    return strcmp(channel->info.node_id, channel->runtime->node_id) == 0;
}

static bool is_ready(const struct tdm__pending_call *pending_call)
{
    return pending_call->arguments == NULL ||
           tdm__call_arguments_are_ready(pending_call->arguments);
}

static tdm_status put_arguments(struct tdm__pending_call *pending_call,
                                struct tdm__rpc_request *request)
{
    const struct tdm__actor_channel *channel = pending_call->channel;

    request->packed = pending_call->packed;
    return pending_call->arguments == NULL
               ? TDM_OK
               : tdm__call_arguments_pack(pending_call->arguments, channel->conn,
                                          is_same_node(channel), request);
}

static tdm_status send_call(struct tdm__pending_call *pending_call)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    struct tdm__rpc_request request = {.target = channel->id,
                                       .method = pending_call->method,
                                       .deadline_ms = pending_call->deadline_ms,
                                       .concurrency_group = pending_call->group,
                                       .on_item = pending_call->stream == NULL ? NULL : on_item,
                                       .call = &pending_call->call};

    TDM_TRY(put_arguments(pending_call, &request));
    if (pending_call->sequence == 0) {
        pending_call->sequence = ++channel->last_sequence;
    }
    pending_call->items_received = 0;
    request.sequence = pending_call->sequence;
    request.acknowledged = acknowledged_with(pending_call);
    channel->acknowledged = request.acknowledged;
    return tdm__conn_call(channel->conn, &request, on_reply, pending_call, &pending_call->call_id);
}

/* The next that may leave; NULL if it, or each of them, waits for an argument. */
static struct tdm__pending_call *first_ready(const struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call = TAILQ_FIRST(&channel->waiting);

    while (pending_call != NULL && !is_ready(pending_call)) {
        channel->runtime->calls_blocked = true;
        pending_call = channel->out_of_order ? TAILQ_NEXT(pending_call, entry) : NULL;
    }
    return pending_call;
}

static void send_ready(struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call;

    while (channel->state == TDM__CHANNEL_OPEN && (pending_call = first_ready(channel)) != NULL) {
        tdm_status status = send_call(pending_call);

        if (status != TDM_OK) {
            send_queue_finish_call(pending_call, status, tdm_error_detail(), NULL);
            continue;
        }
        send_queue_remove(pending_call);
        pending_call->in_flight = true;
        TAILQ_INSERT_TAIL(&channel->in_flight, pending_call, entry);
    }
}

/* What has to be sent again under its old number goes first. */
void tdm__send_queue_flush(struct tdm__actor_channel *channel)
{
    send_ready(channel);
    if (!TAILQ_EMPTY(&channel->retry_paused) && channel->state == TDM__CHANNEL_OPEN &&
        tdm__retry_resume(channel)) {
        send_ready(channel);
    }
}

/* A call whose argument failed has ended by itself: it may have been its channel's last, and
 * nobody holds that. */
static void channels_release_unused(tdm_runtime *runtime)
{
    struct tdm__actor_channel *channel = runtime->actor_channels;

    while (channel != NULL) {
        struct tdm__actor_channel *next = channel->next;

        tdm__handle_release_unused(channel);
        if (tdm__actor_channel_is_unused(channel)) {
            tdm__actor_channel_destroy(channel);
            next = runtime->actor_channels; /* others may have gone with it */
        }
        channel = next;
    }
}

void tdm__actor_channels_flush(tdm_runtime *runtime)
{
    bool pumped = false;

    while (runtime->calls_blocked && runtime->results_arrived) {
        pumped = true;
        runtime->calls_blocked = false;
        runtime->results_arrived = false;
        for (struct tdm__actor_channel *channel = runtime->actor_channels; channel != NULL;
             channel = channel->next) {
            tdm__actor_channel_send_arguments(channel);
            tdm__send_queue_flush(channel);
        }
    }
    if (pumped) {
        channels_release_unused(runtime);
    }
}

/* ---- deadlines -------------------------------------------------------------------------- */

static void send_queue_expire(struct tdm__pending_call *pending_call)
{
    send_queue_forget_call(pending_call);
    fail_expired(pending_call);
}

/* Ends those whose time is over; the deadline of the next. */
static int64_t expire_in(struct tdm__pending_calls *list, int64_t now_ms, int64_t next_ms)
{
    struct tdm__pending_call *next;

    for (struct tdm__pending_call *pending_call = TAILQ_FIRST(list); pending_call != NULL;
         pending_call = next) {
        next = TAILQ_NEXT(pending_call, entry);
        if (pending_call->deadline_ms <= now_ms) {
            send_queue_expire(pending_call);
        } else if (pending_call->deadline_ms < next_ms) {
            next_ms = pending_call->deadline_ms;
        }
    }
    return next_ms;
}

static void on_expiry(void *arg)
{
    struct tdm__actor_channel *channel = arg;
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = expire_in(&channel->waiting, now_ms, TDM__NEVER);

    next_ms = expire_in(&channel->retry_paused, now_ms, next_ms);
    channel->deadline_timer_at_ms = expire_in(&channel->in_flight, now_ms, next_ms);
    (void)tdm__timer_set(channel->deadline_timer,
                         channel->deadline_timer_at_ms); /* memory: it had some a moment ago */
    channel->holders_count++;
    tdm__send_queue_flush(channel);
    tdm__actor_channels_flush(channel->runtime);
    tdm__actor_channel_release(channel);
}

static tdm_status expect_expiry(struct tdm__actor_channel *channel, int64_t deadline_ms)
{
    if (deadline_ms >= channel->deadline_timer_at_ms) {
        return TDM_OK;
    }
    if (channel->deadline_timer == NULL) {
        TDM_TRY(tdm__timer_create(channel->runtime->loop, on_expiry, channel,
                                  &channel->deadline_timer));
    }
    TDM_TRY(tdm__timer_set(channel->deadline_timer, deadline_ms));
    channel->deadline_timer_at_ms = deadline_ms;
    return TDM_OK;
}

void tdm__send_queue_push(struct tdm__actor_channel *channel,
                          struct tdm__pending_call *pending_call)
{
    tdm_status status;

    pending_call->is_pending = true;
    channel->pending_count++;
    TAILQ_INSERT_TAIL(&channel->waiting, pending_call, entry);
    status = expect_expiry(channel, pending_call->deadline_ms);
    if (status != TDM_OK) {
        send_queue_finish_call(pending_call, status, tdm_error_detail(), NULL);
    }
    tdm__send_queue_flush(channel);
    tdm__actor_channels_flush(channel->runtime); /* a call that could not leave has a result, too */
}

void tdm__send_queue_move(struct tdm__actor_channel *from, struct tdm__actor_channel *to)
{
    struct tdm__pending_call *pending_call;

    TDM_ASSERT(TAILQ_EMPTY(&from->in_flight) && TAILQ_EMPTY(&from->retry_paused));
    while ((pending_call = TAILQ_FIRST(&from->waiting)) != NULL) {
        TAILQ_REMOVE(&from->waiting, pending_call, entry);
        from->pending_count -= pending_call->is_pending ? 1 : 0;
        pending_call->channel = to;
        tdm__send_queue_push(to, pending_call);
        if (to->state == TDM__CHANNEL_DEAD) {
            tdm__send_queue_fail_all(to, to->death_status, to->death_detail);
        }
    }
}

void tdm__send_queue_cancel(struct tdm__pending_call *pending_call, bool children)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    char detail[160];

    (void)snprintf(detail, sizeof(detail), "method %s of actor %s: the call was canceled",
                   pending_call->method, channel->label);
    channel->holders_count++;
    if (pending_call->in_flight && pending_call->call_id != 0) {
        tdm__conn_cancel_call(channel->conn, pending_call->call_id, children);
        tdm__pending_call_complete(pending_call, TDM_E_CANCELED, detail,
                                   NULL); /* the answer frees it */
    } else {
        send_queue_finish_call(pending_call, TDM_E_CANCELED, detail, NULL);
    }
    tdm__send_queue_flush(channel);
    tdm__actor_channels_flush(channel->runtime);
    tdm__actor_channel_release(channel);
}

/* ---- when the connection has ended ------------------------------------------------------ */

void tdm__send_queue_requeue_in_flight(struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call;

    while ((pending_call = TAILQ_LAST(&channel->in_flight, tdm__pending_calls)) != NULL) {
        send_queue_remove(pending_call);
        pending_call->call_id = 0;
        tdm__pull_abandon(pending_call->pull);
        pending_call->pull = NULL;
        if (pending_call->settled) {
            tdm__pending_call_destroy(pending_call); /* canceled */
        } else {
            TAILQ_INSERT_HEAD(&channel->waiting, pending_call, entry);
        }
    }
}

void tdm__send_queue_fail_unrepeatable(struct tdm__actor_channel *channel, const char *reason)
{
    struct tdm__pending_call *pending_call = TAILQ_FIRST(&channel->waiting);

    while (pending_call != NULL && pending_call->sequence != 0) {
        struct tdm__pending_call *next = TAILQ_NEXT(pending_call, entry);

        if (pending_call->retries_left == 0) {
            tdm__pending_call_fail(pending_call, TDM_E_ACTOR_RESTARTING, reason);
            send_queue_remove(pending_call);
            tdm__pending_call_destroy(pending_call);
        }
        pending_call = next;
    }
    tdm__actor_channels_flush(channel->runtime);
}

void tdm__send_queue_renumber(struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call;

    TAILQ_FOREACH(pending_call, &channel->waiting, entry)
    {
        if (pending_call->sequence != 0) {
            pending_call->sequence = 0;
            pending_call->retries_left -= pending_call->retries_left > 0 ? 1 : 0;
        }
    }
    channel->last_sequence = 0;
    channel->acknowledged = 0;
}

void tdm__send_queue_fail_all(struct tdm__actor_channel *channel, tdm_status status,
                              const char *reason)
{
    struct tdm__pending_call *pending_call;

    while ((pending_call = TAILQ_FIRST(&channel->in_flight)) != NULL) {
        send_queue_forget_call(pending_call);
        tdm__pending_call_fail(pending_call, status, reason);
        send_queue_remove(pending_call);
        tdm__pending_call_destroy(pending_call);
    }
    while ((pending_call = TAILQ_FIRST(&channel->retry_paused)) != NULL) {
        send_queue_finish_call(pending_call, status, reason, NULL);
    }
    while ((pending_call = TAILQ_FIRST(&channel->waiting)) != NULL) {
        if (pending_call->sequence != 0) {
            tdm__pending_call_fail(pending_call, status, reason);
        }
        send_queue_finish_call(pending_call, status, reason, NULL);
    }
    tdm__actor_channels_flush(channel->runtime); /* others may have waited for these results */
}
