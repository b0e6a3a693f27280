/* supervisor.h - supervises a daemon and ends everything that the daemon leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_SUPERVISOR_H
#define TDM_RUNTIME_PROCESS_SUPERVISOR_H

#include <tandem/error.h>

struct tdm__fence; /* See fence.h. */

/* Arguments of tdm__supervisor_fork(); borrowed for the life of the supervisor. */
struct tdm__supervisor_options {
    /* Socket whose other end the driver holds, for a private daemon; -1 for a daemon that does not
     * belong to a driver. */
    int lifeline;
    const char *directory; /* Directory of the daemon for sockets and logs. */
    int remove_directory;  /* Not 0 if the supervisor removes `directory` at the end. */
    /* Processes that the supervisor kills when the lease of the node ends; NULL for none. */
    struct tdm__fence *fence;
};
/* Forks.  The child returns TDM_OK and becomes the daemon; the calling process becomes the
 * supervisor and never returns.  The supervisor is a subreaper and does nothing but wait, so no
 * bug of the daemon can end it.  It handles these events:
 *
 * - The daemon ends: the supervisor kills everything that the daemon has started, also processes in
 *   sessions of their own. It removes `directory` if `remove_directory` is set, and exits with the
 *   code of the daemon, or 128 + the number of its signal.
 * - The other end shuts the lifeline down: the supervisor sends SIGTERM to the daemon, which
 *   shuts down gracefully.
 * - The other end closes the lifeline, or the process that created it ends: the driver is dead,
 *   so the supervisor kills everything by SIGKILL.  A child that the driver has forked may keep
 *   the lifeline open; therefore both are watched.
 * - SIGTERM or SIGINT arrives: the supervisor sends SIGTERM to the daemon.
 * - SIGQUIT arrives: the supervisor kills everything by SIGKILL.
 * - The lease of the node ends: the supervisor kills the processes of `fence` by SIGKILL.
 *
 * With a lifeline the supervisor starts a session of its own, so that Ctrl-C in a terminal
 * reaches only the driver.  The kernel kills the daemon if the supervisor dies.  Call this before
 * any thread is started.  If pidfd_open(2), signalfd(2) or fork(2) fails, there is no daemon, and
 * the calling process gets TDM_E_IO or TDM_E_NOMEM. */
tdm_status tdm__supervisor_fork(const struct tdm__supervisor_options *options);

#endif
