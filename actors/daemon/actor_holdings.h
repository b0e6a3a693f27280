/* actor_holdings.h - what the actors of this node hold, according to the daemon's own table. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_HOLDINGS_H
#define TDM_ACTORS_DAEMON_ACTOR_HOLDINGS_H

#include "actors/daemon/actor_entry.h"

/* Returns TDM_E_NO_RESOURCES with the reason if this node cannot hold an actor that the store has
 * placed here. There are three reasons: the store lost changes since it placed the actor in its
 * generation `generation`; this node has removed the placement; or another actor of this node holds
 * the resources of `record`. The actor has to be placed again.
 * CPUs and named resources are only checked while nodes write their records into a store that has
 * lost changes, because at other times actors may take back CPUs that they had lent. */
tdm_status tdm__node_check_placement(const struct tdm__node *node,
                                     const struct tdm__actor_record *record, uint64_t generation);

/* Fails if an actor that the store has placed on this node in the epoch `epoch` of this node must
 * not be started, because this node was lost since: the others have removed the placement, or will
 * do so. TDM_E_NO_RESOURCES: the actor has to be placed again. TDM_E_AGAIN: this node has joined
 * again and does not know its epoch yet. */
tdm_status tdm__node_check_placed_epoch(const struct tdm__node *node, uint64_t epoch);

/* Returns the records of the actors that hold resources of this node. The caller frees the array.
 */
struct tdm__actor_record *tdm__node_held_records(const struct tdm__node *node, uint32_t *count_out);

/* Notes that this node has removed a placement on it from the store: tdm__node_check_placement()
 * refuses it from now on, and the daemon refuses to start it. Only the latest
 * REMOVED_PLACEMENTS_MAX are noted. */
void tdm__node_placement_removed(struct tdm__node *node,
                                 const struct tdm__removed_placement *removed);

#endif
