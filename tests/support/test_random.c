/* test_random.c - repeatable randomness for tests: the seed is printed, and can be given. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/test_random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct test_random test_random_init(const char *test, uint64_t seed)
{
    const char *given = secure_getenv("TANDEM_TEST_SEED");

    if (given != NULL) {
        seed = strtoull(given, NULL, 0);
    }
    (void)printf("%s: seed %" PRIu64 "\n", test, seed);
    return (struct test_random){.state = seed};
}

uint64_t test_random_first_seed(const char *test)
{
    return test_random_init(test, 1).state;
}

/* A Weyl sequence, its bits mixed (the splitmix64 generator). */
uint64_t test_random_next(struct test_random *chance)
{
    uint64_t bits = chance->state += UINT64_C(0x9e3779b97f4a7c15);

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

uint32_t test_random_below(struct test_random *chance, uint32_t bound)
{
    return (uint32_t)(test_random_next(chance) % bound);
}
