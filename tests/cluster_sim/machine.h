/* machine.h - a simulated machine with the real state of a daemon, its supervisor and its faults.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_MACHINE_H
#define TDM_TESTS_CLUSTER_SIM_MACHINE_H

#include "actors/daemon/node_state.h"
#include "runtime/store/read_cache.h"
#include "tests/cluster_sim/network.h"
#include "tests/sim/sim.h"

/* Times of the simulated clusters in milliseconds. */
enum { LEASE_SHORT_MS = 5000, LEASE_LONG_MS = 12000, CLUSTER_UNREACHABLE_MS = 2000 };
/* What each machine has. */
enum { MACHINE_CPUS = 3, MACHINE_GPUS = 2 };

/* The daemon of a machine: what cli/tandemd.c creates, without a directory lock, signals, metrics
 * and the services for GPU memory. */
struct sim_daemon {
    struct sim_process *process;
    struct tdm__loop *loop;
    struct tdm__rpc *rpc;
    struct tdm__store *store;
    struct tdm__read_cache *read_cache;
    struct tdm__services services;
    struct tdm__node node;
    bool join_is_settled;
    tdm_status join_status;
    bool has_joined; /* True once the daemon has joined, until it is asked to stop. */
    bool stop_wanted;
    bool actors_ended;
    bool has_left;
};

/* A machine, whose memory lasts as long as the simulation. */
struct machine {
    uint32_t number; /* From 1 on. */
    char directory[TDM__ADDRESS_BYTES];
    struct sim_daemon *daemon; /* NULL while no daemon runs. */
    struct sim_process *supervisor;
    bool is_off; /* True while no process of the machine runs. */
    bool is_off_for_good;
    bool has_fault;      /* True while a fault is about the machine. */
    int64_t fault_ms;    /* When the last fault about it ended. */
    int64_t started_ms;  /* When its daemon was started. */
    int64_t on_since_ms; /* Since when it has run without a break. */
    uint32_t starts_count;
};

/* The machines of the simulated cluster, by their number minus 1. */
extern struct machine machines[MACHINES_MAX];
extern uint32_t machines_count;
/* The lease of all nodes in milliseconds. */
extern int64_t machines_lease_ms;

/* Starts the machines and their supervisors, without daemons. */
void machines_begin(uint32_t count, int64_t lease_ms, const char *directory);
/* Ends the supervisors. All daemons must have ended. */
void machines_end(void);

/* Starts a daemon with a new node ID. None may run. */
void machine_start_daemon(struct machine *machine);
/* Kills the daemon, and all workers with it. */
void machine_kill_daemon(struct machine *machine);
/* Stops or continues the daemon alone. */
void machine_stop_daemon(struct machine *machine, bool stopped);
/* Stops or continues all processes of the machine, and its network. */
void machine_power(struct machine *machine, bool is_on);
/* Asks the daemon to end its actors, leave the cluster and end. */
void machine_ask_to_leave(struct machine *machine);
/* Adds a process that stops with the machine: a driver. */
void machine_add_process(struct machine *machine, struct sim_process *process);

#endif
