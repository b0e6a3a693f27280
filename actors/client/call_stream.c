/* call_stream.c - the items of one call, between their arrival and their taker. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/call_stream.h"

#include "actors/client/actor_channel.h"
#include "actors/client/send_queue.h"
#include "actors/runtime.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

struct item {
    STAILQ_ENTRY(item) entry;
    uint64_t index;
    tdm_ref *ref; /* owned */
};

struct tdm_stream {
    tdm_runtime *runtime;                   /* borrowed */
    struct tdm__pending_call *pending_call; /* borrowed; NULL once it is settled */
    uint32_t holders_count;
    STAILQ_HEAD(, item) items; /* that have come and are not taken */
    uint64_t last_index;       /* that has come */
    uint64_t taken_index;
    tdm_status end_status;
    char *end_detail; /* owned; NULL when there is none */
    bool destroyed;   /* nobody takes any more */
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

static void drop_items(tdm_stream *stream)
{
    struct item *item;

    while ((item = STAILQ_FIRST(&stream->items)) != NULL) {
        STAILQ_REMOVE_HEAD(&stream->items, entry);
        tdm_ref_release(item->ref);
        free(item);
    }
}

static void stream_release(tdm_stream *stream)
{
    stream->holders_count--;
    if (stream->holders_count == 0) {
        drop_items(stream);
        free(stream->end_detail);
        free(stream);
    }
}

/* ---- told by the call ------------------------------------------------------------------- */

/* Its reference is not done. */
static tdm_status add_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out)
{
    struct item *item = calloc(1, sizeof(*item));
    tdm_status status;

    if (item == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an item of a stream");
    }
    status = tdm__ref_create(stream->runtime, &item->ref);
    if (status != TDM_OK) {
        free(item);
        return status;
    }
    item->index = index;
    STAILQ_INSERT_TAIL(&stream->items, item, entry);
    stream->last_index = index;
    *ref_out = item->ref;
    return TDM_OK;
}

tdm_status tdm__stream_add_pending_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out)
{
    TDM_TRY(add_item(stream, index, ref_out));
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
        status = add_item(stream, index, &ref);
        detail = tdm_error_detail();
    }
    if (status == TDM_OK) {
        tdm__ref_complete(ref, TDM_OK, NULL, document);
    } else { /* a gap would go unnoticed */
        tdm_document_destroy(document);
        tdm__pending_call_complete(pending_call, status, detail, NULL);
    }
}

void tdm__stream_end(tdm_stream *stream, tdm_status status, const char *detail)
{
    stream->pending_call->stream = NULL;
    stream->pending_call = NULL;
    stream->end_status = status == TDM_OK ? TDM_E_END : status;
    stream->end_detail = status == TDM_OK ? NULL : strdup(detail); /* or the status alone */
    stream_release(stream);
}

/* ---- the taker -------------------------------------------------------------------------- */

static bool has_news(void *arg)
{
    const tdm_stream *stream = arg;

    return !STAILQ_EMPTY(&stream->items) || stream->pending_call == NULL;
}

tdm_status tdm_stream_next(tdm_stream *stream, int64_t timeout_ms, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(stream);

    struct item *item;
    tdm_status status;
    TDM__LOCK(stream->runtime);

    status = has_news(stream) ? TDM_OK
                              : tdm__runtime_wait(stream->runtime, has_news, stream, timeout_ms);
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "no item after the %lluth within %lld ms",
                         (unsigned long long)stream->taken_index, (long long)timeout_ms);
    }
    TDM_TRY(status);
    item = STAILQ_FIRST(&stream->items);
    if (item == NULL) {
        return tdm__fail(stream->end_status, "%s",
                         stream->end_detail == NULL ? "the stream has ended" : stream->end_detail);
    }
    STAILQ_REMOVE_HEAD(&stream->items, entry);
    stream->taken_index = item->index;
    *ref_out = item->ref;
    free(item);
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
    drop_items(stream);
    if (stream->pending_call != NULL) {
        tdm__send_queue_cancel(stream->pending_call, false);
    }
    stream_release(stream);
}
