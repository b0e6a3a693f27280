/* gather_groups_test.c - each engine has one gather group, and each rank of an engine one trainer
 * rank that serves it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gather_groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TRAINERS_MAX = 12, RANKS_MAX = 16, ENGINES_MAX = 20 };

/* Returns the gather groups of engines with GPUs of their own. */
static struct tdm__gather_groups form(uint32_t trainers, uint32_t each, uint32_t engines)
{
    return tdm__gather_groups_form(trainers, each, engines, false);
}

static void there_are_as_many_groups_as_fit_and_are_needed(void **state)
{
    (void)state;
    assert_int_equal(form(4, 2, 1).count, 1);
    assert_int_equal(form(4, 2, 2).count, 2);
    assert_int_equal(form(4, 2, 5).count, 2);
    assert_int_equal(form(5, 2, 5).count, 2); /* Rank 4 is in no group. */
    assert_int_equal(form(3, 3, 64).count, 1);
    assert_int_equal(form(2, 4, 3).count, 1); /* Each rank serves two ranks of each engine. */
    assert_int_equal(form(2, 4, 3).ranks_per_group, 2);
    assert_int_equal(form(4, 2, 5).ranks_per_group, 2);
}

/* For all numbers: groups fit into the trainer ranks, none is without an engine, and no group has
 * two engines more than another. */
static void engines_are_spread_evenly(void **state)
{
    (void)state;
    for (uint32_t trainers = 1; trainers <= TRAINERS_MAX; trainers++) {
        for (uint32_t each = 1; each <= RANKS_MAX; each++) {
            for (uint32_t engines = 1; engines <= ENGINES_MAX; engines++) {
                struct tdm__gather_groups groups = form(trainers, each, engines);
                uint32_t served[TRAINERS_MAX] = {0};

                assert_in_range(groups.count, 1, engines);
                assert_in_range(groups.ranks_per_group, 1, each);
                assert_in_range(groups.count * groups.ranks_per_group, 1, trainers);
                for (uint32_t engine = 0; engine < engines; engine++) {
                    served[tdm__gather_groups_of_engine(&groups, engine)]++;
                }
                for (uint32_t group = 0; group < groups.count; group++) {
                    assert_in_range(served[group], engines / groups.count,
                                    (engines + groups.count - 1) / groups.count);
                }
            }
        }
    }
}

/* Checks that each image is among those of its server, which is in the image's group, and that the
 * ranks of a group have equally many images, or one more. */
static void check_servers(const struct tdm__gather_groups *groups, uint32_t trainers)
{
    uint32_t images = tdm__gather_groups_images(groups);
    uint32_t least = tdm__gather_groups_images_each(groups) / groups->ranks_per_group;
    uint32_t next = 0;

    for (uint32_t rank = 0; rank < trainers; rank++) {
        uint32_t count = tdm__gather_groups_images_of(groups, rank);

        if (tdm__gather_groups_of_trainer(groups, rank) >= groups->count) {
            assert_int_equal(count, 0);
            continue;
        }
        assert_int_equal(tdm__gather_groups_first_image(groups, rank), next);
        assert_in_range(count, least, tdm__gather_groups_images_max(groups));
        for (uint32_t image = next; image < next + count; image++) {
            assert_int_equal(tdm__gather_groups_server(groups, image), rank);
            assert_int_equal(image / tdm__gather_groups_images_each(groups),
                             tdm__gather_groups_of_trainer(groups, rank));
        }
        next += count;
    }
    assert_int_equal(next, images);
}

static void each_image_has_one_server_of_its_group(void **state)
{
    (void)state;
    for (uint32_t trainers = 1; trainers <= TRAINERS_MAX; trainers++) {
        for (uint32_t each = 1; each <= RANKS_MAX; each++) {
            for (uint32_t engines = 1; engines <= 3; engines++) {
                struct tdm__gather_groups groups = form(trainers, each, engines);

                assert_in_range(tdm__gather_groups_images_max(&groups), 1,
                                each > trainers ? (each + trainers - 1) / trainers : 1);
                check_servers(&groups, trainers);
            }
        }
    }
}

/* Neighbouring engine ranks, whose parts of a tensor are neighbours, have the same server. */
static void trainer_rank_serves_neighbours_of_a_larger_engine(void **state)
{
    struct tdm__gather_groups even = form(2, 4, 1);
    struct tdm__gather_groups uneven = form(2, 3, 1);

    (void)state;
    assert_int_equal(tdm__gather_groups_server(&even, 1), 0);
    assert_int_equal(tdm__gather_groups_server(&even, 2), 1);
    assert_int_equal(tdm__gather_groups_images_max(&even), 2);
    assert_int_equal(tdm__gather_groups_server(&uneven, 1), 0);
    assert_int_equal(tdm__gather_groups_server(&uneven, 2), 1);
    assert_int_equal(tdm__gather_groups_images_of(&uneven, 0), 2);
    assert_int_equal(tdm__gather_groups_images_of(&uneven, 1), 1);
}

