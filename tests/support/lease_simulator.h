/* lease_simulator.h - a small cluster whose nodes hold leases, for an exploration of all states. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_LEASE_SIMULATOR_H
#define TDM_TESTS_SUPPORT_LEASE_SIMULATOR_H

#include "actors/daemon/lease_machine.h"
#include "scheduler/records.h"
#include "tests/support/kill_limits.h"
#include "tests/support/state_explorer.h"

/* The nodes want one name, which at most one process may have at any time. Node 0 has it at first.
 * Each daemon runs the product's state machine of its own lease. The store follows the rules of
 * kept_clock.h, and its messages to and from the daemons may be lost, late, or repeated, which
 * stands for every kind of cut. The clock of the machine is each node's own; all run equally fast,
 * and the grace covers what kills and drift take. */

/* Times are in ticks: a lease of 3 stands for 30 s. The other times are in ticks of the time that a
 * kill may need. */
enum {
    SIM_NODES_MAX = 4,
    SIM_LEASE = 3, /* How long a renewal counts. */
    SIM_KILL = 1,  /* A killed process is gone so much after the end of the lease. */
    /* How much after the end of its lease a node is taken over: the grace of the product, in whole
     * ticks. */
    SIM_GRACE = TDM__NODE_GRACE_MS / (KILL_MS_MAX + DRIFT_MS_MAX),
    SIM_STEP = 1, /* How far one renewal advances the kept clock at most. */
    /* Holder of the name in the store when that node is gone, and its daemon was started again. */
    SIM_NOBODY = SIM_NODES_MAX
};

/* What a daemon does. */
enum sim_phase {
    SIM_UNBORN,  /* It was not started yet. */
    SIM_UP,      /* It runs. */
    SIM_STOPPED, /* It is stopped, but its supervisor runs. */
    SIM_DEAD     /* The node has lost its power, or its daemon has ended with all processes. */
};

/* Where the daemon's request to the store is. */
enum sim_message {
    SIM_NO_MESSAGE,   /* No message is in flight, or the message was lost. */
    SIM_REQUEST,      /* The request is in flight to the store. */
    SIM_REPLY_OK,     /* The reply is in flight, and says that the renewal was done. */
    SIM_REPLY_REFUSED /* The reply is in flight, and says that the store has no record of this node.
                       */
};

/* One node. Times are relative to the present. */
struct sim_node {
    uint8_t phase;   /* enum sim_phase. */
    uint8_t request; /* Part of struct lease_machine, like the next six members. */
    uint8_t is_lost;
    uint8_t may_have_joined;
    uint8_t is_fenced;
    uint8_t is_alone;
    int8_t sent_at;
    int8_t ends_at;
    uint8_t message; /* enum sim_message. */
    uint8_t stale;   /* Copy of an old request that is still in flight: enum lease_request. */
    uint8_t server;  /* Number of the store's server that the daemon knows. */
    uint8_t requests_are_cut; /* Whether no request of the node reaches the store. */
    uint8_t replies_are_cut;  /* Whether no reply of the store reaches the node. */
    uint8_t has_process;      /* Whether a process of this node has the name. */
    /* Ticks since the store carried out the last renewal: `passed` counts all of them, and
     * `counted` the ones that may count against the lease. */
    uint8_t passed;
    uint8_t counted;
};

/* The contents of the store. */
struct sim_store {
    uint8_t is_member[SIM_NODES_MAX]; /* Whether the store has a record of each node. */
    int8_t lease_end[SIM_NODES_MAX];  /* End of each lease, relative to the kept clock. */
    /* Node that has the name, by the name's record; SIM_NOBODY for one that is gone. */
    uint8_t holder;
    uint8_t held_left; /* How much longer no member is taken over. */
};

/* A cluster, with the faults that may still happen. */
struct lease_world {
    struct sim_node nodes[SIM_NODES_MAX];
    struct sim_store store;
    struct sim_store snapshot; /* An older state of the store, to which it can be restored. */
    uint8_t has_snapshot;
    uint8_t is_down;       /* Whether the store does not answer. */
    uint8_t was_down;      /* Whether it was down since the kept clock last advanced. */
    uint8_t server;        /* Number of the server that runs the store. */
    uint8_t clock_server;  /* Number of the server that last advanced the kept clock. */
    uint8_t since_advance; /* Ticks since the kept clock last advanced. */
    uint8_t faults_left;   /* Number of faults that may still happen. */
};

/* Mutations of the machine and of the rules, each of which the exploration must find. */
enum lease_mutation {
    LEASE_NO_MUTATION,
    NAME_CLAIM_SKIPS_THE_RULE,
    TAKEOVER_DOES_NOT_CHECK_THE_LEASE,
    PEXPIRE_STAYS,
    CLOCK_ADDS_A_STEP_PER_NODE,
    GENERATION_CHANGE_ALLOWS_TAKEOVERS,
    FENCE_IS_COUNTED_FROM_THE_ANSWER,
    LONE_NODE_HAS_NO_LIMIT,
    SUPERVISOR_DOES_NOT_FENCE,
    JOIN_DOES_NOT_ADVANCE_THE_CLOCK,
    RESTARTED_DAEMON_STARTS_ITS_ACTORS, /* The daemon starts its actors without a commit, as if it
                                           still owned the name. */
    GRACE_IS_SHORTER_THAN_A_KILL,
    LEASE_MUTATIONS_COUNT
};

/* Violations of what must always be true, as bits. */
enum lease_violation {
    TWO_HOLDERS = 1,              /* Two processes have the name. */
    OUTAGE_COUNTED = 2,           /* A node was lost though it could not renew for long enough. */
    FENCED_WITHOUT_COMPETITOR = 4 /* A node was fenced whose store no other node can reach. */
};

/* One exploration of all states of a cluster. */
struct lease_exploration {
    uint32_t nodes_count;
    enum lease_mutation mutation;
    bool restores;  /* Whether an older state of the store is restored once. */
    bool only_cuts; /* Whether cuts are the only faults, which needs fewer states. */
    /* Whether to check that no outage counts, which needs more states. */
    bool counts_outages;
    struct state_explorer walk;
    unsigned violations;
    uint64_t takeovers_count; /* Number of transitions in which a name went to another node. */
    uint64_t
        restarts_count; /* Number of transitions in which a dead node's daemon started again. */
};

/* Sets `world` to its first state. With `is_alone` no other node can reach the store of node 0
 * before one joins. */
void lease_world_init(struct lease_world *world, bool is_alone, uint32_t faults_count);
/* Adds every state that can follow `world` to the exploration. */
void lease_world_visit(struct lease_exploration *exploration, const struct lease_world *world);

#endif
