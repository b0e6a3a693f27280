/* worker_logs.h - the output of a node's workers: kept in files, printed, read by others. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_LOGS_H
#define TDM_ACTORS_DAEMON_WORKER_LOGS_H

#include "actors/common/actor_spec.h"
#include "actors/daemon/log_printer.h"
#include "runtime/loop/loop.h"
#include "runtime/service.h"

#include <sys/types.h>

/* Each worker writes its stdout and stderr straight into two files of the node's directory,
 * logs/<name or class>-<16 digits of its id>-<pid>.out and .err.  A file keeps its last
 * TDM__LOG_FILE_BYTES; files of ended workers go, oldest first, when all of them have more than
 * TDM__LOG_TOTAL_BYTES; empty ones go with their worker.  The daemon reads them only where
 * somebody follows: itself, when it prints (a private node prints for its driver), or a tool.
 * A flood of lines so costs the worker its writes, and nobody else anything. */
#define TDM__LOG_FILE_BYTES  (UINT64_C(16) << 20)
#define TDM__LOG_TOTAL_BYTES (UINT64_C(256) << 20)

struct tdm__worker_logs;
struct tdm__node;
/* The files of one process.  Remembered for a while after its end. */
struct tdm__log_source;

struct tdm__worker_logs_options {
    const char *directory;  /* of the node */
    struct tdm__node *node; /* borrowed: who passes calls on; may be NULL */
    bool print;             /* on this process's stdout and stderr */
    bool fold;              /* repeated lines, see log_printer.h */
};

tdm_status tdm__worker_logs_create(struct tdm__loop *loop,
                                   const struct tdm__worker_logs_options *options,
                                   struct tdm__worker_logs **logs_out);
/* Prints what has not been printed.  NULL is allowed. */
void tdm__worker_logs_destroy(struct tdm__worker_logs *logs);

/* Files for a new worker: its stdout and stderr, the caller's to close. */
tdm_status tdm__worker_logs_open(struct tdm__worker_logs *logs, const struct tdm__actor_spec *spec,
                                 int fds_out[TDM__LOG_STREAMS],
                                 struct tdm__log_source **source_out);
/* The worker has a pid now: its files get their name. */
void tdm__log_source_started(struct tdm__log_source *source, pid_t pid);
/* It has ended, or never began: prints its last lines.  Only its last words may be asked for
 * after that, and only until another one ends. */
void tdm__log_source_ended(struct tdm__log_source *source);
/* The last lines of its stderr, whole ones; returns their length. */
size_t tdm__log_source_last_lines(const struct tdm__log_source *source, uint32_t lines_max,
                                  char *text, size_t room);

/* Bytes of lines that were lost because they came faster than they could be printed. */
uint64_t tdm__worker_logs_lost_bytes(const struct tdm__worker_logs *logs);

/* "log.read" (actor id or "", stream, offset, bytes at most, node id or ""): the newest process
 * of that actor, or the daemon itself; a negative offset counts from the end.  A call for
 * another node is passed on.
 * answer: (pid, is alive, path, offset, bytes, bytes of the whole file) */
extern const struct tdm__service_ops tdm__log_service;

#endif
