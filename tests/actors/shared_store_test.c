/* shared_store_test.c - a node with the cluster's store fences its actors once a second node has
 * joined. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/spawn.h"
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

/* Milliseconds of a stopped store in which a node with a shared store fences its actors. */
enum { OUTAGE_MS = 7500 };

static tdm_runtime *runtime;

/* Runs a shell command with this build's programs in PATH. Returns its exit code. */
static int shell(const char *command)
{
    char line[1024];
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", line, NULL};
    struct tdm__spawn_options options = {.program = "/bin/sh", .argv = argv, .output_fd = -1};
    struct tdm__process process;
    int status;

    (void)snprintf(line, sizeof(line),
                   "PATH=%s:$PATH; head=$TMPDIR/tandem-started-$(id -u); "
                   "daemon=$(pgrep -P $(cat $head/supervisor) tandemd); "
                   "store=$(pgrep -P $daemon tandem-store); %s",
                   TDM_TEST_BUILD_DIR, command);
    if (tdm__spawn(&options, &process) != TDM_OK ||
        waitpid(process.pid, &status, 0) != process.pid) {
        return -1;
    }
    tdm__process_forget(&process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Stops the store for OUTAGE_MS. */
static void stop_store_for_a_while(void)
{
    assert_int_equal(shell("kill -STOP $store"), 0);
    (void)poll(NULL, 0, OUTAGE_MS);
    assert_int_equal(shell("kill -CONT $store"), 0);
}

/* Stops the daemon for OUTAGE_MS; its supervisor and its actors run. */
static void stop_daemon_for_a_while(void)
{
    assert_int_equal(shell("kill -STOP $daemon"), 0);
    (void)poll(NULL, 0, OUTAGE_MS);
    assert_int_equal(shell("kill -CONT $daemon"), 0);
}

static void named_actor_outlives_an_outage_until_a_second_node_joins(void **state)
{
    tdm_actor *named = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "named"});
    struct tdm_actor_info info;

    (void)state;
    tdm_actor_describe(named, &info);
    stop_store_for_a_while();
    stop_daemon_for_a_while();
    assert_int_equal(actor_fixture_call(named, "pid", NULL), TDM_OK);

    assert_int_equal(shell("mkdir $TMPDIR/b && TANDEM_TOKEN_FILE=$head/token TMPDIR=$TMPDIR/b "
                           "tandem start --node-ip-address 127.0.0.2 "
                           "--address $(cut -d' ' -f2 $head/cluster) >$TMPDIR/b/said"),
                     0);
    stop_store_for_a_while();
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    tdm_actor_destroy(named);
}

/* A second node has joined. The supervisor knows the end of the lease, and does it alone. */
static void named_actor_of_a_stopped_daemon_ends_once_a_second_node_has_joined(void **state)
{
    tdm_actor *plain = actor_fixture_create(runtime, NULL);
    tdm_actor *named = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "again"});
    struct tdm_actor_info info;

    (void)state;
    tdm_actor_describe(named, &info);
    assert_int_equal(shell("kill -STOP $daemon"), 0);
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    assert_int_equal(actor_fixture_call(plain, "pid", NULL), TDM_OK);
    assert_int_equal(shell("kill -CONT $daemon"), 0);
    tdm_actor_destroy(named);
    tdm_actor_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_actor_outlives_an_outage_until_a_second_node_joins),
        cmocka_unit_test(named_actor_of_a_stopped_daemon_ends_once_a_second_node_has_joined),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed = 1;

    if (getenv("TANDEM_WORKER") != NULL) {
        return tdm_runtime_start(NULL, &runtime) == TDM_OK; /* never returns */
    }
    actor_fixture_prepare();
    options.address = "auto";
    if (shell("tandem start --head --node-ip-address 127.0.0.1 --port 0 >$TMPDIR/said") == 0 &&
        tdm_runtime_start(&options, &runtime) == TDM_OK) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    } else {
        (void)fprintf(stderr, "no cluster: %s\n", tdm_error_detail());
    }
    tdm_runtime_stop(runtime);
    (void)shell("TMPDIR=$TMPDIR/b tandem stop --force >/dev/null; tandem stop >/dev/null; "
                "rm -rf $TMPDIR/b $TMPDIR/said $head");
    return failed + actor_fixture_clean_up();
}
