/* resources_test.c - amounts are neither lost, doubled nor rounded between request and release. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/resources.h"

#include "tests/support/test_random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__resources ask(double cpus, double gpus)
{
    struct tdm__resources resources = {0};

    assert_int_equal(tdm__resources_add(&resources, "CPU", cpus), TDM_OK);
    assert_int_equal(tdm__resources_add(&resources, "GPU", gpus), TDM_OK);
    return resources;
}

static struct tdm__pool pool_of(double cpus, double gpus)
{
    struct tdm__resources totals = ask(cpus, gpus);
    struct tdm__pool pool;

    assert_int_equal(tdm__pool_init(&pool, &totals), TDM_OK);
    return pool;
}

static uint32_t take_gpu(struct tdm__pool *pool, double fraction)
{
    struct tdm__resources wanted = ask(0, fraction);
    struct tdm__grant grant;

    assert_true(tdm__pool_allocate(pool, &wanted, &grant));
    assert_int_equal(grant.gpus_count, 1);
    return grant.gpu_indices[0];
}

static void refuses(const char *name, double amount, const char *words)
{
    struct tdm__resources resources = {0};
    static const struct tdm__resources nothing;

    assert_int_equal(tdm__resources_add(&resources, name, amount), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), words));
    assert_true(tdm__resources_equal(&resources, &nothing));
}

static void amounts_that_mean_nothing_are_refused_with_the_remedy(void **state)
{
    (void)state;
    refuses("CPU", -1, "zero or more");
    refuses("GPU", NAN, "zero or more");
    refuses("disk", INFINITY, "zero or more");
    refuses("CPU", 1e15, "at most");
    refuses("GPU", 0.33333, "ask for 0.3333");
    refuses("GPU", 1.5, "ask for 1 or 2");
    refuses("", 1, "1 to 31 bytes");
    refuses("a name that is far too long for us", 1, "1 to 31 bytes");
    refuses("white space", 1, "without spaces");
}

static void name_given_twice_is_refused(void **state)
{
    struct tdm__resources resources = {0};
    const char *names[] = {"CPU", "GPU", "disk"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm__resources_add(&resources, names[i], 1), TDM_OK);
        assert_int_equal(tdm__resources_add(&resources, names[i], 1), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), "twice"));
    }
}

static void ninth_named_resource_is_over_the_limit(void **state)
{
    struct tdm__resources resources = {0};
    char name[] = "a";

    (void)state;
    for (int i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++, name[0]++) {
        assert_int_equal(tdm__resources_add(&resources, name, 1), TDM_OK);
    }
    assert_int_equal(tdm__resources_add(&resources, name, 1), TDM_E_LIMIT);
}

static void decimals_become_exact_steps(void **state)
{
    struct tdm__resources resources = {0};

    (void)state;
    assert_int_equal(tdm__resources_add(&resources, "CPU", 0.1 + 0.2), TDM_OK);
    assert_int_equal(resources.cpu, 3000);
    for (int steps = 1; steps < TDM__RESOURCE_ONE; steps++) {
        struct tdm__resources fraction = ask(0, steps / 10000.0);

        assert_int_equal(fraction.gpu, steps);
    }
}

static void the_order_of_names_does_not_matter(void **state)
{
    struct tdm_bundle one = {.resources = {{"disk", 1}, {"arm", 2}}};
    struct tdm_bundle other = {.resources = {{"arm", 2}, {"disk", 1}}};
    struct tdm__resources a;
    struct tdm__resources b;

    (void)state;
    assert_int_equal(tdm__resources_of_bundle(&one, &a), TDM_OK);
    assert_int_equal(tdm__resources_of_bundle(&other, &b), TDM_OK);
    assert_true(tdm__resources_equal(&a, &b));
}

static void bundle_of_nothing_is_refused(void **state)
{
    struct tdm_bundle bundle = {.resources = {{"disk", 0}}};
    struct tdm__resources resources;

    (void)state;
    assert_int_equal(tdm__resources_of_bundle(&bundle, &resources), TDM_E_INVAL);
}

static void fractions_fill_a_gpu_exactly(void **state)
{
    struct tdm__pool pool = pool_of(0, 2);
    struct tdm__resources whole = ask(0, 1);

    (void)state;
    assert_int_equal(take_gpu(&pool, 0.4), 0);
    assert_int_equal(take_gpu(&pool, 0.4), 0);
    assert_int_equal(take_gpu(&pool, 0.2), 0);
    assert_int_equal(pool.gpus[0].free, 0);
    assert_true(tdm__pool_fits(&pool, &whole));
    assert_int_equal(take_gpu(&pool, 0.0001), 1);
    assert_false(tdm__pool_fits(&pool, &whole));
}

static void fraction_is_allocated_on_the_fullest_fitting_gpu(void **state)
{
    struct tdm__pool pool = pool_of(0, 3);

    (void)state;
    pool.gpus[0].free = 9000;
    pool.gpus[1].free = 5000;
    pool.gpus[2].free = 5000;
    assert_int_equal(take_gpu(&pool, 0.5), 1);
    assert_int_equal(take_gpu(&pool, 0.4), 2);
    assert_int_equal(take_gpu(&pool, 0.4), 0);
}

static void whole_gpus_are_the_lowest_entirely_free(void **state)
{
    struct tdm__pool pool = pool_of(0, 4);
    struct tdm__resources two = ask(0, 2);
    struct tdm__grant grant;

    (void)state;
    pool.gpus[1].free = 9999;
    assert_true(tdm__pool_allocate(&pool, &two, &grant));
    assert_int_equal(grant.gpus_count, 2);
    assert_int_equal(grant.gpu_indices[0], 0);
    assert_int_equal(grant.gpu_indices[1], 2);
    assert_int_equal(grant.gpu_amount, TDM__RESOURCE_ONE);
    assert_false(tdm__pool_allocate(&pool, &two, &grant));
}

static void grant_is_released_once(void **state)
{
    struct tdm__pool pool = pool_of(2, 1);
    struct tdm__resources wanted = ask(1, 0.5);
    struct tdm__grant grant;

    (void)state;
    assert_true(tdm__pool_allocate(&pool, &wanted, &grant));
    assert_int_equal(tdm__pool_release_grant(&pool, &grant), TDM_OK);
    assert_int_equal(tdm__pool_release_grant(&pool, &grant), TDM_E_STATE);
    assert_int_equal(tdm__pool_allocate_grant(&pool, &grant), TDM_OK);
    assert_int_equal(tdm__pool_allocate_grant(&pool, &grant), TDM_OK);
    assert_int_equal(tdm__pool_allocate_grant(&pool, &grant), TDM_E_CONFLICT);
    assert_int_equal(pool.cpu.free, 0);
}

static void actors_of_a_bundle_share_its_gpu(void **state)
{
    struct tdm__pool node = pool_of(8, 4);
    struct tdm__resources wanted = ask(3, 1);
    struct tdm__resources part = ask(1, 0.4);
    struct tdm__grant grant;
    struct tdm__pool bundle;

    (void)state;
    node.gpus[0].free = 0;
    node.gpus[1].free = 0;
    assert_true(tdm__pool_allocate(&node, &wanted, &grant));
    tdm__pool_of_grant(&bundle, &grant);
    assert_true(tdm__pool_allocate(&bundle, &part, &grant));
    assert_int_equal(grant.gpu_indices[0], 2);
    assert_true(tdm__pool_allocate(&bundle, &part, &grant));
    assert_int_equal(grant.gpu_indices[0], 2);
    assert_false(tdm__pool_allocate(&bundle, &part, &grant));
    assert_int_equal(take_gpu(&bundle, 0.2), 2);
}

static struct tdm__resources random_request(struct test_random *chance)
{
    static const char *const names[] = {"arm", "disk", "licence"};
    struct tdm__resources resources = ask(test_random_below(chance, 40) / 10.0, 0);

    if (test_random_below(chance, 2) == 0) {
        resources.gpu = test_random_below(chance, TDM__RESOURCE_ONE);
    } else {
        resources.gpu = (int64_t)test_random_below(chance, 4) * TDM__RESOURCE_ONE;
    }
    for (int i = 0; i < 3; i++) {
        if (test_random_below(chance, 3) == 0) {
            assert_int_equal(
                tdm__resources_add(&resources, names[i], test_random_below(chance, 30) / 10.0),
                TDM_OK);
        }
    }
    return resources;
}

static void check_bounds(const struct tdm__pool *pool)
{
    assert_in_range(pool->cpu.free, 0, pool->cpu.total);
    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        assert_in_range(pool->gpus[i].free, 0, TDM__RESOURCE_ONE);
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        assert_in_range(pool->custom[i].amount.free, 0, pool->custom[i].amount.total);
    }
}

/* Allocates and releases in random order. At the end the pool is bit for bit as at the start. */
static void taking_and_giving_back_restores_exactly(void **state)
{
    enum { HELD_MAX = 24, ROUNDS = 20000 };
    struct test_random chance = test_random_init("taking_and_giving_back_restores_exactly", 7);
    struct tdm__pool pool = pool_of(20, 8);
    struct tdm__pool before;
    struct tdm__grant held[HELD_MAX];
    uint32_t held_count = 0;
    uint32_t taken_count = 0;

    (void)state;
    memcpy(pool.custom[0].name, "arm", 4);
    pool.custom[0].amount = (struct tdm__amount){90000, 90000};
    memcpy(pool.custom[1].name, "licence", 8);
    pool.custom[1].amount = (struct tdm__amount){50000, 50000};
    before = pool;
    for (int round = 0; round < ROUNDS; round++) {
        struct tdm__resources wanted = random_request(&chance);
        struct tdm__pool unchanged = pool;

        if (held_count == HELD_MAX || (held_count > 0 && test_random_below(&chance, 2) == 0)) {
            uint32_t which = test_random_below(&chance, held_count);

            assert_int_equal(tdm__pool_release_grant(&pool, &held[which]), TDM_OK);
            held[which] = held[--held_count];
        } else if (tdm__pool_fits(&pool, &wanted)) {
            assert_true(tdm__pool_allocate(&pool, &wanted, &held[held_count++]));
            taken_count++;
        } else {
            assert_false(tdm__pool_allocate(&pool, &wanted, &held[held_count]));
            assert_memory_equal(&pool, &unchanged, sizeof(pool));
        }
        check_bounds(&pool);
    }
    while (held_count > 0) {
        assert_int_equal(tdm__pool_release_grant(&pool, &held[--held_count]), TDM_OK);
    }
    assert_memory_equal(&pool, &before, sizeof(pool));
    assert_true(taken_count > ROUNDS / 10);
}

