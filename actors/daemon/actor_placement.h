/* actor_placement.h - reserving resources and the name of an actor in the store, and giving them
 * back. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_PLACEMENT_H
#define TDM_ACTORS_DAEMON_ACTOR_PLACEMENT_H

#include "actors/daemon/actor_entry.h"

/* Asks the store to reserve the actor's resources and name; the result becomes an event of the
 * actor. */
void tdm__actor_entry_reserve(struct actor_entry *entry);
/* Gives the actor's resources and name back to the store, and repeats the request until the store
 * has taken them. Calls that wait for the end of the actor get their replies when its name is free.
 */
void tdm__actor_entry_release_placement(struct actor_entry *entry,
                                        enum actor_reservation reservation);
/* True while the store has not yet taken back earlier resources of this actor, or has not yet taken
 * back the actor's name from its last holder. */
bool tdm__actor_entry_is_returning(const struct actor_entry *entry);
/* Writes the actor's lost record into the store again; the result arrives as the event
 * ACTOR_ON_REWRITTEN. */
void tdm__actor_entry_rewrite(struct actor_entry *entry);

/* Returns the resources that actors of this node hold now, for joining again after a lost lease.
 * The caller frees the array. */
struct tdm__grant *tdm__node_actor_grants(const struct tdm__node *node, uint32_t *count_out);
/* Returns the IDs of all actors of the table, and of those whose release the store has not carried
 * out yet. The caller frees the array. */
struct tdm__id *tdm__node_known_actors(const struct tdm__node *node, uint32_t *count_out);
/* Marks the record of an actor that runs on this node as lost; it is written again. */
void tdm__actor_entry_record_lost(struct actor_entry *entry);
/* Marks the records of actors as lost, because this node joins again and the store may have lost
 * its data. */
void tdm__node_actors_records_lost(struct tdm__node *node);
/* Writes lost records of actors into the store again, once the node has joined again. */
void tdm__node_actors_rewrite(struct tdm__node *node);
/* Returns whether the store has all records of actors that tdm__node_actors_records_lost() has
 * marked, apart from names for which it must be waited. */
bool tdm__node_actors_are_written(const struct tdm__node *node);
/* Returns whether, in addition, the store has all names of such actors. */
bool tdm__node_actors_have_names(const struct tdm__node *node);
/* Sends no releases from now on. Returns false and does nothing if a request of a release is under
 * way. */
bool tdm__node_releases_pause(struct tdm__node *node);
/* Sends the releases that have waited since tdm__node_releases_pause(). */
void tdm__node_releases_resume(struct tdm__node *node);
/* Tries again to place the actors of the table that wait for resources, because some may be free
 * now. */
void tdm__node_actors_retry(struct tdm__node *node);

#endif
