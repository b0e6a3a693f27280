/* launch_test.c - `tandem launch` starts nodes for one command, and leaves nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/directory.h"
#include "tests/support/shell_run.h"
#include "tests/support/tcp_sockets.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tdl-XXXXXX"; /* TMPDIR of all nodes of the test. */

/* Runs a shell command with `launch` as the program under test. Returns its exit code. */
static int run_shell(const char *command)
{
    char line[2048];

    (void)snprintf(line, sizeof(line),
                   "export TMPDIR=%s TANDEM_TOKEN_FILE=%s/token TANDEM_LAUNCH_HEAD=127.0.0.1:%u "
                   "PATH=%s:$PATH; %s",
                   directory, directory, tcp_sockets_free_port(), TDM_TEST_BUILD_DIR, command);
    return shell_run(NULL, line);
}

/* Fails if the directory of the test has anything but the token. */
static void expect_nothing_left(void)
{
    DIR *entries = opendir(directory);
    const struct dirent *entry;

    assert_non_null(entries);
    while ((entry = readdir(entries)) != NULL) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "token") != 0) {
            fail_msg("%s/%s is left. %s", directory, entry->d_name, said);
        }
    }
    (void)closedir(entries);
}

static int set_up(void **state)
{
    char command[256];

    (void)state;
    assert_non_null(mkdtemp(directory));
    (void)snprintf(command, sizeof(command), "umask 077; head -c 32 /dev/urandom > %s/token",
                   directory);
    return run_shell(command);
}

static int tear_down(void **state)
{
    (void)state;
    tdm__directory_remove(directory);
    return 0;
}

static void command_runs_when_all_nodes_have_joined(void **state)
{
    int code;

    (void)state;
    code = run_shell("export TANDEM_LAUNCH_NODES=2; "
                     "TANDEM_LAUNCH_RANK=1 tandem launch --num-cpus 3 -- true & "
                     "TANDEM_LAUNCH_RANK=0 tandem launch --num-cpus 2 -- tandem status; "
                     "first=$?; wait $!; echo codes $first $?");
    assert_int_equal(code, 0);
    expect_said("codes 0 0");
    expect_said("nodes   2");
    expect_nothing_left();
}

static void exit_code_is_that_of_the_command(void **state)
{
    (void)state;
    assert_int_equal(run_shell("export TANDEM_LAUNCH_NODES=1 TANDEM_LAUNCH_RANK=0; "
                               "tandem launch -- sh -c 'exit 7'"),
                     7);
    expect_nothing_left();
    assert_int_equal(run_shell("export TANDEM_LAUNCH_NODES=1 TANDEM_LAUNCH_RANK=0; "
                               "tandem launch -- sh -c 'kill -KILL $$'"),
                     128 + 9);
    expect_nothing_left();
}

static void wrong_command_line_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run_shell("tandem launch"), 2);
    expect_said("--");
    assert_int_equal(run_shell("tandem launch --num-cpus 2 --"), 2);
    assert_int_equal(run_shell("tandem launch -- true"), 1);
    expect_said("TANDEM_LAUNCH_NODES is not set");
    assert_int_equal(run_shell("TANDEM_LAUNCH_NODES=1 TANDEM_LAUNCH_RANK=0 tandem launch "
                               "--no-such-option -- true"),
                     1);
    expect_said("--no-such-option");
    assert_int_equal(run_shell("tandem launch $(yes x | head -n 113) -- true"), 2);
    expect_said("at most 112 words");
    expect_nothing_left();
}

static void missing_token_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run_shell("export TANDEM_LAUNCH_NODES=2 TANDEM_LAUNCH_RANK=0; "
                               "unset TANDEM_TOKEN_FILE; tandem launch -- true"),
                     1);
    expect_said("TANDEM_TOKEN_FILE is not set");
    assert_int_equal(run_shell("export TANDEM_LAUNCH_NODES=2 TANDEM_LAUNCH_RANK=0; "
                               "TANDEM_TOKEN_FILE=/nowhere tandem launch -- true"),
                     1);
    expect_said("cannot be read: /nowhere");
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_runs_when_all_nodes_have_joined),
        cmocka_unit_test(exit_code_is_that_of_the_command),
        cmocka_unit_test(wrong_command_line_is_refused),
        cmocka_unit_test(missing_token_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
