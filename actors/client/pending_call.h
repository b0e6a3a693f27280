/* pending_call.h - one call of this process, from its creation until its results have arrived. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_PENDING_CALL_H
#define TDM_ACTORS_CLIENT_PENDING_CALL_H

#include "actors/objects/ref.h"
#include "runtime/rpc/rpc.h"

#include <sys/queue.h>

struct tdm__call_arguments;

/* A call of this process that has no result. All that a usual call needs is in one allocation:
 * with a thousand pending calls, each further allocation would be one more cache miss when the
 * reply arrives.
 *
 * A call is in the list `waiting` of its channel until it is sent, then in `in_flight` until the
 * reply arrives. A call that must be sent again after a lost connection returns to the front of
 * `waiting`; one that failed and is retried pauses in `retry_paused` first. The list owns the
 * call. */
struct tdm__pending_call {
    TAILQ_ENTRY(tdm__pending_call) entry; /* Link in one list of the channel. */
    struct tdm__actor_channel *channel;   /* Channel to the actor, borrowed. */
    const char *method; /* Name of the method, stored at the end of this allocation. */
    /* Owned; NULL if the arguments are small and stored in `packed`. */
    struct tdm__call_arguments *arguments;
    /* Small arguments, stored at the end of this allocation; otherwise {NULL, 0}. */
    struct tdm_bytes packed;
    tdm_stream *stream;        /* Held; NULL if the call is not a streaming one. */
    struct tdm__rpc_call call; /* Used by the connection while `call_id` is not 0. */
    /* Number of the call among those of its channel to one incarnation of the actor; 0 if it has
     * not been sent. */
    uint64_t sequence;
    /* Number of the call on the channel's connection; 0 if no reply is expected on it. */
    uint64_t call_id;
    uint64_t items_received; /* Number of stream items that have arrived on this connection. */
    /* Transfer of a large result that was offered; NULL if absent. */
    struct tdm__pull *pull;
    uint64_t pulled_call_id; /* Call id of the reply that offered the result in `pull`. */
    int64_t created_ms; /* Milliseconds on CLOCK_MONOTONIC, coarse, at which the call was made. */
    /* Milliseconds on CLOCK_MONOTONIC after which the call fails; TDM__NEVER for no deadline. */
    int64_t deadline_ms;
    int32_t retries_left; /* How often the call may be sent again; -1 for no limit. */
    /* Failures after which it is sent again, from the options of the call; TDM_OK ends the list. */
    tdm_status retry_failures[TDM_RETRY_FAILURES_MAX];
    uint32_t retry_pauses; /* Number of pauses so far (call_retry.h). */
    int64_t retry_at_ms;   /* Milliseconds on CLOCK_MONOTONIC at which the current pause ends. */
    uint64_t parent; /* Number of the method that made the call; 0 for none (child_calls.h). */
    uint32_t concurrency_group; /* Number of the concurrency group; 0 for that of the method. */
    bool is_pending;            /* True after the channel's `pending_count` has counted the call. */
    bool in_flight;             /* True while it is in the list `in_flight`. */
    bool retry_paused;          /* True while it is in the list `retry_paused`. */
    bool settled;               /* True after the results were set, or the call was canceled. */
    size_t size_bytes;          /* Size of this allocation. */
    uint32_t refs_count;        /* Number of entries in `refs`; 0 if the results are not needed. */
    /* Result references, held until the call is complete; each points back to this call
     * meanwhile. */
    tdm_ref *refs[];
};
TAILQ_HEAD(tdm__pending_calls, tdm__pending_call);

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
 * method x, call 3, 17 ms after it began"; further lines of the reason follow. */
void tdm__pending_call_fail(struct tdm__pending_call *pending_call, tdm_status status,
                            const char *reason);
/* Frees a call that is complete and in no list. */
void tdm__pending_call_destroy(struct tdm__pending_call *pending_call);

#endif
