/* store_faults_test.c - a whole node whose store loses operations and replies at random. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 30 };

static tdm_runtime *runtime;

static void actors_come_and_go_as_ever(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        tdm_actor *actor = actor_fixture_create(
            runtime, &(struct tdm_actor_options){.name = "same", .num_gpus = 4}); /* all */
        tdm_actor *found;
        struct tdm_actor_info info[2];

        if (tdm_actor_find(runtime, "same", TEST_TIMEOUT_MS, &found) != TDM_OK) {
            fail_msg("round %d: %s", i, tdm_error_detail());
        }
        tdm_actor_describe(actor, &info[0]);
        tdm_actor_describe(found, &info[1]);
        assert_string_equal(info[0].id, info[1].id);
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(found);
        tdm_actor_destroy(actor);
    }
}

static void groups_hold_and_give_back(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 2}, {.num_gpus = 2}};

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        tdm_placement_group *group;
        tdm_actor *actor;

        if (tdm_placement_group_create(runtime, bundles, 2, TDM_PACK, TEST_TIMEOUT_MS, &group) !=
            TDM_OK) {
            fail_msg("round %d: %s", i, tdm_error_detail());
        }
        actor = actor_fixture_create(
            runtime, &(struct tdm_actor_options){.group = group, .bundle = 1, .num_gpus = 2});
        assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
        assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
        tdm_actor_destroy(actor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actors_come_and_go_as_ever),
        cmocka_unit_test(groups_hold_and_give_back),
    };
    const char *seed = getenv("TANDEM_TEST_SEED");
    char faults[64];
    int failed;

    (void)snprintf(faults, sizeof(faults), "%s,5", seed == NULL ? "20261121" : seed);
    (void)printf("store faults: %s\n", faults);
    (void)setenv("TANDEM_STORE_FAULTS", faults, 1);
    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
