/* worker_logs.h - the output of a node's workers: kept in files, printed, and served to tools. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_LOGS_H
#define TDM_ACTORS_DAEMON_WORKER_LOGS_H

#include "actors/common/actor_spec.h"
#include "actors/daemon/log_printer.h"
#include "runtime/loop/loop.h"
#include "runtime/service.h"

#include <sys/types.h>

/* Most bytes that one log file keeps. */
#define TDM__LOG_FILE_BYTES (UINT64_C(16) << 20)
/* Most bytes of all log files of a node. */
#define TDM__LOG_TOTAL_BYTES (UINT64_C(256) << 20)

/* The log files of all workers of a node. */
struct tdm__worker_logs;
struct tdm__node;
/* The log files of one worker process, remembered for a while after its end. */
struct tdm__log_source;

/* Options of the log module; pointers are borrowed. */
struct tdm__worker_logs_options {
    const char *directory;  /* Directory of the node. */
    struct tdm__node *node; /* Daemon that forwards calls to other nodes; may be NULL. */
    bool print;             /* True to print the output on this process's stdout and stderr. */
    bool fold; /* True to count repeated lines instead of printing them, see log_printer.h. */
};

/* Creates the directory "logs" and starts watching it. The caller owns `*logs_out`. */
tdm_status tdm__worker_logs_create(struct tdm__loop *loop,
                                   const struct tdm__worker_logs_options *options,
                                   struct tdm__worker_logs **logs_out);
/* Prints what has been read and not printed, and frees everything. NULL is allowed. */
void tdm__worker_logs_destroy(struct tdm__worker_logs *logs);

/* Opens log files for a new worker. The caller closes `fds_out`; `*source_out` is owned by `logs`.
 */
tdm_status tdm__worker_logs_open(struct tdm__worker_logs *logs, const struct tdm__actor_spec *spec,
                                 int fds_out[TDM__LOG_STREAMS],
                                 struct tdm__log_source **source_out);
/* Renames the files of a worker whose pid is known now. */
void tdm__log_source_started(struct tdm__log_source *source, pid_t pid);
/* Prints the last lines of a worker that has ended or never started. Afterwards only
 * tdm__log_source_last_lines() may be called, until the next worker ends. */
void tdm__log_source_ended(struct tdm__log_source *source);
/* Copies the last whole lines of the worker's stderr to `text`, which has `capacity` bytes. Returns
 * their length. */
size_t tdm__log_source_last_lines(const struct tdm__log_source *source, uint32_t lines_max,
                                  char *text, size_t capacity);

/* Returns the number of bytes that were never printed because they were written faster than the
 * daemon could print. */
uint64_t tdm__worker_logs_lost_bytes(const struct tdm__worker_logs *logs);

/* The service "log". "log.read" (actor id or "", stream, offset, most bytes, node id or "") reads
 * the output of the actor's newest process, or of the daemon itself. A negative offset counts from
 * the end. A call for another node is forwarded. It replies with (pid, is alive, path, offset,
 * bytes, bytes of the whole file). */
extern const struct tdm__service_ops tdm__log_service;

#endif
