/* send_queue.c - the calls of a channel: their order, acknowledgment, repetition and deadlines. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the pending calls of a channel in three lists: `waiting`, `in_flight` and `retry_paused`.
 * A call is in exactly one of them from tdm__send_queue_push() until it is freed. Calls leave
 * `waiting` in order; a call whose arguments are not ready blocks the later ones unless the
 * actor allows out-of-order execution.
 *
 * When the connection closes, the calls in flight return to the front of `waiting`. They are sent
 * again under their old sequence numbers, so that the actor can repeat a cached reply. Large
 * results and items are pulled after the reply has offered them; until the value is here the call
 * has no reply.
 *
 * At most IN_FLIGHT_MAX calls are in flight. When that many are, the later ones wait until a
 * quarter of them have replies.
 *
 * Everything runs with the loop's lock. Completing a call may release the last holder of the
 * channel, so most functions add a holder first. docs/protocols/calls.md specifies sequence
 * numbers and acknowledgments. */

#include "actors/client/send_queue.h"

#include "actors/client/call_arguments.h"
#include "actors/client/call_retry.h"
#include "actors/client/call_stream.h"
#include "actors/client/client_records.h"
#include "actors/client/pending_call.h"
#include "actors/objects/large_message.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref_complete.h"
#include "actors/objects/reply_pins.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of unacknowledged replies after which an idle channel sends an acknowledgment. */
enum { UNACKNOWLEDGED_REPLIES_MAX = 64 };

/* Most calls of a channel, and most bytes of their arguments, that have been sent and have no
 * reply. Others wait in this process, so that a caller that makes a million calls does not fill the
 * actor's mailbox or the connection. */
enum { IN_FLIGHT_MAX = 100000, IN_FLIGHT_BYTES_MAX = 256 << 20 };

/* ---- the files above ----------------------------------------------------------------------- */

/* Sends the calls of all channels that wait for a result which has arrived. */
static void send_queue_wake_blocked_calls(tdm_runtime *runtime)
{
    const struct tdm__client *client = runtime->client;

    if (client->calls_blocked && client->results_arrived) {
        client->callbacks->send_ready_calls(runtime);
    }
}

/* Removes a holder of the channel, which may free the channel. */
static void send_queue_release_channel(struct tdm__actor_channel *channel)
{
    channel->runtime->client->callbacks->release_channel(channel);
}

/* ---- the calls of a channel ------------------------------------------------------------------ */

void tdm__send_queue_init(struct tdm__actor_channel *channel)
{
    TAILQ_INIT(&channel->waiting);
    TAILQ_INIT(&channel->in_flight);
    TAILQ_INIT(&channel->retry_paused);
    channel->in_flight_max = IN_FLIGHT_MAX;
    channel->in_flight_bytes_max = IN_FLIGHT_BYTES_MAX;
    channel->deadline_timer_at_ms = TDM__NEVER;
    channel->last_sequence = channel->runtime->client->last_sequence;
    channel->acknowledged_sequence = channel->last_sequence;
}

void tdm__send_queue_fini(struct tdm__actor_channel *channel)
{
    tdm_runtime *runtime = channel->runtime;

    TDM_ASSERT(tdm__send_queue_is_idle(channel));
    if (channel->last_sequence > runtime->client->last_sequence) {
        runtime->client->last_sequence = channel->last_sequence;
    }
    tdm__timer_destroy(channel->deadline_timer);
    tdm__timer_destroy(channel->retry_timer);
}

bool tdm__send_queue_is_idle(const struct tdm__actor_channel *channel)
{
    return TAILQ_EMPTY(&channel->waiting) && TAILQ_EMPTY(&channel->in_flight) &&
           TAILQ_EMPTY(&channel->retry_paused);
}

