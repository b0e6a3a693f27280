/* actor_remote.h - actors that run on another node, and the loss of that node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_REMOTE_H
#define TDM_ACTORS_DAEMON_ACTOR_REMOTE_H

#include "actors/daemon/actor_entry.h"
#include "runtime/messages/messages.h"

/* Asks the daemon of the node whose resources are reserved to start the actor. */
void tdm__actor_entry_start_remote(struct actor_entry *entry);
/* Asks the daemon of the actor's node to kill the actor, or to end it gracefully. */
void tdm__actor_entry_end_remote(struct actor_entry *entry, bool at_once);
/* Asks the daemon of the actor's node to kill an actor that it was asked to end gracefully. */
void tdm__actor_entry_hurry_remote(const struct actor_entry *entry);
/* Tells the daemon of the actor's node that the last handle is gone. */
void tdm__actor_entry_release_on_other(const struct actor_entry *entry);
/* Passes `reply`, the other daemon's reply to the start of the actor, to the calls that wait for
 * the start. */
void tdm__actor_entry_pass_reply(struct actor_entry *entry, const struct tdm__rpc_reply *reply);
/* Tells the daemon of the owner's node, if that is another node, that the actor has ended and is
 * not restarted here. The report is repeated until that daemon has replied or its node is lost. */
void tdm__actor_entry_notify_owner(const struct actor_entry *entry, tdm_status status,
                                   const char *text);
/* Sends the reports again that have no reply. */
void tdm__node_actors_report_ends(struct tdm__node *node);
/* Frees the reports that have no reply. No call of this daemon to another is under way. */
void tdm__node_actors_drop_reports(struct tdm__node *node);
/* Handles the message of node `other` that an actor owned by this node has ended there. */
void tdm__node_remote_actor_ended(struct tdm__node *node, const struct tdm__id *other,
                                  const struct tdm__actor_ended_message *message);
/* True if the actor will be created on another node when its node is lost. */
bool tdm__actor_entry_survives_node_loss(const struct actor_entry *entry);
/* Serves "actor.known" (id): does this node still count on the actor at the asking node? Takes
 * `incoming`. */
void tdm__node_serve_actor_known(struct tdm__node *node, struct tdm__incoming_call *incoming);

/* Compares the actors of this node's processes that run on other nodes with the list of living
 * nodes: those whose node was lost since they were placed on it, even if it has joined again, are
 * created again or lost. `is_held`: no node was lost, but the store may have lost the records of
 * nodes, which have joined again. */
void tdm__node_remote_actors_update_nodes(struct tdm__node *node,
                                          const struct tdm__node_record *nodes,
                                          uint32_t nodes_count, bool is_held);
/* A node was lost that had this epoch: the actors on this node end that it placed in this epoch or
 * earlier. Those that it has placed since it joined again stay. Drops reports of ends in the same
 * way. */
void tdm__node_actors_lose_owner(struct tdm__node *node, const struct tdm__id *lost,
                                 uint64_t epoch);
/* Compares the actors on this node with a list of nodes: those end whose owner's node is not in it.
 * `list_epoch` is the epoch of the list: it tells nothing of nodes that joined later, whose actors
 * stay. Drops reports to absent nodes in the same way. */
void tdm__node_actors_update_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count, uint64_t list_epoch);
/* Stops the actors that other nodes may take over when this node's lease expires: those with names,
 * with GPUs, or with restarts. */
void tdm__node_actors_fence(struct tdm__node *node);
/* This node was lost: the nodes of its actors may have ended those, and could not report that. */
void tdm__node_remote_actors_doubt(struct tdm__node *node);
/* Asks the other nodes for such actors, until each has said what it knows. */
void tdm__node_remote_actors_query(struct tdm__node *node);
/* After a lost lease asks the owner's node of each actor ("actor.known"), and ends the actors that
 * their owners have given up. */
void tdm__node_actors_query_owners(struct tdm__node *node);

#endif
