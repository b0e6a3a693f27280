/* observe.h - what a worker counts of its calls, for its daemon to read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBSERVE_H
#define TDM_ACTORS_OBSERVE_H

#include "actors/tally.h"
#include "runtime/observe/metrics.h"
#include "runtime/rpc/rpc.h"

/* One call while it runs.  Kept outside of the call itself, which is gone once it is answered.
 */
struct tdm__span {
    char method[TDM__RPC_NAME_BYTES_MAX + 1];
    uint64_t call_id;
    struct tdm__id caller;
    int64_t caller_pid;
    int64_t began_ns;
};

/* Around a method, on the thread that runs it. */
void tdm__span_begin(struct tdm__span *span, const struct tdm__incoming *incoming);
void tdm__span_end(const struct tdm__span *span, tdm_status status);

/* Answers the daemon's calls "observe.metrics", "observe.spans" and "observe.calls"; false for
 * any other.  `queue_length`: calls that wait; `tally` is NULL before there is an actor. */
bool tdm__observe_serve(struct tdm__incoming *incoming, uint64_t queue_length,
                        const struct tdm__tally *tally);

/* What "observe.metrics" answers: (calls, failures, queue, sum of ns, [bucket …]). */
struct tdm__actor_metrics {
    uint64_t calls;
    uint64_t failures;
    uint64_t queue_length;
    struct tdm__histogram_view times;
};
tdm_status tdm__actor_metrics_read(struct tdm_bytes packed,
                                   struct tdm__actor_metrics *metrics_out);

/* "observe.spans": [(method, call id, caller, caller's pid, began, ended, status) …], times of
 * CLOCK_MONOTONIC.  Recorded only with TANDEM_TIMELINE=1 in the worker's environment; the last
 * TDM__SPANS_KEPT of them. */
enum { TDM__SPANS_KEPT = 16384 };

#endif
