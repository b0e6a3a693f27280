/* log.c - one line per event on stderr, by level. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

static enum tdm__log_level level_shown = TDM__WARN;
static char line_prefix[64] = "tandem";
static int second_output_fd = -1;

void tdm__log_add_output(int fd)
{
    second_output_fd = fd;
}

void tdm__log_init(const char *prefix)
{
    const char *wanted = secure_getenv("TANDEM_LOG");

    (void)snprintf(line_prefix, sizeof(line_prefix), "%s", prefix);
    if (wanted == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcmp(wanted, level_names[i]) == 0) {
            level_shown = (enum tdm__log_level)i;
        }
    }
}

void tdm__log(enum tdm__log_level level, const char *module, const char *format, ...)
{
    char line[2048];
    size_t used;
    struct timespec now;
    struct tm parts;
    va_list args;

    if (level > level_shown) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &parts);
    used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof(line) - used,
                             ".%03ld %s[%d] %s %s: ", now.tv_nsec / 1000000, line_prefix,
                             (int)getpid(), level_names[level], module);
    va_start(args, format);
    (void)vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    va_end(args);
    used = strlen(line);
    line[used] = '\n';
    (void)!write(STDERR_FILENO, line, used + 1); /* nowhere to complain to */
    if (second_output_fd >= 0) {
        (void)!write(second_output_fd, line, used + 1);
    }
}
