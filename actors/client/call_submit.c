/* call_submit.c - the public functions that call an actor, stream from it, and cancel calls. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements tdm_actor_call() and its variants, tdm_actor_stream() and tdm_cancel(). Each takes
 * the loop's lock, packs the arguments (call_arguments.c), creates a pending call
 * (pending_call.c) and submits it to the actor's channel, which sends it or keeps it waiting
 * (send_queue.c). None of them waits for the reply.
 *
 * tdm_stream_next() waits for an item of a stream (call_stream.c), takes it, and sends credit so
 * that the actor may produce more. Any user thread may enter. A stream may be destroyed after the
 * runtime has stopped. */

#include "actors/client/actor_channel.h"
#include "actors/client/call_arguments.h"
#include "actors/client/call_stream.h"
#include "actors/client/child_calls.h"
#include "actors/client/pending_call.h"
#include "actors/client/send_queue.h"
#include "actors/objects/ref.h"
#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls ------------------------------------------------------------------------------ */

/* What a call is made of, besides its arguments. */
struct call_request {
    tdm_actor *actor;                       /* Borrowed from the user. */
    const char *method;                     /* Name of the method, borrowed. */
    const struct tdm_call_options *options; /* Borrowed; NULL for the defaults. */
};

/* Computes the number of results that the options ask for. */
static tdm_status call_count_results(const struct tdm_call_options *options, uint32_t *count_out)
{
    uint32_t count = options == NULL || options->results_count == 0 ? 1 : options->results_count;

    if (count > TDM_RESULTS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u results of one call, %d are possible", count,
                         (int)TDM_RESULTS_MAX);
    }
    *count_out = count;
    return TDM_OK;
}

/* Sets the caller's references to NULL if the call failed. Returns `status`. */
static tdm_status call_clear_refs_on_failure(tdm_status status,
                                             const struct tdm_call_options *options,
                                             tdm_ref **refs_out)
{
    uint32_t count = options == NULL || options->results_count == 0 ? 1 : options->results_count;

    if (status != TDM_OK && refs_out != NULL && count <= TDM_RESULTS_MAX) {
        memset(refs_out, 0, count * sizeof(*refs_out));
    }
    return status;
}

/* Fails if the runtime of the handle has stopped: then only the handle is left. */
static tdm_status handle_check(const tdm_actor *actor)
{
    return actor->runtime == NULL ? tdm__fail(TDM_E_STATE, "the actor's runtime has stopped")
                                  : TDM_OK;
}

/* Creates and submits a call and returns its result references, if `refs_out` is not NULL. Takes
 * ownership of `arguments`, also on failure. The caller holds the lock. */
static tdm_status call_submit(const struct call_request *call,
                              struct tdm__call_arguments *arguments, tdm_ref **refs_out)
{
    struct tdm__actor_channel *channel = call->actor->channel;
    struct tdm__pending_call *pending_call = NULL;
    tdm_ref *refs[TDM_RESULTS_MAX];
    uint32_t count = 0;
    tdm_status status = call_count_results(call->options, &count);

    count = refs_out == NULL ? 0 : count;
    if (status == TDM_OK) {
        status = tdm__runtime_check(channel->runtime);
    }
    if (status == TDM_OK) {
        status = tdm__pending_call_create(channel, call->method, call->options, count, arguments,
                                          &pending_call);
    }
    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    pending_call->parent = tdm__child_calls_parent();
    for (uint32_t i = 0; i < count; i++) {
        refs[i] = pending_call->refs[i];
        tdm__ref_retain(refs[i]);
    }
    status = tdm__actor_channel_submit(channel, pending_call);
    if (status != TDM_OK) {
        tdm__pending_call_complete(pending_call, status, tdm_error_detail(), NULL);
        tdm__pending_call_destroy(pending_call);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (status == TDM_OK) {
            refs_out[i] = refs[i];
        } else {
            tdm_ref_release(refs[i]);
        }
    }
    return status;
}

/* Packs the arguments and submits the call. */
static tdm_status call_submit_va(const struct call_request *call, tdm_ref **refs_out,
                                 const char *format, va_list args)
{
    struct tdm__call_arguments *arguments;

    TDM_TRY(handle_check(call->actor));
    /* The lock also protects the references among the arguments. */
    TDM__LOCK(call->actor->runtime);

    TDM_TRY(tdm__call_arguments_create(call->actor->runtime, format, args, &arguments));
    return call_submit(call, arguments, refs_out);
}

tdm_status tdm_actor_call(tdm_actor *actor, const char *method, tdm_ref **ref_out,
                          const char *format, ...)
{
    TDM__REQUIRE(actor);
    TDM__REQUIRE(method);
    TDM__REQUIRE(format);

    struct call_request call = {actor, method, NULL};
    tdm_status status;
    va_list args;

    va_start(args, format);
    status = call_submit_va(&call, ref_out, format, args);
    va_end(args);
    return call_clear_refs_on_failure(status, NULL, ref_out);
}

