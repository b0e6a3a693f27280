/* rank_list_test.c - a message names the first ranks of a list and counts the others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/rank_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Checks the text of a list of `count` ranks, the first of which is `first`. */
static void assert_text(uint32_t first, uint32_t count, const char *expected)
{
    struct tdm__rank_list list = {.count = 0};
    char text[TDM__RANK_LIST_BYTES];

    for (uint32_t i = 0; i < count; i++) {
        tdm__rank_list_add(&list, first + i);
    }
    assert_ptr_equal(tdm__rank_list_text(&list, text), text);
    assert_string_equal(text, expected);
}

static void few_ranks_are_all_named(void **state)
{
    (void)state;
    assert_text(0, 0, "a rank");
    assert_text(3, 1, "rank 3");
    assert_text(1, 2, "ranks 1, 2");
    assert_text(0, 16, "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15");
}

static void ranks_beyond_the_sixteenth_are_counted(void **state)
{
    (void)state;
    assert_text(1, 17, "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 1 more");
    assert_text(100, 156,
                "ranks 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, "
                "115 and 140 more");
}

/* The longest numbers fit into the text. */
static void the_text_of_the_largest_numbers_is_whole(void **state)
{
    struct tdm__rank_list list = {.count = UINT32_MAX};
    char text[TDM__RANK_LIST_BYTES];

    (void)state;
    for (uint32_t i = 0; i < TDM__RANK_LIST_NAMED_MAX; i++) {
        list.ranks[i] = UINT32_MAX;
    }
    assert_true(strlen(tdm__rank_list_text(&list, text)) < TDM__RANK_LIST_BYTES - 1);
    assert_non_null(strstr(text, ", 4294967295 and 4294967279 more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_ranks_are_all_named),
        cmocka_unit_test(ranks_beyond_the_sixteenth_are_counted),
        cmocka_unit_test(the_text_of_the_largest_numbers_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