/* Removes the call from its list. */
static void send_queue_remove(struct tdm__pending_call *pending_call)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    struct tdm__pending_calls *list = pending_call->in_flight      ? &channel->in_flight
                                      : pending_call->retry_paused ? &channel->retry_paused
                                                                   : &channel->waiting;

    TAILQ_REMOVE(list, pending_call, entry);
    if (pending_call->in_flight) {
        channel->in_flight_count--;
        channel->in_flight_bytes -= pending_call->sent_bytes;
    }
    pending_call->in_flight = false;
    pending_call->retry_paused = false;
}

/* Tells the connection that no reply to the call is expected any more. */
static void send_queue_forget_call(struct tdm__pending_call *pending_call)
{
    if (pending_call->call_id != 0) {
        tdm__conn_forget_call(pending_call->channel->conn, pending_call->call_id);
        pending_call->call_id = 0;
    }
}

/* Completes and frees the call. */
static void send_queue_finish_call(struct tdm__pending_call *pending_call, tdm_status status,
                                   const char *detail, tdm_document *document)
{
    send_queue_remove(pending_call);
    tdm__pending_call_complete(pending_call, status, detail, document);
    tdm__pending_call_destroy(pending_call);
}

/* Returns the sequence number of the oldest call of the channel that was sent and has not ended; 0
 * if absent. After the connection has closed such calls are the first that wait. */
static uint64_t send_queue_oldest_sequence(const struct tdm__actor_channel *channel)
{
    const struct tdm__pending_call *first = TAILQ_FIRST(&channel->in_flight);

    first = first == NULL ? TAILQ_FIRST(&channel->waiting) : first;
    return first == NULL ? 0 : first->sequence;
}

void tdm__send_queue_describe_call(const struct tdm__pending_call *pending_call, char *text,
                                   size_t text_bytes)
{
    tdm__pending_call_describe(pending_call, send_queue_oldest_sequence(pending_call->channel),
                               text, text_bytes);
}

/* Fails the call because its deadline has passed, and frees it. */
static void send_queue_fail_expired(struct tdm__pending_call *pending_call)
{
    const struct tdm__actor_channel *channel = pending_call->channel;
    char reason[160];

    (void)snprintf(reason, sizeof(reason), "no reply from actor %s%s", channel->label,
                   pending_call->in_flight      ? ""
                   : pending_call->retry_paused ? ": it failed and was waiting to be retried"
                   : channel->state == TDM__CHANNEL_OPEN ? ": an argument is not ready"
                                                         : ": the actor is not connected");
    tdm__pending_call_fail(pending_call, TDM_E_TIMEOUT, reason,
                           send_queue_oldest_sequence(channel));
    send_queue_remove(pending_call);
    tdm__pending_call_destroy(pending_call);
}

/* ---- replies ----------------------------------------------------------------------------- */

/* Acknowledges the replies of an idle channel. Otherwise each call acknowledges the replies
 * before it. */
static void send_queue_acknowledge(struct tdm__actor_channel *channel)
{
    struct tdm__rpc_request request = {.target = channel->id,
                                       .method = TDM__ACKNOWLEDGE_METHOD,
                                       .packed = {"\x90", 1},
                                       .deadline_ms = TDM__NEVER,
                                       .acknowledged = channel->last_sequence};

    if (channel->state == TDM__CHANNEL_OPEN && tdm__send_queue_is_idle(channel) &&
        channel->last_sequence - channel->acknowledged_sequence >= UNACKNOWLEDGED_REPLIES_MAX) {
        channel->acknowledged_sequence = channel->last_sequence;
        if (tdm__conn_call(channel->conn, &request, NULL, NULL, NULL) != TDM_OK) {
            tdm__log(TDM__DEBUG, "channel", "acknowledging replies of %s: %s", channel->label,
                     tdm_error_detail());
        }
    }
}

/* Returns true if so many of the calls in flight have replies that waiting ones may follow. */
static bool send_queue_has_room_again(const struct tdm__actor_channel *channel)
{
    return channel->in_flight_is_full &&
           channel->in_flight_count <= channel->in_flight_max - channel->in_flight_max / 4 &&
           channel->in_flight_bytes <=
               channel->in_flight_bytes_max - channel->in_flight_bytes_max / 4;
}

