/* reserve_placement_group_test.c - groups are allocated and released completely or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct reserve_fixture world;
static struct tdm__id group;

static int open_world(void **state)
{
    (void)state;
    return tdm__id_generate(&group) != TDM_OK || reserve_fixture_open(&world);
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

static void group_reserves_and_releases_all_resources(void **state)
{
    struct tdm__id other;

    (void)state;
    assert_int_equal(tdm__id_generate(&other), TDM_OK);
    (void)reserve_fixture_join(&world, "one", 4);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 4, TDM_PACK), TDM_OK);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(world.gpus[i], i);
    }
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 1, TDM_PACK), TDM_E_AGAIN);
    /* A repeated release succeeds. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    }
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 5, TDM_PACK), TDM_E_NO_RESOURCES);
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 4, TDM_STRICT_PACK), TDM_OK);
}

static void strict_spread_takes_a_node_each(void **state)
{
    (void)state;
    (void)reserve_fixture_join(&world, "one", 4);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_STRICT_SPREAD),
                     TDM_E_NO_RESOURCES);
    (void)reserve_fixture_join(&world, "two", 4);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_STRICT_SPREAD), TDM_OK);
    assert_false(tdm__id_equal(&world.places[0], &world.places[1]));
}

static void actors_take_from_their_bundle_and_not_from_the_node(void **state)
{
    struct tdm__actor_request request = {.bundle = 1, .class_name = "engine"};
    struct tdm__actor_record held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_PACK), TDM_OK);
    request.group = group;
    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    assert_int_equal(tdm__resources_add(&request.placement.wanted, "GPU", 0.5), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    assert_int_equal(world.reserved.grant.gpu_indices[0], 1);
    held = (struct tdm__actor_record){.actor = request.actor,
                                      .node = world.reserved.node.id,
                                      .group = group,
                                      .bundle = 1,
                                      .grant = world.reserved.grant};
    /* The group is released first, so the actor's resources no longer exist. */
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(tdm__id_generate(&group), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_PACK), TDM_OK);
}

/* This happens if the store lost the group, which was written again before its actors were. */
static void actor_unknown_to_its_bundle_releases_its_name(void **state)
{
    struct tdm__actor_request request = {.class_name = "engine", .name_key = "name/lab/trainer"};
    struct tdm__id node = reserve_fixture_join(&world, "one", 1);
    struct tdm__actor_record held = {.name_key = "name/lab/trainer"};
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK), TDM_OK);
    request.group = group;
    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    assert_int_equal(tdm__resources_add(&request.placement.wanted, "GPU", 1), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    held.actor = request.actor;
    held.node = world.reserved.node.id;
    held.group = group;
    held.grant = world.reserved.grant;
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_lose(&world, &node);
    reserve_fixture_join_again(&world, &node, "one", 1, NULL, 0);
    assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    /* Both the resources and the name are free again. */
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
}

static void bundle_unknown_to_its_node_blocks_no_other(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 1);
    struct tdm__id other;

    (void)state;
    (void)reserve_fixture_join(&world, "two", 1);
    assert_int_equal(tdm__id_generate(&other), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_SPREAD), TDM_OK);
    reserve_fixture_empty(&world, &one);
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 2, TDM_SPREAD), TDM_OK);
}

static void node_that_joins_again_keeps_its_bundles(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 2);
    struct tdm__id other;

    (void)state;
    assert_int_equal(tdm__id_generate(&other), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK), TDM_OK);
    reserve_fixture_lose(&world, &node);
    reserve_fixture_join_again(&world, &node, "one", 2, NULL, 0);
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 2, TDM_PACK), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 2, TDM_PACK), TDM_OK);
}

