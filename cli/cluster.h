/* cluster.h - connects a command of tandem to a running cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_CLUSTER_H
#define TDM_CLI_CLUSTER_H

#include "cli/command.h"

#include <stdbool.h>
#include <tandem/state.h>
#include <tandem/value.h>

/* Milliseconds for which a command waits for a reply of the cluster. */
enum { TDM__CLUSTER_TIMEOUT_MS = 5000 };

/* Joins the cluster through the node of --address or of TANDEM_ADDRESS, or else through the only
 * node of this user on this machine. Never starts a node. The caller leaves the cluster with
 * tdm__cluster_leave(). */
tdm_status tdm__cluster_join(const struct tdm__parsed_arguments *args, tdm_runtime **runtime_out);
/* Returns whether `word`, from the command line, is the actor's name or at least the first 4 digits
 * of its ID. */
bool tdm__cluster_actor_matches(const struct tdm_actor_state *actor, const char *word);
/* Calls a method of the daemon to which this command is connected. The reply describes the node
 * `node_id`. Blocks for at most TDM__CLUSTER_TIMEOUT_MS. The caller destroys the document. */
tdm_status tdm__cluster_call_node(tdm_runtime *runtime, const char *method, const char *node_id,
                                  tdm_document **document_out);
/* Leaves the cluster and returns the exit code of the command. Prints the error first if `status`
 * is a failure. */
int tdm__cluster_leave(tdm_runtime *runtime, tdm_status status);

#endif
