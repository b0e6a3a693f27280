/* placement_group_test.c - bundles are reserved all or none, in order, and released with the
 * placement group. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <tandem/state.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime; /* 4 GPUs */

static tdm_placement_group *create(const struct tdm_bundle *bundles, uint32_t count,
                                   enum tdm_placement_strategy strategy)
{
    tdm_placement_group *group = NULL;
    tdm_status status =
        tdm_placement_group_create(runtime, bundles, count, strategy, TEST_TIMEOUT_MS, &group);

    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
    return group;
}

static void every_strategy_places_what_fits_one_node(void **state)
{
    static const struct tdm_bundle bundles[4] = {
        {.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}};
    static const enum tdm_placement_strategy strategies[] = {TDM_PACK, TDM_SPREAD, TDM_STRICT_PACK};
    struct tdm_runtime_info node;

    (void)state;
    tdm_runtime_describe(runtime, &node);
    for (size_t s = 0; s < 3; s++) {
        tdm_placement_group *group = create(bundles, 4, strategies[s]);

        assert_int_equal(tdm_placement_group_bundles_count(group), 4);
        for (uint32_t i = 0; i < 4; i++) {
            struct tdm_bundle_placement place;

            assert_int_equal(tdm_placement_group_locate_bundle(group, i, &place), TDM_OK);
            assert_string_equal(place.node_id, node.node_id);
            assert_int_equal(place.gpus_count, 1);
            /* GPUs are given out in the promised order. */
            assert_int_equal(place.gpu_indices[0], i);
        }
        assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    }
}

static void node_each_needs_as_many_nodes(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 1}, {.num_gpus = 1}};
    tdm_placement_group *group = create(bundles, 1, TDM_STRICT_SPREAD);

    (void)state;
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(
        tdm_placement_group_create(runtime, bundles, 2, TDM_STRICT_SPREAD, TEST_TIMEOUT_MS, &group),
        TDM_E_NO_RESOURCES);
}

static void timeout_names_wanted_and_free_resources(void **state)
{
    static const struct tdm_bundle three = {.num_gpus = 3};
    static const struct tdm_bundle two = {.num_gpus = 2};
    tdm_placement_group *held = create(&three, 1, TDM_PACK);
    tdm_placement_group *group;

    (void)state;
    assert_int_equal(tdm_placement_group_create(runtime, &two, 1, TDM_PACK, 300, &group),
                     TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "GPU 2"));
    assert_non_null(strstr(tdm_error_detail(), "of 4"));
    assert_int_equal(tdm_placement_group_remove(held, TEST_TIMEOUT_MS), TDM_OK);
    /* The placement group whose creation timed out must not reserve anything later. */
    held = create(&(struct tdm_bundle){.num_gpus = 4}, 1, TDM_PACK);
    assert_int_equal(tdm_placement_group_remove(held, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_placement_group_remove(NULL, 0), TDM_OK);
}

static void actors_share_the_gpu_of_their_bundle(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 1, .num_cpus = 1},
                                                 {.num_gpus = 1, .num_cpus = 1}};
    tdm_placement_group *group = create(bundles, 2, TDM_PACK);
    tdm_actor *actors[4];
    tdm_actor *late;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct tdm_bundle_placement place;
        struct tdm_actor_info info;

        actors[i] = actor_fixture_create(
            runtime, &(struct tdm_actor_options){
                         .num_gpus = 0.5, .group = group, .bundle = i / 2, .num_cpus = 0.5});
        assert_int_equal(tdm_placement_group_locate_bundle(group, i / 2, &place), TDM_OK);
        tdm_actor_describe(actors[i], &info);
        assert_int_equal(info.gpus_count, 1);
        assert_int_equal(info.gpu_indices[0], place.gpu_indices[0]);
    }
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.num_gpus = 0.5, .group = group},
                                      &late, ""),
                     TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(late, 100), TDM_E_TIMEOUT);
    assert_int_equal(tdm_actor_kill(actors[0], TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(late, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(actor_fixture_call(late, "pid", NULL), TDM_E_ACTOR_DIED);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(actor_fixture_call(actors[i], "pid", NULL), TDM_E_ACTOR_DIED);
        tdm_actor_destroy(actors[i]);
    }
    tdm_actor_destroy(late);
}

static void request_larger_than_its_bundle_is_refused(void **state)
{
    static const struct tdm_bundle bundle = {.num_gpus = 1};
    tdm_placement_group *group = create(&bundle, 1, TDM_PACK);
    struct tdm_bundle_placement place;
    tdm_actor *actor;

    (void)state;
    assert_int_equal(tdm_placement_group_locate_bundle(group, 1, &place), TDM_E_INVAL);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.group = group, .bundle = 1},
                                      &actor, ""),
                     TDM_E_INVAL);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.num_gpus = 2, .group = group},
                                      &actor, ""),
                     TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "bundle 0"));
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static void wrong_requests_are_refused(void **state)
{
    tdm_placement_group *group;

    (void)state;
    assert_int_equal(tdm_placement_group_create(runtime, NULL, 0, TDM_PACK, 1000, &group),
                     TDM_E_INVAL);
    assert_int_equal(tdm_placement_group_create(runtime, (struct tdm_bundle[]){{.num_cpus = 0}}, 1,
                                                TDM_PACK, 1000, &group),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "bundle 0"));
    assert_int_equal(tdm_placement_group_create(runtime, (struct tdm_bundle[]){{.num_cpus = 1}}, 1,
                                                (enum tdm_placement_strategy)7, 1000, &group),
                     TDM_E_INVAL);
}