static void lost_group_is_restored_once(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 1);
    struct tdm__id two = reserve_fixture_join(&world, "two", 1);
    struct tdm__id other;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_int_equal(tdm__id_generate(&other), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_SPREAD), TDM_OK);
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_lose(&world, &one);
    reserve_fixture_lose(&world, &two);
    reserve_fixture_join_again(&world, &one, "one", 1, NULL, 0);
    assert_int_equal(reserve_fixture_group_again(&world, false), TDM_E_AGAIN);
    reserve_fixture_join_again(&world, &two, "two", 1, NULL, 0);
    /* A repeated restoration succeeds. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
    }
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 1, TDM_PACK), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 2, TDM_SPREAD), TDM_OK);
}

static void group_returns_without_the_node_that_does_not(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 1);
    struct tdm__id two = reserve_fixture_join(&world, "two", 1);
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_SPREAD), TDM_OK);
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_lose(&world, &one);
    reserve_fixture_lose(&world, &two);
    reserve_fixture_join_again(&world, &one, "one", 1, NULL, 0);
    assert_int_equal(reserve_fixture_group_again(&world, true), TDM_OK);
    /* The node finds the bundle that it holds. */
    reserve_fixture_join_again(&world, &two, "two", 1, NULL, 0);
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    assert_int_equal(tdm__id_generate(&group), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_SPREAD), TDM_OK);
}

/* An absent node may live while the store lacks records, or joins before the commit. */
static void group_returns_without_a_node_only_if_the_node_is_lost(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 1);
    struct tdm__id two = reserve_fixture_join(&world, "two", 1);
    struct tdm__id other;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_int_equal(tdm__id_generate(&other), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 2, TDM_SPREAD), TDM_OK);
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_empty(&world, &one);
    reserve_fixture_empty(&world, &two);
    reserve_fixture_lose_until_commit(&world, &two);
    assert_int_equal(reserve_fixture_group_again(&world, true), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &other, 1, 1, TDM_PACK), TDM_E_AGAIN);
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_empty(&world, &one);
    reserve_fixture_lose(&world, &two);
    reserve_fixture_replace_store(&world, &one);
    assert_int_equal(reserve_fixture_group_again(&world, true), TDM_E_AGAIN);
    (void)reserve_fixture_new_generation(&world); /* Without a hold. */
    assert_int_equal(reserve_fixture_group_again(&world, true), TDM_OK);
}

static tdm_status take_named(const char *name_space, const char *name)
{
    struct tdm__resources bundle = {.cpu = 0};
    struct tdm__placement_group_request request = {
        .bundles = &bundle, .bundles_count = 1, .strategy = TDM_PACK, .detached = true};

    assert_int_equal(tdm__id_generate(&request.id), TDM_OK);
    assert_int_equal(tdm__resources_add(&bundle, "GPU", 1), TDM_OK);
    (void)snprintf(request.name_space, sizeof(request.name_space), "%s", name_space);
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    return reserve_fixture_group_by(&world, &request);
}

static void name_belongs_to_one_group_until_its_release(void **state)
{
    struct tdm__id held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 4);
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    held = world.group.id;
    assert_int_equal(take_named("mine", "stage"), TDM_E_EXISTS);
    assert_int_equal(reserve_fixture_find_group(&world, "mine", "stage"), TDM_OK);
    assert_true(tdm__id_equal(&world.group.id, &held));
    assert_true(world.group.detached);
    assert_int_equal(reserve_fixture_find_group(&world, "yours", "stage"), TDM_E_NOT_FOUND);
    /* A repeated release succeeds. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_ungroup(&world, &held), TDM_OK);
    }
    assert_int_equal(reserve_fixture_find_group(&world, "mine", "stage"), TDM_E_NOT_FOUND);
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    /* The name of the later group must remain. */
    assert_int_equal(reserve_fixture_ungroup(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_find_group(&world, "mine", "stage"), TDM_OK);
}

static void closed_group_takes_no_actor_and_is_not_found(void **state)
{
    struct tdm__actor_request request = {.class_name = "engine"};
    struct tdm__id node = reserve_fixture_join(&world, "one", 1);

    (void)state;
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    request.group = world.group.id;
    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_close_group(&world, &request.group, &node), TDM_OK);
    }
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_NOT_FOUND);
    assert_int_equal(reserve_fixture_find_group(&world, "mine", "stage"), TDM_E_NOT_FOUND);
    /* The bundles of the closed group are still allocated. */
    assert_int_equal(take_named("mine", "stage"), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_ungroup(&world, &request.group), TDM_OK);
    assert_int_equal(reserve_fixture_close_group(&world, &request.group, &node), TDM_E_NOT_FOUND);
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
}

