/* worker_logs.h - the output of a node's workers: kept in files, printed, and served to tools. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_LOGS_H
#define TDM_ACTORS_DAEMON_WORKER_LOGS_H

#include "actors/common/actor_spec.h"
#include "actors/daemon/log_printer.h"
#include "runtime/loop/loop.h"

#include <sys/types.h>

/* Most bytes of output that one log file keeps. */
#define TDM__LOG_FILE_BYTES (UINT64_C(16) << 20)
/* Most bytes that all log files of a node may take on disk together. */
#define TDM__LOG_TOTAL_BYTES (UINT64_C(256) << 20)

/* The log files of all workers of a node. */
struct tdm__worker_logs;
struct tdm__node;
/* The log files of one worker process, remembered for a while after its end. */
struct tdm__log_source;

/* Options for tdm__worker_logs_create(); pointers are borrowed. */
struct tdm__worker_logs_options {
    const char *directory;  /* Directory of the node, in which the folder "logs" is created. */
    struct tdm__node *node; /* Daemon that forwards calls to other nodes; may be NULL. */
    bool print;             /* True to print the output on this process's stdout and stderr. */
    bool fold; /* True to count repeated lines instead of printing them, see log_printer.h. */
};

/* Creates the folder "logs" for the workers' log files and starts watching the files. The caller
 * owns `*logs_out`. */
tdm_status tdm__worker_logs_create(struct tdm__loop *loop,
                                   const struct tdm__worker_logs_options *options,
                                   struct tdm__worker_logs **logs_out);
/* Prints output of workers that has been read and not printed, and frees `logs`. NULL is allowed.
 */
void tdm__worker_logs_destroy(struct tdm__worker_logs *logs);

/* Opens log files for the stdout and stderr of a new worker. The caller closes `fds_out`;
 * `*source_out` is owned by `logs`. */
tdm_status tdm__worker_logs_open(struct tdm__worker_logs *logs, const struct tdm__actor_spec *spec,
                                 int fds_out[TDM__LOG_STREAMS],
                                 struct tdm__log_source **source_out);
/* Renames the log files of a started worker, so that the names contain its pid. */
void tdm__log_source_started(struct tdm__log_source *source, pid_t pid);
/* Prints the last lines of a worker that has ended or never started. Afterwards only
 * tdm__log_source_last_lines() may be called with `source`, until the next worker ends. */
void tdm__log_source_ended(struct tdm__log_source *source);
/* Copies the last whole lines of the worker's stderr, at most `lines_max`, to `text`, which has
 * `capacity` bytes. Returns the number of bytes copied. */
size_t tdm__log_source_last_lines(const struct tdm__log_source *source, uint32_t lines_max,
                                  char *text, size_t capacity);

/* Returns the number of bytes of output that were never printed because workers wrote faster than
 * the daemon could print. */
uint64_t tdm__worker_logs_lost_bytes(const struct tdm__worker_logs *logs);

#endif
