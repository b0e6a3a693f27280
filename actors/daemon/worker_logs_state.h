/* worker_logs_state.h - the log files of a node's workers, for the files that keep and serve them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_LOGS_STATE_H
#define TDM_ACTORS_DAEMON_WORKER_LOGS_STATE_H

#include "actors/daemon/log_files.h"
#include "actors/daemon/log_printer.h"
#include "actors/daemon/worker_logs.h"

/* Sizes of buffers for the output of workers. */
enum {
    TDM__LOG_CHUNK_BYTES =
        64 << 10,               /* Bytes of a chunk, which is read from a log file at a time. */
    TDM__LOG_ORIGIN_BYTES = 80, /* Capacity of a prefix of lines, such as "trainer pid=12". */
    TDM__LOG_LABEL_BYTES = 60   /* Capacity of the name in such a prefix; a longer one is cut. */
};

/* One log file of a worker. */
struct log_stream {
    char name[TDM__LOG_NAME_BYTES]; /* Name of the file without its folder. */
    /* Offset in the file up to which the daemon has printed, or a driver has taken, the output. */
    uint64_t printed;
    /* Prefix of the next printed lines, such as "trainer pid=12". */
    char origin[TDM__LOG_ORIGIN_BYTES];
};

/* The two log files of one worker. struct tdm__worker_logs owns it. */
struct tdm__log_source {
    struct tdm__log_source *next; /* Log files of the next worker, which is older. */
    /* Log files of the node, which contain this source, borrowed. */
    struct tdm__worker_logs *logs;
    struct tdm__id actor;              /* Id of the worker's actor. */
    struct tdm__id job;                /* Id of the job to which the actor belongs. */
    char label[TDM__ACTOR_NAME_BYTES]; /* Name of the actor, or its class if it has no name. */
    /* Process id of the worker; 0 until it is known. */
    int64_t pid;
    bool is_live;                                /* True until the worker has ended. */
    struct log_stream streams[TDM__LOG_STREAMS]; /* Log files of the worker's stdout and stderr. */
};

/* The log files of all workers of a node. struct tdm__node owns it. */
struct tdm__worker_logs {
    struct tdm__loop *loop;          /* Event loop of the daemon, borrowed. */
    struct tdm__node *node;          /* Daemon that forwards calls, borrowed; may be NULL. */
    char directory[TDM__PATH_BYTES]; /* Path of the folder "logs" with the log files. */
    struct tdm__log_source *all;     /* List of the workers' log files, newest first, owned. */
    uint32_t ended_count;            /* Number of list entries whose worker has ended. */
    uint64_t starting_number;        /* Number in the name of the file that was opened last. */
    /* Prints lines on this process's terminal, owned; NULL if nothing is printed. */
    struct tdm__log_printer *printer;
    /* Inotify descriptor that watches the directory, owned; -1 if inotify is not available, then
     * the timer polls. */
    int inotify_fd;
    /* Watch of `inotify_fd` in the event loop, owned; NULL if `inotify_fd` is -1. */
    struct tdm__fd_watch *watch;
    /* Timer of the next pass, which prints new output and limits the files' sizes; owned. */
    struct tdm__timer *timer;
    bool timer_is_set; /* True while `timer` is set. */
    /* Time of the next removal of old files, in milliseconds on CLOCK_MONOTONIC. */
    int64_t prune_ms;
    uint64_t lost_bytes; /* Bytes of output that were freed on disk before they were printed. */
    char chunk[TDM__LOG_CHUNK_BYTES]; /* Buffer for a piece of a log file that is being printed. */
};

/* Writes the path of the log file `name` to `path`. */
void tdm__worker_logs_path(const struct tdm__worker_logs *logs, const char *name,
                           char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES]);
/* Moves stream->printed to where the file's data begins now. A file that became shorter was
 * truncated; one whose data begins later has lost its beginning, which is counted. */
void tdm__worker_logs_count_lost(struct tdm__worker_logs *logs, struct log_stream *stream,
                                 const struct tdm__log_file_range *range);
/* Sets the prefix of the next lines of a log file to the name of a log label, or to the name of the
 * actor if `name_bytes` is 0. */
void tdm__log_source_set_origin(const struct tdm__log_source *source, struct log_stream *stream,
                                const char *name, size_t name_bytes);

#endif