static bool was_named_by_closing(const struct tdm__id *node)
{
    for (uint32_t i = 0; i < world.closed_on_count; i++) {
        if (tdm__id_equal(&world.closed_on[i], node)) {
            return true;
        }
    }
    return false;
}

/* Places an actor of the node `owner` in the group. */
static struct tdm__actor_record place_in_group(const struct tdm__id *owner)
{
    struct tdm__actor_request request = reserve_fixture_wish(0.25, "");

    request.group = group;
    request.placement.owner_node = *owner;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    return reserve_fixture_record(&world, &request);
}

static void closing_names_the_nodes_with_members_only(void **state)
{
    struct tdm__id holder = reserve_fixture_join(&world, "holder", 1);
    struct tdm__id requester = reserve_fixture_join(&world, "requester", 0);
    struct tdm__id other = reserve_fixture_join(&world, "other", 0);

    (void)state;
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK), TDM_OK);
    for (int i = 0; i < 2; i++) {
        struct tdm__actor_record actor = place_in_group(&requester);

        (void)place_in_group(&holder);
        /* The node stays named although its actor has ended: only the group's end removes it. */
        assert_int_equal(reserve_fixture_give_back(&world, &actor), TDM_OK);
    }
    assert_int_equal(reserve_fixture_close_group(&world, &group, &other), TDM_OK);
    assert_int_equal(world.closed_on_count, 2);
    assert_true(was_named_by_closing(&holder));
    assert_true(was_named_by_closing(&requester));
}

static void closing_names_all_nodes_if_the_record_is_lost(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 1);

    (void)state;
    (void)reserve_fixture_join(&world, "two", 0);
    assert_int_equal(reserve_fixture_close_group(&world, &group, &node), TDM_E_NOT_FOUND);
    assert_int_equal(world.closed_on_count, 2);
}

/* The group's record is written again without its actors, whose nodes write theirs afterwards. */
static void restored_actor_names_its_requester_again(void **state)
{
    struct tdm__id holder = reserve_fixture_join(&world, "holder", 1);
    struct tdm__id requester = reserve_fixture_join(&world, "requester", 0);
    struct tdm__actor_record actor;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK), TDM_OK);
    actor = place_in_group(&requester);
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_forget(&world, tdm__store_key("actor", &actor.actor, key));
    reserve_fixture_lose(&world, &holder);
    reserve_fixture_join_again(&world, &holder, "holder", 1, NULL, 0);
    assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
    assert_int_equal(reserve_fixture_again(&world, &actor), TDM_OK);
    assert_int_equal(reserve_fixture_close_group(&world, &group, &holder), TDM_OK);
    assert_int_equal(world.closed_on_count, 2);
    assert_true(was_named_by_closing(&requester));
}

static void lose_store(const struct tdm__id *node, const struct tdm__id *of_group)
{
    char key[TDM__STORE_KEY_BYTES];

    reserve_fixture_forget(&world, tdm__store_key("group", of_group, key));
    reserve_fixture_forget(&world, "group_name/mine/stage");
    reserve_fixture_lose(&world, node);
    reserve_fixture_join_again(&world, node, "one", 4, NULL, 0);
}

static void lost_name_is_restored_unless_another_group_has_it(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 4);
    struct tdm__placement_group_record lost;

    (void)state;
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    assert_int_equal(tdm__placement_group_record_copy(&world.group, &lost), TDM_OK);
    lose_store(&node, &lost.id);
    assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
    assert_int_equal(take_named("mine", "stage"), TDM_E_EXISTS);
    lose_store(&node, &lost.id);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK), TDM_OK);
    /* The second GPU is free. */
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    tdm__placement_group_record_fini(&world.group);
    world.group = lost;
    assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
    assert_int_equal(reserve_fixture_find_group(&world, "mine", "stage"), TDM_OK);
    assert_false(tdm__id_equal(&world.group.id, &lost.id));
}

/* The first run of the body uses the read cache, and its commit comes too late. */
static void name_released_by_a_conflicting_commit_is_restored(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 4);
    struct tdm__placement_group_record lost;
    struct tdm__id heir;

    (void)state;
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    assert_int_equal(tdm__placement_group_record_copy(&world.group, &lost), TDM_OK);
    lose_store(&node, &lost.id);
    assert_int_equal(take_named("mine", "stage"), TDM_OK);
    heir = world.group.id;
    lose_store(&node, &heir);
    tdm__placement_group_record_fini(&world.group);
    world.group = lost;
    assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
    assert_int_equal(reserve_fixture_find_group(&world, "mine", "stage"), TDM_OK);
    assert_true(tdm__id_equal(&world.group.id, &lost.id));
}

