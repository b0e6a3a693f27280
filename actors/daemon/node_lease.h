/* node_lease.h - renews this node's lease in the store, and watches the leases of other nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_LEASE_H
#define TDM_ACTORS_DAEMON_NODE_LEASE_H

#include "actors/daemon/node_state.h"

/* Starts renewing this node's lease in the store and watching the leases of other nodes. */
tdm_status tdm__node_lease_create(struct tdm__node *node);
/* Stops renewing this node's lease and frees its state. A node without a lease is allowed. */
void tdm__node_lease_destroy(struct tdm__node *node);

#endif
