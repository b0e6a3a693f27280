/* clock_test.c - deadlines that are close, distant and never. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static time_t suspended_s; /* Seconds for which the machine seems to have been suspended. */

/* Takes the place of the C library's function. Only CLOCK_BOOTTIME goes on during a suspend. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time_out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, time_out);

    if (status == 0 && clock == CLOCK_BOOTTIME) {
        time_out->tv_sec += suspended_s;
    }
    return status;
}

static void lease_goes_on_while_the_machine_is_suspended(void **state)
{
    int64_t before_boot_ms = tdm__clock_boot_ms();
    int64_t before_ms = tdm__clock_ms();

    (void)state;
    suspended_s = 3600;
    assert_true(tdm__clock_boot_ms() >= before_boot_ms + 3600 * 1000);
    assert_true(tdm__clock_ms() < before_ms + 3600 * 1000);
    suspended_s = 0;
}

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
        cmocka_unit_test(lease_goes_on_while_the_machine_is_suspended),
        cmocka_unit_test(deadline_is_so_far_away),
        cmocka_unit_test(deadline_that_never_passes_stays_never),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
