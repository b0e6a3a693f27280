/* start_test.c - `tandem start`, `status` and `stop`, on one node and on two. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/directory.h"
#include "tests/support/shell_run.h"
#include "tests/support/tcp_sockets.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { GONE_MS = 20000 };

/* Directory of the test. Its subdirectories "a" and "b" stand for two machines: each is the TMPDIR
 * of one. */
static char parent[] = "/tmp/tdc-XXXXXX";
static unsigned port; /* A free port for the head node. */

/* Runs a shell command on machine `machine`. Returns its exit code and stores its output in
 * `said`. */
__attribute__((format(printf, 2, 3))) static int on(const char *machine, const char *format, ...)
{
    char command[2048];
    char line[3072];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    (void)snprintf(line, sizeof(line), "export TMPDIR=%s/%s PATH=%s:$PATH; %s", parent, machine,
                   TDM_TEST_BUILD_DIR, command);
    return shell_run(NULL, line);
}

/* Fails with the output of the last command if its exit code is not 0. */
static void must_succeed(int code)
{
    if (code != 0) {
        fail_msg("exit code %d: %s", code, said);
    }
}

static int set_up(void **state)
{
    static bool is_made; /* Whether the first test has made the directories. */
    char path[64];

    (void)state;
    if (!is_made) {
        assert_non_null(mkdtemp(parent));
        is_made = true;
        (void)snprintf(path, sizeof(path), "%s/a", parent);
        assert_int_equal(mkdir(path, 0700), 0);
        (void)snprintf(path, sizeof(path), "%s/b", parent);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    port = tcp_sockets_free_port();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)on("b", "tandem stop --force");
    (void)on("a", "tandem stop --force");
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    tdm__directory_remove(parent);
    return 0;
}

static void start_head(void)
{
    must_succeed(
        on("a", "tandem start --head --node-ip-address=127.0.0.1 --port %u --num-cpus 2", port));
}

/* Starts a node on machine "b" that joins the head. Returns the exit code. */
static int start_member(void)
{
    return on("b",
              "TANDEM_TOKEN_FILE=%s/a/tandem-started-$(id -u)/token tandem start "
              "--address 127.0.0.1:%u --node-ip-address 127.0.0.2 --num-cpus 3 --num-gpus 1",
              parent, port);
}

static void node_is_started_shown_and_stopped(void **state)
{
    char text[64];

    (void)state;
    start_head();
    (void)snprintf(text, sizeof(text), "tandem start --address=127.0.0.1:%u", port);
    expect_said(text);
    expect_said("TANDEM_TOKEN_FILE=");
    must_succeed(on("a", "tandem status"));
    expect_said("nodes   1");
    must_succeed(on("a", "tandem status --address 127.0.0.1:%u", port));
    assert_int_equal(on("a", "tandem start --head"), 1);
    expect_said("runs on this machine already");
    expect_said("tandem stop");
    assert_null(strstr(said, "another process")); /* The node itself has the port for jobs. */
    must_succeed(on("a", "tandem stop"));
    expect_said("has ended");
    must_succeed(on("a", "tandem stop"));
    expect_said("No node of yours runs");
    assert_int_equal(on("a", "tandem status"), 1);
    must_succeed(on("b", "tandem stop --force")); /* Nothing was ever started there. */
}

static void second_node_joins_through_the_first(void **state)
{
    (void)state;
    start_head();
    must_succeed(start_member());
    must_succeed(on("a", "tandem status"));
    expect_said("nodes   2");
    expect_said("CPU       0        5");
    must_succeed(on("b", "tandem list nodes --json"));
    expect_said("tcp:127.0.0.2:");
    must_succeed(on("b", "tandem stop"));
    must_succeed(on("a", "tandem stop"));
}

static void wrong_token_and_wrong_address_are_refused(void **state)
{
    (void)state;
    start_head();
    assert_int_equal(on("b", "tandem start --address 127.0.0.1:%u", port), 1);
    expect_said("TANDEM_TOKEN_FILE");
    assert_int_equal(on("b",
                        "head -c 32 /dev/urandom >%s/token; chmod 600 %s/token; "
                        "TANDEM_TOKEN_FILE=%s/token tandem start --address 127.0.0.1:%u",
                        parent, parent, parent, port),
                     1);
    expect_said("does not know the cluster's token");
    assert_int_equal(
        on("b", "TANDEM_TOKEN_FILE=%s/token tandem start --wait 0 --address 127.0.0.1:1", parent),
        1);
    expect_said("Connection refused");
    assert_int_equal(on("b", "tandem status"), 1);
    must_succeed(on("a", "tandem status"));
    expect_said("nodes   1");
}

