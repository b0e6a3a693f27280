/* actor_pool_test.c - tasks of an actor pool: ordered and unordered results. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ACTORS = 2 };

static tdm_runtime *runtime;
static tdm_actor *actors[ACTORS];

static tdm_actor_pool *create(uint32_t actors_count)
{
    tdm_actor_pool *pool;

    assert_int_equal(tdm_actor_pool_create(actors, actors_count, &pool), TDM_OK);
    return pool;
}

static void submit_echo(tdm_actor_pool *pool, int64_t number)
{
    assert_int_equal(tdm_actor_pool_submit(pool, "echo", "i", number), TDM_OK);
}

static int64_t number_of(tdm_ref *ref)
{
    int64_t number;

    assert_int_equal(tdm_get(ref, 0, "i", &number), TDM_OK);
    tdm_ref_release(ref);
    return number;
}

static int64_t next(tdm_actor_pool *pool)
{
    tdm_ref *ref;

    assert_int_equal(tdm_actor_pool_get_next(pool, TEST_TIMEOUT_MS, &ref), TDM_OK);
    return number_of(ref);
}

/* ---- one by one ------------------------------------------------------------------------- */

static void results_come_in_the_order_of_their_calls(void **state)
{
    tdm_actor_pool *pool = create(ACTORS);
    tdm_ref *ref;

    (void)state;
    assert_false(tdm_actor_pool_has_next(pool));
    for (int64_t i = 0; i < 50; i++) {
        submit_echo(pool, i);
    }
    for (int64_t i = 0; i < 50; i++) {
        assert_true(tdm_actor_pool_has_next(pool));
        assert_int_equal(next(pool), i);
    }
    assert_int_equal(tdm_actor_pool_get_next(pool, 0, &ref), TDM_E_END);
    tdm_actor_pool_destroy(pool);
}

/* The first call hangs: nothing but the order of results can depend on it. */
static void the_first_to_be_there_need_not_be_the_first_called(void **state)
{
    tdm_actor_pool *pool = create(ACTORS);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_pool_submit(pool, "linger", "i", (int64_t)2000), TDM_OK);
    submit_echo(pool, 1);
    submit_echo(pool, 2);
    assert_int_equal(tdm_actor_pool_get_next(pool, 0, &ref), TDM_E_TIMEOUT);
    for (int64_t i = 1; i <= 2; i++) {
        assert_int_equal(tdm_actor_pool_get_next_unordered(pool, TEST_TIMEOUT_MS, &ref), TDM_OK);
        assert_int_equal(number_of(ref), i);
    }
    assert_int_equal(tdm_actor_pool_get_next(pool, TEST_TIMEOUT_MS, &ref), TDM_OK);
    tdm_ref_release(ref);
    assert_false(tdm_actor_pool_has_next(pool));
    tdm_actor_pool_destroy(pool);
}

static void failure_is_read_from_its_result_and_frees_the_actor(void **state)
{
    tdm_actor_pool *pool = create(1);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_pool_submit(pool, "fail", "s", "no fuel"), TDM_OK);
    submit_echo(pool, 7);
    assert_int_equal(tdm_actor_pool_get_next(pool, TEST_TIMEOUT_MS, &ref), TDM_OK);
    assert_int_equal(tdm_get(ref, 0, ""), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "no fuel"));
    tdm_ref_release(ref);
    assert_int_equal(next(pool), 7);
    tdm_actor_pool_destroy(pool);
}

static tdm_status call_nobody(tdm_actor *actor, const void *value, tdm_ref **ref_out)
{
    (void)actor;
    (void)ref_out;
    return tdm_fail(TDM_E_METHOD, "%s", (const char *)value);
}

static void call_that_cannot_be_made_is_a_result_too(void **state)
{
    tdm_actor_pool *pool = create(1);
    tdm_ref *ref;

    (void)state;
    submit_echo(pool, 1);
    assert_int_equal(tdm_actor_pool_submit_with(pool, call_nobody, "not today"), TDM_OK);
    assert_int_equal(next(pool), 1);
    assert_int_equal(tdm_actor_pool_get_next(pool, TEST_TIMEOUT_MS, &ref), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "not today");
    assert_true(tdm_actor_pool_has_free(pool));
    assert_int_equal(tdm_actor_pool_submit(pool, "echo", "R", NULL), TDM_E_INVAL);
    assert_false(tdm_actor_pool_has_next(pool));
    tdm_actor_pool_destroy(pool);
}

/* ---- actors come and go ----------------------------------------------------------------- */

static void free_actors_may_leave_and_come_back(void **state)
{
    tdm_actor_pool *pool = create(ACTORS);
    tdm_actor *first;
    tdm_actor *second;
    tdm_ref *ref;

    (void)state;
    assert_true(tdm_actor_pool_has_free(pool));
    assert_int_equal(tdm_actor_pool_push(pool, actors[0]), TDM_E_EXISTS);
    first = tdm_actor_pool_pop_idle(pool);
    second = tdm_actor_pool_pop_idle(pool);
    assert_ptr_not_equal(first, second);
    assert_null(tdm_actor_pool_pop_idle(pool));
    assert_false(tdm_actor_pool_has_free(pool));
    submit_echo(pool, 3);
    assert_int_equal(tdm_actor_pool_get_next(pool, 0, &ref), TDM_E_STATE);
    assert_int_equal(tdm_actor_pool_push(pool, first), TDM_OK);
    assert_int_equal(next(pool), 3);
    tdm_actor_pool_destroy(pool);
}

