/* call_stream.h - the items of one call, between their arrival and their taker. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CALL_STREAM_H
#define TDM_ACTORS_CLIENT_CALL_STREAM_H

#include "actors/client/pending_call.h"

/* Held by the user, until tdm_stream_destroy(), and by its call until that is settled. */

/* The stream of a call that is not sent yet: both know each other from here on. */
tdm_status tdm__stream_create(struct tdm__pending_call *pending_call, tdm_stream **stream_out);
/* An item has come.  One that came before, in a call that was sent again, is dropped.  Takes
 * `document`; a status other than TDM_OK says why there is none. */
void tdm__stream_add_item(tdm_stream *stream, uint64_t index, tdm_status status, const char *detail,
                          tdm_document *document);
/* One whose value is still to come: its place, to be completed by the caller of this, who holds
 * it. */
tdm_status tdm__stream_add_pending_item(tdm_stream *stream, uint64_t index, tdm_ref **ref_out);
/* Its call is settled: no more items.  Lets go of the call's hold. */
void tdm__stream_end(tdm_stream *stream, tdm_status status, const char *detail);

#endif
