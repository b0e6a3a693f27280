/* clock.h - the monotonic clock and deadlines on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_CLOCK_H
#define TDM_RUNTIME_CLOCK_H

#include <stdint.h>

/* Milliseconds and nanoseconds of CLOCK_MONOTONIC. */
int64_t tdm__clock_ms(void);
int64_t tdm__clock_ns(void);

/* The same for a few nanoseconds of time, and some milliseconds late: for ages. */
int64_t tdm__clock_coarse_ms(void);

/* A point in time on tdm__clock_ms(), or TDM__NEVER. */
#define TDM__NEVER INT64_MAX

/* The deadline `timeout_ms` from now; TDM__NEVER for a negative timeout (TDM_FOREVER), and for
 * one of more than a hundred years. */
int64_t tdm__deadline_after(int64_t timeout_ms);
/* For one who waits for another that gives up after `timeout_ms`; the same is for ever. */
int64_t tdm__timeout_add(int64_t timeout_ms, int64_t more_ms);
/* Milliseconds left, never negative; -1 (TDM_FOREVER) for TDM__NEVER. */
int64_t tdm__deadline_remaining_ms(int64_t deadline_ms);

#endif
