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

static void shortened_text_keeps_its_beginning_and_its_end(void **state)
{
    char bytes[25];

    (void)state;
    tdm__text_shorten("a short text", bytes, sizeof(bytes));
    assert_string_equal(bytes, "a short text");
    tdm__text_shorten("123456789012345678901234", bytes, sizeof(bytes));
    assert_string_equal(bytes, "123456789012345678901234");
    tdm__text_shorten("ValueError: a long text with its cause", bytes, sizeof(bytes));
    assert_string_equal(bytes, "ValueErr\n…\nh its cause");
    /* The cuts would lie inside of characters. */
    tdm__text_shorten("1234567ääääääääääääää12345678", bytes, sizeof(bytes));
    assert_string_equal(bytes, "1234567\n…\nä12345678");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortened_text_keeps_its_beginning_and_its_end),
        cmocka_unit_test(pieces_are_put_together),
        cmocka_unit_test(long_text_is_truncated_within_its_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
