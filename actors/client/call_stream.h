/* call_stream.h - the items of one streaming call, from their arrival until the user takes them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_STREAM_H
#define TDM_ACTORS_CLIENT_CALL_STREAM_H

#include "actors/client/pending_call.h"

/* Creates the stream of a call that has not been sent. Its holders are the user, until
 * tdm_stream_destroy(), and the call, until it is complete. */
tdm_status tdm__stream_create(struct tdm__pending_call *pending_call, tdm_stream **stream_out);
/* Appends an item that has arrived. An item that arrived before, because the call was sent
 * again, is dropped. Takes ownership of `document`. A `status` other than TDM_OK fails the call. */
void tdm__stream_add_item(tdm_stream *stream, uint64_t index, tdm_status status, const char *detail,
                          tdm_document *document);
/* Appends an item whose value is still being fetched. The caller completes `*ref_out`, which it
 * holds. */
tdm_status tdm__stream_add_pending_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out);
/* Ends the stream because its call is complete, and removes the call's hold. */
void tdm__stream_end(tdm_stream *stream, tdm_status status, const char *detail);

#endif
