/* placement_suite.c - conformance: where actors are put, and placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <poll.h>

static const char nowhere[] = "00000000000000000000000000000000";

/* Without a word about the node. */
static tdm_actor *make_plain(const struct tdm_actor_options *options)
{
    tdm_actor *actor = NULL;

    MUST(tdm_actor_create(stage_runtime(), "tester", options, &actor, ""));
    MUST(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static struct tdm_actor_info about(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    return info;
}

static const char *home(void)
{
    struct tdm_runtime_info info;

    tdm_runtime_describe(stage_runtime(), &info);
    return info.node_id;
}

static tdm_status why_not(const struct tdm_actor_options *options)
{
    tdm_actor *actor;
    tdm_status status;

    MUST(tdm_actor_create(stage_runtime(), "tester", options, &actor, ""));
    status = tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS);
    tdm_actor_destroy(actor);
    return status;
}

/* ---- nodes ------------------------------------------------------------------------------ */

static void actor_is_placed_on_its_creators_node_by_default(void **state)
{
    tdm_actor *actor = make_plain(NULL);

    (void)state;
    assert_string_equal(about(actor).node_id, home());
    stage_end(actor);
}

static void spread_takes_the_node_with_the_fewest_actors(void **state)
{
    const struct tdm_actor_options spread = {.scheduling = TDM_SCHEDULE_SPREAD};
    tdm_actor *actors[4];
    int at_owner_node = 0;

    (void)state;
    for (int i = 0; i < 4; i++) {
        actors[i] = make_plain(&spread);
        at_owner_node += strcmp(about(actors[i]).node_id, home()) == 0;
    }
    assert_int_equal(at_owner_node, stage_nodes() == 2 ? 2 : 4);
    for (int i = 0; i < 4; i++) {
        stage_end(actors[i]);
    }
}

static void node_affinity_is_obeyed_or_fails(void **state)
{
    struct tdm_actor_options options = {.scheduling = TDM_SCHEDULE_NODE};
    const struct tdm_node_state *nodes;
    uint32_t count;

    (void)state;
    MUST(tdm_list_nodes(stage_runtime(), TEST_TIMEOUT_MS, &nodes, &count));
    assert_int_equal(count, stage_nodes());
    for (uint32_t i = 0; i < count; i++) {
        tdm_actor *actor;

        options.node_id = nodes[i].id;
        actor = make_plain(&options);
        assert_string_equal(about(actor).node_id, nodes[i].id);
        stage_end(actor);
    }
    tdm_list_free(nodes);
    options.node_id = nowhere;
    assert_int_equal(why_not(&options), TDM_E_NO_RESOURCES);
}

static void soft_node_affinity_falls_back_to_another_node(void **state)
{
    struct tdm_actor_options options = {.scheduling = TDM_SCHEDULE_NODE_SOFT};
    tdm_actor *actors[2];

    (void)state;
    stage_await_free("CPU", 8);
    options.node_id = nowhere;
    actors[0] = make_plain(&options);
    stage_end(actors[0]);
    options.node_id = home();
    options.num_cpus = 4;
    /* With two nodes the second actor does not fit on the first node. */
    for (int i = 0; i < 2; i++) {
        actors[i] = make_plain(&options);
    }
    assert_string_equal(about(actors[0]).node_id, home());
    assert_int_equal(strcmp(about(actors[1]).node_id, home()) == 0, stage_nodes() == 1);
    stage_end(actors[0]);
    stage_end(actors[1]);
}

static void labels_choose_the_node(void **state)
{
    tdm_actor *actor =
        make_plain(&(struct tdm_actor_options){.labels = {"side!=third", "side!=first"}});

    (void)state;
    assert_int_equal(strcmp(about(actor).node_id, home()) == 0, stage_nodes() == 1);
    stage_end(actor);
    assert_int_equal(why_not(&(struct tdm_actor_options){.labels = {"side=third"}}),
                     TDM_E_NO_RESOURCES);
}

/* The private node has no labels, the two of a cluster say which side they are. */
static void label_constraints_may_be_sets(void **state)
{
    bool has_sides = stage_nodes() == 2;
    tdm_actor *actor = make_plain(&(struct tdm_actor_options){
        .labels = {"side!=in(first,third)", has_sides ? "side=exists()" : "side!=exists()"}});

    (void)state;
    assert_int_equal(strcmp(about(actor).node_id, home()) == 0, !has_sides);
    stage_end(actor);
    assert_int_equal(why_not(&(struct tdm_actor_options){.labels = {"side=in(third,fourth)"}}),
                     TDM_E_NO_RESOURCES);
    assert_int_equal(why_not(&(struct tdm_actor_options){
                         .labels = {has_sides ? "side!=exists()" : "side=exists()"}}),
                     TDM_E_NO_RESOURCES);
}

/* ---- groups ----------------------------------------------------------------------------- */

static tdm_placement_group *make_group(const struct tdm_bundle *bundles, uint32_t count,
                                       enum tdm_placement_strategy strategy)
{
    tdm_placement_group *group = NULL;

    MUST(tdm_placement_group_create(stage_runtime(), bundles, count, strategy, TEST_TIMEOUT_MS,
                                    &group));
    return group;
}

static struct tdm_bundle_placement place_of(const tdm_placement_group *group, uint32_t bundle)
{
    struct tdm_bundle_placement place;

    MUST(tdm_placement_group_locate_bundle(group, bundle, &place));
    return place;
}

static void bundles_come_in_the_order_of_nodes_and_gpus(void **state)
{
    static const struct tdm_bundle bundles[4] = {
        {.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}};

    (void)state;
    for (int round = 0; round < 5; round++) {
        tdm_placement_group *group = make_group(bundles, 4, TDM_PACK);
        uint32_t changes = 0;

        for (uint32_t i = 1; i < 4; i++) {
            struct tdm_bundle_placement before = place_of(group, i - 1);
            struct tdm_bundle_placement here = place_of(group, i);

            if (strcmp(before.node_id, here.node_id) != 0) {
                changes++;
            } else {
                assert_true(before.gpu_indices[0] < here.gpu_indices[0]);
            }
        }
        assert_int_equal(changes, stage_nodes() - 1);
        MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    }
}

static void actors_of_a_bundle_share_its_gpu(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_cpus = 1, .num_gpus = 1},
                                                 {.num_cpus = 1, .num_gpus = 1}};
    tdm_placement_group *group = make_group(bundles, 2, TDM_PACK);
    struct tdm_actor_options options = {.group = group, .bundle = 1, .num_gpus = 0.4};
    struct tdm_bundle_placement place = place_of(group, 1);
    tdm_actor *actors[2];

    (void)state;
    assert_int_equal(tdm_placement_group_bundles_count(group), 2);
    for (int i = 0; i < 2; i++) {
        struct tdm_actor_info info;

        actors[i] = make_plain(&options);
        info = about(actors[i]);
        assert_string_equal(info.node_id, place.node_id);
        assert_int_equal(info.gpus_count, 1);
        assert_int_equal(info.gpu_indices[0], place.gpu_indices[0]);
    }
    stage_end(actors[0]);
    stage_end(actors[1]);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
}

