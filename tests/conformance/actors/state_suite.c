/* state_suite.c - conformance: lists of what is in the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/conformance/actors/stage.h"

#include <unistd.h>

/* The row of this actor; the caller frees `*list_out`. */
static const struct tdm_actor_state *row_of(tdm_actor *actor,
                                            const struct tdm_actor_state **list_out)
{
    const struct tdm_actor_state *found = NULL;
    struct tdm_actor_info info;
    uint32_t missing;
    uint32_t count;

    tdm_actor_describe(actor, &info);
    MUST(tdm_list_actors(stage_runtime(), TEST_TIMEOUT_MS, list_out, &count, &missing));
    assert_int_equal(missing, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((*list_out)[i].id, info.id) == 0) {
            found = &(*list_out)[i];
        }
    }
    assert_non_null(found);
    return found;
}

static double amount_of(const struct tdm_actor_state *row, const char *name)
{
    for (uint32_t i = 0; i < row->amounts_count; i++) {
        if (strcmp(row->amounts[i].name, name) == 0) {
            return row->amounts[i].total;
        }
    }
    return 0;
}

static void actors_are_listed_with_what_they_hold(void **state)
{
    const struct tdm_actor_options options = {
        .name = "listed", .num_cpus = 1, .num_gpus = 0.5, .resources = {{"licence", 1}}};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    const struct tdm_actor_state *list;
    const struct tdm_actor_state *row = row_of(actor, &list);
    struct tdm_actor_info info;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_string_equal(row->class_name, "tester");
    assert_string_equal(row->name, "listed");
    assert_string_equal(row->name_space, "default");
    assert_string_equal(row->state, "ALIVE");
    assert_string_equal(row->node_id, info.node_id);
    assert_true(row->pid == info.pid && row->restarts == 0 && row->detached == 0);
    assert_true(amount_of(row, "CPU") == 1 && amount_of(row, "GPU") == 0.5 &&
                amount_of(row, "licence") == 1);
    assert_true(row->gpus_count == 1 && row->gpu_indices[0] == info.gpu_indices[0]);
    tdm_list_free(list);
    stage_end(actor);
}

static void restart_is_counted_in_the_list(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = 1, .max_task_retries = 1};
    tdm_actor *actor = stage_make("mortal", &options, "");
    const struct tdm_actor_state *list;

    (void)state;
    assert_int_equal(stage_int(stage_call_int(actor, "perish", 1)), 1);
    assert_int_equal(row_of(actor, &list)->restarts, 1);
    tdm_list_free(list);
    stage_end(actor);
}

static void dead_actors_are_listed_with_their_cause(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    const struct tdm_actor_state *list;
    const struct tdm_actor_state *row;

    (void)state;
    assert_int_equal(stage_status(stage_call_int(actor, "exit", 3)), TDM_E_ACTOR_DIED);
    stage_await_state(actor, "DEAD");
    row = row_of(actor, &list);
    assert_non_null(strstr(row->death_cause, "exit code 3"));
    tdm_list_free(list);
    tdm_actor_destroy(actor);
}

static void waiting_actor_is_listed_with_its_reason(void **state)
{
    struct tdm_actor_options all = {.resources = {{"licence", 2}}};
    tdm_actor *holders[2] = {NULL, NULL};
    const struct tdm_actor_state *list;
    const struct tdm_actor_state *row;
    tdm_actor *waiting;

    (void)state;
    for (uint32_t i = 0; i < stage_nodes(); i++) {
        holders[i] = stage_make("tester", &all, NULL);
    }
    MUST(tdm_actor_create(stage_runtime(), "tester", &all, &waiting, ""));
    assert_int_equal(tdm_actor_wait_ready(waiting, 20), TDM_E_TIMEOUT);
    stage_await_state(waiting, "PENDING");
    row = row_of(waiting, &list);
    assert_non_null(strstr(row->death_cause, "licence"));
    assert_true(row->pid == 0);
    tdm_list_free(list);
    stage_end(waiting);
    for (uint32_t i = 0; i < stage_nodes(); i++) {
        stage_end(holders[i]);
    }
}

static void actor_that_waits_for_arguments_is_listed_as_pending(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    const struct tdm_actor_state *list;
    tdm_actor *waiting;

    (void)state;
    MUST(tdm_actor_create(stage_runtime(), "stumbler", NULL, &waiting, "r", question));
    tdm_ref_release(question);
    stage_await_state(waiting, "PENDING");
    assert_non_null(strstr(row_of(waiting, &list)->death_cause, "is not there yet"));
    tdm_list_free(list);
    stage_end(waiting);
    stage_end(desk);
}