static void busy_actor_is_not_free(void **state)
{
    tdm_actor_pool *pool = create(1);

    (void)state;
    assert_int_equal(tdm_actor_pool_submit(pool, "hang", ""), TDM_OK);
    assert_false(tdm_actor_pool_has_free(pool));
    assert_null(tdm_actor_pool_pop_idle(pool));
    tdm_actor_pool_destroy(pool); /* Destroying the pool does not wait for the hanging call. */
    assert_int_equal(tdm_actor_kill(actors[0], TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actors[0]);
    actors[0] = actor_fixture_create(runtime, NULL);
}

/* ---- maps ------------------------------------------------------------------------------- */

enum { VALUES = 40 };

struct seen {
    uint32_t count;
    uint32_t ends_at; /* Index of the value at which the callback fails. */
    uint8_t told[VALUES];
    int in_order;
};

static tdm_status echo_number(tdm_actor *actor, const void *value, tdm_ref **ref_out)
{
    return tdm_actor_call(actor, "echo", ref_out, "i", *(const int64_t *)value);
}

static tdm_status see(void *arg, uint32_t index, tdm_ref *ref)
{
    struct seen *seen = arg;
    int64_t number;

    TDM_TRY(tdm_get(ref, 0, "i", &number));
    assert_int_equal(number, 10 * (int64_t)index);
    seen->in_order = seen->in_order && index == seen->count;
    seen->told[index]++;
    seen->count++;
    return seen->count == seen->ends_at ? tdm_fail(TDM_E_METHOD, "enough") : TDM_OK;
}

static tdm_status run_map(tdm_actor_pool *pool, struct seen *seen, int unordered)
{
    int64_t values[VALUES];
    struct tdm_pool_map map = {.call = echo_number,
                               .values = values,
                               .value_bytes = sizeof(values[0]),
                               .values_count = VALUES,
                               .result = see,
                               .arg = seen};

    for (int64_t i = 0; i < VALUES; i++) {
        values[i] = 10 * i;
    }
    return unordered ? tdm_actor_pool_map_unordered(pool, &map, TEST_TIMEOUT_MS)
                     : tdm_actor_pool_map(pool, &map, TEST_TIMEOUT_MS);
}

static void map_returns_each_result_once(void **state)
{
    tdm_actor_pool *pool = create(ACTORS);

    (void)state;
    for (int unordered = 0; unordered < 2; unordered++) {
        struct seen seen = {.in_order = 1};

        assert_int_equal(run_map(pool, &seen, unordered), TDM_OK);
        assert_true(seen.in_order || unordered);
        for (int i = 0; i < VALUES; i++) {
            assert_int_equal(seen.told[i], 1);
        }
    }
    tdm_actor_pool_destroy(pool);
}

static void map_ends_with_the_first_failure(void **state)
{
    tdm_actor_pool *pool = create(ACTORS);
    struct seen seen = {.ends_at = 5, .in_order = 1};

    (void)state;
    assert_int_equal(run_map(pool, &seen, 0), TDM_E_METHOD);
    assert_int_equal(seen.count, 5);
    assert_false(tdm_actor_pool_has_next(pool));
    seen = (struct seen){.in_order = 1};
    assert_int_equal(run_map(pool, &seen, 0), TDM_OK); /* The pool is usable again. */
    tdm_actor_pool_destroy(pool);
}

static void map_wants_a_pool_without_results(void **state)
{
    tdm_actor_pool *pool = create(ACTORS);
    struct seen seen = {0};

    (void)state;
    submit_echo(pool, 1);
    assert_int_equal(run_map(pool, &seen, 0), TDM_E_STATE);
    assert_int_equal(next(pool), 1);
    tdm_actor_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_come_in_the_order_of_their_calls),
        cmocka_unit_test(the_first_to_be_there_need_not_be_the_first_called),
        cmocka_unit_test(failure_is_read_from_its_result_and_frees_the_actor),
        cmocka_unit_test(call_that_cannot_be_made_is_a_result_too),
        cmocka_unit_test(free_actors_may_leave_and_come_back),
        cmocka_unit_test(busy_actor_is_not_free),
        cmocka_unit_test(map_returns_each_result_once),
        cmocka_unit_test(map_ends_with_the_first_failure),
        cmocka_unit_test(map_wants_a_pool_without_results),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    for (int i = 0; i < ACTORS; i++) {
        actors[i] = actor_fixture_create(runtime, NULL);
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < ACTORS; i++) {
        tdm_actor_destroy(actors[i]);
    }
    return failed + actor_fixture_close(runtime);
}
