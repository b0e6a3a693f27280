/* replica_test.c - trainer ranks divide into replicas of consecutive ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_config *config;

static struct tdm_rank_context context_of(uint32_t rank)
{
    return (struct tdm_rank_context){.config = config, .rank = rank, .ranks_count = 6};
}

static void consecutive_ranks_form_a_replica(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 6; rank++) {
        struct tdm_rank_context context = context_of(rank);
        struct replica replica;

        assert_int_equal(replica_init(&replica, &context, 2), TDM_OK);
        assert_int_equal(replica.ranks_count, 3);
        assert_int_equal(replica.rank, rank % 3);
        assert_int_equal(replica_init(&replica, &context, 1), TDM_OK);
        assert_int_equal(replica.ranks_count, 6);
        assert_int_equal(replica.rank, rank);
    }
}

static void ranks_that_do_not_divide_are_refused(void **state)
{
    struct tdm_rank_context context = context_of(0);
    struct replica replica;

    (void)state;
    assert_int_equal(replica_init(&replica, &context, 4), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "trainer.replicas is 4, but 6 trainer ranks"));
}

/* A trainer that is only planned has no group, and joins none. */
static void planned_rank_joins_no_group(void **state)
{
    struct tdm_rank_context context = context_of(4);
    struct replica replica;

    (void)state;
    assert_int_equal(replica_init(&replica, &context, 2), TDM_OK);
    assert_int_equal(replica_join(&replica, &context), TDM_OK);
    assert_null(replica.group);
    replica_leave(&replica);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(consecutive_ranks_form_a_replica),
        cmocka_unit_test(ranks_that_do_not_divide_are_refused),
        cmocka_unit_test(planned_rank_joins_no_group),
    };
    int failed;

    if (tdm_config_parse("{}", 2, "test", &config) != TDM_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_config_destroy(config);
    return failed;
}
