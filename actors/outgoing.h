/* outgoing.h - one call of this process, from when it is made until its results are there. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OUTGOING_H
#define TDM_ACTORS_OUTGOING_H

#include "actors/ref.h"
#include "runtime/rpc/rpc.h"

#include <sys/queue.h>

struct tdm__arguments;

/* One piece of memory for all that a usual call needs: with a thousand of them under way, each
 * further piece is one more that is cold by the time its reply comes.
 *
 * In `waiting` of its link until it is sent, in `flying` until it is answered; what has to be
 * sent again is back in `waiting`, in front, and what failed and is made again in `pausing`
 * before that. */
struct tdm__outgoing {
    TAILQ_ENTRY(tdm__outgoing) entry;
    struct tdm__link *link;           /* borrowed */
    const char *method;               /* at the end of this memory */
    struct tdm__arguments *arguments; /* owned; NULL for small ones, which are … */
    struct tdm_bytes packed;          /* … at the end of this memory, too */
    tdm_stream *stream;               /* held; NULL for ordinary calls */
    struct tdm__rpc_call call;        /* lent to the connection while call_id is not 0 */
    uint64_t sequence;      /* among those of its link to one incarnation; 0: not sent to it */
    uint64_t call_id;       /* on the link's connection; 0: not sent on it */
    uint64_t items_count;   /* that came on it */
    struct tdm__pull *pull; /* of its result, which has been offered; or NULL */
    uint64_t pulled_id;     /* the call_id that had */
    int64_t made_ms;        /* about */
    int64_t deadline_ms;
    int32_t retries_left;                              /* -1: without end */
    tdm_status retry_failures[TDM_RETRY_FAILURES_MAX]; /* as in the call's options */
    uint32_t pauses_count;                             /* that it has made: retry.h */
    int64_t resume_ms;                                 /* the end of this one */
    uint64_t parent;                                   /* whose method made it: children.h */
    uint32_t group;  /* number of its concurrency group; 0: the method's own */
    bool is_pending; /* counted by its link */
    bool flying;
    bool pausing;
    bool settled;        /* the results are there, or nobody wants them */
    size_t size_bytes;   /* of this memory */
    uint32_t refs_count; /* 0: the results do not matter */
    tdm_ref *refs[];     /* held until settled; they know this call meanwhile */
};
TAILQ_HEAD(tdm__outgoings, tdm__outgoing);

/* Makes it and its references.  Takes `arguments` on TDM_OK. */
tdm_status tdm__outgoing_create(struct tdm__link *link, const char *method,
                                const struct tdm_call_options *options, uint32_t refs_count,
                                struct tdm__arguments *arguments,
                                struct tdm__outgoing **outgoing_out);
/* The results are there, or why not; nothing if it is settled.  Takes `document`. */
void tdm__outgoing_settle(struct tdm__outgoing *outgoing, tdm_status status, const char *detail,
                          tdm_document *document);
/* The same for a failure that was decided on this side: "reason, in method x, call 3, 17 ms
 * after it began", the lines after the reason's first at the end. */
void tdm__outgoing_fail(struct tdm__outgoing *outgoing, tdm_status status, const char *reason);
void tdm__outgoing_destroy(struct tdm__outgoing *outgoing); /* settled, in no list */

#endif
