/* lease_status_test.c - how long the loss of a node matters, and the text of a store that fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/lease_status.h"
#include "runtime/clock.h"
#include "scheduler/records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_loss_matters_for_a_while(void **state)
{
    struct tdm__lease_status status = {.is_joining = false};

    (void)state;
    assert_false(tdm__lease_status_was_lost(&status));
    status.lost_ms = tdm__clock_ms();
    assert_true(tdm__lease_status_was_lost(&status));
    status.lost_ms = tdm__clock_ms() - TDM__NODE_REJOIN_MS;
    assert_false(tdm__lease_status_was_lost(&status));
}

static void test_store_error_is_cut_to_capacity(void **state)
{
    struct tdm__lease_status status = {.is_joining = false};
    char text[2 * sizeof(status.store_error)];

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    tdm__lease_status_set_store_error(&status, text);
    assert_int_equal(strlen(status.store_error), sizeof(status.store_error) - 1);
    tdm__lease_status_set_store_error(&status, "");
    assert_string_equal(status.store_error, "");
}

static void test_explanation_names_redis_and_the_time_left(void **state)
{
    struct tdm__lease_status status = {.fence_ms = tdm__clock_boot_ms() + 20500};
    char text[320];

    (void)state;
    assert_false(tdm__lease_status_explain(&status, text, sizeof(text)));
    assert_string_equal(text, "");
    tdm__lease_status_set_store_error(&status, "no answer");
    assert_true(tdm__lease_status_explain(&status, text, sizeof(text)));
    assert_non_null(strstr(text, "Redis is unavailable"));
    assert_non_null(strstr(text, " 21 s more"));
    assert_non_null(strstr(text, ": no answer"));
    assert_false(tdm__lease_status_has_ended(&status));
    status.fence_ms = tdm__clock_boot_ms() - 3500;
    assert_true(tdm__lease_status_has_ended(&status));
    assert_true(tdm__lease_status_explain(&status, text, sizeof(text)));
    assert_non_null(strstr(text, "has stopped its actors"));
    assert_non_null(strstr(text, " 3 s ago"));
    status.fence_ms = 0; /* The lease of a node with a store of its own never ends. */
    assert_false(tdm__lease_status_has_ended(&status));
    assert_true(tdm__lease_status_explain(&status, text, sizeof(text)));
    assert_null(strstr(text, "stop"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_matters_for_a_while),
        cmocka_unit_test(test_store_error_is_cut_to_capacity),
        cmocka_unit_test(test_explanation_names_redis_and_the_time_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
