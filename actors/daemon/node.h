/* node.h - the state of a daemon, and the services that it offers in this layer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_H
#define TDM_ACTORS_DAEMON_NODE_H

#include "actors/daemon/worker_processes.h"
#include "runtime/process/oom.h"
#include "runtime/service.h"
#include "runtime/store.h"
#include "scheduler/reserve.h"

/* The state of one daemon, which represents a node of the cluster. cli/tandemd.c creates it and
 * fills the fields down to `print_logs`. The services "node", "actor" and "placement_group" work on
 * it. Only the daemon's loop thread uses it. */
struct tdm__node {
    struct tdm__loop *loop; /* Event loop of the daemon, borrowed. */
    struct tdm__rpc *rpc;   /* RPC endpoint of the daemon, borrowed. */
    /* Record store of the cluster, borrowed; NULL while the daemon stops. */
    struct tdm__store *store;
    /* Services of the daemon, borrowed; they are told when a process has exited. */
    struct tdm__services *services;
    /* Id, name and addresses of this node, as written to the store. */
    struct tdm__node_record record;
    struct tdm__node_resources totals; /* Resources that this node offers. */
    /* Secret that authenticates the processes of the cluster. */
    uint8_t token[TDM__TOKEN_BYTES];
    char directory[TDM__ADDRESS_BYTES]; /* Directory of this node for sockets and files. */
    /* Host at which this node listens for other nodes; "" on a single node. */
    char listen_host[TDM__ADDRESS_BYTES];
    char worker_program[TDM__PATH_BYTES]; /* Program for actors whose spec names none. */
    /* Returns the pid of a child that is not a worker (Redis), or 0; may be NULL. */
    pid_t (*exempt_child)(void);
    /* Milliseconds of silence after which a worker is killed; 0 for never. */
    int64_t health_timeout_ms;
    /* True if the output of workers is also printed on the daemon's stdout and stderr. */
    bool print_logs;

    struct tdm__workers *workers;                        /* Worker processes of this node, owned. */
    struct tdm__node_actors *actors;                     /* Table of actors, owned. */
    struct tdm__node_placement_groups *placement_groups; /* Table of placement groups, owned. */
    struct tdm__node_peers *peers;                       /* Connections to other daemons, owned. */
    struct tdm__worker_logs *logs;                       /* Output of the workers, owned. */
    struct tdm__node_state *state; /* Records of ended actors for lists, owned. */
    struct tdm__oom oom;           /* Counts of kills for lack of memory. */
    /* This node's lease in the store, owned; NULL while it does not run. */
    struct tdm__node_lease *lease;
    bool stopping; /* True once the daemon ends its actors. */
};

/* Joins the cluster. fn(arg, ...) is called once the node's record and resources are in the store.
 */
tdm_status tdm__node_start(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg);
/* Ends every actor gracefully; fn(arg) is called when none is left. */
void tdm__node_end_actors(struct tdm__node *node, void (*fn)(void *arg), void *arg);
/* Kills what is left and frees the state; the records in the store expire with their leases. */
void tdm__node_stop(struct tdm__node *node);

/* Handles the closed connection of a driver or daemon: the actors and groups of a driver end. */
void tdm__node_peer_closed(struct tdm__node *node, const struct tdm__peer_identity *peer);
/* Removes the sockets of a process of this node that has ended. */
void tdm__node_process_gone(const struct tdm__node *node, const struct tdm__id *process);
/* Returns the resources that actors of this node hold now, for joining again after a lost lease.
 * The caller frees the array. */
struct tdm__grant *tdm__node_actor_grants(struct tdm__node *node, uint32_t *count_out);

/* ---- actors (actor_service.c) ----------------------------------------------------------- */

/* Creates the table of actors and starts the health checks. */
tdm_status tdm__node_actors_create(struct tdm__node *node);
/* Fails all waiting calls and frees the table. */
void tdm__node_actors_destroy(struct tdm__node *node);
/* Serves the calls of the service "actor"; `self` is the node. */
void tdm__node_actors_serve(void *self, struct tdm__incoming_call *incoming);
/* Ends the actors for which matches(spec, key) is true: at once, or gracefully. fn(arg) is called
 * when they are gone, maybe before this returns; `fn` may be NULL. */
void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg);
/* Matching function for tdm__node_actors_end(): true if the actor ends with the creator whose id is
 * `creator`. That is every actor that is not detached, and every one that still waits for the
 * creator's arguments. */
bool tdm__node_actor_ends_with(const struct tdm__actor_spec *spec, const void *creator);
/* Compares the actors with the list of living nodes. Actors of a lost node are created again or
 * lost. Actors that a lost node owns are ended. */
