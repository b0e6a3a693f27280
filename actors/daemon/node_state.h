/* node_state.h - the state of a daemon, which all files of this folder share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_NODE_STATE_H
#define TDM_ACTORS_DAEMON_NODE_STATE_H

#include "actors/common/actor_spec.h"
#include "actors/daemon/lease_status.h"
#include "runtime/process/oom.h"
#include "runtime/service.h"
#include "runtime/store.h"
#include "scheduler/reserve.h"

#include <sys/types.h>

struct actor_entry; /* See actor_entry.h. */
struct actor_event; /* See actor_lifecycle.h. */
struct tdm__fence;  /* See runtime/process/fence.h. */
struct tdm__node;

/* What a lower file of this folder reports to the files above it. The file node.c defines the only
 * table of the product, tdm__node_events. All functions are called on the daemon's loop thread. */
struct tdm__node_events {
    /* Hands an event to the state machine of the entry's actor and carries out the resulting
     * actions. The entry may have been freed afterwards. */
    void (*actor_event)(struct actor_entry *entry, struct actor_event event);
    /* Cleans up after a driver or worker process of this node that has ended: its sockets, what the
     * services hold for that process, and the actors and placement groups that the process created.
     * The memory that its child processes may use as well is released only if
     * `tree_has_ended`; else tdm__services_peer_tree_ended() follows. */
    void (*process_ended)(struct tdm__node *node, const struct tdm__peer_identity *process,
                          bool tree_has_ended);
    /* Tries again to reserve resources for waiting actors and placement groups, because resources
     * may be free now. */
    void (*resources_freed)(struct tdm__node *node);
};

/* The state of one daemon, which represents a node of the cluster. cli/tandemd.c creates it and
 * fills the fields down to `print_logs`. The services of this folder work on it. Only the daemon's
 * loop thread uses it. */
struct tdm__node {
    struct tdm__loop *loop; /* Event loop of the daemon, borrowed. */
    struct tdm__rpc *rpc;   /* RPC endpoint of the daemon, borrowed. */
    /* Record store of the cluster, borrowed; NULL while the daemon stops. */
    struct tdm__store *store;
    /* RPC services of the daemon, borrowed; they are told when a process of this node has exited.
     */
    struct tdm__services *services;
    /* Id, name and addresses of this node, as written to the store. */
    struct tdm__node_record record;
    struct tdm__node_resources totals; /* Resources that this node offers to actors. */
    /* Secret that authenticates the processes of the cluster. */
    uint8_t token[TDM__TOKEN_BYTES];
    /* Path of this node's directory for sockets and files. */
    char directory[TDM__ADDRESS_BYTES];
    /* Host at which this node listens for other nodes; "" on a single node. */
    char listen_host[TDM__ADDRESS_BYTES];
    /* Program that workers execute if the spec of their actor names none. */
    char worker_program[TDM__PATH_BYTES];
    /* Returns the pid of the Redis server that this daemon started, or 0; the sweep for orphans
     * spares that child. May be NULL. */
    pid_t (*exempt_child)(void);
    /* True if the store is a Redis server that this daemon started, and that no other node can
     * reach until tdm__node_store_shared() is called. */
    bool owns_store;
    /* Page through which the supervisor learns when to kill actors; borrowed, NULL without a
     * supervisor. */
    struct tdm__fence *fence;
    /* Milliseconds of silence after which a worker is killed; 0 for never. */
    int64_t health_timeout_ms;
    /* Milliseconds without an answer of another node after which calls to its actors end as
     * unavailable; 0 for never. */
    int64_t unreachable_ms;
    /* Environment variable with the GPUs that a process may use, for example
     * CUDA_VISIBLE_DEVICES; borrowed. */
    const char *visible_devices_variable;
    /* True if the daemon prints the output of workers on its own stdout and stderr, too. */
    bool print_logs;

    /* Functions by which the lower files of this folder report to the higher ones; a static table.
     */
    const struct tdm__node_events *events;
    struct tdm__workers *workers;    /* Worker processes of this node, owned. */
    struct tdm__node_actors *actors; /* Table of this daemon's actors, owned. */
    /* Table of this daemon's placement groups, owned. */
    struct tdm__node_placement_groups *placement_groups;
    /* Calls of this node's processes that wait until a placement group is placed, owned. */
    struct tdm__placement_group_waits *placement_group_waits;
    struct tdm__node_peers *peers; /* Connections to other daemons, owned. */
    /* What new processes have to be told about nodes, owned; NULL before tdm__node_start(). */
    struct tdm__node_notices *notices;
    struct tdm__node_pings *pings;          /* Pings of other daemons, owned; NULL without them. */
    struct tdm__worker_logs *logs;          /* Log files of the workers, owned. */
    struct tdm__jobs *jobs;                 /* Submitted jobs of this node, owned. */
    struct tdm__ended_actors *ended_actors; /* Records of ended actors for lists, owned. */
    /* Counts of the kernel's kills for lack of memory, read last. */
    struct tdm__oom oom;
    /* Renews this node's lease in the store, owned; NULL before tdm__node_start() has created it.
     */
    struct tdm__node_lease *lease;
    /* What is known about this node's lease; all zeros at first. */
    struct tdm__lease_status lease_status;
    /* What is known about the generation of the store; all zeros until the first renewal. */
    struct tdm__store_view store_view;
    /* Writes what this node holds into a store that has lost changes, owned. */
    struct tdm__node_reconcile *reconcile;
    bool stopping; /* True once the daemon has begun to end its actors in order to stop. */
};

#endif
