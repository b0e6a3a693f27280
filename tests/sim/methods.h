/* methods.h - the methods of simulated actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_METHODS_H
#define TDM_TESTS_SIM_METHODS_H

#include <stdint.h>

/* Classes "plain", "asynchronous" and "threaded". The first argument of each method is the number
 * of the call in the model:
 *
 * - note (number, value): replies model_reply(number, value).
 * - fail (number): fails on purpose.
 * - slow (number, milliseconds): sleeps, or ends when it is canceled.
 * - keep (number, reference, value): stores the reference in the actor.
 * - read (number): gets the value of the stored reference and checks it.
 * - give (number): replies the stored reference and its value.
 * - relay (number, handle, actor, counted): calls note of another actor and waits.
 * - count (number, items): yields number + i for i from 1.
 *
 * Asynchronous actors keep the calls of note and reply later. */
void methods_set_actor(void *self, const char *actor_id, uint32_t incarnation);

#endif
