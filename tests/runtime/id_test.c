/* id_test.c - ids are random, print as text, and malformed text is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void id_survives_its_text(void **state)
{
    struct tdm__id id;
    struct tdm__id back;
    char text[TDM__ID_TEXT_BYTES];

    (void)state;
    assert_int_equal(tdm__id_generate(&id), TDM_OK);
    assert_false(tdm__id_is_none(&id));
    assert_int_equal(tdm__id_parse(tdm__id_text(&id, text), &back), TDM_OK);
    assert_true(tdm__id_equal(&id, &back));
}

static void two_ids_differ(void **state)
{
    struct tdm__id a;
    struct tdm__id b;

    (void)state;
    assert_int_equal(tdm__id_generate(&a), TDM_OK);
    assert_int_equal(tdm__id_generate(&b), TDM_OK);
    assert_false(tdm__id_equal(&a, &b));
}

static void text_that_is_no_id_is_refused(void **state)
{
    struct tdm__id id;

    (void)state;
    assert_int_equal(tdm__id_parse("12", &id), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "32 hexadecimal digits"));
    assert_int_equal(tdm__id_parse("0123456789abcdef0123456789abcdeg", &id), TDM_E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(id_survives_its_text),
        cmocka_unit_test(two_ids_differ),
        cmocka_unit_test(text_that_is_no_id_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
