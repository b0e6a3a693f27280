/* node.h - a node of the cluster: what its daemon holds, and the services of this layer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_H
#define TDM_ACTORS_DAEMON_NODE_H

#include "actors/daemon/worker_processes.h"
#include "runtime/process/oom.h"
#include "runtime/service.h"
#include "runtime/store.h"
#include "scheduler/reserve.h"

/* The daemon's state, made by cli/tandemd.c; the services "node", "actor" and "group" work on
 * it. */
struct tdm__node {
    struct tdm__loop *loop; /* borrowed, like the next three */
    struct tdm__rpc *rpc;
    struct tdm__store *store;
    struct tdm__services *services; /* told when a process is gone */
    struct tdm__node_record record;
    struct tdm__node_resources totals;
    uint8_t token[TDM__TOKEN_BYTES];
    char directory[TDM__ADDRESS_BYTES];
    char listen_host[TDM__ADDRESS_BYTES]; /* "" when the node talks to no other */
    char worker_program[TDM__PATH_BYTES];
    pid_t (*exempt_child)(void); /* a child that is no worker: Redis; may be NULL */
    int64_t health_timeout_ms;   /* a worker silent for so long is killed; 0: never */
    bool print_logs;             /* what workers print goes to stdout and stderr, prefixed */

    struct tdm__workers *workers; /* owned, like the rest */
    struct tdm__node_actors *actors;
    struct tdm__node_placement_groups *placement_groups;
    struct tdm__node_peers *peers;
    struct tdm__worker_logs *logs;
    struct tdm__node_state *state;
    struct tdm__oom oom;
    struct tdm__node_lease *lease;
    bool stopping;
};

/* Joins the cluster: the record and the resources are in the store when `fn` is told.  The
 * fields above the blank line are filled by the caller. */
tdm_status tdm__node_start(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg);
/* Ends every actor in good order; fn(arg) when none is left. */
void tdm__node_end_actors(struct tdm__node *node, void (*fn)(void *arg), void *arg);
/* Kills what is left and frees; leaves the store's records to their leases. */
void tdm__node_stop(struct tdm__node *node);

/* Connections of drivers and of other daemons that closed. */
void tdm__node_peer_closed(struct tdm__node *node, const struct tdm__peer_identity *peer);
/* A process of this node has ended: removes the sockets that it may have left. */
void tdm__node_process_gone(const struct tdm__node *node, const struct tdm__id *process);
/* What is held right now, for the record after a lost lease: the caller frees. */
struct tdm__grant *tdm__node_actor_grants(struct tdm__node *node, uint32_t *count_out);

/* ---- actors (actor_service.c) ----------------------------------------------------------- */

tdm_status tdm__node_actors_create(struct tdm__node *node);
void tdm__node_actors_destroy(struct tdm__node *node);
void tdm__node_actors_serve(void *self, struct tdm__incoming_call *incoming);
/* Ends the actors whose creator or group that is: in good order, or at once.  fn(arg) (may be
 * NULL) when they are gone; maybe before this returns. */
void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg);
/* For it, with the creator's id as the key: those that end with it, which are all that are not
 * detached, and those to which it still owes arguments. */
bool tdm__node_actor_ends_with(const struct tdm__actor_spec *spec, const void *creator);
/* These nodes are there, and no others: the actors of a lost one are placed anew or lost, those
 * that it asked for here would outlive their creators. */
void tdm__node_actors_update_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count);
/* This node's lease is about to end: stops what others may take over then, which is actors with
 * names, with GPUs, and those that are restarted. */
void tdm__node_actors_fence(struct tdm__node *node);
/* This node's lease was lost, and others may have given up what lives here: asks the owner_node of
 * each actor ("actor.known") and ends those that nobody would end otherwise. */
void tdm__node_actors_query_owners(struct tdm__node *node);
/* This node joins again, maybe because the store has lost its data: once it has joined
 * tdm__node_…_rewrite() write the records of what lives here again, until they are there. */
void tdm__node_actors_records_lost(struct tdm__node *node);
void tdm__node_actors_rewrite(struct tdm__node *node);
void tdm__placement_groups_records_lost(struct tdm__node *node);
void tdm__placement_groups_rewrite(struct tdm__node *node);
/* Resources came free: actors that wait for some are tried again. */
void tdm__node_actors_retry(struct tdm__node *node);
void tdm__node_actors_list(struct tdm__node *node, tdm_writer *writer);

/* ---- placement_groups (placement_group_service.c)
 * ----------------------------------------------------------- */

tdm_status tdm__placement_groups_create(struct tdm__node *node);
void tdm__placement_groups_destroy(struct tdm__node *node);
void tdm__placement_groups_serve(void *self, struct tdm__incoming_call *incoming);
void tdm__placement_groups_retry(struct tdm__node *node);
/* Are places of placement_groups on their way back into the store? */
bool tdm__placement_groups_are_going(const struct tdm__node *node);
/* Removes a group of a node that was lost, whatever becomes of that: it is found again. */
void tdm__placement_group_orphaned(struct tdm__node *node, const struct tdm__id *id);
/* Removes the placement_groups that `creator` made. */
void tdm__placement_groups_creator_gone(struct tdm__node *node, const struct tdm__id *creator);

/* ---- other nodes (peer_daemons.c) --------------------------------------------------------------
 */

tdm_status tdm__node_peers_create(struct tdm__node *node);
void tdm__node_peers_destroy(struct tdm__node *node);
/* Sends the call of `incoming`, or `method` with `packed`, to another node's daemon and hands
 * its answer back; a node that cannot be reached is TDM_E_NODE_LOST. */
void tdm__node_forward(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       struct tdm_bytes packed, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg);

/* The same for a call whose only argument is an actor's id. */
void tdm__node_query_actor(struct tdm__node *node, const struct tdm__id *other, const char *method,
                           const struct tdm__id *actor, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                           void *arg);
/* These nodes are there: connections to and from others are ended, and with them whatever waits
 * for an answer.  So no call between daemons outlives a lease, deadline or not.  True if one is
 * lost that was there at the last look. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count);

/* ---- this node's lease, and the others' (node_lease.c) --------------------------------------- */

tdm_status tdm__node_lease_create(struct tdm__node *node);
void tdm__node_lease_destroy(struct tdm__node *node);
bool tdm__node_lease_is_joining(const struct tdm__node *node);
/* The store was lost a moment ago: other nodes may not have joined again yet, so what no node
 * has now is not what no node will have. */
bool tdm__node_lease_was_lost(const struct tdm__node *node);
/* Why renewals of the lease fail, and so other commits, too; "" while they do not. */
const char *tdm__node_lease_store_error(const struct tdm__node *node);

/* For tdm__services_add. */
extern const struct tdm__service_ops tdm__node_service;
extern const struct tdm__service_ops tdm__actor_service;
extern const struct tdm__service_ops tdm__placement_group_service;

#endif
