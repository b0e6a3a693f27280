/* actor_actions.h - hands events to an actor's lifecycle and carries out its actions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_ACTIONS_H
#define TDM_ACTORS_DAEMON_ACTOR_ACTIONS_H

#include "actors/daemon/actor_entry.h"

/* Adds the facts to the event, hands it to the lifecycle and carries out the resulting actions. The
 * entry may have been freed afterwards. It is `actor_event` of struct tdm__node_events. */
void tdm__actor_entry_handle(struct actor_entry *entry, struct actor_event event);

#endif