static void node_has_whole_gpus_up_to_the_limit(void **state)
{
    struct tdm__resources totals = {.gpu = 5000};
    struct tdm__pool pool;

    (void)state;
    assert_int_equal(tdm__pool_init(&pool, &totals), TDM_E_INVAL);
    totals.gpu = INT64_C(10000) * (TDM__NODE_GPUS_MAX + 1);
    assert_int_equal(tdm__pool_init(&pool, &totals), TDM_E_INVAL);
}

static void pools_and_requests_are_described_in_words(void **state)
{
    struct tdm__pool pool = pool_of(8, 2);
    struct tdm__resources wanted = ask(2, 0.4);
    char bytes[100];
    struct tdm__text text = tdm__text_init(bytes, sizeof(bytes));
    struct tdm__grant grant;

    (void)state;
    assert_int_equal(tdm__resources_add(&wanted, "disk", 1), TDM_OK);
    tdm__resources_describe(&wanted, &text);
    assert_string_equal(bytes, "CPU 2, GPU 0.4, disk 1");
    wanted = ask(2, 0.4);
    assert_true(tdm__pool_allocate(&pool, &wanted, &grant));
    text = tdm__text_init(bytes, sizeof(bytes));
    tdm__pool_describe(&pool, &text);
    assert_string_equal(bytes, "CPU 6 of 8, GPU 0.6+1 of 2");
    text = tdm__text_init(bytes, 8);
    tdm__pool_describe(&pool, &text);
    assert_string_equal(bytes, "CPU 6 o");
}

