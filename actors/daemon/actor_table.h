/* actor_table.h - the table of actors of a node, the calls that wait for them, and the tombstones
 * of ended actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_TABLE_H
#define TDM_ACTORS_DAEMON_ACTOR_TABLE_H

#include "actors/daemon/actor_entry.h"

/* Creates the empty table of actors, which is stored in node->actors. */
tdm_status tdm__actor_table_create(struct tdm__node *node);
/* Frees the table of actors, which must be empty, with its tombstones and waiting callbacks. */
void tdm__actor_table_destroy(struct tdm__node *node);

/* Returns the entry of the actor `id` in the daemon's table, or NULL. */
struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id);
/* Returns how the actor `id` ended, or NULL if the actor has not ended on this node or its
 * tombstone was overwritten. */
const struct actor_tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id);
/* Adds a new actor to the daemon's table and takes ownership of `spec`. Returns NULL, and leaves
 * `spec` to the caller, when out of memory. */
struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec);
/* Removes an ended actor from the daemon's table, leaves a tombstone and frees the entry. Calls
 * that wait for the actor's start or name fail with `status` and `text`. */
void tdm__actor_entry_remove(struct actor_entry *entry, tdm_status status, const char *text);
/* Makes the call `incoming`, which the entry takes over, wait for what `kind` says of the actor. */
void tdm__actor_entry_add_waiter(struct actor_entry *entry, enum actor_waiter_kind kind,
                                 struct tdm__incoming_call *incoming);
/* Removes all calls that wait for what `kind` says, and calls reply(arg, call) for each. */
void tdm__actor_entry_reply_waiters(struct actor_entry *entry, enum actor_waiter_kind kind,
                                    void (*reply)(void *arg, struct tdm__incoming_call *incoming),
                                    void *arg);
/* Runs the callbacks that wait for the end of certain actors (struct actors_end_wait) and have no
 * matching actor left. */
void tdm__node_actors_check_end_waits(struct tdm__node *node);

/* Reports an event of the actor to the actor's state machine, through node->events. The entry may
 * have been freed afterwards. */
void tdm__actor_entry_report(struct actor_entry *entry, struct actor_event event);

#endif
