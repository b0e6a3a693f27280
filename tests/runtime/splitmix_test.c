/* splitmix_test.c - seeds are reproducible and all different. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/splitmix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void the_same_pair_always_gives_the_same_number(void **state)
{
    (void)state;
    /* The first outputs of SplitMix64 seeded with 0: checkpoints and results depend on them. */
    assert_true(tdm__splitmix64(0, 0) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(tdm__splitmix64(0, 1) == UINT64_C(0x6e789e6aa1b965f4));
    assert_true(tdm__splitmix64(0, 2) == UINT64_C(0x06c45d188009454f));
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void neighbours_are_all_different(void **state)
{
    enum { SIDE = 100 };
    static uint64_t all[SIDE * SIDE];

    (void)state;
    for (uint64_t row = 0; row < SIDE; row++) {
        for (uint64_t sample = 0; sample < SIDE; sample++) {
            all[row * SIDE + sample] = tdm__splitmix64(tdm__splitmix64(7, row), sample);
        }
    }
    qsort(all, SIDE * SIDE, sizeof(all[0]), compare);
    for (uint32_t i = 1; i < SIDE * SIDE; i++) {
        assert_true(all[i] != all[i - 1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_pair_always_gives_the_same_number),
        cmocka_unit_test(neighbours_are_all_different),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