/* Colocated engines, and the first engines of a job, have the images of their own numbers. */
static void first_engines_have_the_groups_of_their_numbers(void **state)
{
    struct tdm__gather_groups colocated = tdm__gather_groups_form(8, 2, 3, true);
    struct tdm__gather_groups groups = form(8, 2, 9);

    (void)state;
    assert_int_equal(colocated.count, 3);
    for (uint32_t engine = 0; engine < 4; engine++) {
        assert_int_equal(tdm__gather_groups_of_engine(&groups, engine), engine);
        assert_int_equal(tdm__gather_groups_of_engine(&groups, engine + 4), engine);
        assert_int_equal(tdm__gather_groups_image(&groups, engine + 4, 1), 2 * engine + 1);
    }
    for (uint32_t image = 0; image < tdm__gather_groups_images(&colocated); image++) {
        assert_int_equal(tdm__gather_groups_server(&colocated, image), image);
    }
}

/* For all numbers that divide: each colocated engine rank has the image of its number and GPU, its
 * server is of its gather group, and no two trainer ranks have one GPU. */
static void colocated_engine_ranks_have_images_of_their_own(void **state)
{
    uint32_t fewer = 0;

    (void)state;
    for (uint32_t trainers = 1; trainers <= TRAINERS_MAX; trainers++) {
        for (uint32_t each = 1; each <= RANKS_MAX; each++) {
            for (uint32_t engines = 1; engines <= ENGINES_MAX; engines++) {
                struct tdm__gather_groups groups;
                uint32_t gpus = trainers > engines * each ? trainers : engines * each;

                if (!tdm__gather_groups_divide(trainers, each, engines)) {
                    continue;
                }
                groups = tdm__gather_groups_form(trainers, each, engines, true);
                fewer += trainers < engines ? 1 : 0;
                check_servers(&groups, trainers);
                assert_int_equal(tdm__gather_groups_images(&groups), engines * each);
                assert_int_equal(gpus % tdm__gather_groups_images_each(&groups), 0);
                for (uint32_t i = 0; i < engines * each; i++) {
                    uint32_t server = tdm__gather_groups_server(&groups, i);

                    assert_int_equal(tdm__gather_groups_image(&groups, i / each, i % each), i);
                    assert_int_equal(tdm__gather_groups_of_trainer(&groups, server),
                                     tdm__gather_groups_of_engine(&groups, i / each));
                }
                for (uint32_t rank = 0; rank < trainers; rank++) {
                    assert_in_range(tdm__gather_groups_first_image(&groups, rank), rank, gpus - 1);
                    assert_true(tdm__gather_groups_first_image(&groups, rank) <
                                tdm__gather_groups_first_image(&groups, rank + 1));
                }
            }
        }
    }
    assert_true(fewer > 0);
}

static void colocated_engines_are_divided_among_fewer_trainer_ranks(void **state)
{
    struct tdm__gather_groups two = tdm__gather_groups_form(2, 2, 2, true);
    struct tdm__gather_groups whole = tdm__gather_groups_form(2, 2, 4, true);

    (void)state;
    assert_int_equal(two.count, 2); /* Each rank serves the two ranks of an engine. */
    assert_int_equal(two.ranks_per_group, 1);
    assert_int_equal(two.engines_per_group, 1);
    assert_int_equal(tdm__gather_groups_first_image(&two, 1), 2);
    assert_int_equal(whole.count, 2); /* Each rank serves two engines. */
    assert_int_equal(whole.engines_per_group, 2);
    assert_int_equal(tdm__gather_groups_first_image(&whole, 1), 4);
    assert_int_equal(tdm__gather_groups_of_engine(&whole, 3), 1);
    assert_false(tdm__gather_groups_divide(2, 2, 3));
    assert_false(tdm__gather_groups_divide(4, 3, 1)); /* A GPU would be left over. */
    assert_true(tdm__gather_groups_divide(4, 1, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_as_many_groups_as_fit_and_are_needed),
        cmocka_unit_test(engines_are_spread_evenly),
        cmocka_unit_test(each_image_has_one_server_of_its_group),
        cmocka_unit_test(trainer_rank_serves_neighbours_of_a_larger_engine),
        cmocka_unit_test(first_engines_have_the_groups_of_their_numbers),
        cmocka_unit_test(colocated_engine_ranks_have_images_of_their_own),
        cmocka_unit_test(colocated_engines_are_divided_among_fewer_trainer_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
