/* actor_health.h - pings worker processes, and kills those that do not respond. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_HEALTH_H
#define TDM_ACTORS_DAEMON_ACTOR_HEALTH_H

#include "actors/daemon/actor_entry.h"

/* Starts pinging the workers of this node, if the node has a health timeout. */
tdm_status tdm__node_health_start(struct tdm__node *node);
/* Stops pinging the workers of this node. */
void tdm__node_health_stop(struct tdm__node *node);
/* Pings the actor's worker for a caller that lost its connection, then replies to the call
 * `incoming`, which it owns, with the actor's description. If the worker does not respond, the
 * reply describes the next incarnation or the death. */
void tdm__actor_entry_ping(struct actor_entry *entry, struct tdm__incoming_call *incoming);

#endif
