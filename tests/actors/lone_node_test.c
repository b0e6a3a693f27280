/* lone_node_test.c - a node whose Redis no other node can reach never stops its actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/records.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/driver_run.h"

#include <tandem/state.h>

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime;

static void outage_of_its_own_redis_ends_no_actor(void **state)
{
    tdm_actor *actor =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "kept", .num_gpus = 1});
    int64_t pid = actor_fixture_call_int(actor, "pid");
    const struct tdm_node_state *nodes;
    uint32_t nodes_count;
    pid_t redis;

    (void)state;
    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &nodes_count), TDM_OK);
    redis = driver_find_child((pid_t)nodes[0].pid, "tandem-store");
    tdm_list_free(nodes);
    assert_true(redis > 0);
    assert_int_equal(kill(redis, SIGSTOP), 0);
    (void)poll(NULL, 0, TDM__NODE_LEASE_MS_MIN + 1500);
    (void)kill(redis, SIGCONT); /* The daemon may have killed it by now, to start another. */
    assert_int_equal(actor_fixture_call_int(actor, "pid"), pid);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outage_of_its_own_redis_ends_no_actor),
    };
    int failed = 1;

    (void)setenv("TANDEM_LEASE_MS", "5000", 1);
    runtime = actor_fixture_open(NULL);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + actor_fixture_close(runtime);
}
