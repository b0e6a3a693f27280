/* peer_daemons.h - connections to the daemons of other nodes, and calls over them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_PEER_DAEMONS_H
#define TDM_ACTORS_DAEMON_PEER_DAEMONS_H

#include "actors/daemon/node_state.h"
#include "actors/daemon/reachability.h"

/* Another node that was in the list of living nodes and is not lost. The table of connections owns
 * it. */
struct tdm__live_node {
    struct tdm__live_node *next;    /* Next known node of the table. */
    struct tdm__node_record record; /* Record of the node in the latest list that had the node. */
    struct tdm__reachability reachability; /* Whether the node answers (peer_pings.c). */
    bool ping_is_sent;                     /* True while a ping of the node has no reply. */
    /* True if the machine of the node said that its daemon does not listen any more: the daemon has
     * ended, and with it the processes of its actors. */
    bool refuses;
};

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

/* Returns the first of the known nodes, a list; NULL if there is none. */
struct tdm__live_node *tdm__node_peers_known(const struct tdm__node *node);
/* Returns the known node `id`, or NULL. */
struct tdm__live_node *tdm__node_peers_find(const struct tdm__node *node, const struct tdm__id *id);
/* Returns the status of a request to the node `id` that failed with TDM_E_NODE_LOST and `detail`,
 * and writes its text to `text`. TDM_E_NODE_LOST: the node is lost, or its machine says that its
 * daemon has ended. TDM_E_ACTOR_UNAVAILABLE: the node is unreachable. TDM_E_AGAIN: it has been
 * silent for less than that, so the request may be repeated. */
tdm_status tdm__node_peer_explain(const struct tdm__node *node, const struct tdm__id *id,
                                  const char *detail, char *text, size_t text_bytes);
/* Writes to `text` for how long the node `known` has not answered, and when it counts as lost. */
void tdm__live_node_explain(const struct tdm__node *node, const struct tdm__live_node *known,
                            char *text, size_t text_bytes);
/* Adds the nodes of `nodes`, a list of living nodes, to the known nodes. */
void tdm__node_peers_note(struct tdm__node *node, const struct tdm__node_record *nodes,
                          uint32_t nodes_count);
/* Handles the list `nodes` of the living nodes, which is complete: known nodes that are not in it
 * are lost (tdm__node_lost()), which fails the calls under way. So no call between daemons outlives
 * a lease. Returns true if a node was lost since the last update. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count);
/* Handles the loss of nodes that were in no list of this daemon, because they joined and were lost
 * between two lists, but whose processes have connections with it. `nodes` is the complete list of
 * the living nodes, and `list_epoch` its epoch. A node whose processes state this epoch or a lower
 * one, and which is not in the list, has left it; one with a higher epoch joined later. */
void tdm__node_peers_lose_unlisted(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count, uint64_t list_epoch);

#endif
