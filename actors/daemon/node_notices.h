/* node_notices.h - tells the processes of this node what happens to nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_NOTICES_H
#define TDM_ACTORS_DAEMON_NODE_NOTICES_H

#include "actors/daemon/node_state.h"

struct tdm__conn;

/* Creates the list of what new processes have to be told, which is stored in node->notices. */
tdm_status tdm__node_notices_create(struct tdm__node *node);
/* Frees the list. A node without one is allowed. */
void tdm__node_notices_destroy(struct tdm__node *node);

/* The node in `lost` is lost in the epoch of this record: this daemon and all processes of its node
 * close their connections with it, and refuse processes of this epoch and of lower ones from now
 * on. This is the only function by which the loss of a node takes effect on connections. */
void tdm__node_lost(struct tdm__node *node, const struct tdm__node_record *lost);
/* Returns true if this daemon has counted the node `other` as lost in `epoch` or a higher one. */
bool tdm__node_was_lost(const struct tdm__node *node, const struct tdm__id *other, uint64_t epoch);
/* Another node has not answered for too long. `text` says so and when it will count as lost. */
void tdm__node_notices_unreachable(struct tdm__node *node, const struct tdm__id *other,
                                   const char *text);
/* Another node that was unreachable answers again. */
void tdm__node_notices_reachable(struct tdm__node *node, const struct tdm__id *other);

/* This node is in `epoch`, because it has joined the cluster: its daemon states that in handshakes
 * from now on, and so do its processes. A worker whose actor belongs to another node stays in the
 * old epoch until that node has confirmed the actor (tdm__node_notices_confirm()), because that
 * node may have started the actor again elsewhere. */
void tdm__node_set_epoch(struct tdm__node *node, uint64_t epoch);
/* The node of the actor's creator counts on the actor: its worker learns the epoch of this node. */
void tdm__node_notices_confirm(const struct actor_entry *entry);
/* Tells a new process of this node what it has to know. `conn` is its connection to this daemon,
 * whose handshake may be under way. */
void tdm__node_notices_greet(struct tdm__node *node, struct tdm__conn *conn);

#endif
