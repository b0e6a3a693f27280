/* environment_test.c - tests which of several settings of a variable counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void test_later_setting_replaces_an_earlier_one(void **state)
{
    struct tdm__environment environment = {.settings = NULL};

    (void)state;
    assert_int_equal(tdm__environment_set(&environment, "A=1"), TDM_OK);
    assert_int_equal(tdm__environment_set(&environment, "AB=2"), TDM_OK);
    assert_int_equal(tdm__environment_set(&environment, "A=3"), TDM_OK);
    assert_int_equal(tdm__environment_set_default(&environment, "A=4"), TDM_OK);
    assert_int_equal(tdm__environment_set_default(&environment, "C=a=b"), TDM_OK);
    assert_int_equal(environment.count, 3);
    assert_string_equal(environment.settings[0], "A=3");
    assert_string_equal(environment.settings[1], "AB=2");
    assert_string_equal(environment.settings[2], "C=a=b");
    assert_null(environment.settings[3]);
    tdm__environment_clear(&environment);
    assert_null(environment.settings);
}

static void test_malformed_settings_are_refused_or_left_out(void **state)
{
    char texts[3][8] = {"A=1", "=x", "nothing"};
    char *settings[] = {texts[1], texts[0], texts[2], NULL};
    struct tdm__environment environment = {.settings = NULL};

    (void)state;
    assert_int_equal(tdm__environment_set(&environment, "nothing"), TDM_E_INVAL);
    assert_int_equal(tdm__environment_set(&environment, "=x"), TDM_E_INVAL);
    assert_int_equal(tdm__environment_set_all(&environment, settings), TDM_OK);
    assert_int_equal(environment.count, 1);
    tdm__environment_clear(&environment);
}

static void test_number_of_variables_is_not_limited(void **state)
{
    struct tdm__environment environment = {.settings = NULL};
    char setting[32];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(setting, sizeof(setting), "V%d=%d", i, i);
        assert_int_equal(tdm__environment_set(&environment, setting), TDM_OK);
    }
    assert_int_equal(environment.count, 1000);
    assert_string_equal(environment.settings[999], "V999=999");
    assert_null(environment.settings[1000]);
    tdm__environment_clear(&environment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later_setting_replaces_an_earlier_one),
        cmocka_unit_test(test_malformed_settings_are_refused_or_left_out),
        cmocka_unit_test(test_number_of_variables_is_not_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