/* Completes a call with the reply that has arrived, and sends calls that waited for the result or
 * for room. Takes ownership of `document`: the result, or the values that the failure carries, or
 * NULL. */
static void send_queue_take_reply(struct tdm__pending_call *pending_call, uint64_t call_id,
                                  tdm_status status, const char *detail, tdm_document *document)
{
    struct tdm__actor_channel *channel = pending_call->channel;

    if (document != NULL) {
        tdm__reply_pins_acknowledge(channel->runtime, channel->conn, call_id, 0, document);
    }
    channel->holders_count++;
    if (status == TDM_E_TIMEOUT && tdm__clock_ms() >= pending_call->deadline_ms) {
        tdm_document_destroy(document);
        send_queue_fail_expired(pending_call); /* The deadline was detected on this side. */
    } else {
        send_queue_finish_call(pending_call, status, detail, document);
    }
    if (send_queue_has_room_again(channel)) {
        tdm__send_queue_flush(channel);
    }
    send_queue_wake_blocked_calls(channel->runtime);
    send_queue_acknowledge(channel);
    send_queue_release_channel(channel);
}

/* Called when a large result has been pulled or that has failed. If the connection closed before
 * the end, the call is sent again and its result offered again. */
static void on_result_pulled(void *arg, tdm_status status, const char *detail,
                             struct tdm__large *large)
{
    struct tdm__pending_call *pending_call = arg;
    tdm_document *document = NULL;

