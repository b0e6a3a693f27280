/* test_random.h - repeatable random numbers for tests: the seed is printed and can be set. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_TEST_RANDOM_H
#define TDM_TESTS_SUPPORT_TEST_RANDOM_H

#include <stdint.h>

struct test_random {
    uint64_t state; /* The seed, before the first number. */
};

/* Returns a generator with `seed`, or with TANDEM_TEST_SEED from the environment if that is set,
 * and prints the seed. */
struct test_random test_random_init(const char *test, uint64_t seed);
/* Returns the seed of the first of several rounds, each of which has a generator of its own whose
 * state begins with the seed: 1, or TANDEM_TEST_SEED. The next rounds have the seeds after it.
 * Prints the seed. */
uint64_t test_random_first_seed(const char *test);
uint64_t test_random_next(struct test_random *chance);
/* Returns a number from 0 to bound - 1; bound is above 0. */
uint32_t test_random_below(struct test_random *chance, uint32_t bound);

#endif