static void any_bundle_selects_the_first_one_that_fits(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 1}, {.num_gpus = 1}};
    tdm_placement_group *group = make_group(bundles, 2, TDM_PACK);
    struct tdm_actor_options options = {.group = group, .bundle = TDM_BUNDLE_ANY, .num_gpus = 0.6};
    tdm_actor *actors[3];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct tdm_bundle_placement place = place_of(group, i);
        struct tdm_actor_info info;

        actors[i] = make_plain(&options);
        info = about(actors[i]);
        assert_string_equal(info.node_id, place.node_id);
        assert_int_equal(info.gpu_indices[0], place.gpu_indices[0]);
    }
    MUST(tdm_actor_create(stage_runtime(), "tester", &options, &actors[2], ""));
    assert_int_equal(tdm_actor_wait_ready(actors[2], 20), TDM_E_TIMEOUT);
    stage_end(actors[0]);
    /* The actor is where the first one was. */
    MUST(tdm_actor_wait_ready(actors[2], TEST_TIMEOUT_MS));
    assert_int_equal(about(actors[2]).gpu_indices[0], place_of(group, 0).gpu_indices[0]);
    stage_end(actors[1]);
    stage_end(actors[2]);
    options.num_gpus = 2;
    MUST(tdm_actor_create(stage_runtime(), "tester", &options, &actors[0], ""));
    assert_int_equal(tdm_actor_wait_ready(actors[0], TEST_TIMEOUT_MS), TDM_E_NO_RESOURCES);
    stage_detail_has("none of 2 bundles");
    tdm_actor_destroy(actors[0]);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
}

