/* supervisor_watch.h - notices that the supervisor of this daemon is stopped, and continues it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_SUPERVISOR_WATCH_H
#define TDM_RUNTIME_PROCESS_SUPERVISOR_WATCH_H

#include "runtime/loop/loop.h"

#include <sys/types.h>

/* A regular look at the supervisor of this process. Without a supervisor that runs, the processes
 * of a node can outlive its daemon. It cannot be replaced, since it is the daemon's parent. */
struct tdm__supervisor_watch;

/* Looks at the process `supervisor` each second. If it is stopped twice in a row, by SIGSTOP for
 * example, that is logged with its process ID, and SIGCONT continues it. `loop` is borrowed; the
 * watch is used on its thread only. */
tdm_status tdm__supervisor_watch_create(struct tdm__loop *loop, pid_t supervisor,
                                        struct tdm__supervisor_watch **watch_out);
/* Ends the watch and frees it. NULL is allowed. */
void tdm__supervisor_watch_destroy(struct tdm__supervisor_watch *watch);

#endif