/* Each node is written twice in one commit: its version check and its free resources. */
static void group_spreads_over_six_hundred_nodes(void **state)
{
    enum { NODES = 600 };
    static struct tdm__resources bundles[NODES];
    const struct tdm__placement_group_request request = {
        .id = group, .bundles = bundles, .bundles_count = NODES, .strategy = TDM_STRICT_SPREAD};
    struct tdm__id node = {.bytes = {0}};

    (void)state;
    for (uint32_t i = 0; i < NODES; i++) {
        node = reserve_fixture_join(&world, "one of many", 1);
        bundles[i] = (struct tdm__resources){.cpu = 0};
        assert_int_equal(tdm__resources_add(&bundles[i], "GPU", 1), TDM_OK);
    }
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
    /* The group exists already. */
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
    assert_int_equal(reserve_fixture_close_group(&world, &group, &node), TDM_OK);
    assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
    /* All resources are free again. */
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
}

/* Each node is written once, however many bundles it has. */
static void group_of_many_bundles_on_two_nodes_is_released_and_reserved(void **state)
{
    enum { BUNDLES = 4000 };
    static struct tdm__resources bundles[BUNDLES];
    struct tdm__placement_group_request request = {
        .bundles = bundles, .bundles_count = BUNDLES, .strategy = TDM_SPREAD};
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    /* All resources of the cluster. */
    struct tdm__resources both[2] = {{.cpu = 0}};
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    for (uint32_t i = 0; i < BUNDLES; i++) {
        bundles[i] = (struct tdm__resources){.cpu = 0};
        assert_int_equal(tdm__resources_add(&bundles[i], "CPU", 0.004), TDM_OK);
    }
    for (int i = 0; i < 2; i++) {
        request.id = group;
        assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
        reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
        reserve_fixture_lose(&world, &one);
        reserve_fixture_lose(&world, &two);
        reserve_fixture_join_again(&world, &one, "one", 0, NULL, 0);
        reserve_fixture_join_again(&world, &two, "two", 0, NULL, 0);
        assert_int_equal(reserve_fixture_group_again(&world, false), TDM_OK);
        assert_int_equal(reserve_fixture_ungroup(&world, &group), TDM_OK);
        assert_int_equal(reserve_fixture_close_group(&world, &group, &one), TDM_E_NOT_FOUND);
        assert_int_equal(tdm__id_generate(&group), TDM_OK);
    }
    assert_int_equal(tdm__resources_add(&both[0], "CPU", 8), TDM_OK);
    assert_int_equal(tdm__resources_add(&both[1], "CPU", 8), TDM_OK);
    request = (struct tdm__placement_group_request){
        .id = group, .bundles = both, .bundles_count = 2, .strategy = TDM_STRICT_SPREAD};
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(group_reserves_and_releases_all_resources, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(name_belongs_to_one_group_until_its_release, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(closed_group_takes_no_actor_and_is_not_found, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(closing_names_the_nodes_with_members_only, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(closing_names_all_nodes_if_the_record_is_lost, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(restored_actor_names_its_requester_again, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(lost_name_is_restored_unless_another_group_has_it,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(name_released_by_a_conflicting_commit_is_restored,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(group_of_many_bundles_on_two_nodes_is_released_and_reserved,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(group_spreads_over_six_hundred_nodes, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(strict_spread_takes_a_node_each, open_world, close_world),
        cmocka_unit_test_setup_teardown(actors_take_from_their_bundle_and_not_from_the_node,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(actor_unknown_to_its_bundle_releases_its_name, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(bundle_unknown_to_its_node_blocks_no_other, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(node_that_joins_again_keeps_its_bundles, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(lost_group_is_restored_once, open_world, close_world),
        cmocka_unit_test_setup_teardown(group_returns_without_a_node_only_if_the_node_is_lost,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(group_returns_without_the_node_that_does_not, open_world,
                                        close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
