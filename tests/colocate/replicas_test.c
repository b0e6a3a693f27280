/* replicas_test.c - equal slices are one group, of which one rank sends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/replicas.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3 };

static const struct tdm_tensor_info model[] = {{"a", TDM_F32, 2, {4, 6}}, {"b", TDM_F32, 1, {24}}};

/* All ranks have tensor b, ranks 0 and 2 the upper rows of a, rank 1 the lower ones, twice. */
static const struct tdm_slice slices[RANKS][3] = {
    {{.tensor = 1, .extent = {24}}, {.tensor = 0, .extent = {2, 6}}},
    {{.tensor = 0, .offset = {2, 0}, .extent = {2, 6}},
     {.tensor = 1, .extent = {24}},
     {.tensor = 0, .offset = {2, 0}, .extent = {2, 6}}},
    {{.tensor = 0, .extent = {2, 6}}, {.tensor = 1, .extent = {24}}}};
static const struct tdm__layout layouts[RANKS] = {{slices[0], 2}, {slices[1], 3}, {slices[2], 2}};

static void equal_slices_are_one_group(void **state)
{
    static const uint32_t ranks[] = {0, 2, 1, 1, 0, 1, 2};
    struct tdm__manifest *manifest;
    struct tdm__replicas replicas;

    (void)state;
    assert_int_equal(tdm__manifest_create(model, 2, &manifest), TDM_OK);
    assert_int_equal(tdm__replicas_init(manifest, layouts, RANKS, &replicas), TDM_OK);
    assert_int_equal(replicas.groups_count, 3);
    assert_int_equal(replicas.groups[1], 2);
    assert_int_equal(replicas.groups[2], 4);
    assert_int_equal(replicas.groups[3], 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(replicas.holders[i].rank, ranks[i]);
    }
    tdm__replicas_fini(&replicas);
    tdm__manifest_destroy(manifest);
}

static void ranks_send_about_the_same(void **state)
{
    struct tdm__manifest *manifest;
    struct tdm__replicas replicas;

    (void)state;
    assert_int_equal(tdm__manifest_create(model, 2, &manifest), TDM_OK);
    assert_int_equal(tdm__replicas_init(manifest, layouts, RANKS, &replicas), TDM_OK);
    assert_true(tdm__replicas_sends(&replicas, 0, 1)); /* The first of the equal ranks sends. */
    assert_false(tdm__replicas_sends(&replicas, 2, 0));
    assert_true(tdm__replicas_sends(&replicas, 1, 0));
    assert_false(tdm__replicas_sends(&replicas, 1, 2));
    assert_true(tdm__replicas_sends(&replicas, 2, 1)); /* It has sent nothing so far. */
    assert_false(tdm__replicas_sends(&replicas, 0, 0));
    assert_false(tdm__replicas_sends(&replicas, 1, 1));
    tdm__replicas_fini(&replicas);
    tdm__manifest_destroy(manifest);
}

static void no_slices_are_no_groups(void **state)
{
    static const struct tdm__layout none[1];
    struct tdm__manifest *manifest;
    struct tdm__replicas replicas;

    (void)state;
    assert_int_equal(tdm__manifest_create(model, 2, &manifest), TDM_OK);
    assert_int_equal(tdm__replicas_init(manifest, none, 1, &replicas), TDM_OK);
    assert_int_equal(replicas.groups_count, 0);
    tdm__replicas_fini(&replicas);
    tdm__manifest_destroy(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_slices_are_one_group),
        cmocka_unit_test(ranks_send_about_the_same),
        cmocka_unit_test(no_slices_are_no_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