static void nodes_are_listed_with_what_is_free(void **state)
{
    tdm_actor *actor;
    const struct tdm_node_state *nodes;
    uint32_t count;
    double total = 0;

    (void)state;
    stage_await_free("CPU", 8);
    actor = stage_make("tester", &(struct tdm_actor_options){.num_cpus = 2}, NULL);
    stage_await_free("CPU", 6);
    MUST(tdm_list_nodes(stage_runtime(), TEST_TIMEOUT_MS, &nodes, &count));
    assert_int_equal(count, stage_nodes());
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(strncmp(nodes[i].unix_address, "unix:", 5), 0);
        assert_int_equal(nodes[i].tcp_address[0] != '\0', count == 2);
        assert_true(nodes[i].pid > 0 && nodes[i].name[0] != '\0');
        assert_string_equal(nodes[i].amounts[0].name, "CPU");
        total += nodes[i].amounts[0].total;
    }
    assert_true(total == 8);
    tdm_list_free(nodes);
    stage_end(actor);
}

static void groups_are_listed_with_their_bundles(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 1}, {.num_gpus = 1}};
    const struct tdm_placement_group_state *groups;
    tdm_placement_group *group;
    uint32_t count;

    (void)state;
    MUST(tdm_placement_group_create(stage_runtime(), bundles, 2, TDM_SPREAD, TEST_TIMEOUT_MS,
                                    &group));
    MUST(tdm_list_placement_groups(stage_runtime(), TEST_TIMEOUT_MS, &groups, &count));
    assert_int_equal(count, 1);
    assert_int_equal(groups[0].bundles_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct tdm_bundle_placement place;

        MUST(tdm_placement_group_locate_bundle(group, i, &place));
        assert_string_equal(groups[0].bundles[i].node_id, place.node_id);
        assert_int_equal(groups[0].bundles[i].gpus_count, 1);
        assert_int_equal(groups[0].bundles[i].gpu_indices[0], place.gpu_indices[0]);
    }
    tdm_list_free(groups);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    MUST(tdm_list_placement_groups(stage_runtime(), TEST_TIMEOUT_MS, &groups, &count));
    assert_int_equal(count, 0);
    tdm_list_free(groups);
}

/* Returns whether the group "founded" is listed as one that waits for CPUs. */
static bool founded_is_listed_as_waiting(void)
{
    const struct tdm_placement_group_state *groups;
    bool waits = false;
    uint32_t count;

    MUST(tdm_list_placement_groups(stage_runtime(), TEST_TIMEOUT_MS, &groups, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(groups[i].name, "founded") == 0) {
            waits = strcmp(groups[i].state, "PENDING") == 0 && groups[i].waited_ms >= 0 &&
                    strstr(groups[i].waits_for, "not enough is free now: ") != NULL;
        }
    }
    tdm_list_free(groups);
    return waits;
}

/* The founder, on the other node if there is one, waits for its group, which the store does not
 * have. */
static void group_whose_creator_waits_is_listed_with_the_reason(void **state)
{
    static const struct tdm_bundle all[2] = {{.num_cpus = 4}, {.num_cpus = 4}};
    struct tdm_actor_options there = {.labels = {stage_nodes() == 2 ? "side=second" : NULL}};
    tdm_actor *founder = stage_make("founder", &there, NULL);
    int64_t deadline_ms = tdm__deadline_after(TEST_TIMEOUT_MS);
    tdm_placement_group *first;
    tdm_placement_group *founded;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_placement_group_create(stage_runtime(), all, 2, TDM_SPREAD, TEST_TIMEOUT_MS, &first));
    ref = stage_call(founder, "found");
    while (!founded_is_listed_as_waiting()) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)usleep(10000);
    }
    MUST(tdm_placement_group_remove(first, TEST_TIMEOUT_MS));
    MUST(stage_status(ref));
    assert_false(founded_is_listed_as_waiting());
    stage_end(founder);
    MUST(tdm_placement_group_find(stage_runtime(), NULL, "founded", TEST_TIMEOUT_MS, &founded));
    MUST(tdm_placement_group_remove(founded, TEST_TIMEOUT_MS));
    stage_await_free("CPU", 8);
}

/* All zeros when it was never called. */
static struct tdm_calls_state calls_of(const char *id, const char *method)
{
    const struct tdm_calls_state *calls;
    struct tdm_calls_state found = {0};
    uint32_t count;

    MUST(tdm_list_calls(stage_runtime(), TEST_TIMEOUT_MS, &calls, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(calls[i].actor, id) == 0 && strcmp(calls[i].method, method) == 0) {
            found = calls[i];
        }
    }
    tdm_list_free(calls);
    return found; /* Its texts are gone. */
}

static void expect_calls(const struct tdm_calls_state *calls, uint64_t waiting, uint64_t running,
                         uint64_t finished, uint64_t failed)
{
    assert_int_equal(calls->waiting, waiting);
    assert_int_equal(calls->running, running);
    assert_int_equal(calls->finished, finished);
    assert_int_equal(calls->failed, failed);
}

