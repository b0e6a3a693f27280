/* fork_server.h - the fork server, a started program that forks workers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_FORK_SERVER_H
#define TDM_ACTORS_COMMON_FORK_SERVER_H

#include <stdint.h>
#include <sys/types.h>

/* The fork server is a started program that forks workers, so that each further worker costs a
 * fork instead of a start. A program that is started with TANDEM_WORKER=fork_server stops in its
 * first call of Tandem, single threaded and with nothing open but the control socket
 * (SOCK_SEQPACKET, descriptor 3).
 *
 * The daemon sends struct tdm__fork_server_request with the descriptors {daemon socket,
 * bootstrap file} and, if output is redirected, {stdout, stderr}. The fork server sends struct
 * tdm__fork_server_event: TDM__FORK_DONE with the child's pidfd, TDM__FORK_REFUSED (the daemon
 * then executes each worker instead), or TDM__FORK_CHILD_ENDED with the child's wait status.
 *
 * A worker is a child of the fork server, so only the fork server can reap it. When the control
 * socket closes, the fork server ends and its children die with it. */

/* Environment variable that marks each worker, and what it starts, with the actor and
 * incarnation that it belongs to. */
#define TDM__PROCESS_MARK_VARIABLE "TANDEM_PROCESS_OF"
/* Bytes of a process mark: actor id, dot, incarnation in 8 digits, NUL. */
enum { TDM__PROCESS_MARK_BYTES = 42 };

/* Capacity of the setting of the GPUs that a worker may use, with the NUL. */
enum { TDM__DEVICES_SETTING_BYTES = 1280 };

/* Request of the daemon to the fork server: fork one worker. */
struct tdm__fork_server_request {
    uint64_t serial;                    /* Number of the request, repeated in its event. */
    uint32_t has_output;                /* 1 if descriptors for stdout and stderr follow, else 0. */
    char mark[TDM__PROCESS_MARK_BYTES]; /* Value of TDM__PROCESS_MARK_VARIABLE in the worker. */
    /* Setting that the worker adds to its environment, "CUDA_VISIBLE_DEVICES=..."; "" for none.  It
     * differs between workers that one fork server forks. */
    char devices[TDM__DEVICES_SETTING_BYTES];
};

/* What a fork server reports to its daemon. */
enum tdm__fork_server_event_kind {
    TDM__FORK_DONE = 1, /* The worker was forked; its pidfd comes with the event. */
    /* No worker was forked, because the fork server runs threads or the fork failed. */
    TDM__FORK_REFUSED = 2,
    TDM__FORK_CHILD_ENDED = 3 /* A worker that the fork server had forked has ended. */
};

/* Report of the fork server to the daemon. */
struct tdm__fork_server_event {
    uint32_t kind;       /* One of enum tdm__fork_server_event_kind. */
    int32_t pid;         /* Process id of the worker; with TDM__FORK_REFUSED without meaning. */
    int32_t wait_status; /* Status of the worker from waitpid(), with TDM__FORK_CHILD_ENDED. */
    /* Threads of the fork server, with TDM__FORK_REFUSED; more than 1 prevents a fork. */
    uint32_t threads_count;
    uint64_t serial; /* Number of the request, with TDM__FORK_DONE and TDM__FORK_REFUSED. */
};

/* Serves requests of the daemon until the control socket closes, which ends the process. Returns
 * only in a forked worker, with its descriptors 3 and 4 in place. */
void tdm__fork_server_run_if_one(void);

#endif
