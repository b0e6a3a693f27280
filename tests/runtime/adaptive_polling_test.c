/* adaptive_polling_test.c - waits poll after short waits, and stop polling after waits in vain. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/adaptive_polling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SHORT_NS = 5000, SLEPT_SHORT_NS = 60000, LONG_NS = 10000000, MANY = 100 };

/* Performs one wait of the given length, and polls if the statistics say so.  Returns true if it
 * polled. */
static bool wait_of(struct tdm__adaptive_polling *adaptive_polling, int64_t reply_ns)
{
    int64_t polled_ns = tdm__adaptive_polling_duration(adaptive_polling);

    tdm__adaptive_polling_learn(adaptive_polling, polled_ns, reply_ns);
    return polled_ns > 0;
}

static int polled_of(struct tdm__adaptive_polling *adaptive_polling, int waits_count,
                     int64_t reply_ns)
{
    int polled_count = 0;

    for (int i = 0; i < waits_count; i++) {
        polled_count += wait_of(adaptive_polling, reply_ns) ? 1 : 0;
    }
    return polled_count;
}

static void short_sleeps_are_polled_soon(void **state)
{
    struct tdm__adaptive_polling adaptive_polling = {.score = 0};

    (void)state;
    assert_false(wait_of(&adaptive_polling, SLEPT_SHORT_NS));
    assert_true(polled_of(&adaptive_polling, MANY, SHORT_NS) > MANY - 10);
}

static void long_waits_are_slept(void **state)
{
    struct tdm__adaptive_polling adaptive_polling = {.score = 0};

    (void)state;
    assert_int_equal(polled_of(&adaptive_polling, MANY, LONG_NS), 0);
    (void)polled_of(&adaptive_polling, MANY, SHORT_NS);
    assert_true(polled_of(&adaptive_polling, MANY, LONG_NS) < 5);
}

static void one_long_wait_changes_nothing(void **state)
{
    struct tdm__adaptive_polling adaptive_polling = {.score = 0};

    (void)state;
    (void)polled_of(&adaptive_polling, MANY, SHORT_NS);
    (void)wait_of(&adaptive_polling, LONG_NS);
    assert_true(wait_of(&adaptive_polling, SHORT_NS));
}

static void peer_that_is_always_late_is_rarely_polled_for(void **state)
{
    struct tdm__adaptive_polling adaptive_polling = {.score = 0};

    (void)state;
    assert_true(polled_of(&adaptive_polling, MANY, TDM__ADAPTIVE_POLLING_NS_MAX + 10000) <=
                MANY / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_sleeps_are_polled_soon),
        cmocka_unit_test(long_waits_are_slept),
        cmocka_unit_test(one_long_wait_changes_nothing),
        cmocka_unit_test(peer_that_is_always_late_is_rarely_polled_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
