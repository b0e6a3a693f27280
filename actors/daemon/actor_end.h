/* actor_end.h - the requested and unrequested end of an actor's worker process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_END_H
#define TDM_ACTORS_DAEMON_ACTOR_END_H

#include "actors/daemon/actor_entry.h"

/* Handles the end of the actor's worker process; `arg` is the entry. Its type is
 * tdm__worker_ended_fn. */
void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status);
/* Ends the actor without a restart: with SIGKILL if `at_once`, else gracefully. */
void tdm__actor_entry_end(struct actor_entry *entry, bool at_once);
/* Kills the worker of the actor; the actor is restarted if it has restarts left. */
void tdm__actor_entry_kill_process(struct actor_entry *entry);
/* Handles the release of the last handle to the actor, which ends after the calls that were made.
 */
void tdm__actor_entry_release(struct actor_entry *entry);
/* Handles the actor's own request to end after the methods that are running. */
void tdm__actor_entry_exit_requested(struct actor_entry *entry);
/* Expects the actor's worker to exit by itself, and kills the worker after `patience_ms`
 * milliseconds; 0 means no limit. */
void tdm__actor_entry_expect_exit(struct actor_entry *entry, int64_t patience_ms);
/* Asks the actor's worker to exit, and kills the worker after `patience_ms` milliseconds. With
 * `drain` the worker first executes the calls that it has received. */
void tdm__actor_entry_ask_to_leave(struct actor_entry *entry, bool drain, int64_t patience_ms);
/* Kills the actor's worker process, if there is one. */
void tdm__actor_entry_kill_now(struct actor_entry *entry);
/* Sets the actor's timer, which reports the event ACTOR_ON_TIMER after `delay_ms` milliseconds. */
void tdm__actor_entry_start_later(struct actor_entry *entry, int64_t delay_ms);

/* Ends the actors of this node for which matches(spec, key) is true: at once, or gracefully.
 * fn(arg) is called when these actors are gone, maybe before this function returns; `fn` may be
 * NULL. */
void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg);
/* Matching function for tdm__node_actors_end(): true if the actor ends with the creator whose id is
 * `creator`. That is every actor that is not detached, and every one that still waits for the
 * creator's arguments. */
bool tdm__node_actor_ends_with(const struct tdm__actor_spec *spec, const void *creator);

#endif