static void strict_strategies_are_obeyed_or_fail(void **state)
{
    static const struct tdm_bundle pair[2] = {{.num_gpus = 1}, {.num_gpus = 1}};
    tdm_placement_group *group = make_group(pair, 2, TDM_STRICT_PACK);
    tdm_status status;

    (void)state;
    assert_string_equal(place_of(group, 0).node_id, place_of(group, 1).node_id);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    status = tdm_placement_group_create(stage_runtime(), pair, 2, TDM_STRICT_SPREAD,
                                        TEST_TIMEOUT_MS, &group);
    if (stage_nodes() == 1) {
        assert_int_equal(status, TDM_E_NO_RESOURCES);
        return;
    }
    MUST(status);
    assert_string_not_equal(place_of(group, 0).node_id, place_of(group, 1).node_id);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
}

static void soft_strategies_use_the_nodes_that_exist(void **state)
{
    static const struct tdm_bundle bundles[3] = {{.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}};
    static const enum tdm_placement_strategy soft[2] = {TDM_PACK, TDM_SPREAD};

    (void)state;
    for (int i = 0; i < 2; i++) {
        tdm_placement_group *group = make_group(bundles, 3, soft[i]);
        bool one_node = strcmp(place_of(group, 0).node_id, place_of(group, 2).node_id) == 0;

        assert_int_equal(one_node, stage_nodes() == 1);
        MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    }
}

static void placement_group_is_reserved_completely_or_not_at_all(void **state)
{
    static const struct tdm_bundle most[3] = {{.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}};
    static const struct tdm_bundle more[2] = {{.num_gpus = 1}, {.num_gpus = 1}};
    tdm_placement_group *first = make_group(most, 3, TDM_PACK);
    tdm_placement_group *second;

    (void)state;
    assert_int_equal(tdm_placement_group_create(stage_runtime(), more, 2, TDM_PACK, 50, &second),
                     TDM_E_TIMEOUT);
    stage_await_free("GPU", 1);
    MUST(tdm_placement_group_remove(first, TEST_TIMEOUT_MS));
    second = make_group(more, 2, TDM_PACK);
    MUST(tdm_placement_group_remove(second, TEST_TIMEOUT_MS));
    stage_await_free("GPU", 4);
}

static void impossible_group_is_refused(void **state)
{
    static const struct tdm_bundle bundles[1] = {{.num_gpus = 5}};
    tdm_placement_group *group;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create(stage_runtime(), bundles, 1, TDM_PACK, TEST_TIMEOUT_MS, &group),
        TDM_E_NO_RESOURCES);
}

static void request_larger_than_its_bundle_is_refused(void **state)
{
    static const struct tdm_bundle bundles[1] = {{.num_gpus = 1}};
    tdm_placement_group *group = make_group(bundles, 1, TDM_PACK);
    tdm_actor *actor;

    (void)state;
    assert_int_equal(why_not(&(struct tdm_actor_options){.group = group, .num_gpus = 2}),
                     TDM_E_NO_RESOURCES);
    assert_int_equal(tdm_actor_create(stage_runtime(), "tester",
                                      &(struct tdm_actor_options){.group = group, .bundle = 1},
                                      &actor, ""),
                     TDM_E_INVAL);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
}

static void removing_a_group_ends_its_actors(void **state)
{
    static const struct tdm_bundle bundles[1] = {{.num_cpus = 1}};
    tdm_placement_group *group = make_group(bundles, 1, TDM_PACK);
    tdm_actor *actor = make_plain(&(struct tdm_actor_options){.group = group, .num_cpus = 1});

    (void)state;
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
    stage_await_free("CPU", 8);
}

static tdm_status make_named(const char *name, int detached, tdm_placement_group **group_out)
{
    static const struct tdm_bundle bundles[2] = {{.num_cpus = 1}, {.num_cpus = 1}};
    const struct tdm_placement_group_options options = {
        .strategy = TDM_SPREAD, .name = name, .detached = detached};

    return tdm_placement_group_create_with(stage_runtime(), bundles, 2, &options, TEST_TIMEOUT_MS,
                                           group_out);
}

static tdm_status find_named(const char *name_space, const char *name)
{
    tdm_placement_group *group;
    tdm_status status =
        tdm_placement_group_find(stage_runtime(), name_space, name, TEST_TIMEOUT_MS, &group);

    if (status == TDM_OK) {
        tdm_placement_group_release(group);
    }
    return status;
}

