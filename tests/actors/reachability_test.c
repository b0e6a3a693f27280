/* reachability_test.c - when a silent node counts as unreachable, by a clock of the test. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/reachability.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { INTERVAL_MS = 1000, TIMEOUT_MS = 10000 };

/* Checks once in each interval, and returns after how many checks the node is unreachable; 0 if it
 * is not after 20. */
static int checks_until_unreachable(struct tdm__reachability *reachability, int64_t *now_ms)
{
    for (int i = 1; i <= 20; i++) {
        *now_ms += INTERVAL_MS;
        if (tdm__reachability_check(reachability, *now_ms, INTERVAL_MS, TIMEOUT_MS)) {
            return i;
        }
    }
    return 0;
}

static void silent_node_is_unreachable_once_after_its_time(void **state)
{
    struct tdm__reachability reachability = {0};
    int64_t now_ms = 500;

    (void)state;
    assert_false(tdm__reachability_check(&reachability, now_ms, INTERVAL_MS, TIMEOUT_MS));
    assert_int_equal(checks_until_unreachable(&reachability, &now_ms), 10);
    assert_true(reachability.is_unreachable);
    assert_int_equal(checks_until_unreachable(&reachability, &now_ms), 0); /* It is known. */
    assert_true(tdm__reachability_answered(&reachability));
    assert_false(tdm__reachability_answered(&reachability));
    assert_int_equal(checks_until_unreachable(&reachability, &now_ms), 10);
}

static void answer_begins_the_time_again(void **state)
{
    struct tdm__reachability reachability = {0};
    int64_t now_ms = 500;

    (void)state;
    for (int i = 0; i < 50; i++) {
        now_ms += INTERVAL_MS;
        assert_false(tdm__reachability_check(&reachability, now_ms, INTERVAL_MS, TIMEOUT_MS));
        if (i % 9 == 0) {
            assert_false(tdm__reachability_answered(&reachability));
        }
    }
}

/* The daemon was stopped for an hour: the others had no way to answer it. */
static void stopped_daemon_blames_no_other_node(void **state)
{
    struct tdm__reachability reachability = {0};
    int64_t now_ms = 500;

    (void)state;
    assert_false(tdm__reachability_check(&reachability, now_ms, INTERVAL_MS, TIMEOUT_MS));
    now_ms += 3600 * 1000;
    assert_false(tdm__reachability_check(&reachability, now_ms, INTERVAL_MS, TIMEOUT_MS));
    assert_int_equal(checks_until_unreachable(&reachability, &now_ms), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_node_is_unreachable_once_after_its_time),
        cmocka_unit_test(answer_begins_the_time_again),
        cmocka_unit_test(stopped_daemon_blames_no_other_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
