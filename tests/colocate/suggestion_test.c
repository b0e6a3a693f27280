/* suggestion_test.c - a mistyped word finds the one that was meant, a strange one finds none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/suggestion.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_nearest_word_is_near(void **state)
{
    static const char *const known[] = {"run", "plan", "info", "version"};

    (void)state;
    assert_string_equal(tdm__suggestion_find("plam", known, 4), "plan");
    assert_string_equal(tdm__suggestion_find("versoin", known, 4), "version");
    assert_null(tdm__suggestion_find("elephant", known, 4));
    assert_null(tdm__suggestion_find("", known, 4));
}

static void word_longer_than_all_is_no_danger(void **state)
{
    static const char *const known[] = {"run"};
    char word[200];

    (void)state;
    memset(word, 'r', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    assert_null(tdm__suggestion_find(word, known, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_word_is_near),
        cmocka_unit_test(word_longer_than_all_is_no_danger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
