/* lease_machine_test.c - every state that the leases of two to four nodes can reach. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/lease_simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { STATES_MAX = 1 << 22 };

/* ---- examples --------------------------------------------------------------------------- */

static void test_lease_counts_from_before_the_renewal_was_sent(void **state)
{
    struct lease_machine machine;
    struct lease_actions actions;

    (void)state;
    tdm__lease_machine_init(&machine, 30, false, 100);
    actions = tdm__lease_machine_step(&machine, LEASE_ON_JOINED, 104);
    assert_true(actions.has_joined);
    assert_int_equal(tdm__lease_machine_fence_at(&machine), 130);
    assert_true(tdm__lease_machine_step(&machine, LEASE_ON_TIMER, 110).renews);
    /* One request at a time. */
    assert_false(tdm__lease_machine_step(&machine, LEASE_ON_TIMER, 111).renews);
    actions = tdm__lease_machine_step(&machine, LEASE_ON_RENEWED, 125);
    assert_true(actions.publishes);
    assert_int_equal(tdm__lease_machine_fence_at(&machine), 140);
}

static void test_late_reply_fences_first(void **state)
{
    struct lease_machine machine;
    struct lease_actions actions;

    (void)state;
    tdm__lease_machine_init(&machine, 30, false, 100);
    (void)tdm__lease_machine_step(&machine, LEASE_ON_JOINED, 100);
    (void)tdm__lease_machine_step(&machine, LEASE_ON_TIMER, 120);
    actions = tdm__lease_machine_step(&machine, LEASE_ON_RENEWED, 140);
    assert_true(actions.fences);
    assert_true(actions.publishes);
    assert_false(machine.is_fenced);
    assert_int_equal(tdm__lease_machine_fence_at(&machine), 150);
}

static void test_refused_renewal_joins_again_without_a_fence_within_the_lease(void **state)
{
    struct lease_machine machine;
    struct lease_actions actions;

    (void)state;
    tdm__lease_machine_init(&machine, 30, false, 100);
    (void)tdm__lease_machine_step(&machine, LEASE_ON_JOINED, 100);
    (void)tdm__lease_machine_step(&machine, LEASE_ON_TIMER, 101);
    actions = tdm__lease_machine_step(&machine, LEASE_ON_REFUSED, 102);
    assert_true(actions.joins);
    assert_false(actions.fences);
    /* The reply is lost: a renewal tells whether the node has joined. */
    (void)tdm__lease_machine_step(&machine, LEASE_ON_FAILED, 110);
    actions = tdm__lease_machine_step(&machine, LEASE_ON_TIMER, 111);
    assert_true(actions.renews);
    assert_true(tdm__lease_machine_step(&machine, LEASE_ON_RENEWED, 112).has_joined);
}

static void test_lone_node_has_no_end_until_its_store_is_shared(void **state)
{
    struct lease_machine machine;
    struct lease_actions actions;

    (void)state;
    tdm__lease_machine_init(&machine, 30, true, 100);
    (void)tdm__lease_machine_step(&machine, LEASE_ON_JOINED, 100);
    assert_true(tdm__lease_machine_fence_at(&machine) == LEASE_NEVER);
    assert_false(tdm__lease_machine_step(&machine, LEASE_ON_TIMER, 1000).fences);
    actions = tdm__lease_machine_step(&machine, LEASE_ON_SHARED, 1001);
    assert_true(actions.fences);
    assert_true(actions.publishes);
    assert_int_equal(tdm__lease_machine_fence_at(&machine), 130);
}

/* ---- explorations ----------------------------------------------------------------------- */

/* A cluster to explore, and the number of faults that may happen in it. */
struct lease_case {
    uint32_t nodes_count;
    bool is_alone;
    bool restores;       /* Whether an older state of the store is restored once. */
    bool only_cuts;      /* Whether cuts are the only faults. */
    bool counts_outages; /* Whether to check that no outage counts. */
    uint32_t faults_count;
};

static const struct lease_case cases[] = {
    {.nodes_count = 2, .counts_outages = true, .faults_count = 1},
    {.nodes_count = 2, .is_alone = true, .faults_count = 2},
    {.nodes_count = 2, .restores = true, .only_cuts = true, .faults_count = 2},
    {.nodes_count = 3, .only_cuts = true, .faults_count = 1},
    {.nodes_count = 4, .only_cuts = true, .faults_count = 1}};

/* Returns the violations of the first state that has any, or 0 if none has. */
static unsigned explore(const struct lease_case *lease_case, enum lease_mutation mutation)
{
    struct lease_exploration exploration = {.nodes_count = lease_case->nodes_count,
                                            .mutation = mutation,
                                            .restores = lease_case->restores,
                                            .only_cuts = lease_case->only_cuts,
                                            .counts_outages = lease_case->counts_outages};
    struct lease_world world;

    state_explorer_init_plain(&exploration.walk, sizeof(world), STATES_MAX);
    lease_world_init(&world, lease_case->is_alone, lease_case->faults_count);
    (void)state_explorer_add(&exploration.walk, &world, &world);
    while (exploration.violations == 0 && state_explorer_next(&exploration.walk, &world)) {
        lease_world_visit(&exploration, &world);
    }
    if (mutation == LEASE_NO_MUTATION) {
        (void)printf("%u nodes, %u faults: %u states, %llu transitions, %llu takeovers, "
                     "%llu restarts\n",
                     lease_case->nodes_count, lease_case->faults_count, exploration.walk.seen,
                     (unsigned long long)exploration.walk.transitions,
                     (unsigned long long)exploration.takeovers_count,
                     (unsigned long long)exploration.restarts_count);
        assert_true(exploration.violations != 0 || lease_case->faults_count == 0 ||
                    exploration.takeovers_count > 0);
        assert_true(lease_case->only_cuts || exploration.restarts_count > 0);
    }
    state_explorer_fini(&exploration.walk);
    return exploration.violations;
}

static void test_no_name_has_two_holders_and_no_outage_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(explore(&cases[i], LEASE_NO_MUTATION), 0);
    }
}

static void test_exploration_finds_each_mutation(void **state)
{
    (void)state;
    for (int mutation = LEASE_NO_MUTATION + 1; mutation < LEASE_MUTATIONS_COUNT; mutation++) {
        unsigned found = 0;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && found == 0; i++) {
            found = explore(&cases[i], (enum lease_mutation)mutation);
        }
        (void)printf("mutation %d: violations %#x\n", mutation, found);
        assert_int_not_equal(found, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lease_counts_from_before_the_renewal_was_sent),
        cmocka_unit_test(test_late_reply_fences_first),
        cmocka_unit_test(test_refused_renewal_joins_again_without_a_fence_within_the_lease),
        cmocka_unit_test(test_lone_node_has_no_end_until_its_store_is_shared),
        cmocka_unit_test(test_no_name_has_two_holders_and_no_outage_counts),
        cmocka_unit_test(test_exploration_finds_each_mutation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
