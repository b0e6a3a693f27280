/* dtype_test.c - numbers, names and sizes of dtypes never change. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void every_dtype_keeps_its_number_word_and_bytes(void **state)
{
    static const struct {
        int number;
        const char *name;
        size_t size_bytes;
    } expected[] = {{1, "F32", 4},  {2, "F16", 2},  {3, "BF16", 2}, {4, "F8_E4M3", 1},
                    {5, "I64", 8},  {6, "I32", 4},  {7, "U8", 1},   {8, "F64", 8},
                    {9, "I8", 1},   {10, "I16", 2}, {11, "U16", 2}, {12, "U32", 4},
                    {13, "U64", 8}, {14, "BOOL", 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        enum tdm_dtype dtype = (enum tdm_dtype)expected[i].number;
        enum tdm_dtype parsed = 0;

        assert_string_equal(tdm_dtype_name(dtype), expected[i].name);
        assert_int_equal(tdm_dtype_bytes(dtype), expected[i].size_bytes);
        assert_true(tdm__dtype_parse(expected[i].name, &parsed));
        assert_int_equal(parsed, dtype);
    }
}

static void unknown_dtype_has_no_bytes(void **state)
{
    enum tdm_dtype parsed;

    (void)state;
    assert_int_equal(tdm_dtype_bytes((enum tdm_dtype)0), 0);
    assert_int_equal(tdm_dtype_bytes((enum tdm_dtype)15), 0);
    assert_int_equal(tdm_dtype_bytes((enum tdm_dtype) - 1), 0);
    assert_string_equal(tdm_dtype_name((enum tdm_dtype)99), "unknown");
    assert_false(tdm__dtype_parse("C64", &parsed));
    assert_false(tdm__dtype_parse("", &parsed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_keeps_its_number_word_and_bytes),
        cmocka_unit_test(unknown_dtype_has_no_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
