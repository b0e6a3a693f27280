/* driver.h - simulated drivers, which create, find and end actors, and the calls that they make. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_DRIVER_H
#define TDM_TESTS_CLUSTER_SIM_DRIVER_H

#include "tests/cluster_sim/machine.h"

#include <sys/queue.h>

/* How many names drivers give to actors: "name0" and so on, in the name space "space". */
enum { DRIVER_NAMES = 3 };

/* A call of a driver to its daemon. Calls have no deadline. */
struct driver_call {
    TAILQ_ENTRY(driver_call) link;
    struct driver *driver;
    char method[24];
    struct tdm__id actor; /* The actor in question; none for a query by name. */
    int64_t sent_ms;
    uint32_t replies_count;
    tdm_status status;
};
TAILQ_HEAD(driver_calls, driver_call);

void drivers_begin(void);
/* Frees the calls. All drivers must have ended. */
void drivers_end(void);
/* Starts a driver on a machine with a daemon. */
void driver_start(struct machine *machine);
/* Starts a driver that ends the actors with names, which may be detached. */
void driver_start_cleaner(struct machine *machine);
/* Makes a driver on the machine create an actor with this name, a number below DRIVER_NAMES, soon,
 * if there is a driver. */
void driver_claim(const struct machine *machine, uint32_t name);
/* The same for an actor that is placed on `node` if possible, and restarted without a limit. */
void driver_claim_on(const struct machine *machine, uint32_t name, const struct tdm__id *node);
/* From now on drivers create nothing and end as soon as their calls are answered; first each kills
 * or releases its actors. */
void drivers_finish(void);
/* Number of drivers that have not ended, without those on machines that are off for good. */
uint32_t drivers_count(void);
/* Kills the drivers on a machine. */
void drivers_kill(const struct machine *machine);
const struct driver_calls *drivers_calls(void);
/* Number of the machine of the driver that made the call. */
uint32_t driver_call_machine(const struct driver_call *call);

#endif
