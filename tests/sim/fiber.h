/* fiber.h - several stacks on one thread: the threads of simulated processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_FIBER_H
#define TDM_TESTS_SIM_FIBER_H

#include <stdbool.h>

struct fiber;

/* Runs nothing yet.  Ends the program when there is no memory. */
struct fiber *fiber_create(void (*fn)(void *arg), void *arg);
/* From outside of all fibers: goes on where it left off, until it yields or ends. */
void fiber_resume(struct fiber *fiber);
/* Inside of one: back to who resumed it.  The detail of the last failure is the fiber's own. */
void fiber_yield(void);
bool fiber_has_ended(const struct fiber *fiber);
/* The one that runs; NULL outside of all. */
struct fiber *fiber_current(void);
void fiber_destroy(struct fiber *fiber); /* has ended */
/* Gives back the stacks that are kept for the next fibers. */
void fiber_trim(void);

#endif
