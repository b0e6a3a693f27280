/* copy_op_test.c - a copy operation writes its rows, and its checksum is that of the written
 * bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/transfer/copy_op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { ROWS = 130, COLUMNS = 200, PITCH = 256, ROOM_BYTES = ROWS * PITCH * 4 };

static float from[ROWS * PITCH];
static uint8_t to[ROOM_BYTES];

static struct tdm__copy_op part_of(enum tdm__conversion conversion, enum tdm_dtype to_dtype)
{
    return (struct tdm__copy_op){.from = from,
                                 .to = to,
                                 .rows = ROWS,
                                 .columns = COLUMNS,
                                 .from_pitch = PITCH,
                                 .to_pitch = PITCH,
                                 .conversion = (uint8_t)conversion,
                                 .from_dtype = TDM_F32,
                                 .to_dtype = (uint8_t)to_dtype};
}

static int fill(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ROWS * PITCH; i++) {
        from[i] = (float)(int32_t)(i * 2654435761u) * 0x1p-33f;
    }
    memset(to, 0xee, sizeof(to));
    return 0;
}

/* What every device is compared with; what the bits themselves are: fp8_test, convert_test. */
static void sum_is_that_of_what_is_written_or_would_be(void **state)
{
    static const float known[] = {1, 2, 3, 4};
    struct tdm__copy_op parts[] = {
        part_of(TDM__CONVERT_NONE, TDM_F32), part_of(TDM__CONVERT_BF16, TDM_BF16),
        part_of(TDM__CONVERT_FP8, TDM_F8_E4M3), part_of(TDM__CONVERT_SCALES, TDM_F32),
        part_of(TDM__CONVERT_FP8, TDM_F8_E4M3)};

    (void)state;
    parts[4].scales = known;
    parts[4].scales_pitch = 2;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct tdm__copy_op unwritten = parts[i];
        struct tdm__strided_rows rows = tdm__copy_op_rows(&parts[i]);
        uint64_t written_sum;
        uint64_t sum;

        TRY(tdm__copy_op_execute(&parts[i], &written_sum));
        rows.from_pitch = rows.to_pitch;
        assert_true(written_sum == tdm__rect_checksum(&rows, to));
        unwritten.to = NULL;
        TRY(tdm__copy_op_execute(&unwritten, &sum));
        assert_true(sum == written_sum);
    }
}

static void nothing_is_written_beside_the_rows(void **state)
{
    const struct tdm__copy_op copy_op = part_of(TDM__CONVERT_BF16, TDM_BF16);
    uint64_t sum;

    (void)state;
    TRY(tdm__copy_op_execute(&copy_op, &sum));
    for (size_t row = 0; row + 1 < ROWS; row++) {
        for (size_t i = (row * PITCH + COLUMNS) * 2; i < (row + 1) * PITCH * 2; i++) {
            assert_int_equal(to[i], 0xee);
        }
    }
}

static void from_nothing_come_zeros(void **state)
{
    const struct tdm__strided_rows rows = {.count = 3, .size_bytes = 100, .to_pitch = 110};
    struct tdm__copy_op copy_op = tdm__copy_op_of_rows(&rows, NULL, to);
    const uint8_t zeros[100] = {0};
    uint64_t written_sum;
    uint64_t sum;

    (void)state;
    TRY(tdm__copy_op_execute(&copy_op, &written_sum));
    for (size_t row = 0; row < 3; row++) {
        assert_memory_equal(to + row * 110, zeros, 100);
        assert_int_equal(to[row * 110 + 100], 0xee);
    }
    copy_op.to = NULL;
    TRY(tdm__copy_op_execute(&copy_op, &sum));
    assert_true(sum == written_sum);
}

static void scales_have_a_row_for_each_row_of_blocks(void **state)
{
    const struct tdm__copy_op copy_op = part_of(TDM__CONVERT_SCALES, TDM_F32);
    const struct tdm__strided_rows rows = tdm__copy_op_rows(&copy_op);

    (void)state;
    assert_int_equal(rows.count, 2);
    assert_int_equal(rows.size_bytes, 2 * sizeof(float));
    assert_int_equal(rows.from_pitch, PITCH * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sum_is_that_of_what_is_written_or_would_be, fill),
        cmocka_unit_test_setup(nothing_is_written_beside_the_rows, fill),
        cmocka_unit_test_setup(from_nothing_come_zeros, fill),
        cmocka_unit_test_setup(scales_have_a_row_for_each_row_of_blocks, fill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
