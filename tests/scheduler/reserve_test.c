/* reserve_test.c - resources and names in the store are allocated once and released once. */
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

static int open_world(void **state)
{
    (void)state;
    return reserve_fixture_open(&world);
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

static void placement_is_reserved_and_released_once(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 2);
    struct tdm__actor_request first = reserve_fixture_wish(2, "");
    struct tdm__actor_request second = reserve_fixture_wish(1, "");
    struct tdm__actor_record held;

    (void)state;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    assert_true(tdm__id_equal(&world.reserved.node.id, &node));
    assert_int_equal(world.reserved.grant.gpus_count, 2);
    held = reserve_fixture_record(&world, &first);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, "GPU"));
    /* A repeated release succeeds. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    }
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK);
    second = reserve_fixture_wish(2, "");
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_AGAIN);
    second = reserve_fixture_wish(3, "");
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_NO_RESOURCES);
}

/* The creator's node has placed the actor again, although its first node has the record still, or
 * again. */
static void later_placement_replaces_an_earlier_one(void **state)
{
    struct tdm__actor_request request = reserve_fixture_wish(1, "name/lab/moved");
    struct tdm__actor_request other = reserve_fixture_wish(2, "");
    struct tdm__actor_record earlier;
    struct tdm__actor_record later;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    request.placements = 1;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    earlier = reserve_fixture_record(&world, &request);
    request.placements = 2;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    later = reserve_fixture_record(&world, &request);
    assert_int_equal(reserve_fixture_give_back(&world, &earlier), TDM_E_EXISTS);
    assert_int_equal(reserve_fixture_take(&world, &other), TDM_E_AGAIN); /* The later one has it. */
    assert_int_equal(reserve_fixture_give_back(&world, &later), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &other), TDM_OK); /* Both GPUs are free. */
}

/* The reply to a release is lost, so the release is repeated, while another actor holds resources
 * of the same kind, or what was released. */
static void repeated_release_takes_nothing_from_another_actor(void **state)
{
    struct tdm__actor_request first = reserve_fixture_wish(0.5, "");
    struct tdm__actor_request second = reserve_fixture_wish(0.5, "");
    struct tdm__actor_record held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 1);
    assert_int_equal(tdm__resources_add(&first.placement.wanted, "CPU", 4), TDM_OK);
    assert_int_equal(tdm__resources_add(&second.placement.wanted, "CPU", 4), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    held = reserve_fixture_record(&world, &first);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK); /* The other holder. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    }
    first = reserve_fixture_wish(1, "");
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_E_AGAIN); /* Half a GPU is free. */
    first = reserve_fixture_wish(0, "");
    assert_int_equal(tdm__resources_add(&first.placement.wanted, "CPU", 5), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_E_AGAIN); /* Four CPUs are. */
    first = reserve_fixture_wish(0.5, "");
    assert_int_equal(tdm__resources_add(&first.placement.wanted, "CPU", 4), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK); /* A late repetition. */
    first = reserve_fixture_wish(0.5, "");
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_E_AGAIN);
}

/* Takes what `request` wants for a new actor, which must be placed on `node`. */
static void take_on(struct tdm__actor_request *request, const struct tdm__id *node)
{
    assert_int_equal(tdm__id_generate(&request->actor), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, request), TDM_OK);
    assert_true(tdm__id_equal(&world.reserved.node.id, node));
}

/* Two daemons may release the same placement: that of the actor's node, and that of its owner's
 * node, which then places the actor again, here on another node. */
static void release_of_an_earlier_place_takes_nothing_from_another_actor(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 1);
    struct tdm__id two = reserve_fixture_join(&world, "two", 1);
    struct tdm__actor_request moving = reserve_fixture_wish(0.5, "");
    struct tdm__actor_request staying = reserve_fixture_wish(0.5, "");
    struct tdm__actor_record held;

    (void)state;
    moving.placement.owner_node = staying.placement.owner_node = one;
    moving.placements = 1;
    assert_int_equal(reserve_fixture_take(&world, &moving), TDM_OK);
    assert_true(tdm__id_equal(&world.reserved.node.id, &one));
    held = reserve_fixture_record(&world, &moving);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    take_on(&staying, &one);
    take_on(&staying, &one);
    moving.placements = 2;
    assert_int_equal(reserve_fixture_take(&world, &moving), TDM_OK);
    assert_true(tdm__id_equal(&world.reserved.node.id, &two));
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_E_EXISTS);
    take_on(&staying, &two);
    assert_int_equal(tdm__id_generate(&staying.actor), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &staying), TDM_E_AGAIN); /* Both are full. */
}