tdm_status tdm_actor_call_with(tdm_actor *actor, const char *method,
                               const struct tdm_call_options *options, tdm_ref **refs_out,
                               const char *format, ...)
{
    TDM__REQUIRE(actor);
    TDM__REQUIRE(method);
    TDM__REQUIRE(format);

    struct call_request call = {actor, method, options};
    tdm_status status;
    va_list args;

    va_start(args, format);
    status = call_submit_va(&call, refs_out, format, args);
    va_end(args);
    return call_clear_refs_on_failure(status, options, refs_out);
}

tdm_status tdm_actor_call_packed_with(tdm_actor *actor, const char *method,
                                      const struct tdm_call_options *options,
                                      struct tdm_bytes packed, tdm_ref **refs_out)
{
    TDM__REQUIRE(actor);
    TDM__REQUIRE(method);

    struct call_request call = {actor, method, options};
    struct tdm__call_arguments *arguments;
    tdm_status status = handle_check(actor);

    if (status != TDM_OK) {
        return call_clear_refs_on_failure(status, options, refs_out);
    }
    TDM__LOCK(actor->runtime);

    status = tdm__call_arguments_copy(actor->runtime, packed, &arguments);
    if (status == TDM_OK) {
        status = call_submit(&call, arguments, refs_out);
    }
    return call_clear_refs_on_failure(status, options, refs_out);
}

tdm_status tdm_actor_call_packed(tdm_actor *actor, const char *method, struct tdm_bytes packed,
                                 tdm_ref **ref_out)
{
    TDM__REQUIRE(actor);
    TDM__REQUIRE(method);

    return tdm_actor_call_packed_with(actor, method, NULL, packed, ref_out);
}

tdm_status tdm_actor_move_calls(tdm_actor *from, tdm_actor *to)
{
    TDM__REQUIRE(from);
    TDM__REQUIRE(to);

    TDM__LOCK(from->runtime);

    TDM_TRY(tdm__runtime_check(from->runtime));
    if (from->channel->state != TDM__CHANNEL_CREATING || from->channel->may_find_existing) {
        return tdm__fail(TDM_E_STATE, "actor %s does not wait for a place", from->channel->label);
    }
    if (from->channel != to->channel) {
        tdm__send_queue_move(from->channel, to->channel);
    }
    return TDM_OK;
}

/* ---- streams ---------------------------------------------------------------------------- */

/* Creates and submits a streaming call. Takes ownership of `arguments`, also on failure. The
 * caller holds the lock. */
static tdm_status stream_submit(const struct call_request *call,
                                struct tdm__call_arguments *arguments, tdm_stream **stream_out)
{
    struct tdm__actor_channel *channel = call->actor->channel;
    struct tdm__pending_call *pending_call;
    tdm_status status = tdm__runtime_check(channel->runtime);

    if (status == TDM_OK) {
        status = tdm__pending_call_create(channel, call->method, call->options, 0, arguments,
                                          &pending_call);
    }
    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    pending_call->parent = tdm__child_calls_parent();
    status = tdm__stream_create(pending_call, stream_out);
    if (status == TDM_OK) {
        status = tdm__actor_channel_submit(channel, pending_call);
        if (status == TDM_OK) {
            return TDM_OK;
        }
    }
    tdm__pending_call_complete(pending_call, status, tdm_error_detail(), NULL);
    tdm__pending_call_destroy(pending_call);
    return status;
}

tdm_status tdm_actor_stream(tdm_actor *actor, const char *method,
                            const struct tdm_call_options *options, tdm_stream **stream_out,
                            const char *format, ...)
{
    TDM__REQUIRE(stream_out);
    *stream_out = NULL;
    TDM__REQUIRE(actor);
    TDM__REQUIRE(method);
    TDM__REQUIRE(format);

    struct call_request call = {actor, method, options};
    struct tdm__call_arguments *arguments;
    tdm_stream *stream = NULL;
    tdm_status status;
    va_list args;

    TDM_TRY(handle_check(actor));
    TDM__LOCK(actor->runtime);

    va_start(args, format);
    status = tdm__call_arguments_create(actor->runtime, format, args, &arguments);
    va_end(args);
    TDM_TRY(status);
    status = stream_submit(&call, arguments, &stream);
    if (status != TDM_OK) {
        tdm_stream_destroy(stream);
        return status;
    }
    *stream_out = stream;
    return TDM_OK;
}

/* ---- reading a stream -------------------------------------------------------------------- */

/* Loop condition: returns true if an item has arrived or the stream has ended. */
static bool stream_has_item_or_end(void *arg)
{
    const tdm_stream *stream = arg;

    return !STAILQ_EMPTY(&stream->items) || stream->pending_call == NULL;
}

