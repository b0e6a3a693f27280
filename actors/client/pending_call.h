/* pending_call.h - one call of this process, from when it is made until its results are there. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_PENDING_CALL_H
#define TDM_ACTORS_CLIENT_PENDING_CALL_H

#include "actors/objects/ref.h"
#include "runtime/rpc/rpc.h"

#include <sys/queue.h>

struct tdm__call_arguments;

/* One piece of memory for all that a usual call needs: with a thousand of them under way, each
 * further piece is one more that is cold by the time its reply comes.
 *
 * In `waiting` of its channel until it is sent, in `in_flight` until it is answered; what has to be
 * sent again is back in `waiting`, in front, and what failed and is made again in `retry_paused`
 * before that. */
struct tdm__pending_call {
    TAILQ_ENTRY(tdm__pending_call) entry;
    struct tdm__actor_channel *channel;    /* borrowed */
    const char *method;                    /* at the end of this memory */
    struct tdm__call_arguments *arguments; /* owned; NULL for small ones, which are … */
    struct tdm_bytes packed;               /* … at the end of this memory, too */
    tdm_stream *stream;                    /* held; NULL for ordinary calls */
    struct tdm__rpc_call call;             /* lent to the connection while call_id is not 0 */
    uint64_t sequence;       /* among those of its channel to one incarnation; 0: not sent to it */
    uint64_t call_id;        /* on the channel's connection; 0: not sent on it */
    uint64_t items_received; /* that came on it */
    struct tdm__pull *pull;  /* of its result, which has been offered; or NULL */
    uint64_t pulled_call_id; /* the call_id that had */
    int64_t made_ms;         /* about */
    int64_t deadline_ms;
    int32_t retries_left;                              /* -1: without end */
    tdm_status retry_failures[TDM_RETRY_FAILURES_MAX]; /* as in the call's options */
    uint32_t retry_pauses;                             /* that it has made: call_retry.h */
    int64_t retry_at_ms;                               /* the end of this one */
    uint64_t parent;                                   /* whose method made it: child_calls.h */
    uint32_t group;  /* number of its concurrency group; 0: the method's own */
    bool is_pending; /* counted by its channel */
    bool in_flight;
    bool retry_paused;
    bool settled;        /* the results are there, or nobody wants them */
    size_t size_bytes;   /* of this memory */
    uint32_t refs_count; /* 0: the results do not matter */
    tdm_ref *refs[];     /* held until settled; they know this call meanwhile */
};
TAILQ_HEAD(tdm__pending_calls, tdm__pending_call);

/* Makes it and its references.  Takes `arguments` on TDM_OK. */
tdm_status tdm__pending_call_create(struct tdm__actor_channel *channel, const char *method,
                                    const struct tdm_call_options *options, uint32_t refs_count,
                                    struct tdm__call_arguments *arguments,
                                    struct tdm__pending_call **pending_call_out);
/* The results are there, or why not; nothing if it is settled.  Takes `document`. */
void tdm__pending_call_complete(struct tdm__pending_call *pending_call, tdm_status status,
                                const char *detail, tdm_document *document);
/* The same for a failure that was decided on this side: "reason, in method x, call 3, 17 ms
 * after it began", the lines after the reason's first at the end. */
void tdm__pending_call_fail(struct tdm__pending_call *pending_call, tdm_status status,
                            const char *reason);
void tdm__pending_call_destroy(struct tdm__pending_call *pending_call); /* settled, in no list */

#endif
