/* probe_test.c - the first read of a store is waited for, whatever its outcome. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/probe.h"

#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void refuse(struct tdm__store *store, const char *const *patterns, uint32_t patterns_count,
                   int64_t deadline_ms, tdm__store_read_fn *fn, void *arg)
{
    (void)store;
    (void)patterns;
    (void)patterns_count;
    (void)deadline_ms;
    fn(arg, TDM_E_STORE, NULL, 0);
}

static void outcome_of_the_first_read_is_returned(void **state)
{
    static const struct tdm__store_ops refusing_ops = {.name = "refusing", .read = refuse};
    struct tdm__store refusing = {.ops = &refusing_ops};
    struct tdm__loop *loop;
    struct tdm__store *store;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(loop, &store), TDM_OK);
    assert_int_equal(tdm__redis_probe(loop, store, 1000), TDM_OK);
    assert_int_equal(tdm__redis_probe(loop, &refusing, 1000), TDM_E_STORE);
    store->ops->close(store);
    tdm__loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outcome_of_the_first_read_is_returned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
