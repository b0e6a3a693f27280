/* gather_groups_test.c - each engine has one gather group, and each rank of a group one trainer
 * rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gather_groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TRAINERS_MAX = 12, ENGINES_MAX = 20 };

static void there_are_as_many_groups_as_fit_and_are_needed(void **state)
{
    (void)state;
    assert_int_equal(tdm__gather_groups_count(4, 2, 1), 1);
    assert_int_equal(tdm__gather_groups_count(4, 2, 2), 2);
    assert_int_equal(tdm__gather_groups_count(4, 2, 5), 2);
    assert_int_equal(tdm__gather_groups_count(5, 2, 5), 2); /* Rank 4 is in no group. */
    assert_int_equal(tdm__gather_groups_count(3, 3, 64), 1);
}

/* For all numbers: groups fit into the trainer ranks, none is without an engine, and no group has
 * two engines more than another. */
static void engines_are_spread_evenly(void **state)
{
    (void)state;
    for (uint32_t trainers = 1; trainers <= TRAINERS_MAX; trainers++) {
        for (uint32_t each = 1; each <= trainers; each++) {
            for (uint32_t engines = 1; engines <= ENGINES_MAX; engines++) {
                uint32_t groups = tdm__gather_groups_count(trainers, each, engines);
                uint32_t served[TRAINERS_MAX] = {0};

                assert_in_range(groups, 1, engines);
                assert_in_range(groups * each, 1, trainers);
                for (uint32_t engine = 0; engine < engines; engine++) {
                    served[tdm__gather_group_of_engine(engine, groups)]++;
                }
                for (uint32_t group = 0; group < groups; group++) {
                    assert_in_range(served[group], engines / groups,
                                    (engines + groups - 1) / groups);
                }
            }
        }
    }
}

/* Colocated engines, and the first engines of a job, have the images of their own numbers. */
static void first_engines_have_the_groups_of_their_numbers(void **state)
{
    (void)state;
    for (uint32_t engine = 0; engine < 4; engine++) {
        assert_int_equal(tdm__gather_group_of_engine(engine, 4), engine);
        assert_int_equal(tdm__gather_group_of_engine(engine + 4, 4), engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_as_many_groups_as_fit_and_are_needed),
        cmocka_unit_test(engines_are_spread_evenly),
        cmocka_unit_test(first_engines_have_the_groups_of_their_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
