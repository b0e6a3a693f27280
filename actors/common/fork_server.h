/* fork_server.h - the fork server, a started program that forks workers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_FORK_SERVER_H
#define TDM_ACTORS_COMMON_FORK_SERVER_H

#include <stdint.h>

/* The fork server is a started program that forks workers, so that each further worker costs a
 * fork instead of a start. A program that is started with TANDEM_WORKER=fork_server stops in its
 * first call of Tandem, single threaded and with nothing open but the control socket
 * (SOCK_SEQPACKET, descriptor 3).
 *
 * The daemon sends struct tdm__fork_server_request with the descriptors {report socket, daemon
 * socket, bootstrap file} and, if output is redirected, {stdout, stderr}. The fork server forks a
 * reaper, and that forks the worker (runtime/process/reaper.h). The reaper reports on the report
 * socket; if the fork server cannot fork, it sends TDM__REAPER_REFUSED there itself, and the daemon
 * executes the worker instead.
 *
 * When the control socket closes, the fork server ends, and its reapers and workers die with it. */

/* Capacity of the setting of the GPUs that a worker may use, with the NUL. */
enum { TDM__DEVICES_SETTING_BYTES = 1280 };

/* Request of the daemon to the fork server: fork one worker. */
struct tdm__fork_server_request {
    uint32_t has_output; /* 1 if descriptors for stdout and stderr follow, else 0. */
    /* Setting that the worker adds to its environment, "CUDA_VISIBLE_DEVICES=..."; "" for none.  It
     * differs between workers that one fork server forks. */
    char devices[TDM__DEVICES_SETTING_BYTES];
};

/* Serves requests of the daemon until the control socket closes, which ends the process. Returns
 * only in a forked worker, with its descriptors 3 and 4 in place. */
void tdm__fork_server_run_if_one(void);

#endif
