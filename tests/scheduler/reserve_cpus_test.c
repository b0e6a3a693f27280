/* reserve_cpus_test.c - actors lend their CPUs and take them back, whoever holds them then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "scheduler/reserve_cpus.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct reserve_fixture world; /* A node has eight CPUs. */

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

/* Places an actor with `cpus` CPUs in the group, or outside of groups for NULL; fills its record.
 */
static tdm_status take(double cpus, const struct tdm__id *group, struct tdm__actor_record *held)
{
    struct tdm__actor_request request = {.class_name = "engine"};

    request.group = group == NULL ? (struct tdm__id){{0}} : *group;
    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    assert_int_equal(tdm__resources_add(&request.placement.wanted, "CPU", cpus), TDM_OK);
    TDM_TRY(reserve_fixture_take(&world, &request));
    *held = (struct tdm__actor_record){.actor = request.actor,
                                       .node = world.reserved.node.id,
                                       .group = request.group,
                                       .grant = world.reserved.grant};
    return TDM_OK;
}

static void on_done(void *arg, tdm_status status, const char *detail)
{
    (void)detail;
    *(tdm_status *)arg = status;
    world.done = true;
}

static bool is_done(void *arg)
{
    (void)arg;
    return world.done;
}

/* Lets the actor hold this many CPUs. */
static void hold(struct tdm__actor_record *held, int64_t cpus)
{
    tdm_status status = TDM_E_STATE;

    held->grant.cpu = cpus * TDM__RESOURCE_ONE;
    assert_int_equal(
        tdm__reserve_cpus(world.store, held, tdm__deadline_after(10000), on_done, &status), TDM_OK);
    assert_int_equal(tdm__loop_run(world.loop, is_done, NULL, tdm__deadline_after(10000)), TDM_OK);
    world.done = false;
    assert_int_equal(status, TDM_OK);
}

static void lent_cpus_serve_another_and_are_taken_back(void **state)
{
    struct tdm__actor_record lender;
    struct tdm__actor_record other;
    struct tdm__actor_record third;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 0);
    assert_int_equal(take(8, NULL, &lender), TDM_OK);
    assert_int_equal(take(3, NULL, &other), TDM_E_AGAIN);
    hold(&lender, 0);
    hold(&lender, 0); /* A repeated request changes nothing. */
    assert_int_equal(take(3, NULL, &other), TDM_OK);
    hold(&lender, 8); /* Three CPUs less than none are free now. */
    assert_int_equal(take(1, NULL, &third), TDM_E_AGAIN);
    assert_int_equal(take(0, NULL, &third), TDM_OK); /* It needs no CPU. */
    assert_int_equal(reserve_fixture_give_back(&world, &other), TDM_OK);
    assert_int_equal(take(1, NULL, &other), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_give_back(&world, &lender), TDM_OK);
    assert_int_equal(take(8, NULL, &lender), TDM_OK);
}

static void actor_that_ends_gives_back_only_what_it_holds(void **state)
{
    struct tdm__actor_record lender;
    struct tdm__actor_record other;
    struct tdm__actor_record whole;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 0);
    assert_int_equal(take(6, NULL, &lender), TDM_OK);
    whole = lender;
    hold(&lender, 0);
    assert_int_equal(take(8, NULL, &other), TDM_OK);
    assert_int_equal(reserve_fixture_give_back(&world, &whole), TDM_OK);
    assert_int_equal(take(1, NULL, &lender), TDM_E_AGAIN);
    hold(&whole, 6); /* It has ended. */
    assert_int_equal(reserve_fixture_give_back(&world, &other), TDM_OK);
    assert_int_equal(take(8, NULL, &other), TDM_OK);
}

static void bundles_lend_too(void **state)
{
    struct tdm__resources bundle = {.cpu = (int64_t)2 * TDM__RESOURCE_ONE};
    struct tdm__placement_group_request request = {.bundles = &bundle, .bundles_count = 1};
    struct tdm__actor_record lender;
    struct tdm__actor_record other;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 0);
    assert_int_equal(tdm__id_generate(&request.id), TDM_OK);
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
    assert_int_equal(take(2, &request.id, &lender), TDM_OK);
    hold(&lender, 0);
    assert_int_equal(take(2, &request.id, &other), TDM_OK);
    hold(&lender, 2);
    assert_int_equal(reserve_fixture_give_back(&world, &lender), TDM_OK);
    assert_int_equal(take(1, &request.id, &lender), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_give_back(&world, &other), TDM_OK);
    assert_int_equal(take(2, &request.id, &other), TDM_OK);
}

static void node_joins_again_although_too_many_cpus_are_held(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 0);
    struct tdm__actor_record held[2];
    struct tdm__actor_record other;
    struct tdm__grant grants[2];

    (void)state;
    assert_int_equal(take(8, NULL, &held[0]), TDM_OK);
    hold(&held[0], 0);
    assert_int_equal(take(8, NULL, &held[1]), TDM_OK);
    hold(&held[0], 8);
    grants[0] = held[0].grant;
    grants[1] = held[1].grant;
    reserve_fixture_lose(&world, &node);
    reserve_fixture_join_again(&world, &node, "one", 0, grants, 2);
    assert_int_equal(reserve_fixture_give_back(&world, &held[0]), TDM_OK);
    assert_int_equal(take(1, NULL, &other), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_give_back(&world, &held[1]), TDM_OK);
    assert_int_equal(take(8, NULL, &other), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lent_cpus_serve_another_and_are_taken_back, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(actor_that_ends_gives_back_only_what_it_holds, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(bundles_lend_too, open_world, close_world),
        cmocka_unit_test_setup_teardown(node_joins_again_although_too_many_cpus_are_held,
                                        open_world, close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
