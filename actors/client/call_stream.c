/* call_stream.c - the items of one streaming call, from their arrival until the user takes them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm_stream, a queue of items that have arrived and that the user has not taken.
 * The call appends items in order and ends the stream; the user takes items with
 * tdm_stream_next() (call_submit.c). send_queue.c drops items that arrive a second time, because
 * the call was sent again; it recognizes them by their index.
 *
 * The user and the call each hold the stream. Everything needs the loop's lock, except that a
 * stream may be destroyed after the runtime has stopped. */

#include "actors/client/call_stream.h"

#include "actors/objects/ref.h"
#include "actors/objects/ref_complete.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

tdm_status tdm__stream_create(struct tdm__pending_call *pending_call, tdm_stream **stream_out)
{
    tdm_stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a stream");
    }
    stream->runtime = pending_call->channel->runtime;
    stream->pending_call = pending_call;
    stream->holders_count = 2;
    STAILQ_INIT(&stream->items);
    pending_call->stream = stream;
    *stream_out = stream;
    return TDM_OK;
}

void tdm__stream_drop_items(tdm_stream *stream)
{
    struct stream_item *stream_item;

    while ((stream_item = STAILQ_FIRST(&stream->items)) != NULL) {
        STAILQ_REMOVE_HEAD(&stream->items, entry);
        tdm_ref_release(stream_item->ref);
        free(stream_item);
    }
}

void tdm__stream_release(tdm_stream *stream)
{
    stream->holders_count--;
    if (stream->holders_count == 0) {
        tdm__stream_drop_items(stream);
        tdm_ref_release(stream->failure);
        tdm_ref_release(stream->completed);
        free(stream->end_detail);
        free(stream);
    }
}

/* ---- the callback for the next item ---------------------------------------------------------- */

void tdm__stream_run_callback(tdm_stream *stream, tdm_stream *argument)
{
    struct tdm__loop *loop =
        stream->runtime == tdm_runtime_current() ? stream->runtime->loop : NULL;
    tdm_item_fn *fn = stream->on_item;
    void *arg = stream->on_item_arg;
    uint32_t depth;

    /* Without the lock other threads may set and call the next callback. */
    stream->on_item = NULL;
    stream->on_item_is_due = false;
    depth = loop == NULL ? 0 : tdm__loop_leave_all(loop);
    fn(arg, argument);
    if (loop != NULL) {
        tdm__loop_reenter(loop, depth);
    }
}

/* Runs a posted callback, unless the stream was destroyed meanwhile; the loop calls it with the
 * lock. */
static void on_callback_posted(void *arg)
{
    tdm_stream *stream = arg;

    if (stream->on_item != NULL) {
        tdm__stream_run_callback(stream, stream);
    }
    tdm__stream_release(stream);
}

/* Lets the callback run, because an item or the end has come. It is posted, so that it does not run
 * inside of the function that brought the item; while the runtime stops, posted functions no longer
 * run. */
static void stream_notify(tdm_stream *stream)
{
    if (stream->on_item == NULL || stream->on_item_is_due) {
        return;
    }
    stream->on_item_is_due = true;
    if (stream->runtime->is_stopping ||
        tdm__loop_post(stream->runtime->loop, on_callback_posted, stream) != TDM_OK) {
        tdm__stream_run_callback(stream, stream);
    } else {
        stream->holders_count++;
    }
}

/* ---- called for the call ------------------------------------------------------------------- */

/* Appends an item with an incomplete reference. */
static tdm_status stream_append_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out)
{
    struct stream_item *stream_item = calloc(1, sizeof(*stream_item));
    tdm_status status;

    if (stream_item == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an item of a stream");
    }
    status = tdm__ref_create(stream->runtime, &stream_item->ref);
    if (status != TDM_OK) {
        free(stream_item);
        return status;
    }
    stream_item->index = index;
    STAILQ_INSERT_TAIL(&stream->items, stream_item, entry);
    stream->last_index = index;
    *ref_out = stream_item->ref;
    return TDM_OK;
}

tdm_status tdm__stream_add_pending_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out)
{
    TDM_TRY(stream_append_item(stream, index, ref_out));
    tdm__ref_retain(*ref_out);
    stream_notify(stream);
    return TDM_OK;
}

tdm_status tdm__stream_add_item(tdm_stream *stream, uint64_t index, tdm_document *document)
{
    tdm_ref *ref;
    tdm_status status = stream_append_item(stream, index, &ref);

    if (status != TDM_OK) {
        tdm_document_destroy(document);
        return status;
    }
    tdm__ref_complete(ref, TDM_OK, NULL, document);
    stream_notify(stream);
    return TDM_OK;
}

/* Completes the reference to the end of the stream with an empty array or the failure. */
static void stream_complete_end(const tdm_stream *stream)
{
    static const struct tdm_bytes nothing = {"\x90", 1}; /* An empty array. */
    tdm_status status = stream->end_status == TDM_E_END ? TDM_OK : stream->end_status;
    tdm_document *document = NULL;

    if (status == TDM_OK) {
        status = tdm_document_parse(nothing, &document);
    } else if (stream->failure != NULL) {
        document = tdm__failure_values_copy(stream->failure->document);
    }
    tdm__ref_complete(stream->completed, status,
                      stream->end_detail == NULL ? "" : stream->end_detail, document);
}

tdm_status tdm__stream_completed(tdm_stream *stream, tdm_ref **ref_out)
{
    if (stream->completed == NULL) {
        TDM_TRY(tdm__ref_create(stream->runtime, &stream->completed));
        if (stream->pending_call == NULL) {
            stream_complete_end(stream);
        }
    }
    tdm__ref_retain(stream->completed);
    *ref_out = stream->completed;
    return TDM_OK;
}

/* Keeps the values that the failure of the stream carries. Without memory they are lost. */
static void stream_keep_failure(tdm_stream *stream, tdm_status status, tdm_document *values)
{
    if (tdm__ref_create(stream->runtime, &stream->failure) == TDM_OK) {
        tdm__ref_complete(stream->failure, status, NULL, values);
    } else {
        tdm_document_destroy(values);
    }
}

void tdm__stream_end(tdm_stream *stream, tdm_status status, const char *detail,
                     tdm_document *values)
{
    if (status != TDM_OK && values != NULL) {
        stream_keep_failure(stream, status, values);
    } else {
        tdm_document_destroy(values);
    }
    stream->pending_call->stream = NULL;
    stream->pending_call = NULL;
    stream->end_status = status == TDM_OK ? TDM_E_END : status;
    /* Without memory only the status is kept. */
    stream->end_detail = status == TDM_OK ? NULL : strdup(detail);
    if (stream->completed != NULL) {
        stream_complete_end(stream);
    }
    stream_notify(stream);
    tdm__stream_release(stream);
}