tdm_status tdm_stream_next(tdm_stream *stream, int64_t timeout_ms, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(stream);

    struct stream_item *stream_item;
    tdm_status status;
    TDM__LOCK(stream->runtime);

    status = stream_has_item_or_end(stream)
                 ? TDM_OK
                 : tdm__runtime_wait(stream->runtime, stream_has_item_or_end, stream, timeout_ms);
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "no item after the %lluth within %lld ms",
                         (unsigned long long)stream->taken_index, (long long)timeout_ms);
    }
    TDM_TRY(status);
    stream_item = STAILQ_FIRST(&stream->items);
    if (stream_item == NULL) {
        return tdm__fail(stream->end_status, "%s",
                         stream->end_detail == NULL ? "the stream has ended" : stream->end_detail);
    }
    STAILQ_REMOVE_HEAD(&stream->items, entry);
    stream->taken_index = stream_item->index;
    *ref_out = stream_item->ref;
    free(stream_item);
    if (stream->pending_call != NULL) {
        tdm__send_queue_send_credit(stream->pending_call, stream->taken_index);
    }
    return TDM_OK;
}

tdm_status tdm_stream_on_item(tdm_stream *stream, tdm_item_fn *fn, void *arg)
{
    TDM__REQUIRE(stream);
    TDM__REQUIRE(fn);

    TDM__LOCK(stream->runtime);

    if (stream->on_item != NULL) {
        return tdm__fail(TDM_E_STATE, "a callback waits for the next item of the stream already");
    }
    stream->on_item = fn;
    stream->on_item_arg = arg;
    if (stream_has_item_or_end(stream)) {
        tdm__stream_run_callback(stream, stream);
    }
    return TDM_OK;
}

const tdm_value *tdm_stream_failure(tdm_stream *stream)
{
    TDM__REQUIRE_OR(stream, NULL);

    /* Streams may be read after their runtime has stopped: there is no lock then. */
    TDM__LOOP_ENTER(stream->runtime == tdm_runtime_current() ? stream->runtime->loop : NULL);

    return stream->failure == NULL ? NULL : tdm_ref_failure(stream->failure);
}

tdm_status tdm_stream_completed(tdm_stream *stream, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(stream);

    TDM__LOCK(stream->runtime);

    TDM_TRY(tdm__runtime_check(stream->runtime));
    return tdm__stream_completed(stream, ref_out);
}

void tdm_stream_destroy(tdm_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    /* Streams may be destroyed after their runtime has stopped: there is no lock then. */
    TDM__LOOP_ENTER(stream->runtime == tdm_runtime_current() ? stream->runtime->loop : NULL);
    tdm__stream_drop_items(stream);
    if (stream->on_item != NULL) {
        tdm__stream_run_callback(stream, NULL);
    }
    if (stream->pending_call != NULL) {
        tdm__send_queue_cancel(stream->pending_call, false);
    }
    tdm__stream_release(stream);
}

/* ---- cancellation ----------------------------------------------------------------------- */

/* Reply of the daemon to "actor.kill". */
static void on_kill_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct tdm__actor_channel *channel = arg;

    if (reply->status != TDM_OK) {
        tdm__log(TDM__WARN, "channel", "forced cancellation: killing actor %s: %s", channel->label,
                 reply->detail);
    }
    tdm__actor_channel_release(channel);
}

/* Asks the daemon to kill the actor's process; an actor that may be restarted is. */
static tdm_status channel_kill_process(struct tdm__actor_channel *channel)
{
    struct tdm__rpc_request request = {.method = "actor.kill", .deadline_ms = TDM__NEVER};
    const struct tdm__actor_query_message query = {.actor = channel->id, .may_restart = true};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(channel->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        channel->holders_count++;
        status = tdm__conn_call(daemon, &request, on_kill_reply, channel, NULL);
        channel->holders_count -= status == TDM_OK ? 0 : 1;
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_cancel(tdm_ref *ref, int how)
{
    TDM__REQUIRE(ref);

    struct tdm__pending_call *pending_call;
    struct tdm__actor_channel *channel;
    tdm_status status = TDM_OK;
    bool in_flight;
    TDM__LOCK(ref->runtime);

    if (!ref->is_of_call) {
        return tdm__fail(TDM_E_STATE, "this reference is not the result of a call of this "
                                      "process: it cannot be canceled");
    }
    pending_call = ref->pending_call;
    if (pending_call == NULL) {
        return TDM_OK; /* The result has arrived. */
    }
    channel = pending_call->channel;
    channel->holders_count++;
    in_flight = pending_call->in_flight;
    tdm__send_queue_cancel(pending_call, (how & TDM_CANCEL_CHILDREN) != 0);
    if ((how & TDM_CANCEL_FORCE) != 0 && in_flight) {
        status = channel_kill_process(channel);
    }
    tdm__actor_channel_release(channel);
    return tdm__wrap(status, "forced cancellation");
}