static void member_waits_for_the_head(void **state)
{
    (void)state;
    must_succeed(on("a", "head -c 32 /dev/urandom >%s/token; chmod 600 %s/token", parent, parent));
    must_succeed(on("b",
                    "export TANDEM_TOKEN_FILE=%s/token; (sleep 0.5; export TMPDIR=%s/a; "
                    "tandem start --head --node-ip-address 127.0.0.1 --port %u) & "
                    "tandem start --address 127.0.0.1:%u --node-ip-address 127.0.0.2; "
                    "code=$?; wait; exit $code",
                    parent, parent, port, port));
    expect_said("waiting for the head node");
    must_succeed(on("b", "tandem status"));
    expect_said("nodes   2");
}

static void port_in_use_is_named(void **state)
{
    (void)state;
    start_head();
    assert_int_equal(on("b", "tandem start --head --node-ip-address 127.0.0.1 --port %u", port), 1);
    expect_said("Address already in use");
    must_succeed(on("b", "tandem stop"));
    expect_said("No node of yours runs");
}

static void wrong_options_are_refused(void **state)
{
    static const char *const lines[][2] = {
        {"", "--head"},
        {"--head --address x:1", "--address joins"},
        {"--address x:1 --redis unix:///x", "two different stores"},
        {"--head --num-cpus two", "whole number"},
        {"--head --resources '[1]'", "JSON object"},
        {"--head --resources '{\"disk\": \"2\"}'", "JSON object"},
        {"--head --resources", "a value is missing"},
        {"--haed", "did you mean --head"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(on("a", "tandem start %s", lines[i][0]), 2);
        expect_said(lines[i][1]);
    }
    assert_int_equal(on("a", "tandem stop --grace-period -1"), 2);
}

static void passwords_do_not_show_on_command_lines(void **state)
{
    (void)state;
    assert_int_equal(on("a", "tandem start --redis redis://me:secret@127.0.0.1:1"), 2);
    expect_said("--redis-file");
    assert_null(strstr(said, "secret"));
    assert_int_equal(on("a", "tandemd --redis redis://me:secret@127.0.0.1:1"), 2);
    assert_null(strstr(said, "secret"));
    assert_int_equal(on("a",
                        "echo redis://me:secret@127.0.0.1:1 >%s/url; chmod 644 %s/url; "
                        "tandem start --redis-file %s/url",
                        parent, parent, parent),
                     1);
    expect_said("tandemd ended while starting");
    expect_said("chmod 600");
    assert_null(strstr(said, "secret"));
}

/* A Redis server with a password, whose URL is in a file or in the environment. */
static void url_of_redis_comes_from_a_file_or_the_environment(void **state)
{
    unsigned redis_port = tcp_sockets_free_port();

    (void)state;
    must_succeed(on("a",
                    "head -c 32 /dev/urandom >%s/token; chmod 600 %s/token; umask 077; "
                    "rm -f %s/url; "
                    "echo redis://:secret@127.0.0.1:%u >%s/url; "
                    "printf 'port %u\\nbind 127.0.0.1\\nrequirepass secret\\nsave \"\"\\n"
                    "daemonize yes\\npidfile %s/redis.pid\\n' >%s/conf; redis-server %s/conf",
                    parent, parent, parent, redis_port, parent, redis_port, parent, parent,
                    parent));
    must_succeed(on("a",
                    "TANDEM_TOKEN_FILE=%s/token tandem start --head --redis-file %s/url "
                    "--node-ip-address 127.0.0.1 --port %u",
                    parent, parent, port));
    expect_said("--redis-file=FILE");
    assert_null(strstr(said, "secret"));
    must_succeed(on("b",
                    "TANDEM_TOKEN_FILE=%s/token TANDEM_REDIS=$(cat %s/url) tandem start "
                    "--node-ip-address 127.0.0.1",
                    parent, parent));
    must_succeed(on("b", "tandem status"));
    expect_said("nodes   2");
    assert_int_equal(on("b", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | "
                             "grep -a -c ':secret[@]'"),
                     1);
    assert_int_equal(
        on("b", "tandem stop; TMPDIR=%s/a tandem stop; kill $(cat %s/redis.pid)", parent, parent),
        0);
}

/* Waits until no process has the directory of machine `machine` in its command line. */
static void wait_until_gone(const char *machine)
{
    for (int waited_ms = 0; waited_ms < GONE_MS; waited_ms += 50) {
        if (on("", "pgrep -f '%s/%s/[t]andem' >/dev/null", parent, machine) == 1) {
            return;
        }
        (void)poll(NULL, 0, 50);
    }
    fail_msg("processes of machine %s are left", machine);
}

/* ---- daemons that could not work together ---- */

/* Starts a Redis server that daemons on this machine reach at unix:///PARENT/store, and writes two
 * tokens. */
static void start_store(void)
{
    must_succeed(on("a",
                    "cd %s; for i in 1 2; do head -c 32 /dev/urandom >token$i; chmod 600 token$i; "
                    "done; rm -f store; printf 'port 0\nunixsocket %s/store\nsave \"\"\n"
                    "daemonize yes\npidfile %s/store.pid\n' >store.conf; "
                    "redis-server store.conf; until test -S store; do sleep 0.02; done",
                    parent, parent, parent));
}

/* The words that start a daemon on that store in a shell. */
#define DAEMON "tandemd --redis unix://%s/store --cpus 1 --name "

/* Starts the daemon `one` on machine "a", and waits until it is ready. */
static void start_one(void)
{
    must_succeed(on("a",
                    "cd %s; TANDEM_TOKEN_FILE=token1 " DAEMON
                    "one --listen 127.0.0.1 >one.out 2>&1 & cd %s; echo $! >one.pid; "
                    "for i in $(seq 1000); do grep -q ready one.out && exit; sleep 0.02; done; "
                    "cat one.out; exit 1",
                    parent, parent, parent));
}

/* Ends the daemon `one` and the store. A store that ends removes its socket, also one that the next
 * store has made, so this function waits for its end. */
static void stop_one(void)
{
    must_succeed(on("a", "cd %s; kill $(cat one.pid)", parent));
    wait_until_gone("a");
    must_succeed(on("a",
                    "cd %s; pid=$(cat store.pid); kill $pid; for i in $(seq 500); do "
                    "kill -0 $pid 2>/dev/null || exit 0; sleep 0.02; done; exit 1",
                    parent));
}

static void daemon_refuses_to_join_nodes_it_could_not_work_with(void **state)
{
    static const struct {
        const char *token;   /* Token file of the second daemon. */
        const char *options; /* Further options of it. */
        const char *reason;  /* Part of its error. */
    } cases[] = {
        {"token2", "--listen 127.0.0.1",
         "node one of the cluster has another token than this node two"},
        {"token1", "", "node two does not listen for other nodes"},
    };

    (void)state;
    start_store();
    start_one();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(on("b", "cd %s; TANDEM_TOKEN_FILE=%s timeout 20 " DAEMON "two %s", parent,
                            cases[i].token, parent, cases[i].options),
                         1);
        expect_said(cases[i].reason);
        assert_null(strstr(said, "ready"));
    }
    stop_one();
}

