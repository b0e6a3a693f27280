/* methods.h - what simulated actors can do. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_METHODS_H
#define TDM_TESTS_SIM_METHODS_H

#include <stdint.h>

/* Classes "plain", "asynchronous" and "threaded", with the methods (number, …), where the
 * number is the call's in the model: note   (number, value)              answers
 * model_reply(number, value) fail   (number)                     fails on purpose slow
 * (number, milliseconds)       takes its time, or ends when it is canceled keep   (number,
 * reference, value)   puts the reference on the shelf read   (number)                     gets
 * what is on the shelf, and checks it give   (number)                     answers (reference,
 * its value) relay  (number, handle, actor, counted)  calls note of another actor, and waits
 *   count  (number, items)              yields number + i for i from 1
 * Asynchronous ones keep the calls of note and answer them a while later. */
void methods_set_actor(void *self, const char *actor_id, uint32_t incarnation);

#endif