static void group_may_have_a_name(void **state)
{
    tdm_placement_group *group;
    tdm_placement_group *found;
    tdm_placement_group *second;
    tdm_actor *actor;

    (void)state;
    MUST(make_named("stage", 0, &group));
    assert_int_equal(make_named("stage", 0, &second), TDM_E_EXISTS);
    assert_int_equal(find_named("elsewhere", "stage"), TDM_E_NOT_FOUND);
    MUST(tdm_placement_group_find(stage_runtime(), NULL, "stage", TEST_TIMEOUT_MS, &found));
    assert_int_equal(tdm_placement_group_bundles_count(found), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(place_of(found, i).node_id, place_of(group, i).node_id);
    }
    actor = make_plain(&(struct tdm_actor_options){.group = found, .bundle = 1, .num_cpus = 1});
    assert_string_equal(about(actor).node_id, place_of(group, 1).node_id);
    MUST(tdm_placement_group_remove(found, TEST_TIMEOUT_MS)); /* Any process may remove it. */
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
    assert_int_equal(find_named(NULL, "stage"), TDM_E_NOT_FOUND);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS)); /* gone already */
    MUST(make_named("stage", 0, &group));                     /* The name is free again. */
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    stage_await_free("CPU", 8);
}

/* The founder is on the other node, if there is one: its group is removed from this one. */
static void detached_group_outlives_its_creator(void **state)
{
    const struct tdm_placement_group_state *groups;
    struct tdm_actor_options there = {.labels = {stage_nodes() == 2 ? "side=second" : NULL}};
    tdm_actor *founder = stage_make("founder", &there, NULL);
    tdm_placement_group *group;
    uint32_t count;
    tdm_actor *actor;

    (void)state;
    MUST(stage_status(stage_call(founder, "found")));
    MUST(find_named(NULL, "founder's own"));
    stage_end(founder);
    stage_await_free("CPU", 6); /* Its group was removed. */
    assert_int_equal(find_named(NULL, "founder's own"), TDM_E_NOT_FOUND);
    MUST(tdm_placement_group_find(stage_runtime(), NULL, "founded", TEST_TIMEOUT_MS, &group));
    MUST(tdm_list_placement_groups(stage_runtime(), TEST_TIMEOUT_MS, &groups, &count));
    assert_int_equal(count, 1);
    assert_string_equal(groups[0].name, "founded");
    assert_string_equal(groups[0].name_space, "default");
    assert_int_equal(groups[0].detached, 1);
    tdm_list_free(groups);
    actor = make_plain(&(struct tdm_actor_options){.group = group, .num_cpus = 1});
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
    stage_await_free("CPU", 8);
}

static void group_of_a_job_outlives_the_actor_that_created_it(void **state)
{
    struct tdm_actor_options here = {.labels = {stage_nodes() == 2 ? "side=first" : NULL}};
    tdm_actor *founder = stage_make("founder", &here, NULL);
    tdm_placement_group *group;

    (void)state;
    MUST(stage_status(stage_call(founder, "found_for_job")));
    MUST(stage_status(stage_call(founder, "found"))); /* One of these two ends with the actor. */
    stage_end(founder);
    stage_await_free("CPU", 5);
    MUST(tdm_placement_group_find(stage_runtime(), NULL, "job's", TEST_TIMEOUT_MS, &group));
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    MUST(tdm_placement_group_find(stage_runtime(), NULL, "founded", TEST_TIMEOUT_MS, &group));
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    stage_await_free("CPU", 8);
}

/* ---- pending groups --------------------------------------------------------------------- */

/* Creates a group without waiting for its bundle. */
static tdm_placement_group *make_pending(const char *name, double num_cpus)
{
    const struct tdm_bundle bundle = {.num_cpus = num_cpus};
    const struct tdm_placement_group_options options = {.name = name, .asynchronous = 1};
    tdm_placement_group *group = NULL;

    MUST(tdm_placement_group_create_with(stage_runtime(), &bundle, 1, &options, TEST_TIMEOUT_MS,
                                         &group));
    return group;
}

static struct tdm_placement_group_info group_info(const tdm_placement_group *group)
{
    struct tdm_placement_group_info info;

    tdm_placement_group_describe(group, &info);
    return info;
}

/* Creates an actor in bundle 0, and does not wait for it. */
static tdm_actor *make_in(const tdm_placement_group *group)
{
    const struct tdm_actor_options options = {.group = group, .num_cpus = 1};
    tdm_actor *actor = NULL;

    MUST(tdm_actor_create(stage_runtime(), "tester", &options, &actor, ""));
    return actor;
}

