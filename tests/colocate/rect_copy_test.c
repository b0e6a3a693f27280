/* rect_copy_test.c - adjacent rectangles are merged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/transfer/rect_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__rect_copy rectangle(uint32_t rows, uint32_t columns, uint64_t from_offset,
                                       uint64_t to_offset)
{
    struct tdm__rect_copy copy = {.from_offset = from_offset,
                                  .to_offset = to_offset,
                                  .rows = rows,
                                  .columns = columns,
                                  .from_pitch = 10,
                                  .to_pitch = 20,
                                  .from_dtype = TDM_U8,
                                  .to_dtype = TDM_U8};

    tdm__rect_copy_flatten(&copy);
    return copy;
}

static void rows_without_gaps_are_one_row(void **state)
{
    struct tdm__rect_copy copy = {.rows = 3, .columns = 10, .from_pitch = 10, .to_pitch = 10};

    (void)state;
    tdm__rect_copy_flatten(&copy);
    assert_int_equal(copy.rows, 1);
    assert_int_equal(copy.columns, 30);
    copy = (struct tdm__rect_copy){
        .rows = 1 << 16, .columns = 1 << 16, .from_pitch = 1 << 16, .to_pitch = 1 << 16};
    tdm__rect_copy_flatten(&copy); /* The merged row would have 2^32 columns. */
    assert_int_equal(copy.rows, 1 << 16);
}

static void neighbours_become_one_rectangle(void **state)
{
    struct tdm__rect_copy last = rectangle(2, 4, 0, 0);
    struct tdm__rect_copy right = rectangle(2, 3, 4, 4);
    struct tdm__rect_copy below = rectangle(1, 7, 20, 40);
    struct tdm__rect_copy far = rectangle(1, 7, 50, 60);

    (void)state;
    assert_true(tdm__rect_copy_merge(&last, &right));
    assert_int_equal(last.columns, 7);
    assert_true(tdm__rect_copy_merge(&last, &below));
    assert_int_equal(last.rows, 3);
    assert_false(tdm__rect_copy_merge(&last, &far));
}

/* As the queries of one group and the next lie in Megatron's tensor. */
static void equal_rows_at_a_distance_become_a_rectangle(void **state)
{
    struct tdm__rect_copy last = rectangle(1, 8, 0, 0);
    struct tdm__rect_copy second = rectangle(1, 8, 12, 8);
    struct tdm__rect_copy third = rectangle(1, 8, 24, 16);

    (void)state;
    assert_true(tdm__rect_copy_merge(&last, &second));
    assert_true(tdm__rect_copy_merge(&last, &third));
    assert_int_equal(last.rows, 3);
    assert_int_equal(last.from_pitch, 12);
    assert_int_equal(last.to_pitch, 8);
}

static void copies_from_different_sources_are_not_merged(void **state)
{
    struct tdm__rect_copy last = rectangle(1, 8, 0, 0);
    struct tdm__rect_copy next = rectangle(1, 8, 8, 8);

    (void)state;
    next.from_rank = 1;
    assert_false(tdm__rect_copy_merge(&last, &next));
    next.from_rank = 0;
    next.from_tensor = 1;
    assert_false(tdm__rect_copy_merge(&last, &next));
    next.from_tensor = 0;
    next.to_offset = 0;
    assert_false(tdm__rect_copy_merge(&last, &next));
    next.to_offset = 8;
    assert_true(tdm__rect_copy_merge(&last, &next));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_gaps_are_one_row),
        cmocka_unit_test(neighbours_become_one_rectangle),
        cmocka_unit_test(equal_rows_at_a_distance_become_a_rectangle),
        cmocka_unit_test(copies_from_different_sources_are_not_merged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
