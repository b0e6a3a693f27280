/* call_stream.h - the items of one streaming call, from their arrival until the user takes them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_STREAM_H
#define TDM_ACTORS_CLIENT_CALL_STREAM_H

#include "actors/client/client_records.h"

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
    /* The failure that ended the stream, owned, as a reference that holds the values which the
     * failure carries; NULL if it carries none. */
    tdm_ref *failure;
    /* Callback for the next item or the end (tdm_stream_on_item()); NULL if none is installed. */
    tdm_item_fn *on_item;
    void *on_item_arg; /* First argument of `on_item`, borrowed. */
    /* True from the time when an item or the end has come until `on_item` runs. */
    bool on_item_is_due;
    /* Retained; completed at the end of the call. NULL until tdm_stream_completed() creates it. */
    tdm_ref *completed;
};

/* Creates the stream of a call that has not been sent. Its holders are the user, until
 * tdm_stream_destroy(), and the call, until it is complete. */
tdm_status tdm__stream_create(struct tdm__pending_call *pending_call, tdm_stream **stream_out);
/* Appends an item that has arrived; `index` must be above `last_index`. Takes ownership of
 * `document`. */
tdm_status tdm__stream_add_item(tdm_stream *stream, uint64_t index, tdm_document *document);
/* Appends an item whose value is still being fetched. The caller completes `*ref_out`, which it
 * holds. */
tdm_status tdm__stream_add_pending_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out);
/* Ends the stream because its call is complete, and removes the call's hold. Takes ownership of
 * `values`, which the failure `status` carries; may be NULL. */
void tdm__stream_end(tdm_stream *stream, tdm_status status, const char *detail,
                     tdm_document *values);
/* Runs the callback of the stream now, without the loop's lock, and removes it. There must be one.
 */
void tdm__stream_run_callback(tdm_stream *stream, tdm_stream *argument);
/* Gives the reference that is completed when the call is, and adds a holder to it. */
tdm_status tdm__stream_completed(tdm_stream *stream, tdm_ref **ref_out);
/* Frees the items that the user has not taken. */
void tdm__stream_drop_items(tdm_stream *stream);
/* Removes a holder; the last one frees the stream. */
void tdm__stream_release(tdm_stream *stream);

#endif
