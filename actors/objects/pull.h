/* pull.h - large values of other nodes, fetched in chunks straight into shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_PULL_H
#define TDM_ACTORS_OBJECTS_PULL_H

#include "actors/objects/large_value.h"

/* Most bytes in one message of a pull, and most requests of one pull in flight. A value of up to
 * one chunk travels inside its message. Instead of a larger value its owner sends an offer, a
 * map where otherwise there is an array: {"pull": value_offer}. The reader fetches it with
 * "object.read" and then returns the export. */
enum { TDM__PULL_CHUNK_BYTES = 4 << 20, TDM__PULL_CHUNKS_IN_FLIGHT = 4 };

/* A value that is being fetched from another node. It frees itself after it has ended and no
 * request is in flight. Guarded by the loop's lock. */
struct tdm__pull;
/* Called once with the loop's lock when a pull has ended. On TDM_OK the receiver owns `large`;
 * else `detail` says what failed. The status is TDM_E_CLOSED if the connection closed before the
 * last chunk. */
typedef void tdm__pull_done_fn(void *arg, tdm_status status, const char *detail,
                               struct tdm__large *large);

/* Returns true if the packed bytes are an offer of a value that the reader must fetch, not the
 * value itself. */
bool tdm__pull_is_offer(struct tdm_bytes packed);
/* Starts to fetch the offered value from the process at the other end of `conn` and calls `fn`
 * later. If it fails, `fn` is not called. */
tdm_status tdm__pull_start(tdm_runtime *runtime, struct tdm__conn *conn, struct tdm_bytes offer,
                           tdm__pull_done_fn *fn, void *arg, struct tdm__pull **pull_out);
/* Prevents the callback of a pull and discards the chunks that still arrive. NULL is allowed. */
void tdm__pull_abandon(struct tdm__pull *pull);

/* Returns the offered export without fetching it. */
tdm_status tdm__pull_decline(struct tdm__conn *conn, struct tdm_bytes offer);

/* Replies to "object.read" with a chunk of an exported value. */
void tdm__pull_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

#endif
