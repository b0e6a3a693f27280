/* log_limit.h - limits how often a warning that others can cause is logged. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOG_LIMIT_H
#define TDM_RUNTIME_LOG_LIMIT_H

#include "runtime/log.h"

#include <stdint.h>

/* Most lines that one limit lets through in an interval, and the interval's length in milliseconds.
 */
enum { TDM__LOG_LIMIT_LINES_MAX = 10, TDM__LOG_LIMIT_MS = 60000 };

/* Counts the lines of one kind of warning. All zeros is the initial state. The owner of the limit
 * guards it. */
struct tdm__log_limit {
    /* Start of the interval in which lines are counted, in milliseconds on CLOCK_MONOTONIC. */
    int64_t since_ms;
    /* Number of lines since `since_ms`, those that were dropped included. */
    uint64_t count;
};

/* What becomes of a line. */
enum tdm__log_permit {
    TDM__LOG_WRITE,      /* The line is written. */
    TDM__LOG_WRITE_LAST, /* The line is written, and says that further ones are not. */
    TDM__LOG_DROP        /* The line is not written. */
};

/* Counts one line at the time `now_ms`, in milliseconds on CLOCK_MONOTONIC, and returns what
 * becomes of it. */
enum tdm__log_permit tdm__log_limit_count(struct tdm__log_limit *limit, int64_t now_ms);

/* Does what tdm__log() does, at most TDM__LOG_LIMIT_LINES_MAX times in TDM__LOG_LIMIT_MS for one
 * `limit`. The last line of an interval says that further ones are not logged. */
__attribute__((format(printf, 4, 5))) void tdm__log_limited(struct tdm__log_limit *limit,
                                                            enum tdm__log_level level,
                                                            const char *module, const char *format,
                                                            ...);

#endif
