/* chance.h - repeatable randomness for tests: the seed is printed, and can be given. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_CHANCE_H
#define TDM_TESTS_SUPPORT_CHANCE_H

#include <stdint.h>

struct chance {
    uint64_t state;
};

/* Seeded with `seed`, or with TANDEM_TEST_SEED from the environment where that is set; prints
 * which. */
struct chance chance_start(const char *test, uint64_t seed);
uint64_t chance_next(struct chance *chance);
/* 0 … bound-1; bound is over 0. */
uint32_t chance_below(struct chance *chance, uint32_t bound);

#endif
