/* worker.h - a simulated process that hosts an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_WORKER_H
#define TDM_TESTS_CLUSTER_SIM_WORKER_H

#include "tests/cluster_sim/processes.h"

/* Creates the process of the worker. It constructs its actor after some time, or fails, answers its
 * daemon, and ends when the daemon asks for it or has gone, by a crash, or killed. */
void worker_start(struct sim_worker *worker);

#endif