/* Both daemons look for others before either has joined, since the first one is held after that.
 * The one that joins last refuses, and has left the cluster when it has ended. */
static void of_two_daemons_that_start_at_once_one_refuses(void **state)
{
    (void)state;
    start_store();
    must_succeed(on("b",
                    "cd %s; rm -f held late.code; (export TANDEM_TOKEN_FILE=token2 "
                    "TANDEM_FAILPOINT='daemon node.checked 1 stop %s/held'; " DAEMON
                    "late --listen 127.0.0.1 >late 2>&1; echo $? >late.code) & cd %s; "
                    "for i in $(seq 1000); do test -s held && exit; sleep 0.02; done; "
                    "cat late; exit 1",
                    parent, parent, parent, parent));
    start_one();
    must_succeed(on("b",
                    "cd %s; kill -CONT $(cut -d ' ' -f 2 held); "
                    "for i in $(seq 400); do test -s late.code && break; sleep 0.05; done; "
                    "cat late late.code",
                    parent));
    expect_said("node one of the cluster has another token than this node late");
    expect_said("\n1\n");
    must_succeed(on("a", "cd %s; redis-cli -s store --raw keys '*:r:node/*'", parent));
    assert_ptr_equal(strchr(said, '\n'), strrchr(said, '\n')); /* One record. */
    stop_one();
}

static void killed_daemon_takes_all_of_its_node_along(void **state)
{
    (void)state;
    start_head();
    must_succeed(start_member());
    /* The daemon is the child of the supervisor. */
    must_succeed(on("a", "kill -9 $(pgrep -P $(cat $TMPDIR/tandem-started-*/supervisor))"));
    wait_until_gone("a");
    assert_int_equal(on("a", "tandem status"), 1);
    must_succeed(on("a", "tandem stop"));
    /* The member can still be stopped, and a new head can be started at the same port. */
    start_head();
    must_succeed(on("b", "tandem stop"));
    wait_until_gone("b");
}

