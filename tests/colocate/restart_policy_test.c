/* restart_policy_test.c - which failures restart a job, how often, and after which pauses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/restart_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void ends_of_processes_nodes_and_connections_are_covered(void **state)
{
    static const tdm_status covered[] = {
        TDM_E_ACTOR_DIED, TDM_E_NODE_LOST, TDM_E_OWNER_DIED,        TDM_E_VALUE_LOST, TDM_E_STORE,
        TDM_E_CLOSED,     TDM_E_TIMEOUT,   TDM_E_ACTOR_UNAVAILABLE, TDM_E_ABORTED};
    static const tdm_status others[] = {TDM_OK,       TDM_E_CANCELED, TDM_E_METHOD, TDM_E_INVAL,
                                        TDM_E_BUDGET, TDM_E_IO,       TDM_E_NOMEM};

    (void)state;
    for (size_t i = 0; i < sizeof(covered) / sizeof(covered[0]); i++) {
        assert_true(tdm__restart_policy_covers(covered[i]));
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(tdm__restart_policy_covers(others[i]));
    }
}

static void failure_before_all_ranks_have_run_is_final(void **state)
{
    const struct tdm__restart_policy policy = {.restarts_max = 3};

    (void)state;
    assert_false(tdm__restart_policy_allows(&policy, TDM_E_ACTOR_DIED, false));
    assert_true(tdm__restart_policy_allows(&policy, TDM_E_ACTOR_DIED, true));
}

static void restarts_are_limited(void **state)
{
    struct tdm__restart_policy policy = {.restarts_max = 2};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(tdm__restart_policy_allows(&policy, TDM_E_NODE_LOST, true));
        (void)tdm__restart_policy_count(&policy);
        tdm__restart_policy_on_step(&policy); /* A step does not give a restart back. */
    }
    assert_false(tdm__restart_policy_allows(&policy, TDM_E_NODE_LOST, true));
}

static void pauses_grow_until_a_step_is_completed(void **state)
{
    static const int64_t pauses_ms[] = {0, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    struct tdm__restart_policy policy = {.restarts_max = 100};

    (void)state;
    for (size_t i = 0; i < sizeof(pauses_ms) / sizeof(pauses_ms[0]); i++) {
        assert_int_equal(tdm__restart_policy_count(&policy), pauses_ms[i]);
    }
    tdm__restart_policy_on_step(&policy);
    assert_int_equal(tdm__restart_policy_count(&policy), 0);
    assert_int_equal(tdm__restart_policy_count(&policy), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_processes_nodes_and_connections_are_covered),
        cmocka_unit_test(failure_before_all_ranks_have_run_is_final),
        cmocka_unit_test(restarts_are_limited),
        cmocka_unit_test(pauses_grow_until_a_step_is_completed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
