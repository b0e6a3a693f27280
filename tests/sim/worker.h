/* worker.h - a simulated process that is an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_WORKER_H
#define TDM_TESTS_SIM_WORKER_H

#include "tests/sim/daemon.h"

/* Starts the process of an actor. It replaces actors/worker.c: executor, objects, actor
 * channels and connections are the product's code, and the process is simulated. */
struct sim_process *worker_start(struct daemon_actor *actor);

#endif