/* The same, with the actor placed again on the same node. */
static void release_of_an_earlier_place_keeps_the_later_one(void **state)
{
    struct tdm__actor_request moving = reserve_fixture_wish(1, "name/lab/trainer");
    struct tdm__actor_request other = reserve_fixture_wish(1, "");
    struct tdm__actor_record held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 1);
    moving.placements = 1;
    assert_int_equal(reserve_fixture_take(&world, &moving), TDM_OK);
    held = reserve_fixture_record(&world, &moving);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    moving.placements = 2;
    assert_int_equal(reserve_fixture_take(&world, &moving), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_E_EXISTS);
    assert_int_equal(reserve_fixture_take(&world, &other), TDM_E_AGAIN);
    (void)snprintf(other.name_key, sizeof(other.name_key), "%s", moving.name_key);
    assert_int_equal(reserve_fixture_take(&world, &other), TDM_E_EXISTS);
}

/* The same in the bundle of a placement group. */
static void repeated_release_takes_nothing_from_another_actor_of_the_bundle(void **state)
{
    struct tdm__actor_request first = reserve_fixture_wish(0.5, "");
    struct tdm__actor_request second = reserve_fixture_wish(0.5, "");
    struct tdm__actor_record held;
    struct tdm__id group;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 1);
    assert_int_equal(tdm__id_generate(&group), TDM_OK);
    assert_int_equal(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK), TDM_OK);
    first.group = second.group = group;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    held = reserve_fixture_record(&world, &first);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    }
    first = reserve_fixture_wish(1, "");
    first.group = group;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_E_AGAIN);
}

/* The outcome of the reservation was lost, so the caller does not know whether and where the actor
 * was placed. */
static void actor_is_released_by_its_stored_record(void **state)
{
    struct tdm__actor_request first = reserve_fixture_wish(2, "name/lab/trainer");
    struct tdm__actor_request second = reserve_fixture_wish(2, "name/lab/trainer");
    struct tdm__actor_record held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    held = reserve_fixture_record(&world, &first);
    memset(&held.node, 0, sizeof(held.node));
    /* Releasing nothing succeeds. */
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK);
    /* The resources of the later actor must remain. */
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    first = reserve_fixture_wish(1, "");
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_E_AGAIN);
}

static void test_error_names_an_actor_whose_name_has_slashes(void **state)
{
    struct tdm__actor_request first = reserve_fixture_wish(0, "name/lab/engine/0/0");
    struct tdm__actor_request second = reserve_fixture_wish(0, "name/lab/engine/0/0");

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_EXISTS);
    assert_non_null(strstr(world.detail, "the name \"engine/0/0\" is taken by actor "));
}

static void name_is_held_by_one_actor_of_a_living_node(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 2);
    struct tdm__actor_request first = reserve_fixture_wish(0, "name/lab/trainer");
    struct tdm__actor_request second = reserve_fixture_wish(0, "name/lab/trainer");
    struct tdm__actor_record held;

    (void)state;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    held = reserve_fixture_record(&world, &first);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_EXISTS);
    assert_non_null(strstr(world.detail, "the name \"trainer\" is taken by actor "));
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK);

    /* The node is lost and another actor gets the name. A late release must not remove the name. */
    held = reserve_fixture_record(&world, &second);
    reserve_fixture_lose(&world, &node);
    (void)reserve_fixture_join(&world, "two", 2);
    first = reserve_fixture_wish(0, "name/lab/trainer");
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    second = reserve_fixture_wish(0, "name/lab/trainer");
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_EXISTS);
}

/* A node joins again between the read and the commit of another node that takes a name of the first
 * one's actor: the node of the actor, and for an actor that is placed again also its creator's. */
static void name_stays_with_a_node_that_joins_again_during_the_takeover(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct tdm__id holding = reserve_fixture_join(&world, "holding", 0);
        struct tdm__id creating = reserve_fixture_join(&world, "creating", 0);
        struct tdm__id taking = reserve_fixture_join(&world, "taking", 0);
        struct tdm__actor_request first = reserve_fixture_wish(0, "name/lab/trainer");
        struct tdm__actor_request second = reserve_fixture_wish(0, "name/lab/trainer");

        first.placement.node = holding;
        first.placement.scheduling = TDM_SCHEDULE_NODE;
        first.placement.owner_node = creating;
        first.recreate_on_node_loss = i == 1;
        second.placement.owner_node = taking;
        assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
        if (i == 1) { /* The actor's node does not come back, but its creator's. */
            reserve_fixture_lose(&world, &holding);
        }
        reserve_fixture_lose_until_commit(&world, i == 1 ? &creating : &holding);
        assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_EXISTS);
        assert_non_null(strstr(world.detail, "the name \"trainer\" is taken by actor "));
        (void)close_world(state);
        (void)open_world(state);
    }
}

static void node_that_joins_again_counts_what_is_held(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 2);
    struct tdm__actor_request first = reserve_fixture_wish(1, "");
    struct tdm__actor_request second = reserve_fixture_wish(2, "");

    (void)state;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    reserve_fixture_lose(&world, &node);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_NO_RESOURCES);
    reserve_fixture_join_again(&world, &node, "one", 2, &world.reserved.grant, 1);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_AGAIN);
}

