/* child_calls.h - which running method made a call, so that child calls can be canceled with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CHILD_CALLS_H
#define TDM_ACTORS_CLIENT_CHILD_CALLS_H

#include "actors/process/runtime.h"

/* Sets the running method whose child calls this thread's calls are, and returns the previous
 * one. Methods are identified by numbers that are unique in this process; 0 means that no method
 * runs. */
uint64_t tdm__child_calls_set_parent(uint64_t parent);
/* Returns the number of the method that runs on this thread; 0 for none. */
uint64_t tdm__child_calls_parent(void);

/* Cancels all calls of the method `parent` that have no result, and their child calls in turn.
 * The caller holds the loop's lock. */
void tdm__child_calls_cancel(tdm_runtime *runtime, uint64_t parent);

#endif
