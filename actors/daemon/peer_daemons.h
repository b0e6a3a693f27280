/* peer_daemons.h - connections to the daemons of other nodes, and calls over them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_PEER_DAEMONS_H
#define TDM_ACTORS_DAEMON_PEER_DAEMONS_H

#include "actors/daemon/node_state.h"

/* Creates the empty table of connections to other daemons, which is stored in node->peers. */
tdm_status tdm__node_peers_create(struct tdm__node *node);
/* Fails the forwarded calls that have no reply with TDM_E_NODE_LOST, closes the connections to
 * other daemons and frees their table. */
void tdm__node_peers_destroy(struct tdm__node *node);
/* Calls `method` of another node's daemon with the arguments in `packed`, which is copied, and
 * hands the reply to fn(arg, ...). TDM_E_NODE_LOST if the node cannot be reached. */
void tdm__node_forward(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       struct tdm_bytes packed, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg);

/* Like tdm__node_forward() for a method whose request is the message id_request. */
void tdm__node_send_id(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       const struct tdm__id *id, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg);
/* Like tdm__node_forward() for a method whose request is the message actor_query, of which only
 * the actor is set. */
void tdm__node_query_actor(struct tdm__node *node, const struct tdm__id *other, const char *method,
                           const struct tdm__id *actor, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                           void *arg);
/* Closes the connections to nodes that are not in `nodes`, the list of living nodes, which fails
 * the calls under way. So no call between daemons outlives a lease. Returns true if a node was lost
 * since the last update. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count);

#endif
