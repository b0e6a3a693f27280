/* random.h - random numbers that are a pure function of a key and a counter. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_RANDOM_H
#define COLOCATED_RL_RANDOM_H

#include <stdint.h>

/* There is no state: a number depends on (key, counter) only, not on the order of calls. An answer
 * therefore does not depend on the batch that it is computed in, nor do the initial weights on the
 * number of ranks. */

/* Returns 64 random bits. */
uint64_t random_bits(uint64_t key, uint64_t counter);
/* Returns a number x with 0 <= x < 1. */
double random_uniform(uint64_t key, uint64_t counter);
/* Returns a number from the normal distribution with mean 0 and deviation 1. */
double random_normal(uint64_t key, uint64_t counter);

#endif
