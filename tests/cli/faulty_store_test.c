/* faulty_store_test.c - transactions remain exact on stores that lose and delay operations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/faulty_store.h"
#include "runtime/clock.h"
#include "tests/support/memory_store.h"
#include "tests/support/redis_fixture.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { SEEDS_COUNT = 5, ONE_IN = 4 };

static uint64_t first_seed(void)
{
    /* The test prints the seed, so that a failure can be repeated. */
    return (uint64_t)tdm__clock_ns();
}

static void count_over(struct tdm__loop *loop, struct tdm__store *inner, uint64_t seed)
{
    struct store_fixture faulty = {.loop = loop};
    char counter[40];

    print_message("seed %" PRIu64 "\n", seed);
    (void)snprintf(counter, sizeof(counter), "faulty/%" PRIu64, seed);
    assert_int_equal(tdm__store_faulty_open(loop, inner, seed, ONE_IN, &faulty.store), TDM_OK);
    assert_true(store_suite_counts_exactly(&faulty, counter) > 0);
    faulty.store->ops->close(faulty.store);
}

static void transactions_count_exactly_over_a_faulty_memory(void **state)
{
    uint64_t seed = first_seed();
    struct tdm__loop *loop;
    struct tdm__store *memory;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(loop, &memory), TDM_OK);
    for (uint64_t i = 0; i < SEEDS_COUNT; i++) {
        count_over(loop, memory, seed + i);
    }
    memory->ops->close(memory);
    tdm__loop_destroy(loop);
}

static void transactions_count_exactly_over_a_faulty_redis(void **state)
{
    static struct redis_fixture world;

    (void)state;
    assert_int_equal(redis_fixture_open(&world), 0);
    count_over(world.base.loop, world.base.store, first_seed());
    redis_fixture_close(&world);
}

/* Returns one letter per operation: the outcome of 100 puts on a store with this seed. */
static void trace_faults(struct tdm__loop *loop, uint64_t seed, char trace[101])
{
    struct store_fixture faulty = {.loop = loop};
    struct tdm__store *memory;

    assert_int_equal(tdm__store_memory_open(loop, &memory), TDM_OK);
    assert_int_equal(tdm__store_faulty_open(loop, memory, seed, 2, &faulty.store), TDM_OK);
    for (int i = 0; i < 100; i++) {
        tdm_status status = store_put(&faulty, "key", "", TDM__VERSION_ANY, 0);

        trace[i] = status == TDM_OK ? '.' : 'x';
    }
    trace[100] = '\0';
    faulty.store->ops->close(faulty.store);
    memory->ops->close(memory);
}

static void the_same_seed_brings_the_same_faults(void **state)
{
    struct tdm__loop *loop;
    char traces[3][101];

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    trace_faults(loop, 1, traces[0]);
    trace_faults(loop, 1, traces[1]);
    trace_faults(loop, 2, traces[2]);
    assert_string_equal(traces[0], traces[1]);
    assert_string_not_equal(traces[0], traces[2]);
    tdm__loop_destroy(loop);
}

static void lost_reply_leaves_the_change_made(void **state)
{
    const struct tdm__store_write put = {
        .kind = TDM__STORE_PUT, .key = "key", .version = TDM__VERSION_ANY};
    struct store_fixture inner = {.store = NULL};
    struct store_fixture faulty;
    uint32_t lost_but_made = 0;
    uint32_t lost_before = 0;

    (void)state;
    assert_int_equal(tdm__loop_create(&inner.loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(inner.loop, &inner.store), TDM_OK);
    faulty.loop = inner.loop;
    assert_int_equal(tdm__store_faulty_open(inner.loop, inner.store, 7, 1, &faulty.store), TDM_OK);
    for (int i = 0; i < 60; i++) {
        uint64_t before = store_version(&inner, "key");
        struct store_reply answer = store_commit_reply(&faulty, &put, 1);
        tdm_status status = answer.status;
        bool made = store_version(&inner, "key") != before;

        assert_int_equal(answer.version,
                         status == TDM_OK ? store_version(&inner, "key") : TDM__VERSION_NONE);
        assert_true(status == TDM_E_STORE || (status == TDM_OK && made));
        lost_but_made += status == TDM_E_STORE && made;
        lost_before += !made;
    }
    assert_true(lost_but_made > 0);
    assert_true(lost_before > 0);
    faulty.store->ops->close(faulty.store);
    inner.store->ops->close(inner.store);
    tdm__loop_destroy(inner.loop);
}

static void closing_replies_to_what_the_inner_store_still_has(void **state)
{
    struct store_reply answers[20] = {{.ended = false}};
    struct store_fixture faulty;
    struct tdm__store *memory;
    const char *pattern = "*";

    (void)state;
    assert_int_equal(tdm__loop_create(&faulty.loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(faulty.loop, &memory), TDM_OK);
    assert_int_equal(tdm__store_faulty_open(faulty.loop, memory, 1, 2, &faulty.store), TDM_OK);
    for (int i = 0; i < 20; i++) {
        faulty.store->ops->read(faulty.store, &pattern, 1, TDM__NEVER, store_on_read, &answers[i]);
    }
    faulty.store->ops->close(faulty.store);
    for (int i = 0; i < 20; i++) {
        assert_true(answers[i].ended);
        assert_int_equal(answers[i].status, TDM_E_STORE);
    }
    memory->ops->close(memory);
    tdm__loop_destroy(faulty.loop);
}

static void closing_replies_to_what_is_asked_then(void **state)
{
    struct tdm__store *faulty;
    struct tdm__store *memory;
    struct tdm__loop *loop;

    (void)state;
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__store_memory_open(loop, &memory), TDM_OK);
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(tdm__store_faulty_open(loop, memory, seed, 2, &faulty), TDM_OK);
        store_expect_replies_on_close(faulty);
    }
    store_expect_replies_on_close(memory);
    tdm__loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transactions_count_exactly_over_a_faulty_memory),
        cmocka_unit_test(transactions_count_exactly_over_a_faulty_redis),
        cmocka_unit_test(the_same_seed_brings_the_same_faults),
        cmocka_unit_test(lost_reply_leaves_the_change_made),
        cmocka_unit_test(closing_replies_to_what_the_inner_store_still_has),
        cmocka_unit_test(closing_replies_to_what_is_asked_then),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
