/* daemon_process.h - starts the program tandemd and waits until it is ready. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PROCESS_DAEMON_PROCESS_H
#define TDM_ACTORS_PROCESS_DAEMON_PROCESS_H

#include "actors/process/text_sizes.h"
#include "runtime/process/spawn.h"

/* A daemon that this process has started. Its owner frees the fields. */
struct tdm__daemon_process {
    /* The supervisor of the daemon, the only direct child of this process. */
    struct tdm__process supervisor;
    int supervisor_fd;    /* This process's end of the socket shared with supervisor and daemon. */
    long long daemon_pid; /* Process id of the daemon, for messages; 0 until it is ready. */
    /* Address at which the daemon listens, such as "unix:/.../tandemd.sock"; "" until it is
     * ready. */
    char address[TDM__ADDRESS_BYTES];
};

/* Executes tandemd with the arguments `argv`, which end with NULL; `output_fd` becomes its stdout
 * and stderr, -1 if it inherits those of this process. The daemon gets a socket as descriptor 3.
 * TANDEM_DAEMON names the program; if it is not set, the function looks beside this program, beside
 * libtandem, in ../bin of either, and in PATH. */
tdm_status tdm__daemon_process_start(char *const *argv, int output_fd,
                                     struct tdm__daemon_process *process_out);
/* Waits at most `timeout_ms` for the daemon's message "ready PID ADDRESS" or "failed TEXT", and
 * stores what it says. TDM_E_NODE_LOST if the daemon failed or ended. */
tdm_status tdm__daemon_process_wait_ready(struct tdm__daemon_process *process, int64_t timeout_ms);

#endif
