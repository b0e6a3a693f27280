/* actor_table.h - the table of actors of a node, the calls that wait for them, and the tombstones
 * of ended actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_TABLE_H
#define TDM_ACTORS_DAEMON_ACTOR_TABLE_H

#include "actors/daemon/actor_entry.h"

/* Creates the empty table, which is stored in node->actors. */
tdm_status tdm__actor_table_create(struct tdm__node *node);
/* Frees the table, which must be empty, with its tombstones and end waits. */
void tdm__actor_table_destroy(struct tdm__node *node);

/* Returns the entry of the actor, or NULL. */
struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id);
/* Returns the tombstone of the actor, or NULL if it has not ended here or was forgotten. */
const struct actor_tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id);
/* Adds an entry to the table and takes ownership of `spec`. Returns NULL, and leaves `spec` to the
 * caller, when out of memory. */
struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec);
/* Removes the entry from the table, leaves a tombstone and frees it. Calls that wait for its start
 * fail with `status` and `text`. */
void tdm__actor_entry_remove(struct actor_entry *entry, tdm_status status, const char *text);
/* Makes `incoming`, which the entry takes over, wait for the start or the end of the actor. */
void tdm__actor_entry_add_waiter(struct actor_entry *entry, enum actor_waiter_kind kind,
                                 struct tdm__incoming_call *incoming);
/* Removes all calls that wait for the start, and calls reply(arg, call) for each. */
void tdm__actor_entry_reply_waiters(struct actor_entry *entry,
                                    void (*reply)(void *arg, struct tdm__incoming_call *incoming),
                                    void *arg);
/* Calls the callbacks of end waits for which no matching actor is left. */
void tdm__node_actors_check_end_waits(struct tdm__node *node);
/* Writes an array of (id, name, class, state, pid) of all entries. */
void tdm__node_actors_list(struct tdm__node *node, tdm_writer *writer);

/* Reports what happened to the actor: hands the event to the lifecycle through the daemon's table
 * of events. The entry may have been freed afterwards. */
void tdm__actor_entry_report(struct actor_entry *entry, struct actor_event event);

#endif
