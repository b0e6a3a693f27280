/* node_changes.h - what this process does when a node is lost, does not answer, or answers again.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_NODE_CHANGES_H
#define TDM_ACTORS_CLIENT_NODE_CHANGES_H

#include "actors/client/client_records.h"

/* Serves "process.node_change", by which the daemon of this node tells of a change, and replies.
 * Returns false for any other method. The changes are listed in actors/common/node_change.h. */
bool tdm__node_change_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);
/* Frees what the client side knows of nodes that do not answer. */
void tdm__node_changes_forget(tdm_runtime *runtime);

#endif