static void pending_group_and_its_actors_wait_for_resources(void **state)
{
    static const struct tdm_bundle all[2] = {{.num_cpus = 4}, {.num_cpus = 4}};
    tdm_placement_group *first = make_group(all, 2, TDM_SPREAD);
    tdm_placement_group *group = make_pending("later", 1);
    struct tdm_placement_group_info info = group_info(group);
    struct tdm_bundle_placement place;
    tdm_placement_group *named;
    tdm_placement_group *found;
    tdm_actor *actor;

    (void)state;
    assert_int_equal(info.is_placed, 0);
    assert_int_equal(info.is_infeasible, 0);
    assert_non_null(strstr(info.pending_cause, "CPU"));
    assert_int_equal(tdm_placement_group_locate_bundle(group, 0, &place), TDM_E_AGAIN);
    MUST(tdm_placement_group_find(stage_runtime(), NULL, "later", TEST_TIMEOUT_MS, &named));
    MUST(tdm_placement_group_find_by_id(stage_runtime(), info.id, TEST_TIMEOUT_MS, &found));
    assert_string_equal(group_info(named).id, info.id);
    assert_string_equal(group_info(found).name, "later");
    actor = make_in(found);
    assert_int_equal(tdm_actor_wait_ready(actor, 100), TDM_E_TIMEOUT);
    assert_int_equal(tdm_placement_group_wait(group, 100), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "CPU"));
    MUST(tdm_placement_group_remove(first, TEST_TIMEOUT_MS));
    MUST(tdm_placement_group_wait(named, TEST_TIMEOUT_MS));
    MUST(tdm_placement_group_wait(group, TEST_TIMEOUT_MS));
    assert_int_equal(group_info(group).is_placed, 1);
    MUST(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    assert_string_equal(about(actor).node_id, place_of(group, 0).node_id);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
    tdm_placement_group_release(named);
    tdm_placement_group_release(found);
    stage_await_free("CPU", 8);
}

static void removed_pending_group_fails_its_actors(void **state)
{
    tdm_placement_group *group = make_pending("impossible", 1000);
    struct tdm_placement_group_info info = group_info(group);
    tdm_placement_group *again;
    tdm_placement_group *second;
    tdm_actor *actor = make_in(group);
    const struct tdm_placement_group_options options = {.name = "impossible", .asynchronous = 1};
    const struct tdm_bundle bundle = {.num_cpus = 1};

    (void)state;
    assert_int_equal(info.is_infeasible, 1);
    assert_int_equal(tdm_placement_group_create_with(stage_runtime(), &bundle, 1, &options,
                                                     TEST_TIMEOUT_MS, &second),
                     TDM_E_EXISTS);
    MUST(tdm_placement_group_find_by_id(stage_runtime(), info.id, TEST_TIMEOUT_MS, &again));
    assert_int_equal(tdm_actor_wait_ready(actor, 100), TDM_E_TIMEOUT);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    assert_int_equal(tdm_placement_group_wait(again, TEST_TIMEOUT_MS), TDM_E_NOT_FOUND);
    assert_int_equal(
        tdm_placement_group_find_by_id(stage_runtime(), info.id, TEST_TIMEOUT_MS, &second),
        TDM_E_NOT_FOUND);
    assert_int_equal(find_named(NULL, "impossible"), TDM_E_NOT_FOUND);
    tdm_placement_group_release(again);
    tdm_actor_destroy(actor);
}

static void calls_to_an_actor_without_a_place_can_be_moved(void **state)
{
    tdm_placement_group *group = make_pending(NULL, 1000);
    tdm_actor *waiting = make_in(group);
    tdm_actor *idle = make_plain(NULL);
    tdm_ref *refs[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        refs[i] = stage_call(waiting, "pid");
    }
    MUST(tdm_actor_move_calls(waiting, idle));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stage_int(refs[i]), about(idle).pid);
    }
    assert_int_equal(tdm_actor_move_calls(idle, waiting), TDM_E_STATE);
    tdm_actor_destroy(waiting);
    stage_end(idle);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
}

static void pending_group_that_fits_is_placed_at_once(void **state)
{
    tdm_placement_group *group = make_pending(NULL, 1);

    (void)state;
    assert_int_equal(group_info(group).is_placed, 1);
    MUST(tdm_placement_group_wait(group, 0));
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    stage_await_free("CPU", 8);
}

