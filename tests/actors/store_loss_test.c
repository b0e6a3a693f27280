/* store_loss_test.c - the cluster's Redis loses its data, and the nodes write their records again.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <tandem/state.h>

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct two_nodes cluster;
static tdm_runtime *runtime; /* Runtime of a driver on the first node. */

/* Reads until the answers begin so. */
static void tell_redis(const char *commands, const char *expected)
{
    const char *path = tdm__redis_embedded_url(cluster.redis.server) + strlen("unix://");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char replies[64] = "";
    size_t used = 0;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(write(fd, commands, strlen(commands)), strlen(commands));
    while (used < strlen(expected)) {
        ssize_t got = read(fd, replies + used, sizeof(replies) - 1 - used);

        assert_true(got > 0);
        used += (size_t)got;
    }
    assert_memory_equal(replies, expected, strlen(expected));
    (void)close(fd);
}

/* Makes the server lose its data, like a server restarted without its files. */
static void forget_everything(void)
{
    tell_redis("FLUSHALL\r\n"
               "FUNCTION FLUSH\r\n"
               "CLIENT KILL TYPE normal SKIPME yes\r\n",
               "+OK\r\n+OK\r\n:");
}

/* Until the nodes have told it again. */
static void wait_for_name(const char *name)
{
    tdm_actor *actor;
    tdm_status status;

    for (int i = 0;; i++) {
        status = tdm_actor_find(runtime, name, TEST_TIMEOUT_MS, &actor);
        if (status == TDM_OK) {
            break;
        }
        if (status != TDM_E_NOT_FOUND || i == 200) {
            fail_msg("%s: %s: %s", name, tdm_strerror(status), tdm_error_detail());
        }
        (void)poll(NULL, 0, 50);
    }
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_OK);
    tdm_actor_destroy(actor);
}

/* Both GPUs of both nodes can be had: nothing is held that should not be. */
static void expect_all_free(void)
{
    static const char *const sides[] = {"side=first", "side=second"};

    for (int i = 0; i < 2; i++) {
        tdm_actor *all = actor_fixture_create(
            runtime, &(struct tdm_actor_options){.num_gpus = 2, .labels = {sides[i]}});

        assert_int_equal(tdm_actor_kill(all, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(all);
    }
}

static void names_and_places_are_as_before(void **state)
{
    tdm_actor *here =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "here", .num_gpus = 1});
    tdm_actor *there = actor_fixture_create(
        runtime,
        &(struct tdm_actor_options){.name = "there", .num_gpus = 1, .labels = {"side=second"}});
    int64_t pid = actor_fixture_call_int(there, "pid");
    tdm_actor *twin;

    (void)state;
    forget_everything();
    /* Calls do not use the store. */
    assert_int_equal(actor_fixture_call_int(there, "pid"), pid);
    wait_for_name("there");
    wait_for_name("here");
    assert_int_equal(actor_fixture_call_int(there, "pid"), pid);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.name = "there"}, &twin, ""),
                     TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(twin, TEST_TIMEOUT_MS), TDM_E_EXISTS);
    tdm_actor_destroy(twin);
    assert_int_equal(tdm_actor_kill(here, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_kill(there, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(here);
    tdm_actor_destroy(there);
    expect_all_free();
}

/* The epochs of both nodes change, but neither node was lost. */
static void nodes_that_join_a_new_store_keep_their_actors(void **state)
{
    tdm_actor *there = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "there", .labels = {"side=second"}});
    int64_t pid = actor_fixture_call_int(there, "pid");

    (void)state;
    forget_everything();
    (void)poll(NULL, 0, 3500); /* Some renewals of each node. */
    assert_int_equal(actor_fixture_call_int(there, "pid"), pid);
    assert_int_equal(tdm_actor_kill(there, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(there);
}

static void group_and_its_actors_are_as_before(void **state)
{
    static const struct tdm_bundle bundles[2] = {{.num_gpus = 2}, {.num_gpus = 2}};
    tdm_placement_group *group;
    tdm_actor *actors[2];
    tdm_actor *half;
    tdm_actor *more;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create(runtime, bundles, 2, TDM_STRICT_SPREAD, TEST_TIMEOUT_MS, &group),
        TDM_OK);
    for (uint32_t i = 0; i < 2; i++) {
        actors[i] = actor_fixture_create(
            runtime,
            &(struct tdm_actor_options){
                .name = i == 0 ? "left" : "right", .num_gpus = 1, .group = group, .bundle = i});
    }
    forget_everything();
    wait_for_name("left");
    wait_for_name("right");
    for (uint32_t i = 0; i < 2; i++) {
        struct tdm_actor_options options = {.num_gpus = 1, .group = group, .bundle = i};

        /* The bundle has space for this second actor and no other. */
        half = actor_fixture_create(runtime, &options);
        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &more, ""), TDM_OK);
        assert_int_equal(tdm_actor_wait_ready(more, 100), TDM_E_TIMEOUT);
        tdm_actor_destroy(more);
        tdm_actor_destroy(half);
        tdm_actor_destroy(actors[i]);
    }
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    expect_all_free();
}

static void actor_that_ends_before_its_record_is_restored_releases_its_placement(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        tdm_actor *actor = actor_fixture_create(
            runtime, &(struct tdm_actor_options){.name = "brief",
                                                 .num_gpus = 2,
                                                 .labels = {i < 2 ? "side=first" : "side=second"}});

        forget_everything();
        if (i % 2 == 1) {
            (void)poll(NULL, 0, 900); /* The node notices the loss at about this time. */
        }
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actor);
        expect_all_free();
    }
}

/* As on a full disk, or without the replicas that it wants: it answers, and takes nothing. */
static void waiting_call_is_told_why_the_store_refuses_writes(void **state)
{
    const struct tdm_node_state *nodes;
    uint32_t nodes_count;
    tdm_actor *actor;

    (void)state;
    tell_redis("CONFIG SET min-replicas-to-write 1\r\n", "+OK\r\n");
    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, 2500), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "it waits for a place"));
    assert_non_null(strstr(tdm_error_detail(), "NOREPLICAS"));
    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &nodes_count), TDM_OK);
    assert_int_equal(nodes_count, 2); /* Reads are answered. */
    tdm_list_free(nodes);
    tell_redis("CONFIG SET min-replicas-to-write 0\r\n", "+OK\r\n");
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_places_are_as_before),
        cmocka_unit_test(nodes_that_join_a_new_store_keep_their_actors),
        cmocka_unit_test(group_and_its_actors_are_as_before),
        cmocka_unit_test(actor_that_ends_before_its_record_is_restored_releases_its_placement),
        cmocka_unit_test(waiting_call_is_told_why_the_store_refuses_writes),
    };
    int failed = 1;

    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + two_nodes_leave(&cluster, runtime);
}
