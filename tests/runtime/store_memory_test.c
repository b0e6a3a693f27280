/* store_memory_test.c - the store in memory passes the conformance suite. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/store_suite.h"
#include "tests/conformance/store_takeover_suite.h"

#include "runtime/clock.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct store_fixture world;

static int open_store(void **state)
{
    *state = &world;
    return tdm__loop_create(&world.loop) != TDM_OK ||
           tdm__store_memory_open(world.loop, &world.store) != TDM_OK;
}

static int close_store(void **state)
{
    (void)state;
    world.store->ops->close(world.store);
    tdm__loop_destroy(world.loop);
    return 0;
}

static void store_that_closes_replies_to_what_waits(void **state)
{
    struct store_reply answer = {.ended = false};
    const char *pattern = "*";

    assert_int_equal(open_store(state), 0);
    world.store->ops->read(world.store, &pattern, 1, TDM__NEVER, store_on_read, &answer);
    (void)close_store(state);
    assert_true(answer.ended);
    assert_int_equal(answer.status, TDM_E_STORE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_that_closes_replies_to_what_waits),
    };

    return store_suite_run(open_store, close_store) +
           store_takeover_suite_run(open_store, close_store) +
           cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