static void bundle_is_described_by_its_own_resources(void **state)
{
    const struct tdm__grant grant = {
        .gpus_count = 1, .gpu_indices = {3}, .gpu_amount = TDM__RESOURCE_ONE / 2};
    struct tdm__resources wanted = {.gpu = TDM__RESOURCE_ONE / 4};
    struct tdm__grant taken;
    struct tdm__pool pool;
    char bytes[128];
    struct tdm__text text = tdm__text_init(bytes, sizeof(bytes));

    (void)state;
    tdm__pool_of_grant(&pool, &grant);
    assert_true(tdm__pool_allocate(&pool, &wanted, &taken));
    tdm__pool_describe(&pool, &text);
    assert_string_equal(bytes, "CPU 0 of 0, GPU 0.25 of 0.5");
}

/* A difference in any part is seen; what lies behind the end of a name or a list does not count. */
static void grants_and_pools_are_compared_by_their_parts(void **state)
{
    struct tdm__grant grant = {
        .cpu = 1, .gpus_count = 1, .gpu_indices = {3}, .gpu_amount = 5, .custom = {{"a", 2}}};
    struct tdm__grant other = grant;
    struct tdm__pool pool = {
        .cpu = {2, 1}, .gpus_count = 1, .gpus = {{4, 3}}, .custom = {{"a", {6, 5}}}};
    struct tdm__pool changed = pool;

    (void)state;
    other.gpu_indices[1] = 7;
    other.custom[0].name[3] = 'x';
    assert_true(tdm__grants_equal(&grant, &other));
    other.gpu_indices[0] = 4;
    assert_false(tdm__grants_equal(&grant, &other));
    other = grant;
    other.custom[0].amount = 3;
    assert_false(tdm__grants_equal(&grant, &other));
    other = grant;
    other.gpu_amount = 6;
    assert_false(tdm__grants_equal(&grant, &other));
    changed.gpus[1].free = 9;
    assert_true(tdm__pools_equal(&pool, &changed));
    changed.gpus[0].free = 4;
    assert_false(tdm__pools_equal(&pool, &changed));
    changed = pool;
    changed.cpu.free = 0;
    assert_false(tdm__pools_equal(&pool, &changed));
    changed = pool;
    changed.custom[0].name[0] = 'b';
    assert_false(tdm__pools_equal(&pool, &changed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_that_mean_nothing_are_refused_with_the_remedy),
        cmocka_unit_test(name_given_twice_is_refused),
        cmocka_unit_test(ninth_named_resource_is_over_the_limit),
        cmocka_unit_test(decimals_become_exact_steps),
        cmocka_unit_test(the_order_of_names_does_not_matter),
        cmocka_unit_test(bundle_of_nothing_is_refused),
        cmocka_unit_test(fractions_fill_a_gpu_exactly),
        cmocka_unit_test(fraction_is_allocated_on_the_fullest_fitting_gpu),
        cmocka_unit_test(whole_gpus_are_the_lowest_entirely_free),
        cmocka_unit_test(grant_is_released_once),
        cmocka_unit_test(actors_of_a_bundle_share_its_gpu),
        cmocka_unit_test(taking_and_giving_back_restores_exactly),
        cmocka_unit_test(node_has_whole_gpus_up_to_the_limit),
        cmocka_unit_test(pools_and_requests_are_described_in_words),
        cmocka_unit_test(bundle_is_described_by_its_own_resources),
        cmocka_unit_test(grants_and_pools_are_compared_by_their_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
