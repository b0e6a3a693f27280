/* log_limit.c - limits how often a warning that others can cause is logged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/log_limit.h"

#include "runtime/clock.h"

#include <stdarg.h>
#include <stdio.h>

enum tdm__log_permit tdm__log_limit_count(struct tdm__log_limit *limit, int64_t now_ms)
{
    if (limit->count == 0 || now_ms - limit->since_ms >= TDM__LOG_LIMIT_MS) {
        limit->since_ms = now_ms;
        limit->count = 0;
    }
    limit->count++;
    if (limit->count == TDM__LOG_LIMIT_LINES_MAX) {
        return TDM__LOG_WRITE_LAST;
    }
    return limit->count < TDM__LOG_LIMIT_LINES_MAX ? TDM__LOG_WRITE : TDM__LOG_DROP;
}

void tdm__log_limited(struct tdm__log_limit *limit, enum tdm__log_level level, const char *module,
                      const char *format, ...)
{
    enum tdm__log_permit permit = tdm__log_limit_count(limit, tdm__clock_ms());
    char text[1024];
    va_list args;

    if (permit == TDM__LOG_DROP) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tdm__log(level, module, "%s%s", text,
             permit == TDM__LOG_WRITE_LAST ? "; further ones are not logged in this minute" : "");
}
