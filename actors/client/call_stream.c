/* call_stream.c - the items of one streaming call, from their arrival until the user takes them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm_stream, a queue of items that have arrived and that the user has not taken.
 * The call appends items in order and ends the stream; the user takes items with
 * tdm_stream_next(), which sends credit so that the actor may produce more. Items that arrive a
 * second time, because the call was sent again, are recognized by their index and dropped.
 *
 * The user and the call each hold the stream. Everything needs the loop's lock, except that a
 * stream may be destroyed after the runtime has stopped. */

#include "actors/client/call_stream.h"

#include "actors/client/actor_channel.h"
#include "actors/client/send_queue.h"
#include "actors/objects/ref_complete.h"
#include "actors/process/runtime.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* An item that the user has not taken. */
struct stream_item {
    STAILQ_ENTRY(stream_item) entry; /* Link in the stream's list. */
    uint64_t index;                  /* Number of the item in the stream, from 1. */
    tdm_ref *ref;                    /* Owned; completed when the value has arrived. */
};

/* A stream of items. Held by the user and by its call. */
struct tdm_stream {
    tdm_runtime *runtime;                   /* The runtime that it belongs to, borrowed. */
    struct tdm__pending_call *pending_call; /* Borrowed; NULL after the call is complete. */
    uint32_t holders_count; /* Number of holders: the user, and the call until it is complete. */
    STAILQ_HEAD(, stream_item) items; /* Items that have arrived and are not taken, in order. */
    uint64_t last_index; /* Number of the newest item that has arrived; 0 before the first. */
    /* Number of the newest item that the user has taken; 0 before the first. */
    uint64_t taken_index;
    tdm_status end_status; /* Status of tdm_stream_next() after the last item. */
    char *end_detail;      /* Text for `end_status`, owned; NULL if absent. */
    bool destroyed;        /* True after the user has destroyed the stream. */
};

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

/* Frees the items that the user has not taken. */
static void stream_drop_items(tdm_stream *stream)
{
    struct stream_item *stream_item;

    while ((stream_item = STAILQ_FIRST(&stream->items)) != NULL) {
        STAILQ_REMOVE_HEAD(&stream->items, entry);
        tdm_ref_release(stream_item->ref);
        free(stream_item);
    }
}

/* Removes a holder; the last one frees the stream. */
static void stream_release(tdm_stream *stream)
{
    stream->holders_count--;
    if (stream->holders_count == 0) {
        stream_drop_items(stream);
        free(stream->end_detail);
        free(stream);
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
    return TDM_OK;
}

void tdm__stream_add_item(tdm_stream *stream, uint64_t index, tdm_status status, const char *detail,
                          tdm_document *document)
{
    struct tdm__pending_call *pending_call = stream->pending_call;
    tdm_ref *ref;

    if (index <= stream->last_index) {
        tdm__send_queue_send_credit(pending_call, stream->taken_index);
        tdm_document_destroy(document);
        return;
    }
    if (status == TDM_OK) {
        status = stream_append_item(stream, index, &ref);
        detail = tdm_error_detail();
    }
    if (status == TDM_OK) {
        tdm__ref_complete(ref, TDM_OK, NULL, document);
    } else { /* Without this item the stream would have a gap, so the call fails. */
        tdm_document_destroy(document);
        tdm__pending_call_complete(pending_call, status, detail, NULL);
    }
}

void tdm__stream_end(tdm_stream *stream, tdm_status status, const char *detail)
{
    stream->pending_call->stream = NULL;
    stream->pending_call = NULL;
    stream->end_status = status == TDM_OK ? TDM_E_END : status;
    /* Without memory only the status is kept. */
    stream->end_detail = status == TDM_OK ? NULL : strdup(detail);
    stream_release(stream);
}

/* ---- the user's side ----------------------------------------------------------------------- */

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

void tdm_stream_destroy(tdm_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    /* Streams may be destroyed after their runtime has stopped: there is no lock then. */
    TDM__LOOP_ENTER(stream->runtime == tdm_runtime_current() ? stream->runtime->loop : NULL);
    stream_drop_items(stream);
    if (stream->pending_call != NULL) {
        tdm__send_queue_cancel(stream->pending_call, false);
    }
    stream_release(stream);
}
