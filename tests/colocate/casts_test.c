/* casts_test.c - casts round to nearest, ties to even, and stay in range. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/transfer/casts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Returns the value of each of the 127 codes from zero up. */
static double e4m3_value(int code)
{
    int power = code >> 3;
    double fraction = (code & 7) / 8.0;

    return power == 0 ? ldexp(fraction, -6) : ldexp(1 + fraction, power - 7);
}

static void every_code_is_the_cast_of_its_value(void **state)
{
    (void)state;
    for (int code = 0; code <= 0x7e; code++) {
        assert_int_equal(tdm__e4m3_from_float((float)e4m3_value(code)), code);
        assert_int_equal(tdm__e4m3_from_float(-(float)e4m3_value(code)), code | 0x80);
    }
}

/* Checks that a value between two codes becomes the nearer one, and a middle the even one. All
 * middles are floats. */
static void value_between_two_codes_rounds_to_the_nearest_even(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        float middle = (float)((e4m3_value(code) + e4m3_value(code + 1)) / 2);

        assert_int_equal(tdm__e4m3_from_float(middle), code % 2 == 0 ? code : code + 1);
        assert_int_equal(tdm__e4m3_from_float(nextafterf(middle, 0)), code);
        assert_int_equal(tdm__e4m3_from_float(nextafterf(middle, 1000)), code + 1);
    }
}

static void large_values_become_448_and_nan_stays_nan(void **state)
{
    (void)state;
    assert_int_equal(tdm__e4m3_from_float(449), 0x7e);
    assert_int_equal(tdm__e4m3_from_float(1e30f), 0x7e);
    assert_int_equal(tdm__e4m3_from_float(-INFINITY), 0xfe);
    assert_int_equal(tdm__e4m3_from_float(NAN) & 0x7f, 0x7f);
}

static void bf16_is_the_upper_half_rounded(void **state)
{
    static const struct {
        uint32_t bits;
        uint16_t wanted;
    } casts[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
        {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0x80000000, 0x8000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(casts) / sizeof(casts[0]); i++) {
        float value;

        memcpy(&value, &casts[i].bits, sizeof(value));
        assert_int_equal(tdm__bf16_from_float(value), casts[i].wanted);
    }
    assert_true(tdm__bf16_to_float(0x4049) == 3.140625f);
}

/* A matrix of 130 rows and 129 columns has four blocks. */
static void each_block_has_its_own_scale(void **state)
{
    static float values[130 * 129];
    static uint8_t bytes[130 * 129];
    float scales[4];
    const struct tdm__strided_matrix from = {values, TDM_F32, 130, 129, 129};
    const struct tdm__fp8_matrix to = {bytes, scales, 129, 2};

    (void)state;
    values[0] = -448;
    values[128] = 2;
    values[(size_t)129 * 129] = 1;
    tdm__fp8_quantize(&from, &to);
    assert_true(scales[0] == 1.0f);
    assert_true(scales[1] == 2.0f / 448);
    assert_true(scales[2] == 1.0f / 448);
    assert_true(scales[3] == 1e-10f / 448);
    assert_int_equal(bytes[0], 0xfe);
    assert_int_equal(bytes[128], 0x7e);
    assert_int_equal(bytes[1], 0);
}

/* Converts a matrix in four pieces that divide its blocks. */
static void conversion_in_pieces_equals_conversion_at_once(void **state)
{
    enum { ROWS = 300, COLUMNS = 200, ROW = 60, COLUMN = 130, SCALES = 3 * 2 };
    static float values[ROWS * COLUMNS];
    static uint8_t whole[ROWS * COLUMNS];
    static uint8_t pieces[ROWS * COLUMNS];
    const uint32_t rows[] = {0, ROW, 128, ROWS};
    const uint32_t columns[] = {0, 128, COLUMN, COLUMNS};
    float scales[SCALES];

    (void)state;
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        values[i] = (float)(int32_t)(i * 2654435761u) * (i % 7 == 0 ? 0x1p-33f : 0x1p-36f);
    }
    tdm__fp8_quantize(&(struct tdm__strided_matrix){values, TDM_F32, ROWS, COLUMNS, COLUMNS},
                      &(struct tdm__fp8_matrix){whole, scales, COLUMNS, 2});
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            uint32_t first = rows[i] * COLUMNS + columns[k];
            const struct tdm__strided_matrix piece = {values + first, TDM_F32,
                                                      rows[i + 1] - rows[i],
                                                      columns[k + 1] - columns[k], COLUMNS};
            const struct tdm__fp8_scales known = {scales + rows[i] / 128 * 2 + columns[k] / 128, 2};

            tdm__fp8_quantize_by_scales(&piece, &known, pieces + first, COLUMNS);
        }
    }
    assert_memory_equal(pieces, whole, sizeof(whole));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_is_the_cast_of_its_value),
        cmocka_unit_test(value_between_two_codes_rounds_to_the_nearest_even),
        cmocka_unit_test(large_values_become_448_and_nan_stays_nan),
        cmocka_unit_test(bf16_is_the_upper_half_rounded),
        cmocka_unit_test(each_block_has_its_own_scale),
        cmocka_unit_test(conversion_in_pieces_equals_conversion_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
