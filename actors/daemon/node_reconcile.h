/* node_reconcile.h - writes what this node holds into a store that has lost changes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_RECONCILE_H
#define TDM_ACTORS_DAEMON_NODE_RECONCILE_H

#include "actors/daemon/node_state.h"

/* Prepares for changes of the store's generation. */
tdm_status tdm__node_reconcile_create(struct tdm__node *node);
/* Frees what tdm__node_reconcile_create() has created. A node without it is allowed. */
void tdm__node_reconcile_destroy(struct tdm__node *node);

/* Handles what a renewal of the lease has shown: the generation of the store, and whether no
 * missing node counts as lost (`is_held`). `known` are the nodes that this daemon knew before the
 * renewal, or, at its first one, those of the store's list; they are borrowed during the call. In a
 * new generation this node writes its records again. */
void tdm__node_reconcile_renewed(struct tdm__node *node, uint64_t generation, bool is_held,
                                 const struct tdm__node_record *known, uint32_t known_count);
/* Writes this node's records again, after it has joined again. */
void tdm__node_reconcile_start(struct tdm__node *node);
/* Removes the placements on this node that nobody will start any more, because the node of the
 * actor's creator was lost, and gives their resources back. Called after the loss of a node. */
void tdm__node_reconcile_orphans(struct tdm__node *node);
/* Continues what could not be done before. Called once a second, and more often by itself while the
 * store lacks records of a new generation. */
void tdm__node_reconcile_continue(struct tdm__node *node);

#endif
