/* death_report.h - how an actor died, in words. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_DEATH_REPORT_H
#define TDM_ACTORS_DAEMON_DEATH_REPORT_H

#include "runtime/process/oom.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tdm__log_source;

enum {
    TDM__DEATH_REPORT_BYTES = 2700, /* fits into a detail together with what its callers add */
    TDM__DEATH_OUTPUT_LINES = 20,
    TDM__DEATH_OUTPUT_BYTES = 2048
};

struct tdm__death_report {
    const char *label;
    const char *node_name;
    int64_t pid;
    int wait_status;
    const char *failure; /* why its constructor failed; "" */
    bool was_requested;  /* its node killed it, or asked it to leave */
    struct tdm__oom *oom;
    const struct tdm__log_source *output; /* NULL where none is kept */
};

/* "actor trainer/2 died: node gpu-03, pid 4182, signal 9 (killed)", in a line of its own what
 * the kernel says of a SIGKILL that nobody here sent, and below it the last lines of its
 * stderr, each after "  | ".  An end that was wanted is the first line alone. */
void tdm__death_report_write(const struct tdm__death_report *death,
                             char text[TDM__DEATH_REPORT_BYTES]);

#endif
