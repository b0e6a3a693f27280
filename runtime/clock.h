/* clock.h - the monotonic clock and deadlines on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_CLOCK_H
#define TDM_RUNTIME_CLOCK_H

#include <stdint.h>

/* Returns the time of CLOCK_MONOTONIC in milliseconds. */
int64_t tdm__clock_ms(void);
/* Returns the time of CLOCK_MONOTONIC in nanoseconds. */
int64_t tdm__clock_ns(void);

/* Returns the time of CLOCK_BOOTTIME in milliseconds, which goes on while the machine is suspended.
 * Leases use it; deadlines of the loop do not. */
int64_t tdm__clock_boot_ms(void);

/* Returns the time of CLOCK_MONOTONIC_COARSE in milliseconds.  It costs a few nanoseconds only
 * and may lag tdm__clock_ms() by some milliseconds, so use it to measure ages, not deadlines. */
int64_t tdm__clock_coarse_ms(void);

/* The deadline, on the scale of tdm__clock_ms(), that never passes. */
#define TDM__NEVER INT64_MAX

/* Returns the deadline `timeout_ms` from now on the scale of tdm__clock_ms().  Returns TDM__NEVER
 * for a negative timeout (TDM_FOREVER) and for a timeout of more than a hundred years. */
int64_t tdm__deadline_after(int64_t timeout_ms);
/* Returns `timeout_ms` + `more_ms`, or -1 (TDM_FOREVER) if `timeout_ms` is negative or longer
 * than a hundred years.  A caller that waits for a peer with a timeout of its own uses this to
 * wait a little longer than the peer does. */
int64_t tdm__timeout_add(int64_t timeout_ms, int64_t more_ms);
/* Returns the milliseconds until the deadline, 0 if it has passed, and -1 (TDM_FOREVER) for
 * TDM__NEVER. */
int64_t tdm__deadline_remaining_ms(int64_t deadline_ms);

#endif
