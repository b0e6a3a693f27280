/* fiber.h - fibers: several stacks on one thread, for the threads of simulated processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_FIBER_H
#define TDM_TESTS_SIM_FIBER_H

#include <stdbool.h>

struct fiber;

/* Creates a fiber that has not run yet. Ends the program if there is no memory. */
struct fiber *fiber_create(void (*fn)(void *arg), void *arg);
/* Runs the fiber from outside of all fibers until it yields or ends. */
void fiber_resume(struct fiber *fiber);
/* Returns from the fiber to the caller of fiber_resume(). Each fiber has its own detail of the last
 * failure. */
void fiber_yield(void);
bool fiber_has_ended(const struct fiber *fiber);
/* Returns the running fiber; NULL outside of all fibers. */
struct fiber *fiber_current(void);
/* Frees a fiber that has ended. */
void fiber_destroy(struct fiber *fiber);
/* Gives back the stacks that are kept for the next fibers. */
void fiber_trim(void);

#endif
