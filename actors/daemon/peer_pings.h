/* peer_pings.h - finds out whether other nodes answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_PEER_PINGS_H
#define TDM_ACTORS_DAEMON_PEER_PINGS_H

#include "actors/daemon/node_state.h"

/* Starts to ping the daemons of all known nodes, ten times in node->unreachable_ms. A node that has
 * not answered for that time is unreachable, and the processes of this node are told so; they are
 * told when it answers again. Nothing is started if node->unreachable_ms is 0. */
tdm_status tdm__node_pings_create(struct tdm__node *node);
/* Stops the pings. A node without pings is allowed. */
void tdm__node_pings_destroy(struct tdm__node *node);

#endif
