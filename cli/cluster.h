/* cluster.h - the way from a command to a running cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_CLUSTER_H
#define TDM_CLI_CLUSTER_H

#include "cli/command.h"

#include <stdbool.h>
#include <tandem/state.h>
#include <tandem/value.h>

/* What a command may wait for an answer. */
enum { TDM__CLUSTER_TIMEOUT_MS = 5000 };

/* Joins the node of --address, of TANDEM_ADDRESS, or the only one of this user on this machine.
 * Never starts one. */
tdm_status tdm__cluster_join(const struct tdm__parsed_arguments *args, tdm_runtime **runtime_out);
/* Is the actor called so, or does its id begin so (at least 4 digits)? */
bool tdm__cluster_actor_matches(const struct tdm_actor_state *actor, const char *word);
/* Calls `method` with the node's id, for an answer that only that node has. */
tdm_status tdm__cluster_call_node(tdm_runtime *runtime, const char *method, const char *node_id,
                                  tdm_document **document_out);
/* Leaves it; returns the exit code, having printed what went wrong if `status` is a failure. */
int tdm__cluster_leave(tdm_runtime *runtime, tdm_status status);

#endif
