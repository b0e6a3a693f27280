/* log.c - writes one line per event to stderr, filtered by level. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Names of the levels in TANDEM_LOG and in lines, by enum tdm__log_level. */
static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* Highest level of the lines that are written. */
static enum tdm__log_level level_max = TDM__WARN;
/* Name of this process, which every line contains. */
static char line_prefix[64] = "tandem";
/* Descriptor that gets a copy of every line; -1 if absent.  Not owned. */
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
            level_max = (enum tdm__log_level)i;
        }
    }
}

void tdm__log(enum tdm__log_level level, const char *module, const char *format, ...)
{
    char line[2048];
    size_t length;
    struct timespec now;
    struct tm calendar_time;
    va_list args;

    if (level > level_max) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &calendar_time);
    length = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &calendar_time);
    length += (size_t)snprintf(line + length, sizeof(line) - length,
                               ".%03ld %s[%d] %s %s: ", now.tv_nsec / 1000000, line_prefix,
                               (int)getpid(), level_names[level], module);
    va_start(args, format);
    (void)vsnprintf(line + length, sizeof(line) - length - 1, format, args);
    va_end(args);
    length = strlen(line);
    line[length] = '\n';
    (void)!write(STDERR_FILENO, line, length + 1); /* A failure cannot be reported anywhere. */
    if (second_output_fd >= 0) {
        (void)!write(second_output_fd, line, length + 1);
    }
}
