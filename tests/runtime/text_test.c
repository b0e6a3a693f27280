/* text_test.c - a text grows to the end of its buffer and no further. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void pieces_are_put_together(void **state)
{
    char bytes[32] = "old";
    struct tdm__text text = tdm__text_init(bytes, sizeof(bytes));

    (void)state;
    assert_string_equal(bytes, "");
    tdm__text_add(&text, "%d of %s", 3, "four");
    tdm__text_add(&text, "%s", "");
    tdm__text_add(&text, "; %c", 'x');
    assert_string_equal(bytes, "3 of four; x");
    assert_int_equal(text.length, strlen(bytes));
}

static void long_text_is_truncated_within_its_buffer(void **state)
{
    char bytes[8];

    (void)state;
    for (size_t capacity = 1; capacity < sizeof(bytes); capacity++) {
        struct tdm__text text;

        memset(bytes, '#', sizeof(bytes));
        text = tdm__text_init(bytes, capacity);
        tdm__text_add(&text, "%s", "abc");
        tdm__text_add(&text, "%s", "defghijk");
        tdm__text_add(&text, "%s", "more");
        assert_int_equal(text.length, capacity - 1);
        assert_memory_equal(bytes, "abcdefg", capacity - 1);
        assert_int_equal(bytes[capacity - 1], '\0');
        assert_int_equal(bytes[capacity], '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_put_together),
        cmocka_unit_test(long_text_is_truncated_within_its_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
