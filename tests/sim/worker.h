/* worker.h - a simulated process that is an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_WORKER_H
#define TDM_TESTS_SIM_WORKER_H

#include "tests/sim/daemon.h"

/* The real worker (actors/server/worker.c) as far as it is not about processes: executor, objects,
 * links and all connections are the product's. */
struct sim_process *worker_start(struct daemon_actor *actor);

#endif
