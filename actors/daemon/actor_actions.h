/* actor_actions.h - hands events to an actor's lifecycle and carries out its actions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_ACTIONS_H
#define TDM_ACTORS_DAEMON_ACTOR_ACTIONS_H

#include "actors/daemon/actor_entry.h"

/* Hands an event with the current facts to the actor's state machine and carries out the resulting
 * actions. The entry may have been freed afterwards. The function is `actor_event` of struct
 * tdm__node_events. */
void tdm__actor_entry_handle(struct actor_entry *entry, struct actor_event event);

#endif
