/* actor_end.h - the requested and unrequested end of an actor's worker process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_END_H
#define TDM_ACTORS_DAEMON_ACTOR_END_H

#include "actors/daemon/actor_entry.h"

/* Handles the end of the actor's worker process; `arg` is the entry. Its type is
 * tdm__worker_ended_fn. */
void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status);
/* Ends the actor without a restart: at once, or gracefully. */
void tdm__actor_entry_end(struct actor_entry *entry, bool at_once);
/* Kills the worker; the actor is restarted if it has restarts left. */
void tdm__actor_entry_kill_process(struct actor_entry *entry);
/* Handles the release of the last handle: the actor ends after the calls that were made. */
void tdm__actor_entry_release(struct actor_entry *entry);
/* Handles the actor's own request to end after the methods that are running. */
void tdm__actor_entry_exit_requested(struct actor_entry *entry);
/* Expects the worker to exit by itself, and kills it after `patience_ms`; 0 means no limit. */
void tdm__actor_entry_expect_exit(struct actor_entry *entry, int64_t patience_ms);
/* Asks the worker to exit, with `drain` after the calls that it has received, and kills it after
 * `patience_ms`. */
void tdm__actor_entry_ask_to_leave(struct actor_entry *entry, bool drain, int64_t patience_ms);
/* Kills the worker, if there is one. */
void tdm__actor_entry_kill_now(struct actor_entry *entry);
/* Reports ACTOR_ON_TIMER after `delay_ms`. */
void tdm__actor_entry_start_later(struct actor_entry *entry, int64_t delay_ms);

/* Ends the actors for which matches(spec, key) is true: at once, or gracefully. fn(arg) is called
 * when they are gone, maybe before this returns; `fn` may be NULL. */
void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg);
/* Matching function for tdm__node_actors_end(): true if the actor ends with the creator whose id is
 * `creator`. That is every actor that is not detached, and every one that still waits for the
 * creator's arguments. */
bool tdm__node_actor_ends_with(const struct tdm__actor_spec *spec, const void *creator);

#endif
