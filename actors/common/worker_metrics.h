/* worker_metrics.h - counts, durations and spans of a worker's calls, for its daemon to read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_WORKER_METRICS_H
#define TDM_ACTORS_COMMON_WORKER_METRICS_H

#include "actors/common/method_metrics.h"
#include "runtime/metrics/metrics.h"
#include "runtime/rpc/rpc.h"

/* A call of this worker while it runs. It is kept outside of the call itself, which is freed
 * when it is replied to. */
struct tdm__call_span {
    /* Name of the method; set only while a timeline is recorded, as are the next three fields. */
    char method[TDM__RPC_NAME_BYTES_MAX + 1];
    uint64_t call_id;      /* Number of the call on its RPC connection. */
    struct tdm__id caller; /* Id of the process that made the call. */
    int64_t caller_pid;    /* Process id of the caller. */
    int64_t began_ns;      /* Nanoseconds on CLOCK_MONOTONIC at which the method began. */
};

/* Begins the span of a call, on the thread that is about to run its method. */
void tdm__call_span_begin(struct tdm__call_span *span, const struct tdm__incoming_call *incoming);
/* Ends the span with the method's status: counts the call and its duration, and records it in
 * the timeline. */
void tdm__call_span_end(const struct tdm__call_span *span, tdm_status status);

/* Replies to the daemon's calls "worker.metrics", "worker.spans" and "worker.method_metrics";
 * returns false for any other method. `queue_length` is the number of waiting calls.
 * `method_metrics` is NULL before the actor has been constructed. */
bool tdm__worker_metrics_serve(struct tdm__incoming_call *incoming, uint64_t queue_length,
                               const struct tdm__method_metrics *method_metrics);

/* The reply to "worker.metrics": (calls, failures, queue length, sum of nanoseconds, [bin ...]). */
struct tdm__actor_metrics_view {
    uint64_t calls;                       /* Number of calls that have ended. */
    uint64_t failures;                    /* Number of calls that have failed. */
    uint64_t queue_length;                /* Number of calls that waited when the reply was sent. */
    struct tdm__histogram_snapshot times; /* Distribution of the durations of the calls. */
};
/* Parses the reply to "worker.metrics". */
tdm_status tdm__actor_metrics_read(struct tdm_bytes packed,
                                   struct tdm__actor_metrics_view *metrics_out);

/* Most spans in the reply to "worker.spans": [(method, call id, caller, caller's pid, began,
 * ended, status) ...], times in nanoseconds on CLOCK_MONOTONIC. Spans are recorded only with
 * TANDEM_TIMELINE=1 in the worker's environment; older ones are overwritten. */
enum { TDM__CALL_SPANS_MAX = 16384 };

#endif
