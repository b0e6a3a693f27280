/* death_report.h - the text that describes how an actor died. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_DEATH_REPORT_H
#define TDM_ACTORS_DAEMON_DEATH_REPORT_H

#include "runtime/process/oom.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tdm__log_source;

/* Limits of the text of a death report. */
enum {
    /* Capacity of a death report in bytes; an error detail has space for it and a prefix. */
    TDM__DEATH_REPORT_BYTES = 2700,
    TDM__DEATH_OUTPUT_LINES = 20,  /* Most lines of stderr in a report. */
    TDM__DEATH_OUTPUT_BYTES = 2048 /* Most bytes of stderr in a report. */
};

/* What is known about the death of a worker and its actor; all pointers are borrowed. */
struct tdm__death_report {
    const char *label;     /* Name of the actor, or its class and id. */
    const char *node_name; /* Name of the node on which the worker ran. */
    int64_t pid;           /* Process id of the dead worker. */
    int wait_status;       /* Status of the worker from waitpid(). */
    /* Why the worker failed or was killed; "" if only `wait_status` tells. */
    const char *failure;
    bool was_requested; /* True if the daemon killed the worker or asked it to exit. */
    /* The node's counts of kills for lack of memory, which writing the report updates. */
    struct tdm__oom *oom;
    /* Log files of the worker; NULL if its output is not kept. */
    const struct tdm__log_source *output;
};

/* Writes a text such as "actor trainer/2 died: node gpu-03, pid 4182, signal 9 (killed)". For a
 * death that the daemon did not request, more lines follow: the kernel's verdict about memory on
 * SIGKILL, and the last lines of stderr, each after " | ". */
void tdm__death_report_write(const struct tdm__death_report *death,
                             char text[TDM__DEATH_REPORT_BYTES]);

#endif
