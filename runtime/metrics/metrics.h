/* metrics.h - numbers that a process keeps of itself, and Prometheus' text of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_METRICS_METRICS_H
#define TDM_RUNTIME_METRICS_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* All three are changed from any thread with relaxed atomics: nobody reads one number to
 * conclude something about another. */
struct tdm__counter {
    _Atomic uint64_t value;
};

/* Bucket i counts times up to 2^i microseconds, the last one all that are longer. */
enum { TDM__HISTOGRAM_BINS = 26 };
struct tdm__histogram {
    _Atomic uint64_t bins[TDM__HISTOGRAM_BINS];
    _Atomic uint64_t sum_ns;
};

/* A histogram at one moment, as it travels and is printed. */
struct tdm__histogram_snapshot {
    uint64_t bins[TDM__HISTOGRAM_BINS];
    uint64_t sum_ns;
};

static inline void tdm__counter_add(struct tdm__counter *counter, uint64_t by)
{
    (void)atomic_fetch_add_explicit(&counter->value, by, memory_order_relaxed);
}

static inline uint64_t tdm__counter_value(const struct tdm__counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

static inline void tdm__histogram_add(struct tdm__histogram *histogram, int64_t time_ns)
{
    uint64_t microseconds = time_ns <= 1000 ? 0 : ((uint64_t)time_ns - 1) / 1000;
    int bin = microseconds == 0 ? 0 : 64 - __builtin_clzll(microseconds);

    bin = bin < TDM__HISTOGRAM_BINS ? bin : TDM__HISTOGRAM_BINS - 1;
    (void)atomic_fetch_add_explicit(&histogram->bins[bin], 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&histogram->sum_ns, (uint64_t)(time_ns > 0 ? time_ns : 0),
                                    memory_order_relaxed);
}

void tdm__histogram_read(const struct tdm__histogram *histogram,
                         struct tdm__histogram_snapshot *view_out);

/* ---- Prometheus' text format ------------------------------------------------------------ */

/* A family's head; its samples follow.  `type`: "counter", "gauge", "histogram". */
void tdm__metrics_family(FILE *out, const char *name, const char *type, const char *help);

/* One sample; whole numbers are written as such.  `labels`: names and values in turn, NULL at
 * the end; values may hold anything; NULL for none. */
void tdm__metrics_sample(FILE *out, const char *name, const char *const *labels, double value);
/* All samples of a histogram of seconds. */
void tdm__metrics_histogram(FILE *out, const char *name, const char *const *labels,
                            const struct tdm__histogram_snapshot *view);
/* process_resident_memory_bytes, process_open_fds, process_cpu_seconds_total. */
void tdm__metrics_process(FILE *out);

#endif
