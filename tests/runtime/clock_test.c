/* clock_test.c - deadlines that are close, distant and never. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void deadline_is_so_far_away(void **state)
{
    int64_t before_ms = tdm__clock_ms();
    int64_t deadline_ms = tdm__deadline_after(5000);

    (void)state;
    assert_true(deadline_ms >= before_ms + 5000);
    assert_true(tdm__deadline_remaining_ms(deadline_ms) <= 5000);
    assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
    assert_int_equal(tdm__deadline_remaining_ms(before_ms - 1), 0);
}

static void deadline_that_never_passes_stays_never(void **state)
{
    static const int64_t timeouts[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX - 1, INT64_MAX / 2};

    (void)state;
    for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
        assert_true(tdm__deadline_after(timeouts[i]) == TDM__NEVER);
        assert_int_equal(tdm__timeout_add(timeouts[i], 1000), -1);
    }
    assert_int_equal(tdm__deadline_remaining_ms(TDM__NEVER), -1);
    assert_int_equal(tdm__timeout_add(500, 1000), 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadline_is_so_far_away),
        cmocka_unit_test(deadline_that_never_passes_stays_never),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