/* Two may meet at once, and wait for a third. */
static void calls_are_listed_by_method_and_state(void **state)
{
    tdm_actor *crowd = stage_make("grouped_crowd", NULL, NULL);
    struct tdm_calls_state calls;
    struct tdm_actor_info info;
    uint64_t looks = 0;
    tdm_ref *refs[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        refs[i] = stage_call_int(crowd, "meet", 3);
    }
    do {
        looks++;
    } while (stage_int(stage_call(crowd, "here")) < 2);
    tdm_actor_describe(crowd, &info);
    /* This is not a call of a method. */
    assert_int_equal(stage_try(crowd, "nonsense"), TDM_E_NOT_FOUND);
    calls = calls_of(info.id, "meet");
    expect_calls(&calls, 2, 2, 0, 0);
    assert_int_equal(calls.pid, info.pid);
    MUST(tdm_cancel(refs[3], 0));
    assert_int_equal(stage_int(stage_call(crowd, "here")), 2);
    calls = calls_of(info.id, "meet");
    expect_calls(&calls, 1, 2, 0, 1);
    calls = calls_of(info.id, "here");
    expect_calls(&calls, 0, 0, looks + 1, 0);
    for (int i = 0; i < 4; i++) {
        tdm_ref_release(refs[i]);
    }
    stage_end(crowd);
    calls = calls_of(info.id, "meet");
    expect_calls(&calls, 0, 0, 0, 0);
}

/* How many calls of that actor are in that state; each is told of with what is true. */
static uint32_t calls_in_state(const char *actor, const char *method, const char *call_state)
{
    const struct tdm_call_state *calls;
    struct tdm_list_missing missing;
    uint32_t found = 0;
    uint32_t count;

    MUST(tdm_list_each_call(stage_runtime(), TEST_TIMEOUT_MS, &calls, &count, &missing));
    assert_true(missing.nodes == 0 && missing.processes == 0 && missing.rows == 0);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(calls[i].actor, actor) == 0 && strcmp(calls[i].state, call_state) == 0) {
            assert_string_equal(calls[i].method, method);
            assert_int_equal(calls[i].caller_pid, getpid());
            assert_true(calls[i].age_ms >= 0 && calls[i].age_ms < TEST_TIMEOUT_MS);
            found++;
        }
    }
    tdm_list_free(calls);
    return found;
}

static void each_call_is_listed_with_its_state(void **state)
{
    tdm_actor *crowd = stage_make("grouped_crowd", NULL, NULL);
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    struct tdm_actor_info info;
    tdm_actor *unborn;
    tdm_ref *refs[5];

    (void)state;
    for (int i = 0; i < 3; i++) {
        refs[i] = stage_call_int(crowd, "meet", 3);
    }
    while (stage_int(stage_call(crowd, "here")) < 2 || stage_int(stage_call(desk, "asked")) < 1) {
    }
    MUST(tdm_actor_call(crowd, "here", &refs[3], "r", question));
    MUST(tdm_actor_create(stage_runtime(), "stumbler", NULL, &unborn, "r", question));
    refs[4] = stage_call(unborn, "runs");
    tdm_actor_describe(crowd, &info);
    assert_int_equal(calls_in_state(info.id, "meet", "RUNNING"), 2);
    assert_int_equal(calls_in_state(info.id, "meet", "QUEUED"), 1);
    assert_int_equal(calls_in_state(info.id, "here", "ARGUMENTS"), 1);
    tdm_actor_describe(unborn, &info);
    assert_int_equal(calls_in_state(info.id, "runs", "ACTOR"), 1);
    tdm_actor_describe(desk, &info);
    assert_int_equal(calls_in_state(info.id, "ask", "RUNNING"), 1); /* The actor keeps the call. */
    MUST(stage_status(stage_call_int(desk, "answer", 7)));
    assert_int_equal(stage_int(refs[4]), 7);
    assert_int_equal(calls_in_state(info.id, "ask", "RUNNING"), 0);
    for (int i = 0; i < 4; i++) {
        tdm_ref_release(refs[i]);
    }
    tdm_ref_release(question);
    stage_end(crowd);
    stage_end(desk);
    stage_end(unborn);
}

static void handle_describes_its_actor(void **state)
{
    const struct tdm_actor_options options = {.name = "known", .num_gpus = 1};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    struct tdm_actor_info info;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(strlen(info.id), 32);
    assert_int_equal(strlen(info.node_id), 32);
    assert_string_equal(info.name, "known");
    assert_string_equal(info.class_name, "tester");
    assert_int_equal(info.pid, stage_int(stage_call(actor, "pid")));
    assert_int_equal(info.gpus_count, 1);
    stage_end(actor);
}

int conformance_state(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actors_are_listed_with_what_they_hold),
        cmocka_unit_test(restart_is_counted_in_the_list),
        cmocka_unit_test(dead_actors_are_listed_with_their_cause),
        cmocka_unit_test(waiting_actor_is_listed_with_its_reason),
        cmocka_unit_test(actor_that_waits_for_arguments_is_listed_as_pending),
        cmocka_unit_test(nodes_are_listed_with_what_is_free),
        cmocka_unit_test(groups_are_listed_with_their_bundles),
        cmocka_unit_test(group_whose_creator_waits_is_listed_with_the_reason),
        cmocka_unit_test(calls_are_listed_by_method_and_state),
        cmocka_unit_test(each_call_is_listed_with_its_state),
        cmocka_unit_test(handle_describes_its_actor),
    };

    return cmocka_run_group_tests_name("looking", tests, NULL, NULL);
}
