/* processes.h - the workers of the simulated machines: what spawn.h and fence.h do here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_PROCESSES_H
#define TDM_TESTS_CLUSTER_SIM_PROCESSES_H

#include "actors/common/worker_bootstrap.h"
#include "runtime/process/fence.h"
#include "tests/sim/sim.h"

#include <sys/queue.h>

/* This folder replaces runtime/process/spawn.c and fence.c: tdm__spawn() with a reaper starts a
 * simulated process, which hosts an actor (worker.c); any other program cannot be started. All
 * code of the daemon above these two headers is the product's. */

/* A worker, from its start until its process has ended. */
struct sim_worker {
    TAILQ_ENTRY(sim_worker) link;
    int32_t pid; /* Higher than any of the kernel's. */
    uint32_t machine;
    struct tdm__bootstrap bootstrap; /* Owned with its spec. */
    int line_fd;                     /* The end of the worker of its connection; owned by it. */
    int report_fd; /* Where its reaper reports; -1 once it has reported the end. */
    struct sim_process *process;
    bool is_killed;
};
TAILQ_HEAD(sim_workers, sim_worker);

void processes_begin(void);
void processes_end(void);
/* Number of workers that were started since processes_begin(). */
uint64_t processes_started_count(void);
/* The living workers of all machines. */
const struct sim_workers *processes_all(void);
/* The running process of a worker has ended with a status of waitpid(2): reports that and frees the
 * worker. */
void processes_worker_ended(struct sim_worker *worker, int wait_status);
/* Kills the workers of a machine whose daemon has ended; the reports reach nobody. */
void processes_kill_machine(uint32_t machine);
/* Stops or continues the workers of a machine. */
void processes_stop_machine(uint32_t machine, bool stopped);
/* From now on SIGKILL ends the workers of the machine before it returns, because the daemon waits
 * for their ends without its loop. */
void processes_end_at_once(uint32_t machine, bool at_once);

#endif
