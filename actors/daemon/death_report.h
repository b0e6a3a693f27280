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
    /* Capacity of a report; it fits into an error detail with a prefix of the caller. */
    TDM__DEATH_REPORT_BYTES = 2700,
    TDM__DEATH_OUTPUT_LINES = 20,  /* Most lines of stderr in a report. */
    TDM__DEATH_OUTPUT_BYTES = 2048 /* Most bytes of stderr in a report. */
};

/* What is known about the death of a worker; all pointers are borrowed. */
struct tdm__death_report {
    const char *label;     /* Name or class and id of the actor. */
    const char *node_name; /* Name of this node. */
    int64_t pid;           /* Process id of the worker. */
    int wait_status;       /* Status from waitpid(). */
    /* Why the worker failed or was killed; "" if only `wait_status` tells. */
    const char *failure;
    bool was_requested;   /* True if the daemon killed the worker or asked it to exit. */
    struct tdm__oom *oom; /* Counts of kills for lack of memory, updated by the report. */
    /* Log files of the worker; NULL if its output is not kept. */
    const struct tdm__log_source *output;
};

/* Writes a text such as "actor trainer/2 died: node gpu-03, pid 4182, signal 9 (killed)". For a
 * death that the daemon did not request, more lines follow: the kernel's verdict about memory on
 * SIGKILL, and the last lines of stderr, each after " | ". */
void tdm__death_report_write(const struct tdm__death_report *death,
                             char text[TDM__DEATH_REPORT_BYTES]);

#endif
