/* supervisor.h - the process that holds a daemon, and ends whatever the daemon leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_SUPERVISOR_H
#define TDM_RUNTIME_PROCESS_SUPERVISOR_H

#include <tandem/error.h>

/* Forks: the child returns TDM_OK and becomes the daemon; this process never returns.  It is a
 * subreaper, does nothing but wait, and so outlives every mistake of the daemon:
 *
 * - the daemon ends: everything it started is killed, children in sessions of their own
 *   included; `directory` is removed if `remove_directory`; exit with the daemon's code, or 128
 *   + its signal;
 * - `lifeline` is shut down by its other end: SIGTERM to the daemon, which ends in good order;
 * - `lifeline` is closed by its other end, or the process that made it ends: SIGKILL to all; the
 *   driver is dead (a child that it forked may hold the lifeline open);
 * - SIGTERM, SIGINT: passed on as SIGTERM.
 *
 * With a lifeline the supervisor leads a session of its own, so that Ctrl-C in a terminal reaches
 * the driver alone.  `lifeline` is -1 for a daemon that belongs to nobody.  The daemon dies if the
 * supervisor does.  Call before any thread is started. */
struct tdm__supervisor_options {
    int lifeline;
    const char *directory;
    int remove_directory;
};
tdm_status tdm__supervisor_fork(const struct tdm__supervisor_options *options);

#endif
