/* random.h - numbers that depend on a key and a counter alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_RANDOM_H
#define COLOCATED_RL_RANDOM_H

#include <stdint.h>

/* There is no state: the number for (key, counter) is the same whoever asks, in whatever order.
 * So an answer does not depend on its batch, nor first weights on how many ranks share them. */

uint64_t random_bits(uint64_t key, uint64_t counter);
double random_uniform(uint64_t key, uint64_t counter); /* 0 <= x < 1 */
double random_normal(uint64_t key, uint64_t counter);  /* mean 0, deviation 1 */

#endif