static void the_owner_node_is_preferred(void **state)
{
    struct tdm__actor_request request = reserve_fixture_wish(1, "");

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    request.placement.owner_node = reserve_fixture_join(&world, "two", 1);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    assert_string_equal(world.reserved.node.name, "two");
}

static void released_group_places_no_actor(void **state)
{
    struct tdm__actor_request request = reserve_fixture_wish(1, "");

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    assert_int_equal(tdm__id_generate(&request.group), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_NOT_FOUND);
}

/* An absent record of a node means nothing while the store has a new generation. */
static void name_is_not_taken_over_in_a_new_store(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    struct tdm__actor_request first = reserve_fixture_wish(0, "name/lab/trainer");
    struct tdm__actor_request second = reserve_fixture_wish(0, "name/lab/trainer");

    (void)state;
    first.placement.owner_node = first.placement.node = one;
    first.placement.scheduling = TDM_SCHEDULE_NODE;
    second.placement.owner_node = two;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    reserve_fixture_lose(&world, &one);
    reserve_fixture_replace_store(&world, &two);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, "lost"));
}

/* The same for the creator's node, which places its actor again. */
static void actor_is_not_placed_again_in_a_new_store(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    struct tdm__actor_request request = reserve_fixture_wish(0, "");

    (void)state;
    request.placement.owner_node = one;
    request.placement.node = two;
    request.placement.scheduling = TDM_SCHEDULE_NODE;
    request.recreate_on_node_loss = true;
    request.placements = 1;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    reserve_fixture_lose(&world, &two);
    reserve_fixture_replace_store(&world, &one);
    request.placement.scheduling = TDM_SCHEDULE_DEFAULT;
    request.placements = 2;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, "lost"));
}

/* The node may join again, as long as no absent record counts as its loss. */
static void actor_waits_for_the_node_of_its_bundle_in_a_new_store(void **state)
{
    static const uint32_t bundles[] = {0, TDM_BUNDLE_ANY};

    for (int i = 0; i < 2; i++) {
        struct tdm__id one = reserve_fixture_join(&world, "one", 0);
        struct tdm__id two = reserve_fixture_join(&world, "two", 1);
        struct tdm__actor_request request = reserve_fixture_wish(1, "");

        assert_int_equal(tdm__id_generate(&request.group), TDM_OK);
        assert_int_equal(reserve_fixture_group(&world, &request.group, 1, 1, TDM_PACK), TDM_OK);
        request.bundle = bundles[i];
        request.placement.owner_node = one;
        reserve_fixture_lose(&world, &two);
        assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_NODE_LOST);
        assert_non_null(strstr(world.detail, "has left"));
        reserve_fixture_replace_store(&world, &one);
        assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
        (void)close_world(state);
        (void)open_world(state);
    }
}

static void name_that_went_to_another_meanwhile_stays_with_that_one(void **state)
{
    struct tdm__actor_request first = reserve_fixture_wish(0, "name/lab/trainer");
    struct tdm__actor_request second = reserve_fixture_wish(0, "name/lab/trainer");
    struct tdm__actor_record held;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    held = reserve_fixture_record(&world, &first);
    reserve_fixture_forget(&world, tdm__store_key("actor", &first.actor, key));
    reserve_fixture_forget(&world, "name/lab/trainer");
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK);
    assert_int_equal(reserve_fixture_again(&world, &held), TDM_E_EXISTS);
    assert_non_null(strstr(world.detail, "trainer"));
}

static void requests_before_rejoining_must_wait(void **state)
{
    struct tdm__actor_request request = reserve_fixture_wish(0, "");

    (void)state;
    request.placement.owner_node = reserve_fixture_join(&world, "one", 2);
    reserve_fixture_lose(&world, &request.placement.owner_node);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(actor_is_released_by_its_stored_record, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(later_placement_replaces_an_earlier_one, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(placement_is_reserved_and_released_once, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(repeated_release_takes_nothing_from_another_actor,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(
            release_of_an_earlier_place_takes_nothing_from_another_actor, open_world, close_world),
        cmocka_unit_test_setup_teardown(release_of_an_earlier_place_keeps_the_later_one, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(
            repeated_release_takes_nothing_from_another_actor_of_the_bundle, open_world,
            close_world),
        cmocka_unit_test_setup_teardown(test_error_names_an_actor_whose_name_has_slashes,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(name_is_held_by_one_actor_of_a_living_node, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(name_stays_with_a_node_that_joins_again_during_the_takeover,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(actor_is_not_placed_again_in_a_new_store, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(node_that_joins_again_counts_what_is_held, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(the_owner_node_is_preferred, open_world, close_world),
        cmocka_unit_test_setup_teardown(released_group_places_no_actor, open_world, close_world),
        cmocka_unit_test_setup_teardown(name_is_not_taken_over_in_a_new_store, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(actor_waits_for_the_node_of_its_bundle_in_a_new_store,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(name_that_went_to_another_meanwhile_stays_with_that_one,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(requests_before_rejoining_must_wait, open_world,
                                        close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
