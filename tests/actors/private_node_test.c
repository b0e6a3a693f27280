/* private_node_test.c - the command line of a private node's daemon, and how the daemon ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/private_node.h"

#include "runtime/clock.h"
#include "tests/support/open_files.h"

#include <fcntl.h>
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

enum { WAIT_MS = 20000 };

/* A folder with a script in place of tandemd, and what the script writes. */
static char directory[32];
static char script_path[64];
static char arguments_path[64];
static char result_path[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-test-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    (void)snprintf(script_path, sizeof(script_path), "%s/tandemd", directory);
    (void)snprintf(arguments_path, sizeof(arguments_path), "%s/arguments", directory);
    (void)snprintf(result_path, sizeof(result_path), "%s/result", directory);
    (void)unsetenv("TANDEM_LOG_TO_DRIVER");
    return setenv("TANDEM_DAEMON", script_path, 1);
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(script_path);
    (void)unlink(arguments_path);
    (void)unlink(result_path);
    return rmdir(directory);
}

/* Writes the script, which notes its arguments and then does this. Its descriptor 3 is the socket
 * to the driver. */
static void script_write(const char *commands)
{
    FILE *file = fopen(script_path, "we");

    assert_non_null(file);
    (void)fprintf(file,
                  "#!/bin/sh\n"
                  "cd %s\n"
                  "echo \"$*\" > arguments\n"
                  "%s\n",
                  directory, commands);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(script_path, 0700), 0);
}

/* Reports that the daemon is ready, and ends when the driver closes its sending direction. */
#define READY             "printf \"ready $$ unix:/a/b\" >&3\n"
#define UNTIL_END_OF_FILE "cat <&3 >/dev/null\n"

static struct tdm__private_node *start(const struct tdm_runtime_options *options)
{
    struct tdm__private_node *node = NULL;

    assert_int_equal(tdm__private_node_start(options, WAIT_MS, &node), TDM_OK);
    assert_non_null(node);
    return node;
}

/* Returns the text of a file that the script wrote, without its last newline. Returns "" if the
 * file is not there. */
