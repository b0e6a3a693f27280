/* utf8_test.c - printable texts in UTF-8, and texts that were cut inside of a character. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void texts_of_all_lengths_are_printable(void **state)
{
    static const char *const texts[] = {"",
                                        "counter",
                                        "größe",
                                        "日本語",
                                        "😀 \xf4\x8f\xbf\xbf",
                                        "\xc2\xa0",
                                        "\xed\x9f\xbf\xee\x80\x80"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_true(tdm__utf8_is_printable(texts[i], strlen(texts[i])));
    }
}

static void malformed_texts_and_control_characters_are_refused(void **state)
{
    static const char *const texts[] = {"tab\t",
                                        "\x1b[31m",
                                        "\x7f",
                                        "\xc2\x80",
                                        "\xc2\x9f",
                                        "\x80",
                                        "\xff",
                                        "\xc3",
                                        "gr\xc3",
                                        "\xc3(",
                                        "\xc0\xaf",
                                        "\xe0\x80\xaf",
                                        "\xe6\x97",
                                        "\xf0\x80\x80\xaf",
                                        "\xf4\x90\x80\x80",
                                        "\xed\xa0\x80",
                                        "\xf5\x80\x80\x80",
                                        "\xf0\x9f\x98"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_false(tdm__utf8_is_printable(texts[i], strlen(texts[i])));
    }
    assert_false(tdm__utf8_is_printable("a\0b", 3));
}

static void text_is_cut_between_characters(void **state)
{
    static const char whole[] = "aö日😀";
    static const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
    char text[sizeof(whole)];

    (void)state;
    for (size_t size = 0; size < sizeof(whole); size++) {
        memcpy(text, whole, size);
        text[size] = '\0';
        assert_int_equal(strlen(tdm__utf8_trim(text)), expected[size]);
    }
    (void)snprintf(text, sizeof(text), "\x80\x80\x80\x80\x80"); /* No text at all. */
    assert_int_equal(strlen(tdm__utf8_trim(text)), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_all_lengths_are_printable),
        cmocka_unit_test(malformed_texts_and_control_characters_are_refused),
        cmocka_unit_test(text_is_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
