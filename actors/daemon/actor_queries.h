/* actor_queries.h - queries about one actor, by id, on whatever node it runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_QUERIES_H
#define TDM_ACTORS_DAEMON_ACTOR_QUERIES_H

#include "actors/daemon/actor_entry.h"

/* Serves the calls "actor.await", "actor.identify", "actor.fate", "actor.kill", "actor.why" and
 * "actor.release". Takes ownership of `incoming`. */
void tdm__node_serve_actor_query(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Carries out the early queries whose actor has arrived in the table of actors, and fails the early
 * queries whose deadline is before `now_ms` on CLOCK_MONOTONIC. */
void tdm__node_retry_early_queries(struct tdm__node *node, int64_t now_ms);

#endif
