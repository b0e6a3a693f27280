/* child_calls.h - the calls that a method makes: canceled with it where that is asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CHILD_CALLS_H
#define TDM_ACTORS_CLIENT_CHILD_CALLS_H

#include "actors/runtime.h"

/* Each call that runs here has a number that is no other's; what its method calls, on the
 * thread that runs it, carries that number.  0: no method's. */

/* From here on this thread's calls are `parent`'s; returns whose they were. */
uint64_t tdm__child_calls_set_parent(uint64_t parent);
uint64_t tdm__child_calls_parent(void);

/* Cancels what that method has called and has no result yet, and what is called for it in turn.
 * With the lock. */
void tdm__child_calls_cancel(tdm_runtime *runtime, uint64_t parent);

#endif
