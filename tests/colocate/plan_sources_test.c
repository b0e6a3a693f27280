/* plan_sources_test.c - overlaps are refused, and the nearest and least loaded rank is chosen. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/plan_sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2 };

static const struct tdm_tensor_info model[] = {{"m", TDM_F32, 2, {4, 6}}, {"v", TDM_F32, 1, {24}}};

/* Collects what two ranks hold, of which each has one slice, for an engine that wants nothing. */
static tdm_status collect(const struct tdm_slice slices[RANKS], struct tdm__plan_sources *sources)
{
    const struct tdm__layout from[RANKS] = {{&slices[0], 1}, {&slices[1], 1}};
    struct tdm__manifest *manifest;
    struct tdm__plan_sources_options options = {.from = from, .from_count = RANKS};
    tdm_status status;

    assert_int_equal(tdm__manifest_create(model, 2, &manifest), TDM_OK);
    options.manifest = manifest;
    status = tdm__plan_sources_init(&options, sources);
    if (status != TDM_OK) {
        tdm__plan_sources_fini(sources);
    }
    tdm__manifest_destroy(manifest);
    return status;
}

static void slices_that_overlap_in_part_are_refused(void **state)
{
    static const struct tdm_slice boxes[RANKS] = {{.extent = {3, 4}},
                                                  {.offset = {2, 3}, .extent = {2, 3}}};
    static const struct tdm_slice ranges[RANKS] = {
        {.tensor = 1, .flat = 1, .extent = {10}},
        {.tensor = 1, .flat = 1, .offset = {9}, .extent = {5}}};
    struct tdm__plan_sources sources;

    (void)state;
    assert_int_equal(collect(boxes, &sources), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(),
                        "planning the transfer of weights failed: tensor m: elements 15 "
                        "to 15 are in slices of rank 0 and of rank 1. Let the trainers' slices be "
                        "equal or disjoint");
    assert_int_equal(collect(ranges, &sources), TDM_E_INVAL);
    assert_string_equal(
        tdm_error_detail(),
        "planning the transfer of weights failed: tensor v: elements 9 to "
        "9 are in slices of rank 0 and of rank 1. Let the trainers' slices be equal or disjoint");
}

static void boxes_are_planned_by_rectangles_and_ranges_by_runs(void **state)
{
    static const struct tdm_slice boxes[RANKS] = {{.extent = {4, 4}},
                                                  {.offset = {0, 4}, .extent = {4, 2}}};
    static const struct tdm_slice ranges[RANKS] = {{.flat = 1, .extent = {10}},
                                                   {.flat = 1, .offset = {10}, .extent = {14}}};
    struct tdm__plan_sources sources;

    (void)state;
    assert_int_equal(collect(boxes, &sources), TDM_OK);
    assert_false(sources.by_runs[0]);
    assert_int_equal(sources.held.count, 0);
    assert_int_equal(sources.groups[1], 2);
    tdm__plan_sources_fini(&sources);
    assert_int_equal(collect(ranges, &sources), TDM_OK);
    assert_true(sources.by_runs[0]);
    assert_int_equal(sources.held.count, 2);
    assert_int_equal(tdm__plan_sources_find_run(&sources, 0, 9), 0);
    assert_int_equal(tdm__plan_sources_find_run(&sources, 0, 10), 1);
    tdm__plan_sources_fini(&sources);
}

static void nearest_rank_is_chosen_then_the_one_that_sent_least(void **state)
{
    static const struct tdm_slice same[RANKS] = {{.extent = {4, 6}}, {.extent = {4, 6}}};
    struct tdm__plan_sources sources;
    struct tdm__holder_choice choice;

    (void)state;
    assert_int_equal(collect(same, &sources), TDM_OK);
    choice = tdm__plan_sources_choose(&sources, 1, 0);
    assert_int_equal(choice.holder.rank, 1);
    assert_int_equal(choice.locality, TDM__LOCALITY_SAME_GPU);
    choice = tdm__plan_sources_choose(&sources, 7, 0); /* No rank is on this GPU. */
    assert_int_equal(choice.holder.rank, 0);
    assert_true(choice.had_alternative);
    tdm__plan_sources_count(&sources, &choice, 96);
    assert_int_equal(sources.sent_bytes[0], 96);
    assert_int_equal(tdm__plan_sources_choose(&sources, 7, 0).holder.rank, 0); /* It goes on. */
    sources.last_rank = TDM__PLAN_NO_RANK;                                     /* The next slice. */
    assert_int_equal(tdm__plan_sources_choose(&sources, 7, 0).holder.rank, 1);
    tdm__plan_sources_fini(&sources);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_that_overlap_in_part_are_refused),
        cmocka_unit_test(boxes_are_planned_by_rectangles_and_ranges_by_runs),
        cmocka_unit_test(nearest_rank_is_chosen_then_the_one_that_sent_least),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
