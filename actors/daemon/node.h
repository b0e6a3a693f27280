/* node.h - starting and stopping the state of a daemon, and the service "node". */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_H
#define TDM_ACTORS_DAEMON_NODE_H

#include "actors/daemon/node_state.h"

/* Creates the parts of the daemon and joins the cluster. fn(arg, ...) is called once the node's
 * record and resources are in the store and the node knows its epoch. */
tdm_status tdm__node_start(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg);
/* Ends every actor of the node gracefully; fn(arg) is called when no actor is left. */
void tdm__node_end_actors(struct tdm__node *node, void (*fn)(void *arg), void *arg);
/* Kills the remaining workers and frees the parts of the daemon; the node's records in the store
 * expire with its lease. */
void tdm__node_stop(struct tdm__node *node);

/* Passes a call to the service that handles its method. A daemon at the address of an earlier one
 * may be called before tdm__node_start(): then it refuses all calls with TDM_E_AGAIN, except those
 * of nodes that join: to the services "node" and "store". */
void tdm__node_serve(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Handles the closed connection of a driver or daemon: the actors and groups of a driver end. */
void tdm__node_peer_closed(struct tdm__node *node, const struct tdm__peer_identity *peer);

/* The functions by which lower files of this folder report to higher ones, for `events` of struct
 * tdm__node. */
extern const struct tdm__node_events tdm__node_events;

/* The service "node", for tdm__services_add() with the node as `self`. */
extern const struct tdm__service_ops tdm__node_service;

#endif
