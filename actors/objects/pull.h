/* pull.h - large values of other nodes: fetched in chunks, straight into shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_PULL_H
#define TDM_ACTORS_OBJECTS_PULL_H

#include "actors/objects/large_value.h"

/* Up to a chunk a value travels inside the message.  Instead of a larger one its maker sends an
 * offer, one map where otherwise is an array: {"pull": (export_id, bytes)}.  The reader fetches it
 * by "object.read" (export_id, offset, bytes), several at a time, and returns the export_id. */
enum { TDM__PULL_CHUNK_BYTES = 4 << 20, TDM__PULL_CHUNKS_IN_FLIGHT = 4 };

struct tdm__pull;
/* Once; on TDM_OK `large` is the receiver's, else `detail` says why.  TDM_E_CLOSED where the
 * connection has ended midway. */
typedef void tdm__pull_done_fn(void *arg, tdm_status status, const char *detail,
                               struct tdm__large *large);

bool tdm__pull_is_offer(struct tdm_bytes packed);
/* fn runs later, unless this fails. */
tdm_status tdm__pull_start(tdm_runtime *runtime, struct tdm__conn *conn, struct tdm_bytes offer,
                           tdm__pull_done_fn *fn, void *arg, struct tdm__pull **pull_out);
/* fn will not run; what comes is thrown away.  NULL is allowed. */
void tdm__pull_abandon(struct tdm__pull *pull);

/* Gives the export_id back without fetching anything. */
tdm_status tdm__pull_decline(struct tdm__conn *conn, struct tdm_bytes offer);

/* Answers "object.read". */
void tdm__pull_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

#endif
