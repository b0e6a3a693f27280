/* actor_cpus.h - actors that lend their CPUs while their methods wait. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_CPUS_H
#define TDM_ACTORS_DAEMON_ACTOR_CPUS_H

#include "actors/daemon/actor_entry.h"

/* Serves the call "actor.cpus" of a worker: its actor lends its CPUs or takes them back. Replies at
 * once. */
void tdm__node_serve_actor_cpus(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Takes back what the actor has lent, because its next worker starts. */
void tdm__actor_entry_take_cpus_back(struct actor_entry *entry);

#endif
