/* actor_service.h - the actors of a daemon, and the service "actor". */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_SERVICE_H
#define TDM_ACTORS_DAEMON_ACTOR_SERVICE_H

#include "actors/daemon/node_state.h"

/* Creates the table of actors of the node and starts the health checks of the workers. */
tdm_status tdm__node_actors_create(struct tdm__node *node);
/* Fails all calls that wait for actors and frees the table of actors. */
void tdm__node_actors_destroy(struct tdm__node *node);

/* The service "actor", for tdm__services_add() with the node as `self`. */
extern const struct tdm__service_ops tdm__actor_service;

#endif
