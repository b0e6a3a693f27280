/* actor_facts.h - what the lifecycle of an actor needs to know about the actor and its node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_FACTS_H
#define TDM_ACTORS_DAEMON_ACTOR_FACTS_H

#include "actors/daemon/actor_entry.h"

/* Returns what the state machine of the entry's actor needs to know about the actor and its node.
 */
struct actor_facts tdm__actor_entry_facts(const struct actor_entry *entry);

#endif
