/* fork_server.h - a started program that forks workers, so that the second one costs a fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_FORK_SERVER_H
#define TDM_ACTORS_COMMON_FORK_SERVER_H

#include <stdint.h>
#include <sys/types.h>

/* A program started with TANDEM_WORKER=fork_server stops here, in its first Tandem call, single
 * threaded and with nothing open but the control socket (SOCK_SEQPACKET, descriptor 3).
 *
 *   daemon → fork_server   struct tdm__fork_server_request, with the descriptors {daemon socket,
 *                       bootstrap file} and, if they are kept, {stdout, stderr}
 *   fork_server → daemon   struct tdm__fork_server_event: FORKED with the child's pidfd, or REFUSED
 *                       (it runs threads: the daemon executes each worker instead), or ENDED
 *                       with the child's wait status
 *
 * A worker is the fork_server's child, so only the fork_server can reap it.  When the control
 * socket closes the fork_server ends, and its children die with it. */

/* In the environment of each worker, and of what it starts: whose process it is. */
#define TDM__PROCESS_MARK_VARIABLE "TANDEM_PROCESS_OF"
enum { TDM__PROCESS_MARK_BYTES = 42 }; /* actor id, dot, incarnation in 8 digits, NUL */

struct tdm__fork_server_request {
    uint64_t serial;
    uint32_t has_output;
    char mark[TDM__PROCESS_MARK_BYTES];
};

enum tdm__fork_server_event_kind {
    TDM__FORK_DONE = 1,
    TDM__FORK_REFUSED = 2,
    TDM__FORK_CHILD_ENDED = 3
};

struct tdm__fork_server_event {
    uint32_t kind;
    int32_t pid;
    int32_t wait_status;
    uint32_t threads_count; /* with REFUSED */
    uint64_t serial;        /* of the order, with FORKED and REFUSED */
};

/* Serves orders; returns only in a forked worker, its descriptors 3 and 4 in place. */
void tdm__fork_server_run_if_one(void);

#endif