    pending_call->pull = NULL;
    /* The channel has the connection of the pull: a connection that ends fails its requests before
     * the channel hears of it, and the channel abandons the pulls before it leaves a connection. */
    if (status == TDM_E_CLOSED && !tdm__conn_is_open(pending_call->channel->conn)) {
        return; /* The call is requeued by on_channel_closed(). */
    }
    if (status == TDM_OK) {
        status = tdm__large_document(large, &document);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    send_queue_take_reply(pending_call, pending_call->pulled_call_id, status, detail, document);
}

/* Timer: sends the calls whose pause is over. */
static void on_retry_timer(void *arg)
{
    struct tdm__actor_channel *channel = arg;

    channel->holders_count++;
    tdm__send_queue_flush(channel);
    send_queue_wake_blocked_calls(channel->runtime);
    send_queue_release_channel(channel);
}

/* Repeats a call after a pause, because the actor replied with a failure that its caller allows to
 * be retried. Takes ownership of `values`, which that failure carries; may be NULL. */
static void send_queue_retry(struct tdm__pending_call *pending_call, uint64_t call_id,
                             tdm_document *values)
{
    struct tdm__actor_channel *channel = pending_call->channel;

    if (values != NULL) {
        tdm__reply_pins_acknowledge(channel->runtime, channel->conn, call_id, 0, values);
        tdm_document_destroy(values);
    }
    send_queue_remove(pending_call);
    tdm__retry_pause(pending_call, on_retry_timer);
    tdm__send_queue_flush(channel);
}

/* Reply of the actor: retries, pulls or completes the call. */
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
        return; /* The call is requeued by on_channel_closed(). */
    }
    channel->lost_since_ms = 0;
    if (status != TDM_OK) {
        tdm__result_return_lost(channel->conn, reply);
        document = tdm__failure_document(reply);
    }
    if (tdm__retry_is_due(pending_call, status)) {
        send_queue_retry(pending_call, call_id, document);
        return;
    }
    if (status == TDM_OK && tdm__pull_is_offer(reply->packed)) {
        pending_call->pulled_call_id = call_id;
        status = tdm__pull_start(channel->runtime, channel->conn, reply->packed, on_result_pulled,
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

/* Credit counts items that arrived on this connection. After the call was sent again the actor
 * counts from 0, and items of the earlier connection give no credit. */
void tdm__send_queue_send_credit(struct tdm__pending_call *pending_call, uint64_t items_taken)
{
    uint64_t credit =
        items_taken < pending_call->items_received ? items_taken : pending_call->items_received;

    if (credit > 0 && pending_call->call_id != 0 && pending_call->channel->conn != NULL) {
        tdm__conn_send_credit(pending_call->channel->conn, pending_call->call_id, credit);
    }
}

/* A stream item that is being pulled. Its reference is already in the stream. */
struct pulled_item {
    struct tdm__actor_channel *channel; /* Channel on which the item arrived, held. */
    uint64_t call_id;                   /* Call on whose connection the item arrived. */
    uint64_t index;                     /* Number of the item in its stream. */
    tdm_ref *ref;                       /* Held; completed when the value has arrived. */
};

/* Called when an item has been pulled or that has failed: completes its reference. */
static void on_item_pulled(void *arg, tdm_status status, const char *detail,
                           struct tdm__large *large)
{
    struct pulled_item *pulled = arg;
    struct tdm__actor_channel *channel = pulled->channel;
    tdm_runtime *runtime = channel->runtime;
    tdm_document *document = NULL;

    if (status == TDM_OK) {
        status = tdm__large_document(large, &document);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    if (status == TDM_OK) {
        tdm__reply_pins_acknowledge(runtime, channel->conn, pulled->call_id, pulled->index,
                                    document);
    }
    tdm__ref_complete(pulled->ref, status == TDM_E_CLOSED ? TDM_E_VALUE_LOST : status, detail,
                      document);
    runtime->client->results_arrived = true;
    tdm_ref_release(pulled->ref);
    free(pulled);
    send_queue_wake_blocked_calls(runtime);
    send_queue_release_channel(channel);
}

/* Starts to pull an offered item and appends its incomplete reference to the stream. */
static tdm_status send_queue_pull_item(struct tdm__pending_call *pending_call, uint64_t index,
                                       struct tdm_bytes offer)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    struct pulled_item *pulled = calloc(1, sizeof(*pulled));
    struct tdm__pull *pull;
    tdm_status status;

    if (pulled == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an item of a stream");
    }
    *pulled =
        (struct pulled_item){.channel = channel, .call_id = pending_call->call_id, .index = index};
    status = tdm__pull_start(channel->runtime, channel->conn, offer, on_item_pulled, pulled, &pull);
    if (status != TDM_OK) {
        free(pulled);
        return status;
    }
    channel->holders_count++;
    status = tdm__stream_add_pending_item(pending_call->stream, index, &pulled->ref);
    if (status != TDM_OK) {
        tdm__pull_abandon(pull);
        channel->holders_count--;
        free(pulled);
    }
    return status;
}

/* Appends an item that has arrived to the stream of its call. An item that arrived before, because
 * the call was sent again, is dropped. Takes ownership of `document`. A `status` other than TDM_OK,
 * whose text is this thread's error detail, fails the call. */
static void send_queue_add_item(struct tdm__pending_call *pending_call, uint64_t index,
                                tdm_status status, tdm_document *document)
{
    tdm_stream *stream = pending_call->stream;

    if (index <= stream->last_index) {
        tdm__send_queue_send_credit(pending_call, stream->taken_index);
        tdm_document_destroy(document);
        return;
    }
    if (status == TDM_OK) {
        status = tdm__stream_add_item(stream, index, document);
    } else {
        tdm_document_destroy(document);
    }
    if (status != TDM_OK) { /* Without this item the stream would have a gap, so the call fails. */
        tdm__pending_call_complete(pending_call, status, tdm_error_detail(), NULL);
    }
}

/* An item of a streaming call has arrived. */
static void on_item(void *arg, uint64_t index, struct tdm__rpc_reply *item)
{
    struct tdm__pending_call *pending_call = arg;
    struct tdm__actor_channel *channel = pending_call->channel;
    tdm_document *document = NULL;
    tdm_status status;

    pending_call->items_received = index;
    if (item->status != TDM_OK) { /* Its descriptor was lost. */
        tdm__result_return_lost(channel->conn, item);
        if (!pending_call->settled) {
            tdm__pending_call_complete(pending_call, item->status, item->detail, NULL);
        }
        return;
    }
    if (tdm__pull_is_offer(item->packed)) {
        status = pending_call->settled ? tdm__pull_decline(channel->conn, item->packed)
                                       : send_queue_pull_item(pending_call, index, item->packed);
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
        /* The stream has ended; destroying the document returns what was exported. */
        tdm_document_destroy(document);
        return;
    }
    send_queue_add_item(pending_call, index, status, document);
}

/* ---- sending ----------------------------------------------------------------------------- */

/* Returns the sequence number up to which all replies have arrived. */
static uint64_t send_queue_acknowledged_by(const struct tdm__pending_call *pending_call)
{
    const struct tdm__pending_call *first = TAILQ_FIRST(&pending_call->channel->in_flight);

    return (first == NULL ? pending_call : first)->sequence - 1;
}

/* Returns true if the actor is on this node, so that large values are passed in shared memory. */
static bool channel_is_same_node(const struct tdm__actor_channel *channel)
{
    return strcmp(channel->info.node_id, channel->runtime->node_id) == 0;
}

/* Returns true if all references among the arguments are complete. */
static bool pending_call_is_ready(const struct tdm__pending_call *pending_call)
{
    return pending_call->arguments == NULL ||
           tdm__call_arguments_are_ready(pending_call->arguments);
}

/* Fills in the arguments of the request. */
static tdm_status request_set_arguments(struct tdm__pending_call *pending_call,
                                        struct tdm__rpc_request *request)
{
    const struct tdm__actor_channel *channel = pending_call->channel;

    request->packed = pending_call->packed;
    return pending_call->arguments == NULL
               ? TDM_OK
               : tdm__call_arguments_pack(pending_call->arguments, channel->conn,
                                          channel_is_same_node(channel), request);
}

/* Sends the call over the channel's connection. */
static tdm_status send_queue_send_call(struct tdm__pending_call *pending_call)
{
    struct tdm__actor_channel *channel = pending_call->channel;
    struct tdm__rpc_request request = {.target = channel->id,
                                       .method = pending_call->method,
                                       .deadline_ms = pending_call->deadline_ms,
                                       .concurrency_group = pending_call->concurrency_group,
                                       .on_item = pending_call->stream == NULL ? NULL : on_item,
                                       .call = &pending_call->call};

    TDM_TRY(request_set_arguments(pending_call, &request));
    if (pending_call->sequence == 0) {
        pending_call->sequence = ++channel->last_sequence;
    }
    pending_call->items_received = 0;
    pending_call->sent_bytes = (uint32_t)request.packed.size_bytes;
    request.sequence = pending_call->sequence;
    request.acknowledged = send_queue_acknowledged_by(pending_call);
    channel->acknowledged_sequence = request.acknowledged;
    return tdm__conn_call(channel->conn, &request, on_reply, pending_call, &pending_call->call_id);
}

/* Returns the next call that may leave; NULL if the first one waits for an argument, or all of
 * them if their order does not matter. */
static struct tdm__pending_call *send_queue_first_ready(const struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call = TAILQ_FIRST(&channel->waiting);

    while (pending_call != NULL && !pending_call_is_ready(pending_call)) {
        channel->runtime->client->calls_blocked = true;
        pending_call = channel->out_of_order ? TAILQ_NEXT(pending_call, entry) : NULL;
    }
    return pending_call;
}

/* Returns true if one more call may be in flight, and records whether it may. */
static bool send_queue_has_room(struct tdm__actor_channel *channel)
{
    channel->in_flight_is_full = channel->in_flight_count >= channel->in_flight_max ||
                                 channel->in_flight_bytes >= channel->in_flight_bytes_max;
    return !channel->in_flight_is_full;
}

/* Sends all calls that may leave. */
static void send_queue_send_ready(struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call;

    while (channel->state == TDM__CHANNEL_OPEN && send_queue_has_room(channel) &&
           (pending_call = send_queue_first_ready(channel)) != NULL) {
        tdm_status status = send_queue_send_call(pending_call);

        if (status != TDM_OK) {
            send_queue_finish_call(pending_call, status, tdm_error_detail(),
                                   pending_call->arguments == NULL
                                       ? NULL
                                       : tdm__call_arguments_failure(pending_call->arguments));
            continue;
        }
        send_queue_remove(pending_call);
        pending_call->in_flight = true;
        channel->in_flight_count++;
        channel->in_flight_bytes += pending_call->sent_bytes;
        TAILQ_INSERT_TAIL(&channel->in_flight, pending_call, entry);
    }
}

/* Calls that were sent before keep their old number, so they leave before retried ones. */
void tdm__send_queue_flush(struct tdm__actor_channel *channel)
{
    send_queue_send_ready(channel);
    if (!TAILQ_EMPTY(&channel->retry_paused) && channel->state == TDM__CHANNEL_OPEN &&
        tdm__retry_resume(channel)) {
        send_queue_send_ready(channel);
    }
}

/* ---- deadlines --------------------------------------------------------------------------- */

/* Fails one call whose deadline has passed. */
static void send_queue_expire(struct tdm__pending_call *pending_call)
{
    send_queue_forget_call(pending_call);
    send_queue_fail_expired(pending_call);
}

/* Fails the calls of the list whose deadline has passed. Returns the earliest deadline of the
 * others, or `next_ms` if that is earlier. */
static int64_t send_queue_expire_list(struct tdm__pending_calls *list, int64_t now_ms,
                                      int64_t next_ms)
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

/* Timer: fails calls whose deadline has passed. */
static void on_deadline_timer(void *arg)
{
    struct tdm__actor_channel *channel = arg;
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = send_queue_expire_list(&channel->waiting, now_ms, TDM__NEVER);

    next_ms = send_queue_expire_list(&channel->retry_paused, now_ms, next_ms);
    channel->deadline_timer_at_ms = send_queue_expire_list(&channel->in_flight, now_ms, next_ms);
    (void)tdm__timer_set(channel->deadline_timer,
                         /* Cannot fail, since the timer was set before. */
                         channel->deadline_timer_at_ms);
    channel->holders_count++;
    tdm__send_queue_flush(channel);
    send_queue_wake_blocked_calls(channel->runtime);
    send_queue_release_channel(channel);
}

/* Sets the deadline timer unless it fires earlier anyway. */
static tdm_status send_queue_arm_deadline(struct tdm__actor_channel *channel, int64_t deadline_ms)
{
    if (deadline_ms >= channel->deadline_timer_at_ms) {
        return TDM_OK;
    }
    if (channel->deadline_timer == NULL) {
        TDM_TRY(tdm__timer_create(channel->runtime->loop, on_deadline_timer, channel,
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
    status = send_queue_arm_deadline(channel, pending_call->deadline_ms);
    if (status != TDM_OK) {
        send_queue_finish_call(pending_call, status, tdm_error_detail(), NULL);
    }
    tdm__send_queue_flush(channel);
    /* A call that could not be sent has a result, too, which other calls may wait for. */
    send_queue_wake_blocked_calls(channel->runtime);
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
                                   NULL); /* The actor's reply frees the call. */
    } else {
        send_queue_finish_call(pending_call, TDM_E_CANCELED, detail, NULL);
    }
    tdm__send_queue_flush(channel);
    send_queue_wake_blocked_calls(channel->runtime);
    send_queue_release_channel(channel);
}

/* ---- after the connection has closed ----------------------------------------------------- */

void tdm__send_queue_requeue_in_flight(struct tdm__actor_channel *channel)
{
    struct tdm__pending_call *pending_call;

    while ((pending_call = TAILQ_LAST(&channel->in_flight, tdm__pending_calls)) != NULL) {
        send_queue_remove(pending_call);
        pending_call->call_id = 0;
        tdm__pull_abandon(pending_call->pull);
        pending_call->pull = NULL;
        if (pending_call->settled) {
            tdm__pending_call_destroy(pending_call); /* The call was canceled. */
        } else {
            TAILQ_INSERT_HEAD(&channel->waiting, pending_call, entry);
        }
    }
}

void tdm__send_queue_fail_unrepeatable(struct tdm__actor_channel *channel, const char *reason)
{
    struct tdm__pending_call *pending_call = TAILQ_FIRST(&channel->waiting);
    uint64_t oldest_sequence = send_queue_oldest_sequence(channel);

    while (pending_call != NULL && pending_call->sequence != 0) {
        struct tdm__pending_call *next = TAILQ_NEXT(pending_call, entry);

        if (pending_call->retries_left == 0) {
            tdm__pending_call_fail(pending_call, TDM_E_ACTOR_RESTARTING, reason, oldest_sequence);
            send_queue_remove(pending_call);
            tdm__pending_call_destroy(pending_call);
        }
        pending_call = next;
    }
    send_queue_wake_blocked_calls(channel->runtime);
}

/* Fails the calls of one list that may not be retried. */
static void send_queue_fail_list_unretried(struct tdm__pending_calls *list, tdm_status status,
                                           const char *reason, uint64_t oldest_sequence)
{
    struct tdm__pending_call *next;

    for (struct tdm__pending_call *pending_call = TAILQ_FIRST(list); pending_call != NULL;
         pending_call = next) {
        next = TAILQ_NEXT(pending_call, entry);
        if (pending_call->retries_left == 0) {
            send_queue_forget_call(pending_call);
            tdm__pending_call_fail(pending_call, status, reason, oldest_sequence);
            send_queue_remove(pending_call);
            tdm__pending_call_destroy(pending_call);
        }
    }
}

void tdm__send_queue_fail_unretried(struct tdm__actor_channel *channel, tdm_status status,
                                    const char *reason)
{
    uint64_t oldest_sequence = send_queue_oldest_sequence(channel);

    send_queue_fail_list_unretried(&channel->in_flight, status, reason, oldest_sequence);
    send_queue_fail_list_unretried(&channel->waiting, status, reason, oldest_sequence);
    send_queue_wake_blocked_calls(channel->runtime);
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
    channel->acknowledged_sequence = 0;
}

/* Fails a call that is not in flight, and frees it. The text names the method, unless the actor has
 * never lived: then it says why the actor could not be created. */
static void send_queue_fail_unsent(struct tdm__pending_call *pending_call, tdm_status status,
                                   const char *reason, uint64_t oldest_sequence)
{
    if (pending_call->channel->info.pid != 0) {
        tdm__pending_call_fail(pending_call, status, reason, oldest_sequence);
    }
    send_queue_finish_call(pending_call, status, reason, NULL);
}

void tdm__send_queue_fail_all(struct tdm__actor_channel *channel, tdm_status status,
                              const char *reason)
{
    struct tdm__pending_call *pending_call;
    uint64_t oldest_sequence = send_queue_oldest_sequence(channel);

    while ((pending_call = TAILQ_FIRST(&channel->in_flight)) != NULL) {
        send_queue_forget_call(pending_call);
        tdm__pending_call_fail(pending_call, status, reason, oldest_sequence);
        send_queue_remove(pending_call);
        tdm__pending_call_destroy(pending_call);
    }
    while ((pending_call = TAILQ_FIRST(&channel->retry_paused)) != NULL) {
        send_queue_fail_unsent(pending_call, status, reason, oldest_sequence);
    }
    while ((pending_call = TAILQ_FIRST(&channel->waiting)) != NULL) {
        send_queue_fail_unsent(pending_call, status, reason, oldest_sequence);
    }
    /* Calls of other channels may have waited for these results. */
    send_queue_wake_blocked_calls(channel->runtime);
}
