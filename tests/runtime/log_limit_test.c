/* log_limit_test.c - ten lines a minute are written, and the tenth says so. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/log_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void lines_beyond_the_limit_are_dropped_until_the_minute_ends(void **state)
{
    struct tdm__log_limit limit = {0};
    int64_t now_ms = 5000;

    (void)state;
    for (int minute = 0; minute < 3; minute++) {
        for (int i = 1; i < TDM__LOG_LIMIT_LINES_MAX; i++) {
            assert_int_equal(tdm__log_limit_count(&limit, now_ms + i), TDM__LOG_WRITE);
        }
        assert_int_equal(tdm__log_limit_count(&limit, now_ms + 20), TDM__LOG_WRITE_LAST);
        for (int i = 0; i < 1000; i++) {
            assert_int_equal(tdm__log_limit_count(&limit, now_ms + TDM__LOG_LIMIT_MS),
                             TDM__LOG_DROP);
        }
        now_ms += TDM__LOG_LIMIT_MS + 1;
    }
}

static void rare_lines_are_all_written(void **state)
{
    struct tdm__log_limit limit = {0};

    (void)state;
    for (int64_t i = 0; i < 100; i++) {
        assert_int_equal(tdm__log_limit_count(&limit, i * TDM__LOG_LIMIT_MS), TDM__LOG_WRITE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_beyond_the_limit_are_dropped_until_the_minute_ends),
        cmocka_unit_test(rare_lines_are_all_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
