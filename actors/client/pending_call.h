/* pending_call.h - one call of this process, from its creation until its results have arrived. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_PENDING_CALL_H
#define TDM_ACTORS_CLIENT_PENDING_CALL_H

#include "actors/client/client_records.h"

/* Creates a call with its result references. Takes ownership of `arguments` on TDM_OK. `options`
 * may be NULL. */
tdm_status tdm__pending_call_create(struct tdm__actor_channel *channel, const char *method,
                                    const struct tdm_call_options *options, uint32_t refs_count,
                                    struct tdm__call_arguments *arguments,
                                    struct tdm__pending_call **pending_call_out);
/* Completes the result references with the value or the failure and ends the stream. Does
 * nothing if the call is complete. Takes ownership of `document`. */
void tdm__pending_call_complete(struct tdm__pending_call *pending_call, tdm_status status,
                                const char *detail, tdm_document *document);
/* Completes the call with a failure that this process detected. The text becomes "reason, in
 * method x, call 3, made 17 ms ago, probably started"; further lines of the reason follow.
 * `oldest_sequence` is the sequence number of the oldest call of the channel that was sent and has
 * not ended; a later call was perhaps waiting behind it. */
void tdm__pending_call_fail(struct tdm__pending_call *pending_call, tdm_status status,
                            const char *reason, uint64_t oldest_sequence);
/* Writes the method and the actor of the call into `text` and how far the call is, as far as its
 * caller knows. `oldest_sequence` is as in tdm__pending_call_fail(). */
void tdm__pending_call_describe(const struct tdm__pending_call *pending_call,
                                uint64_t oldest_sequence, char *text, size_t text_bytes);
/* Frees a call that is complete and in no list. */
void tdm__pending_call_destroy(struct tdm__pending_call *pending_call);

#endif
