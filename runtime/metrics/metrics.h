/* metrics.h - counters and histograms of a process, and their text format for Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_METRICS_METRICS_H
#define TDM_RUNTIME_METRICS_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* A counter that only grows.  Any thread may change it.  Counters and histograms use relaxed
 * atomics, because no reader infers anything about one number from another one. */
struct tdm__counter {
    _Atomic uint64_t value; /* Current value of the counter. */
};

/* Number of bins of a histogram.  Bin i counts times of more than 2^(i-1) and at most 2^i
 * microseconds; the last bin counts all longer ones. */
enum { TDM__HISTOGRAM_BINS = 26 };
/* A histogram of times.  Any thread may add to it. */
struct tdm__histogram {
    /* For each bin how many of the times it has counted. */
    _Atomic uint64_t bins[TDM__HISTOGRAM_BINS];
    _Atomic uint64_t sum_ns; /* Sum of all counted times in nanoseconds. */
};

/* Copy of a histogram, to be sent to another process or printed. */
struct tdm__histogram_snapshot {
    uint64_t bins[TDM__HISTOGRAM_BINS]; /* For each bin how many of the times it had counted. */
    uint64_t sum_ns;                    /* Sum of all counted times in nanoseconds. */
};

/* Adds `by` to a counter of metrics. */
static inline void tdm__counter_add(struct tdm__counter *counter, uint64_t by)
{
    (void)atomic_fetch_add_explicit(&counter->value, by, memory_order_relaxed);
}

/* Returns the current value of a counter of metrics. */
static inline uint64_t tdm__counter_value(const struct tdm__counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

/* Counts one time in the histogram.  A negative time counts as 0. */
static inline void tdm__histogram_add(struct tdm__histogram *histogram, int64_t time_ns)
{
    uint64_t microseconds = time_ns <= 1000 ? 0 : ((uint64_t)time_ns - 1) / 1000;
    int bin = microseconds == 0 ? 0 : 64 - __builtin_clzll(microseconds);

    bin = bin < TDM__HISTOGRAM_BINS ? bin : TDM__HISTOGRAM_BINS - 1;
    (void)atomic_fetch_add_explicit(&histogram->bins[bin], 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&histogram->sum_ns, (uint64_t)(time_ns > 0 ? time_ns : 0),
                                    memory_order_relaxed);
}

/* Copies a histogram.  Times that are added meanwhile may be missing in some of the numbers. */
void tdm__histogram_read(const struct tdm__histogram *histogram,
                         struct tdm__histogram_snapshot *snapshot_out);

/* ---- text format of Prometheus ---------------------------------------------------------- */

/* Writes the HELP and TYPE lines of a metric in Prometheus' text format; the metric's samples
 * follow.  `type` is "counter", "gauge" or "histogram". */
void tdm__metrics_family(FILE *out, const char *name, const char *type, const char *help);

/* Writes one sample of a metric in Prometheus' text format.  `labels` are alternating names and
 * values, ended by NULL; values may hold any text.  NULL means no labels. */
void tdm__metrics_sample(FILE *out, const char *name, const char *const *labels, double value);
/* Writes the buckets, the sum and the count of a histogram, in seconds.  `labels` as for
 * tdm__metrics_sample(). */
void tdm__metrics_histogram(FILE *out, const char *name, const char *const *labels,
                            const struct tdm__histogram_snapshot *snapshot);
/* Writes the metrics process_resident_memory_bytes, process_open_fds and
 * process_cpu_seconds_total of this process. */
void tdm__metrics_process(FILE *out);

#endif