void tdm__node_actors_update_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count);
/* Stops the actors that other nodes may take over when this node's lease expires: those with names,
 * with GPUs, or with restarts. */
void tdm__node_actors_fence(struct tdm__node *node);
/* After a lost lease asks the owner's node of each actor ("actor.known"), and ends the actors that
 * their owners have given up. */
void tdm__node_actors_query_owners(struct tdm__node *node);
/* Marks the records of actors as lost, because this node joins again and the store may have lost
 * its data. */
void tdm__node_actors_records_lost(struct tdm__node *node);
/* Writes lost records of actors again, once the node has joined. */
void tdm__node_actors_rewrite(struct tdm__node *node);
/* Marks the records of placement groups as lost, like tdm__node_actors_records_lost(). */
void tdm__placement_groups_records_lost(struct tdm__node *node);
/* Writes lost records of placement groups again, once the node has joined. */
void tdm__placement_groups_rewrite(struct tdm__node *node);
/* Tries again to place the actors that wait, because resources may be free now. */
void tdm__node_actors_retry(struct tdm__node *node);
/* Writes an array of (id, name, class, state, pid) of all entries. */
void tdm__node_actors_list(struct tdm__node *node, tdm_writer *writer);

/* ---- placement groups (placement_group_service.c) --------------------------------------- */

/* Creates the table of placement groups. */
tdm_status tdm__placement_groups_create(struct tdm__node *node);
/* Fails all waiting calls and frees the table. */
void tdm__placement_groups_destroy(struct tdm__node *node);
/* Serves the calls of the service "placement_group"; `self` is the node. */
void tdm__placement_groups_serve(void *self, struct tdm__incoming_call *incoming);
/* Tries again to reserve the groups that wait for resources. */
void tdm__placement_groups_retry(struct tdm__node *node);
/* True while the resources of removed groups have not been given back to the store. */
bool tdm__placement_groups_are_going(const struct tdm__node *node);
/* Removes a placement group whose owner's node was lost. The result is not reported: if it fails,
 * the next sweep finds the group again. */
void tdm__placement_group_orphaned(struct tdm__node *node, const struct tdm__id *id);
/* Removes the placement groups that the process `creator` created, except detached ones. */
void tdm__placement_groups_creator_gone(struct tdm__node *node, const struct tdm__id *creator);

/* ---- other nodes (peer_daemons.c) ------------------------------------------------------- */

/* Creates the table of connections to other daemons. */
tdm_status tdm__node_peers_create(struct tdm__node *node);
/* Fails calls under way with TDM_E_NODE_LOST and closes the connections. */
void tdm__node_peers_destroy(struct tdm__node *node);
/* Calls `method` of another node's daemon with the arguments in `packed`, which is copied, and
 * hands the reply to fn(arg, ...). TDM_E_NODE_LOST if the node cannot be reached. */
void tdm__node_forward(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       struct tdm_bytes packed, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg);

/* Like tdm__node_forward() for a method whose request is the message id_request. */
void tdm__node_send_id(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       const struct tdm__id *id, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg);
/* Like tdm__node_forward() for a method whose request is the message actor_query, of which only
 * the actor is set. */
void tdm__node_query_actor(struct tdm__node *node, const struct tdm__id *other, const char *method,
                           const struct tdm__id *actor, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                           void *arg);
/* Closes the connections to nodes that are not in the list of living nodes, which fails the calls
 * under way. So no call between daemons outlives a lease. Returns true if a node was lost since the
 * last update. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count);

/* ---- leases (node_lease.c) -------------------------------------------------------------- */

/* Starts renewing this node's lease and watching the others. */
tdm_status tdm__node_lease_create(struct tdm__node *node);
/* Stops renewing the lease; NULL is allowed. */
void tdm__node_lease_destroy(struct tdm__node *node);
/* True while this node joins again after a lost lease. */
bool tdm__node_lease_is_joining(const struct tdm__node *node);
/* True for one lease after the store has lost this node's record. Other nodes may not have joined
 * again yet, so missing resources may come back. */
bool tdm__node_lease_was_lost(const struct tdm__node *node);
/* Returns why renewals of the lease fail, and probably other commits too; "" while they succeed. */
const char *tdm__node_lease_store_error(const struct tdm__node *node);

/* The services of this layer, for tdm__services_add() with the node as `self`. */
extern const struct tdm__service_ops tdm__node_service;
extern const struct tdm__service_ops tdm__actor_service;
extern const struct tdm__service_ops tdm__placement_group_service;

#endif