static tdm_actor *child_of(tdm_actor *parent, enum tdm_scheduling scheduling)
{
    tdm_ref *ref = stage_call_int(parent, "child", (int64_t)scheduling);
    tdm_actor *child;

    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "h", &child));
    tdm_ref_release(ref);
    return child;
}

static bool is_in_a_group(tdm_actor *actor)
{
    const struct tdm_actor_state *actors;
    struct tdm_actor_info info = about(actor);
    uint32_t count;
    bool is_in = false;

    MUST(tdm_list_actors(stage_runtime(), TEST_TIMEOUT_MS, &actors, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        is_in = is_in || (strcmp(actors[i].id, info.id) == 0 && actors[i].group[0] != '\0');
    }
    tdm_list_free(actors);
    return is_in;
}

static void child_actors_may_be_captured_by_the_placement_group(void **state)
{
    struct tdm_actor_options options = {.bundle = 1, .capture_children = 1};
    tdm_placement_group *group;
    tdm_actor *family[3]; /* A parent, its child, and the child's child. */
    tdm_actor *spread;

    (void)state;
    assert_int_equal(tdm_actor_create(stage_runtime(), "founder",
                                      &(struct tdm_actor_options){.capture_children = 1}, &spread,
                                      ""),
                     TDM_E_INVAL);
    MUST(make_named(NULL, 0, &group));
    options.group = group;
    family[0] = stage_make("founder", &options, NULL);
    assert_int_equal(stage_int(stage_call(family[0], "current")), 2);
    family[1] = child_of(family[0], TDM_SCHEDULE_DEFAULT);
    family[2] = child_of(family[1], TDM_SCHEDULE_DEFAULT);
    assert_int_equal(stage_int(stage_call(family[2], "current")), 2);
    spread = child_of(family[1], TDM_SCHEDULE_SPREAD); /* The reply says where it runs. */
    assert_false(is_in_a_group(spread));
    assert_int_equal(stage_try(spread, "current"), TDM_E_NOT_FOUND);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stage_try(family[i], "current"), TDM_E_ACTOR_DIED);
        tdm_actor_destroy(family[i]);
    }
    tdm_actor_destroy(spread); /* It ends with its creator. */
}

static void child_actors_are_not_captured_by_default(void **state)
{
    tdm_placement_group *group;
    tdm_actor *parent;
    tdm_actor *child;

    (void)state;
    MUST(make_named(NULL, 0, &group));
    parent = stage_make("founder", &(struct tdm_actor_options){.group = group}, NULL);
    child = child_of(parent, TDM_SCHEDULE_DEFAULT);
    assert_true(is_in_a_group(parent));
    assert_false(is_in_a_group(child));
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    tdm_actor_destroy(child);
    tdm_actor_destroy(parent);
}

int conformance_placement(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_is_placed_on_its_creators_node_by_default),
        cmocka_unit_test(spread_takes_the_node_with_the_fewest_actors),
        cmocka_unit_test(node_affinity_is_obeyed_or_fails),
        cmocka_unit_test(soft_node_affinity_falls_back_to_another_node),
        cmocka_unit_test(labels_choose_the_node),
        cmocka_unit_test(label_constraints_may_be_sets),
        cmocka_unit_test(bundles_come_in_the_order_of_nodes_and_gpus),
        cmocka_unit_test(actors_of_a_bundle_share_its_gpu),
        cmocka_unit_test(any_bundle_selects_the_first_one_that_fits),
        cmocka_unit_test(strict_strategies_are_obeyed_or_fail),
        cmocka_unit_test(soft_strategies_use_the_nodes_that_exist),
        cmocka_unit_test(placement_group_is_reserved_completely_or_not_at_all),
        cmocka_unit_test(impossible_group_is_refused),
        cmocka_unit_test(request_larger_than_its_bundle_is_refused),
        cmocka_unit_test(removing_a_group_ends_its_actors),
        cmocka_unit_test(group_may_have_a_name),
        cmocka_unit_test(detached_group_outlives_its_creator),
        cmocka_unit_test(group_of_a_job_outlives_the_actor_that_created_it),
        cmocka_unit_test(pending_group_and_its_actors_wait_for_resources),
        cmocka_unit_test(removed_pending_group_fails_its_actors),
        cmocka_unit_test(calls_to_an_actor_without_a_place_can_be_moved),
        cmocka_unit_test(pending_group_that_fits_is_placed_at_once),
        cmocka_unit_test(child_actors_may_be_captured_by_the_placement_group),
        cmocka_unit_test(child_actors_are_not_captured_by_default),
    };

    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
