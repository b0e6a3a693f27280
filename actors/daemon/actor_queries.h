/* actor_queries.h - queries about one actor, by id or by name, on whatever node it runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_QUERIES_H
#define TDM_ACTORS_DAEMON_ACTOR_QUERIES_H

#include "actors/daemon/actor_entry.h"

/* Serves "actor.await", "actor.fate", "actor.kill", "actor.why" and "actor.release"; takes
 * `incoming`. */
void tdm__node_serve_actor_query(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Serves "actor.find" (name space, name) with (id, class, description); takes `incoming`. */
void tdm__node_serve_actor_find(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Repeats the early queries whose actor is in the table now, and fails those that are overdue at
 * `now_ms`. */
void tdm__node_retry_early_queries(struct tdm__node *node, int64_t now_ms);
/* Replies to the calls that wait for the start with the actor that holds the wanted name
 * (get_if_exists). Reports to the lifecycle whether that actor was found. */
void tdm__actor_entry_reply_name_holder(struct actor_entry *entry);

#endif
