/* redis_outage_test.c - a Redis that does not answer for less than the lease ends no actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/process/spawn.h"
#include "runtime/redis/embedded.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <tandem/state.h>

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { OUTAGE_MS = 7000, ACTORS = 4 };

static struct two_nodes cluster;
static tdm_runtime *runtime;

static void wait_until(int64_t time_ms)
{
    while (tdm__clock_ms() < time_ms) {
        (void)poll(NULL, 0, 20);
    }
}

/* Runs `tandem status` on the first node, which must fail, and expects that its message names Redis
 * and the time that is left. */
static void expect_status_to_name_redis(void)
{
    char *argv[] = {(char *)(uintptr_t) "tandem", (char *)(uintptr_t) "status",
                    (char *)(uintptr_t) "--address", cluster.first.address, NULL};
    FILE *output = tmpfile();
    struct tdm__spawn_options spawn = {.program = TDM_TEST_BUILD_DIR "/tandem", .argv = argv};
    struct tdm__process process;
    char said[1024] = "";
    int wait_status;

    assert_non_null(output);
    spawn.output_fd = fileno(output);
    assert_int_equal(tdm__spawn(&spawn, &process), TDM_OK);
    assert_int_equal(waitpid(process.pid, &wait_status, 0), process.pid);
    tdm__process_forget(&process);
    assert_int_equal(WEXITSTATUS(wait_status), 1);
    rewind(output);
    said[fread(said, 1, sizeof(said) - 1, output)] = '\0';
    (void)fclose(output);
    if (strstr(said, "Redis is unavailable; if it stays so for 2") == NULL) {
        fail_msg("%s", said);
    }
}

static void actors_outlive_an_outage_that_is_shorter_than_the_lease(void **state)
{
    const struct tdm_actor_options options[ACTORS] = {
        {.name = "here"},
        {.name = "there", .labels = {"side=second"}},
        {.num_gpus = 1, .labels = {"side=second"}},
        {.max_restarts = 1, .labels = {"side=second"}}};
    pid_t redis = tdm__redis_embedded_pid(cluster.redis.server);
    const struct tdm_node_state *nodes = NULL;
    uint32_t nodes_count;
    tdm_actor *actors[ACTORS];
    int64_t pids[ACTORS];
    int64_t begun_ms;
    tdm_actor *found;

    (void)state;
    for (int i = 0; i < ACTORS; i++) {
        actors[i] = actor_fixture_create(runtime, &options[i]);
        pids[i] = actor_fixture_call_int(actors[i], "pid");
    }
    assert_int_equal(kill(redis, SIGSTOP), 0);
    begun_ms = tdm__clock_ms();
    wait_until(begun_ms + OUTAGE_MS / 2);
    for (int i = 0; i < ACTORS; i++) { /* Calls do not use Redis. */
        assert_int_equal(actor_fixture_call_int(actors[i], "pid"), pids[i]);
    }
    assert_int_not_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &nodes_count), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "Redis is unavailable; if it stays so for 2"));
    expect_status_to_name_redis();
    wait_until(begun_ms + OUTAGE_MS);
    assert_int_equal(kill(redis, SIGCONT), 0);
    assert_int_equal(tdm_actor_find(runtime, "there", TEST_TIMEOUT_MS, &found), TDM_OK);
    assert_int_equal(actor_fixture_call_int(found, "pid"), pids[1]);
    tdm_actor_destroy(found);
    for (int i = 0; i < ACTORS; i++) {
        assert_int_equal(actor_fixture_call_int(actors[i], "pid"), pids[i]);
        assert_int_equal(tdm_actor_kill(actors[i], TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actors[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actors_outlive_an_outage_that_is_shorter_than_the_lease),
    };
    int failed = 1;

    (void)unsetenv("TANDEM_LEASE_MS"); /* The nodes have the default lease. */
    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + two_nodes_leave(&cluster, runtime);
}
