/* node_lease.h - renews this node's lease in the store, and watches the leases of other nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_LEASE_H
#define TDM_ACTORS_DAEMON_NODE_LEASE_H

#include "actors/daemon/node_state.h"

/* Creates this node's lease, joins the cluster, and reports the outcome to `fn`, with `arg` as its
 * first argument: success once the node is in the store and knows its epoch. From then on renews
 * the lease and watches the list of nodes. */
tdm_status tdm__node_lease_start(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg);
/* Renews the lease now, because the store may be another one. Before tdm__node_lease_start()
 * nothing happens. */
void tdm__node_lease_check(struct tdm__node *node);
/* Must be called before another node can reach the store that this daemon has started: from now on
 * the lease of this node can end. */
void tdm__node_store_shared(struct tdm__node *node);
/* Stops renewing the lease, and removes this node from the list of nodes, so that the others do not
 * wait for the end of its lease. Only for a node whose actors have ended. Reports the outcome to
 * `fn`, with `arg` as its first argument. */
tdm_status tdm__node_leave(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg);
/* Stops renewing this node's lease and frees its state. A node without a lease is allowed. */
void tdm__node_lease_destroy(struct tdm__node *node);

#endif
