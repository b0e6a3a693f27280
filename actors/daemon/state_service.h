/* state_service.h - lists of actors, calls, objects, nodes and groups, for tools. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_STATE_SERVICE_H
#define TDM_ACTORS_DAEMON_STATE_SERVICE_H

#include "runtime/service.h"

/* The service "state", for tdm__services_add() with the node as `self`. A list consists of records,
 * which are maps and are read by actors/client/cluster_state.c. "state.list" (kind) lists the whole
 * cluster; kind is "actors", "calls", "each call", "objects", "nodes" or "groups". It replies with
 * ([record ...], silent nodes, silent processes, records left out). "state.here" (kind) lists the
 * actors, calls or objects of this node alone and replies with ([record ...], silent processes,
 * records left out). */
extern const struct tdm__service_ops tdm__state_service;

#endif
