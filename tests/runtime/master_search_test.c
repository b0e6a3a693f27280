/* master_search_test.c - the sentinels are asked in turn, and delays grow up to a limit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/master_search.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SENTINELS = 3, MIN_MS = TDM__MASTER_SEARCH_DELAY_MS_MIN };

static void single_server_is_tried_after_delays_that_double(void **state)
{
    struct tdm__master_search search;

    (void)state;
    tdm__master_search_init(&search, 0);
    for (int64_t ms = MIN_MS; ms < TDM__MASTER_SEARCH_DELAY_MS_MAX; ms *= 2) {
        assert_false(tdm__master_search_asks(&search));
        assert_int_equal(tdm__master_search_server_failed(&search), ms);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm__master_search_server_failed(&search),
                         TDM__MASTER_SEARCH_DELAY_MS_MAX);
    }
    tdm__master_search_ready(&search);
    assert_int_equal(tdm__master_search_server_failed(&search), MIN_MS);
    assert_false(tdm__master_search_asks(&search));
}

static void sentinels_are_asked_in_turn_and_then_after_a_delay(void **state)
{
    struct tdm__master_search search;
    int64_t delay_ms = MIN_MS;

    (void)state;
    tdm__master_search_init(&search, SENTINELS);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < SENTINELS; i++) {
            assert_true(tdm__master_search_asks(&search));
            assert_int_equal(search.sentinel, i);
            assert_int_equal(tdm__master_search_sentinel_failed(&search),
                             i + 1 < SENTINELS ? 0 : delay_ms);
        }
        delay_ms *= 2;
    }
}

static void named_master_is_contacted_once_and_then_the_next_sentinel(void **state)
{
    struct tdm__master_search search;

    (void)state;
    tdm__master_search_init(&search, SENTINELS);
    tdm__master_search_named(&search);
    assert_false(tdm__master_search_asks(&search));
    assert_int_equal(tdm__master_search_server_failed(&search), MIN_MS);
    assert_true(tdm__master_search_asks(&search));
    assert_int_equal(search.sentinel, 1);
    /* A sentinel that names a dead master does not shorten the delay. */
    tdm__master_search_named(&search);
    assert_int_equal(tdm__master_search_server_failed(&search), 2 * MIN_MS);
    assert_int_equal(search.sentinel, 2);
}

static void sentinel_of_a_connection_that_was_ready_is_asked_first(void **state)
{
    struct tdm__master_search search;

    (void)state;
    tdm__master_search_init(&search, SENTINELS);
    assert_int_equal(tdm__master_search_sentinel_failed(&search), 0);
    tdm__master_search_named(&search);
    tdm__master_search_ready(&search);
    assert_int_equal(tdm__master_search_server_failed(&search), MIN_MS);
    assert_true(tdm__master_search_asks(&search));
    assert_int_equal(search.sentinel, 1);
    /* The round begins anew: all three are asked before the next delay. */
    assert_int_equal(tdm__master_search_sentinel_failed(&search), 0);
    assert_int_equal(tdm__master_search_sentinel_failed(&search), 0);
    assert_int_equal(tdm__master_search_sentinel_failed(&search), 2 * MIN_MS);
}

static void next_sentinel_is_asked_when_the_master_is_doubted(void **state)
{
    struct tdm__master_search search;

    (void)state;
    tdm__master_search_init(&search, SENTINELS);
    tdm__master_search_named(&search);
    tdm__master_search_ready(&search);
    tdm__master_search_doubted(&search);
    assert_int_equal(tdm__master_search_server_failed(&search), MIN_MS);
    assert_true(tdm__master_search_asks(&search));
    assert_int_equal(search.sentinel, 1);
}

static void only_sentinel_is_asked_again_after_a_delay(void **state)
{
    struct tdm__master_search search;

    (void)state;
    tdm__master_search_init(&search, 1);
    assert_int_equal(tdm__master_search_sentinel_failed(&search), MIN_MS);
    assert_int_equal(tdm__master_search_sentinel_failed(&search), 2 * MIN_MS);
    assert_int_equal(search.sentinel, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_server_is_tried_after_delays_that_double),
        cmocka_unit_test(sentinels_are_asked_in_turn_and_then_after_a_delay),
        cmocka_unit_test(named_master_is_contacted_once_and_then_the_next_sentinel),
        cmocka_unit_test(sentinel_of_a_connection_that_was_ready_is_asked_first),
        cmocka_unit_test(next_sentinel_is_asked_when_the_master_is_doubted),
        cmocka_unit_test(only_sentinel_is_asked_again_after_a_delay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