static const char *contents(const char *path)
{
    static char text[1024];
    FILE *file = fopen(path, "re");
    size_t got = 0;

    if (file != NULL) {
        got = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* ---- the command line ------------------------------------------------------------------- */

static void expect_arguments(const struct tdm_runtime_options *options, const char *expected)
{
    struct tdm__private_node *node;

    script_write(READY UNTIL_END_OF_FILE);
    node = start(options);
    assert_string_equal(contents(arguments_path), expected);
    assert_string_equal(tdm__private_node_address(node), "unix:/a/b");
    tdm__private_node_stop(node, WAIT_MS);
}

static void options_become_arguments_of_the_daemon(void **state)
{
    const struct tdm_runtime_options options = {.cpus = 3,
                                                .gpus = 2,
                                                .gpu_bytes = UINT64_C(5) << 40,
                                                .object_store_bytes = UINT64_MAX,
                                                .device = "cuda",
                                                .directory = "/some/where",
                                                .log_to_driver = 1};

    (void)state;
    expect_arguments(&options, "--private --cpus 3 --gpus 2 --gpu-bytes 5497558138880 "
                               "--object-store-bytes 18446744073709551615 --device cuda "
                               "--directory /some/where --print-logs");
}

static void options_that_are_not_set_are_left_to_the_daemon(void **state)
{
    const struct tdm_runtime_options options = {.log_to_driver = -1};

    (void)state;
    expect_arguments(&options, "--private");
}

static void option_takes_precedence_over_the_variable_for_logs(void **state)
{
    struct tdm_runtime_options options = {.cpus = 0};

    (void)state;
    expect_arguments(&options, "--private --print-logs"); /* Logs are printed by default. */
    (void)setenv("TANDEM_LOG_TO_DRIVER", "0", 1);
    expect_arguments(&options, "--private");
    options.log_to_driver = 1;
    expect_arguments(&options, "--private --print-logs");
    (void)setenv("TANDEM_LOG_TO_DRIVER", "1", 1);
    options.log_to_driver = 0;
    expect_arguments(&options, "--private --print-logs");
    options.log_to_driver = -1;
    expect_arguments(&options, "--private");
}

/* ---- a daemon that does not start -------------------------------------------------------- */

static void daemon_that_does_not_start_leaves_nothing_behind(void **state)
{
    const struct tdm_runtime_options options = {.cpus = 1};
    uint32_t open_files = open_files_count("");
    struct tdm__private_node *node = NULL;

    (void)state;
    script_write("printf 'failed no port' >&3\n" UNTIL_END_OF_FILE);
    assert_int_equal(tdm__private_node_start(&options, WAIT_MS, &node), TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "no port"));
    script_write(UNTIL_END_OF_FILE);
    assert_int_equal(tdm__private_node_start(&options, 50, &node), TDM_E_TIMEOUT);
    assert_null(node);
    assert_int_equal(open_files_count(""), open_files);
}

/* ---- the end ---------------------------------------------------------------------------- */

static void stopped_daemon_ends_gracefully(void **state)
{
    const struct tdm_runtime_options options = {.cpus = 1};
    uint32_t open_files = open_files_count("");
    struct tdm__private_node *node;

    (void)state;
    script_write(READY UNTIL_END_OF_FILE "echo graceful > result");
    node = start(&options);
    tdm__private_node_stop(node, WAIT_MS);
    assert_string_equal(contents(result_path), "graceful");
    assert_int_equal(open_files_count(""), open_files);
}

/* The text says how a daemon ended only once it has. The supervisor, in whose place the script is,
 * exits with 128 + the signal of its daemon. */
static void expect_end(const char *commands, const char *expected)
{
    const struct tdm_runtime_options options = {.cpus = 1};
    struct tdm__private_node *node;
    char text[256];

    script_write(commands);
    node = start(&options);
    tdm__private_node_exit_text(node, text, sizeof(text));
    if (strstr(text, expected) == NULL || (expected[0] == '\0' && text[0] != '\0')) {
        fail_msg("\"%s\" does not contain \"%s\"", text, expected);
    }
    tdm__private_node_stop(node, 0);
}

static void end_of_the_daemon_is_described(void **state)
{
    (void)state;
    expect_end("printf 'ready 4711 unix:/a/b' >&3; exit 3",
               "the daemon (pid 4711) ended by exit code 3");
    expect_end("printf 'ready 4711 unix:/a/b' >&3; exit 0",
               "the daemon (pid 4711) ended by exit code 0");
    expect_end("printf 'ready 4711 unix:/a/b' >&3; exit 137",
               "the daemon (pid 4711) ended by signal 9");
    expect_end(READY "kill -9 $$", "its supervisor (pid ");
    expect_end(READY "kill -9 $$", "ended by signal 9");
    expect_end(READY UNTIL_END_OF_FILE, ""); /* It has not ended. */
}

/* The real supervisor kills what is left when the driver closes the socket. Here nothing does, so
 * that the process itself is killed after its time to end. */
static void supervisor_that_ignores_the_closed_socket_is_killed(void **state)
{
    const struct tdm_runtime_options options = {.cpus = 1};
    struct tdm__private_node *node;
    int64_t begin_ms = tdm__clock_ms();
    long pid;

    (void)state;
    script_write("echo $$ > result\n" READY "exec sleep 100 3<&-");
    node = start(&options);
    pid = strtol(contents(result_path), NULL, 10);
    assert_true(pid > 0);
    assert_int_equal(kill((pid_t)pid, 0), 0);
    tdm__private_node_stop(node, 100);
    assert_int_equal(kill((pid_t)pid, 0), -1); /* It was killed and reaped. */
    assert_in_range(tdm__clock_ms() - begin_ms, 5000, WAIT_MS + 10000);
}

static void killed_daemon_ends_at_once(void **state)
{
    const struct tdm_runtime_options options = {.cpus = 1};
    struct tdm__private_node *node;
    char text[256];

    (void)state;
    script_write(READY "exec sleep 100 3<&-");
    node = start(&options);
    tdm__private_node_kill(node);
    tdm__private_node_exit_text(node, text, sizeof(text));
    assert_non_null(strstr(text, "signal 9"));
    tdm__private_node_kill(node); /* A daemon that has ended is not killed again. */
    tdm__private_node_stop(node, WAIT_MS);
}

#define NODE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(options_become_arguments_of_the_daemon),
        NODE_TEST(options_that_are_not_set_are_left_to_the_daemon),
        NODE_TEST(option_takes_precedence_over_the_variable_for_logs),
        NODE_TEST(daemon_that_does_not_start_leaves_nothing_behind),
        NODE_TEST(stopped_daemon_ends_gracefully),
        NODE_TEST(end_of_the_daemon_is_described),
        NODE_TEST(supervisor_that_ignores_the_closed_socket_is_killed),
        NODE_TEST(killed_daemon_ends_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