static void node_stops_whatever_part_was_killed_or_stopped(void **state)
{
    static const char *const harms[] = {
        "kill -9 $(cat $TMPDIR/tandem-started-*/supervisor)",
        "kill -STOP $(cat $TMPDIR/tandem-started-*/supervisor)",
        "kill -STOP $(pgrep -P $(cat $TMPDIR/tandem-started-*/supervisor))",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++) {
        start_head();
        must_succeed(on("a", "%s", harms[i]));
        must_succeed(on("a", "tandem stop --grace-period 1"));
        wait_until_gone("a");
    }
    start_head();
}

/* The daemon watches its supervisor, without which nothing enforces the fence. */
static void stopped_supervisor_is_named_and_continued(void **state)
{
    (void)state;
    start_head();
    must_succeed(on("a",
                    "cd $TMPDIR/tandem-started-*; pid=$(cat supervisor); kill -STOP $pid; "
                    "for i in $(seq 200); do "
                    "if grep \"supervisor of this node (pid $pid) is stopped\" tandemd.log; "
                    "then read -r _ _ letter _ </proc/$pid/stat; "
                    "test $letter != T && exit; fi; sleep 0.05; done; cat tandemd.log; exit 1"));
}

/* A store that does not answer is killed and started again, and the log names its process. */
static void stopped_store_is_named_and_replaced(void **state)
{
    (void)state;
    start_head();
    must_succeed(
        on("a", "cd $TMPDIR/tandem-started-*; "
                "pid=$(pgrep -P $(pgrep -P $(cat supervisor)) tandem-store); "
                "kill -STOP $pid; for i in $(seq 400); do "
                "grep \"(pid $pid) has not replied for 5\" tandemd.log && tandem status && exit; "
                "sleep 0.05; done; cat tandemd.log; exit 1"));
    expect_said("nodes   1");
}

static void long_lived_processes_have_names_of_tandem(void **state)
{
    (void)state;
    start_head();
    must_succeed(on("a",
                    "for p in $(pgrep -f '%s/a/[t]andem') $(pgrep -f '[t]andem-store'); "
                    "do cat /proc/$p/comm; done | sort -u",
                    parent));
    expect_said("tandem-store\ntandem-super\ntandemd\n");
    assert_int_equal(on("a",
                        "tandem status >/dev/null; echo '%s' | grep -E "
                        "'ray|python|sglang|slime|redis'",
                        said),
                     1);
}

static void block_waits_for_the_end(void **state)
{
    (void)state;
    must_succeed(on("a",
                    "tandem start --head --node-ip-address 127.0.0.1 --port %u --block "
                    ">%s/blocked & blocked=$!; until tandem status >/dev/null 2>&1; do "
                    "kill -0 $blocked || exit 9; sleep 0.05; done; tandem stop && wait $blocked",
                    port, parent));
    must_succeed(
        on("a",
           "tandem start --head --node-ip-address 127.0.0.1 --port %u --block "
           ">%s/blocked & blocked=$!; until tandem status >/dev/null 2>&1; do "
           "kill -0 $blocked || exit 9; sleep 0.05; done; kill -TERM $blocked && wait $blocked",
           port, parent));
    assert_int_equal(on("a", "tandem status"), 1);
}

#define NODE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(node_is_started_shown_and_stopped),
        NODE_TEST(second_node_joins_through_the_first),
        NODE_TEST(wrong_token_and_wrong_address_are_refused),
        NODE_TEST(member_waits_for_the_head),
        NODE_TEST(port_in_use_is_named),
        NODE_TEST(wrong_options_are_refused),
        NODE_TEST(passwords_do_not_show_on_command_lines),
        NODE_TEST(url_of_redis_comes_from_a_file_or_the_environment),
        NODE_TEST(daemon_refuses_to_join_nodes_it_could_not_work_with),
        NODE_TEST(of_two_daemons_that_start_at_once_one_refuses),
        NODE_TEST(killed_daemon_takes_all_of_its_node_along),
        NODE_TEST(node_stops_whatever_part_was_killed_or_stopped),
        NODE_TEST(stopped_supervisor_is_named_and_continued),
        NODE_TEST(stopped_store_is_named_and_replaced),
        NODE_TEST(long_lived_processes_have_names_of_tandem),
        NODE_TEST(block_waits_for_the_end),
    };
    static const char *const inherited[] = {"TANDEM_ADDRESS", "TANDEM_TOKEN_FILE", "TANDEM_REDIS",
                                            "TANDEM_GPUS", "TANDEM_DEVICE"};

    for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++) {
        (void)unsetenv(inherited[i]);
    }
    return cmocka_run_group_tests(tests, NULL, remove_all);
}
