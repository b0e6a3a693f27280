/* cluster_state_test.c - the lists of what exists in the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/cluster_state.h"
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* Returns the record of the newest actor with that name; the caller frees `*list_out`. */
static const struct tdm_actor_state *find_actor_record(const char *name,
                                                       const struct tdm_actor_state **list_out)
{
    const struct tdm_actor_state *found = NULL;
    uint32_t count;
    uint32_t missing;

    assert_int_equal(tdm_list_actors(runtime, TEST_TIMEOUT_MS, list_out, &count, &missing), TDM_OK);
    assert_int_equal(missing, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((*list_out)[i].name, name) == 0) {
            found = &(*list_out)[i];
        }
    }
    assert_non_null(found);
    return found;
}

static void actor_is_described_from_outside(void **state)
{
    struct tdm_actor_options options = {
        .name = "engine/0", .num_cpus = 1, .num_gpus = 0.5, .resources = {{"licence", 1}}};
    tdm_actor *actor = actor_fixture_create(runtime, &options);
    const struct tdm_actor_state *list;
    const struct tdm_actor_state *record = find_actor_record("engine/0", &list);
    struct tdm_actor_info info;
    struct tdm_runtime_info node;

    (void)state;
    tdm_actor_describe(actor, &info);
    tdm_runtime_describe(runtime, &node);
    assert_string_equal(record->id, info.id);
    assert_string_equal(record->class_name, "tester");
    assert_string_equal(record->name_space, "default");
    assert_string_equal(record->state, "ALIVE");
    assert_string_equal(record->node_id, node.node_id);
    assert_string_equal(record->death_cause, "");
    assert_int_equal(strlen(record->creator), 32);
    assert_true(record->pid == info.pid && record->restarts == 0 && record->detached == 0);
    assert_int_equal(record->amounts_count, 3);
    assert_string_equal(record->amounts[1].name, "GPU");
    assert_true(record->amounts[1].total == 0.5);
    assert_string_equal(record->amounts[2].name, "licence");
    assert_int_equal(record->gpus_count, 1);
    assert_int_equal(record->gpu_indices[0], info.gpu_indices[0]);
    tdm_list_free(list);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void test_element_of_list_has_its_record(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "seen"});
    const struct tdm_actor_state *list;
    uint32_t count;

    (void)state;
    assert_int_equal(tdm_list_actors(runtime, TEST_TIMEOUT_MS, &list, &count, NULL), TDM_OK);
    assert_true(count > 0);
    for (uint32_t i = 0; i < count; i++) {
        const tdm_value *id = tdm_value_find(tdm__list_record(list, i), "id");

        assert_string_equal(tdm_value_string(id, ""), list[i].id);
    }
    assert_null(tdm__list_record(list, count));
    tdm_list_free(list);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void dead_actor_is_remembered_with_its_cause(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "mortal"});
    const struct tdm_actor_state *list;
    const struct tdm_actor_state *record;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "exit", &ref, "i", (int64_t)3), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    tdm_ref_release(ref);
    record = find_actor_record("mortal", &list);
    assert_string_equal(record->state, "DEAD");
    assert_non_null(strstr(record->death_cause, "exit code 3"));
    tdm_list_free(list);
    tdm_actor_destroy(actor);
}

static void number_of_remembered_dead_actors_is_limited(void **state)
{
    const struct tdm_actor_state *list;
    uint32_t count;

    (void)state;
    for (int i = 0; i < 520; i++) { /* These actors were never placed. */
        tdm_actor *actor;

        assert_int_equal(tdm_actor_create(runtime, "tester",
                                          &(struct tdm_actor_options){.num_gpus = 1000}, &actor,
                                          ""),
                         TDM_OK);
        assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_E_NO_RESOURCES);
        tdm_actor_destroy(actor);
    }
    assert_int_equal(tdm_list_actors(runtime, TEST_TIMEOUT_MS, &list, &count, NULL), TDM_OK);
    assert_int_equal(count, 512);
    assert_string_equal(list[511].state, "DEAD");
    assert_non_null(strstr(list[511].death_cause, "cannot be made"));
    tdm_list_free(list);
}

static void nodes_tell_what_is_free(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.num_cpus = 2});
    const struct tdm_node_state *nodes;
    uint32_t count;

    (void)state;
    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &count), TDM_OK);
    assert_int_equal(count, 1);
    assert_int_equal(strncmp(nodes[0].unix_address, "unix:", 5), 0);
    assert_string_equal(nodes[0].amounts[0].name, "CPU");
    assert_true(nodes[0].amounts[0].total == 8 && nodes[0].amounts[0].free == 6);
    tdm_list_free(nodes);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void groups_tell_their_bundles(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 1}, {.num_cpus = 3}};
    const struct tdm_placement_group_state *groups;
    tdm_placement_group *group;
    uint32_t count;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create(runtime, bundles, 2, TDM_PACK, TEST_TIMEOUT_MS, &group), TDM_OK);
    assert_int_equal(tdm_list_placement_groups(runtime, TEST_TIMEOUT_MS, &groups, &count), TDM_OK);
    assert_int_equal(count, 1);
    assert_int_equal(groups[0].bundles_count, 2);
    assert_string_equal(groups[0].state, "CREATED");
    assert_string_equal(groups[0].waits_for, "");
    assert_true(groups[0].waited_ms == 0 && groups[0].ticket == 0);
    assert_int_equal(tdm__list_missing_nodes(groups), 0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct tdm_bundle_state *bundle = &groups[0].bundles[i];

        assert_int_equal(bundle->amounts_count, 1);
        assert_int_equal(bundle->gpus_count, strcmp(bundle->amounts[0].name, "GPU") == 0);
    }
    tdm_list_free(groups);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_list_placement_groups(runtime, TEST_TIMEOUT_MS, &groups, &count), TDM_OK);
    assert_int_equal(count, 0);
    tdm_list_free(groups);
    tdm_list_free(NULL);
}

static void pending_group_tells_why_it_waits(void **state)
{
    static const struct tdm_bundle bundle = {.num_cpus = 1000};
    const struct tdm_placement_group_options options = {.name = "large", .asynchronous = 1};
    const struct tdm_placement_group_state *groups;
    tdm_placement_group *group;
    uint32_t count;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create_with(runtime, &bundle, 1, &options, TEST_TIMEOUT_MS, &group),
        TDM_OK);
    assert_int_equal(tdm_list_placement_groups(runtime, TEST_TIMEOUT_MS, &groups, &count), TDM_OK);
    assert_int_equal(count, 1);
    assert_string_equal(groups[0].name, "large");
    assert_string_equal(groups[0].state, "PENDING");
    assert_non_null(strstr(groups[0].waits_for, "CPU 1000"));
    assert_true(groups[0].waited_ms >= 0 && groups[0].waited_ms < TEST_TIMEOUT_MS);
    assert_true(groups[0].bundles[0].amounts[0].total == 1000);
    tdm_list_free(groups);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_is_described_from_outside),
        cmocka_unit_test(test_element_of_list_has_its_record),
        cmocka_unit_test(dead_actor_is_remembered_with_its_cause),
        cmocka_unit_test(nodes_tell_what_is_free),
        cmocka_unit_test(groups_tell_their_bundles),
        cmocka_unit_test(pending_group_tells_why_it_waits),
        cmocka_unit_test(number_of_remembered_dead_actors_is_limited),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.cpus = 8;
    (void)setenv("TANDEM_RESOURCES", "licence=1", 1);
    runtime = actor_fixture_open(&options);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
