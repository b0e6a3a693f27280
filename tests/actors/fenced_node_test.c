/* fenced_node_test.c - a node that is cut off from Redis only: its actors are placed again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/records.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/redis_proxy.h"
#include "tests/support/two_nodes.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct two_nodes cluster;
static struct test_node cut_off; /* It reaches Redis through the proxy. */
static struct redis_proxy proxy;
static tdm_runtime *runtime;

static tdm_actor *make_there(const struct tdm_actor_options *wanted, const char *node_id)
{
    struct tdm_actor_options options = *wanted;

    if (node_id == NULL) {
        options.labels[0] = "side=third";
    } else {
        options.scheduling = TDM_SCHEDULE_NODE_SOFT;
        options.node_id = node_id;
    }
    return actor_fixture_create(runtime, &options);
}

/* The daemons reach each other all the time, so that the end of the actor is known at once. */
static void actor_of_a_node_without_redis_is_placed_again_and_not_lost(void **state)
{
    const struct tdm_call_options patient = {.max_retries = -1};
    tdm_actor *scout = make_there(&(struct tdm_actor_options){0}, NULL);
    struct tdm_actor_info there;
    struct tdm_actor_info here;
    tdm_actor *actor;
    tdm_ref *ref;
    int64_t old_pid;
    int64_t pid;

    (void)state;
    tdm_actor_describe(scout, &there);
    actor = make_there(&(struct tdm_actor_options){.name = "always", .max_restarts = -1},
                       there.node_id);
    tdm_actor_describe(actor, &here);
    assert_string_equal(here.node_id, there.node_id);
    old_pid = actor_fixture_call_int(actor, "pid");
    /* The node reads the list of the others, which it needs without Redis. */
    (void)poll(NULL, 0, TDM__NODE_RENEW_MS + 500);
    redis_proxy_stop(&proxy);
    assert_true(wait_process_exit(old_pid, TEST_TIMEOUT_MS));
    assert_int_equal(tdm_actor_call_with(actor, "pid", &patient, &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid), TDM_OK);
    assert_int_not_equal(pid, old_pid);
    tdm_ref_release(ref);
    redis_proxy_continue(&proxy);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(scout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_of_a_node_without_redis_is_placed_again_and_not_lost),
    };
    char said[1024];
    int failed = 1;

    runtime = two_nodes_join(&cluster);
    if (runtime != NULL && redis_proxy_start(&proxy, &cluster.redis) == 0) {
        cluster.redis_url = proxy.url;
        if (test_node_start(&cluster, "third", &cut_off, said) == 0) {
            failed = cmocka_run_group_tests(tests, NULL, NULL);
        }
    }
    test_node_stop(&cut_off);
    redis_proxy_end(&proxy);
    return failed + two_nodes_leave(&cluster, runtime);
}