static void bundles_together_must_divide_the_bundles(void **state)
{
    static const struct tdm_bundle bundles[] = {{.num_cpus = 1}, {.num_cpus = 1}, {.num_cpus = 1}};
    const struct tdm_placement_group_options options = {.bundles_together = 2};
    tdm_placement_group *group;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create_with(runtime, bundles, 3, &options, TEST_TIMEOUT_MS, &group),
        TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "3 bundles do not divide into sets of 2"));
    assert_int_equal(
        tdm_placement_group_create_with(runtime, bundles, 2, &options, TEST_TIMEOUT_MS, &group),
        TDM_OK);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static tdm_placement_group *create_stage(void)
{
    static const struct tdm_bundle bundle = {.num_cpus = 1};
    const struct tdm_placement_group_options options = {.name = "stage"};
    tdm_placement_group *group = NULL;
    tdm_status status =
        tdm_placement_group_create_with(runtime, &bundle, 1, &options, TEST_TIMEOUT_MS, &group);

    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
    return group;
}

/* Removes the group; returns NULL if it does not exist afterwards. */
static void *remove_group(void *group)
{
    const struct tdm_placement_group_state *groups = NULL;
    bool is_gone = true;
    uint32_t count = 0;

    if (tdm_placement_group_remove(group, TEST_TIMEOUT_MS) != TDM_OK ||
        tdm_list_placement_groups(runtime, TEST_TIMEOUT_MS, &groups, &count) != TDM_OK) {
        return runtime;
    }
    for (uint32_t i = 0; i < count; i++) {
        is_gone = is_gone && strcmp(groups[i].name, "stage") != 0;
    }
    tdm_list_free(groups);
    return is_gone ? NULL : runtime;
}

enum { REMOVERS = 4 };

static void every_remover_waits_until_the_group_is_removed(void **state)
{
    tdm_placement_group *groups[REMOVERS];
    pthread_t threads[REMOVERS];
    void *failed;

    (void)state;
    for (int round = 0; round < 20; round++) {
        groups[0] = create_stage();
        for (int i = 1; i < REMOVERS; i++) {
            assert_int_equal(
                tdm_placement_group_find(runtime, NULL, "stage", TEST_TIMEOUT_MS, &groups[i]),
                TDM_OK);
        }
        for (int i = 0; i < REMOVERS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, remove_group, groups[i]), 0);
        }
        for (int i = 0; i < REMOVERS; i++) {
            assert_int_equal(pthread_join(threads[i], &failed), 0);
            assert_null(failed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bundles_together_must_divide_the_bundles),
        cmocka_unit_test(every_strategy_places_what_fits_one_node),
        cmocka_unit_test(node_each_needs_as_many_nodes),
        cmocka_unit_test(timeout_names_wanted_and_free_resources),
        cmocka_unit_test(actors_share_the_gpu_of_their_bundle),
        cmocka_unit_test(request_larger_than_its_bundle_is_refused),
        cmocka_unit_test(every_remover_waits_until_the_group_is_removed),
        cmocka_unit_test(wrong_requests_are_refused),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.cpus = 8;
    runtime = actor_fixture_open(&options);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
