/* state_processes.h - collects the objects and calls of the processes of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_STATE_PROCESSES_H
#define TDM_ACTORS_DAEMON_STATE_PROCESSES_H

#include "actors/daemon/node_state.h"

/* Callback that receives the reply to "state.here" in `part`, borrowed, or a failure. Called once,
 * maybe before tdm__state_query_processes() returns or while the node stops. */
typedef void tdm__local_state_fn(void *arg, tdm_status status, struct tdm_bytes part);
/* Asks the processes of this node for their records of `kind`, objects or calls, and passes the
 * collected list to fn(arg, ...). `arg` must stay valid until then. */
void tdm__state_query_processes(struct tdm__node *node, const char *kind, tdm__local_state_fn *fn,
                                void *arg);

#endif
