/* lease_status_test.c - how long a lost lease matters, and the text of a store that fails. */
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

static void test_loss_matters_for_one_lease(void **state)
{
    struct tdm__lease_status status = {.is_joining = false};

    (void)state;
    assert_false(tdm__lease_status_was_lost(&status));
    status.lost_ms = tdm__clock_ms();
    assert_true(tdm__lease_status_was_lost(&status));
    status.lost_ms = tdm__clock_ms() - TDM__NODE_LEASE_MS;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_matters_for_one_lease),
        cmocka_unit_test(test_store_error_is_cut_to_capacity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
