/* worker_metrics.h - what a worker counts of its calls, for its daemon to read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_WORKER_METRICS_H
#define TDM_ACTORS_COMMON_WORKER_METRICS_H

#include "actors/common/method_metrics.h"
#include "runtime/metrics/metrics.h"
#include "runtime/rpc/rpc.h"

/* One call while it runs.  Kept outside of the call itself, which is gone once it is answered.
 */
struct tdm__call_span {
    char method[TDM__RPC_NAME_BYTES_MAX + 1];
    uint64_t call_id;
    struct tdm__id caller;
    int64_t caller_pid;
    int64_t began_ns;
};

/* Around a method, on the thread that runs it. */
void tdm__call_span_begin(struct tdm__call_span *span, const struct tdm__incoming_call *incoming);
void tdm__call_span_end(const struct tdm__call_span *span, tdm_status status);

/* Answers the daemon's calls "worker.metrics", "worker.spans" and "worker.method_metrics"; false
 * for any other.  `queue_length`: calls that wait; `method_metrics` is NULL before there is an
 * actor. */
bool tdm__worker_metrics_serve(struct tdm__incoming_call *incoming, uint64_t queue_length,
                               const struct tdm__method_metrics *method_metrics);

/* What "worker.metrics" answers: (calls, failures, queue, sum of ns, [bin …]). */
struct tdm__actor_metrics_view {
    uint64_t calls;
    uint64_t failures;
    uint64_t queue_length;
    struct tdm__histogram_snapshot times;
};
tdm_status tdm__actor_metrics_read(struct tdm_bytes packed,
                                   struct tdm__actor_metrics_view *metrics_out);

/* "worker.spans": [(method, call id, caller, caller's pid, began, ended, status) …], times of
 * CLOCK_MONOTONIC.  Recorded only with TANDEM_TIMELINE=1 in the worker's environment; the last
 * TDM__CALL_SPANS_MAX of them. */
enum { TDM__CALL_SPANS_MAX = 16384 };

#endif
