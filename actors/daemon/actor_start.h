/* actor_start.h - starting the worker of an actor, and describing the actor to callers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_START_H
#define TDM_ACTORS_DAEMON_ACTOR_START_H

#include "actors/daemon/actor_entry.h"

/* Starts the actor's worker with the resources in entry->record; a failure is reported as the event
 * ACTOR_ON_WORKER_FAILED. */
void tdm__actor_entry_start(struct actor_entry *entry);
/* Handles the result of the actor's constructor: success with the worker's addresses, or failure
 * with `status` and `detail`. */
void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address);
/* Replies to the call "actor.identify" with a message actor_found: at once if the actor has its
 * name, waits for a place or is placed again; else as soon as it is decided whether it gets the
 * name. The call fails when the actor ends. Takes ownership of `incoming`. */
void tdm__actor_entry_identify(struct actor_entry *entry, struct tdm__incoming_call *incoming);
/* Replies to the calls of tdm__actor_entry_identify() that wait, if the state of the actor allows
 * that now. */
void tdm__actor_entry_answer_name_waiters(struct actor_entry *entry);
/* Sends the description of the actor to the calls that wait for its start. */
void tdm__actor_entry_answer_waiters(struct actor_entry *entry);
/* Replies to `incoming` with the description of the actor: (pid, node id, [gpu ...], unix address,
 * tcp address or nil, incarnation, metadata). */
void tdm__actor_entry_reply_description(const struct actor_entry *entry,
                                        struct tdm__incoming_call *incoming);

#endif
