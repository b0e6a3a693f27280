/* log_label_test.c - log labels are found where they are complete, and removed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/log_label.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void complete_label_is_found(void **state)
{
    const char text[] = "one\n\033]tandem-label;load\007two\n";
    struct tdm__log_label label;

    (void)state;
    assert_true(tdm__log_label_find(text, strlen(text), &label));
    assert_int_equal(label.begin, 4);
    assert_string_equal(text + label.end, "two\n");
    assert_int_equal(label.name_bytes, 4);
    assert_memory_equal(label.name, "load", 4);
}

static void incomplete_label_is_not_found(void **state)
{
    const char text[] = "one\n\033]tandem-label;load\007two\n";
    struct tdm__log_label label;

    (void)state;
    for (size_t bytes = 0; bytes <= strlen("one\n\033]tandem-label;load"); bytes++) {
        assert_false(tdm__log_label_find(text, bytes, &label));
    }
    assert_false(tdm__log_label_find("\033]0;title\007", strlen("\033]0;title\007"), &label));
}

static void labels_are_removed(void **state)
{
    char text[] = "\033]tandem-label;a\007one\n\033]tandem-label;\007\033]tandem-label;b\007two";
    size_t bytes = tdm__log_label_remove(text, strlen(text));

    (void)state;
    assert_int_equal(bytes, strlen("one\ntwo"));
    assert_memory_equal(text, "one\ntwo", bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete_label_is_found),
        cmocka_unit_test(incomplete_label_is_not_found),
        cmocka_unit_test(labels_are_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
