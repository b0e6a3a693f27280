/* scales_test.c - which rank measures which scales of shared blocks (see also convert_test.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/scales.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 4, ROWS = 768, COLUMNS = 300, COLUMN_BLOCKS = 3, EXPERTS = 2, HEAD = 0 };

/* The first tensor has experts of 768 rows on four ranks with 192 rows each, like Qwen3-30B-A3B.
 * The other one is cut between its blocks. */
struct fixture {
    struct tdm__manifest *manifest;
    struct tdm_slice held[RANKS][EXPERTS + 1];
    struct tdm__layout from[RANKS];
    struct tdm_slice wanted[EXPERTS + 1];
    struct tdm__layout to;
    struct tdm__scales scales;
};

static struct tdm_slice rows_of(uint32_t tensor, uint64_t first, uint64_t rows)
{
    return (struct tdm_slice){.tensor = tensor, .offset = {first, 0}, .extent = {rows, COLUMNS}};
}

static int set_up(void **state)
{
    static const char *const names[EXPERTS + 1] = {"head", "up_0", "up_1"};
    struct tdm_tensor_info infos[EXPERTS + 1];
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    for (uint32_t i = 0; i <= EXPERTS; i++) {
        uint64_t rows = i == HEAD ? 512 : ROWS;

        infos[i] = (struct tdm_tensor_info){
            .name = names[i], .dtype = TDM_BF16, .dims_count = 2, .shape = {rows, COLUMNS}};
        fixture->wanted[i] = rows_of(i, 0, rows);
        fixture->wanted[i].dtype = TDM_F8_E4M3;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            fixture->held[rank][i] = rows_of(i, rank * rows / RANKS, rows / RANKS);
            fixture->from[rank] = (struct tdm__layout){fixture->held[rank], EXPERTS + 1};
        }
    }
    fixture->to = (struct tdm__layout){fixture->wanted, EXPERTS + 1};
    TRY(tdm__manifest_create(infos, EXPERTS + 1, &fixture->manifest));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    tdm__scales_fini(&fixture->scales);
    tdm__manifest_destroy(fixture->manifest);
    free(fixture);
    return 0;
}

static void plan(struct fixture *fixture)
{
    struct tdm__replicas replicas;
    const struct tdm__scales_options options = {.manifest = fixture->manifest,
                                                .from = fixture->from,
                                                .from_count = RANKS,
                                                .to = &fixture->to,
                                                .to_count = 1,
                                                .replicas = &replicas};

    TRY(tdm__replicas_init(fixture->manifest, fixture->from, RANKS, &replicas));
    TRY(tdm__scales_init(&options, &fixture->scales));
    tdm__replicas_fini(&replicas);
}

static void only_what_is_cut_through_has_a_place(void **state)
{
    struct fixture *fixture = *state;

    plan(fixture);
    assert_true(fixture->scales.firsts[HEAD] == TDM__SCALES_NOT_SHARED);
    assert_true(fixture->scales.firsts[1] == 0);
    assert_true(fixture->scales.firsts[2] == ROWS / 128 * COLUMN_BLOCKS);
    assert_true(fixture->scales.count == EXPERTS * ROWS / 128 * COLUMN_BLOCKS);
    assert_true(fixture->scales.measured_bytes == EXPERTS * ROWS * COLUMNS * 2);
    assert_true(tdm__scales_block_index(&fixture->scales, 2, 640, 256) ==
                fixture->scales.count - 1);
}

/* The first measurement is the rest of a block; all others begin at a block boundary. */
static void every_rank_finds_its_own_part(void **state)
{
    static const uint32_t rows[RANKS][2] = {{192, 0}, {64, 128}, {192, 0}, {64, 128}};
    struct fixture *fixture = *state;
    const struct tdm__rect_copy *measure;

    plan(fixture);
    measure = fixture->scales.measures;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = 0; i < EXPERTS * 2; i++) {
            if (rows[rank][i % 2] > 0) {
                assert_int_equal(measure->from_rank, rank);
                assert_int_equal(measure->from_tensor, 1 + i / 2);
                assert_int_equal(measure->rows, rows[rank][i % 2]);
                assert_int_equal(measure->from_offset, i % 2 * 64 * COLUMNS);
                measure++;
            }
        }
    }
    assert_ptr_equal(measure, fixture->scales.measures + fixture->scales.measures_count);
}

static void tensor_that_keeps_its_dtype_is_not_measured(void **state)
{
    struct fixture *fixture = *state;

    fixture->wanted[1].dtype = 0;
    fixture->wanted[2].dtype = TDM_BF16;
    plan(fixture);
    assert_true(fixture->scales.count == 0);
    assert_int_equal(fixture->scales.measures_count, 0);
}

static void largest_scale_is_kept_in_any_order(void **state)
{
    const struct tdm__rect_copy measure = {
        .rows = 130, .columns = 200, .to_offset = 1, .to_pitch = 3};
    const float found[4] = {1, 2, 3, 4};
    float table[6] = {9, 5, 0, 9, 0, 4.5f};
    const float wanted[6] = {9, 5, 2, 9, 3, 4.5f};

    (void)state;
    assert_true(tdm__scales_measured_count(&measure) == 4);
    for (int i = 0; i < 2; i++) {
        tdm__scales_merge(&measure, found, table);
        assert_memory_equal(table, wanted, sizeof(wanted));
    }
}

#define IN_WORLD(promise) cmocka_unit_test_setup_teardown(promise, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(only_what_is_cut_through_has_a_place),
        IN_WORLD(every_rank_finds_its_own_part),
        IN_WORLD(tensor_that_keeps_its_dtype_is_not_measured),
        cmocka_unit_test(largest_scale_is_kept_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
