/* spawn_test.c - programs get exactly what the options say, or the error says why not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/spawn.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void wait_for_end(struct tdm__process *process, int *wait_status)
{
    struct pollfd ended = {.fd = process->pidfd, .events = POLLIN};

    assert_int_equal(poll(&ended, 1, 10000), 1);
    assert_true(tdm__process_reap(process, wait_status));
    tdm__process_forget(process);
}

/* Runs a shell line with `fds`, and returns its wait status. */
static int run_shell(const char *line, const int *fds, uint32_t fds_count, int output_fd)
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)line, NULL};
    char *const environment[] = {(char *)"GREETING=hello", NULL};
    struct tdm__spawn_options options = {.program = "/bin/sh",
                                         .argv = argv,
                                         .environment = environment,
                                         .working_directory = "/",
                                         .fds_count = fds_count,
                                         .output_fd = output_fd,
                                         .dies_with_parent = true};
    struct tdm__process process;
    int wait_status = 0;

    for (uint32_t i = 0; i < fds_count; i++) {
        options.fds[i] = fds[i];
    }
    assert_int_equal(tdm__spawn(&options, &process), TDM_OK);
    wait_for_end(&process, &wait_status);
    return wait_status;
}

static void child_gets_environment_directory_and_output(void **state)
{
    char text[64] = "";
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(run_shell("echo $GREETING $PWD; exit 3", NULL, 0, ends[1]), 3 << 8);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "hello /\n");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void descriptors_arrive_in_order_and_no_others(void **state)
{
    char text[64] = "";
    int ends[2];
    int fds[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    fds[0] = ends[1]; /* They become 3 and 4 in the child, whatever their numbers are here. */
    fds[1] = ends[1];
    assert_int_equal(
        run_shell("echo three >&3; echo four >&4; test ! -e /proc/self/fd/5", fds, 2, -1), 0);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "three\nfour\n");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Limits the process to `spare` descriptors more than are open. */
static void limit_fds(rlim_t spare, struct rlimit *before)
{
    int next = dup(STDIN_FILENO);
    struct rlimit limit;

    assert_true(next >= 0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    limit = (struct rlimit){(rlim_t)next + spare, before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void low_limit_of_descriptors_is_enough_or_reported(void **state)
{
    char *const argv[] = {(char *)"true", NULL};
    const struct tdm__spawn_options options = {
        .program = "/bin/true", .argv = argv, .output_fd = -1, .dies_with_parent = true};
    struct tdm__process process;
    struct rlimit before;
    int wait_status;

    (void)state;
    limit_fds(20, &before);
    assert_int_equal(run_shell("exit 4", (const int[]){STDIN_FILENO}, 1, -1), 4 << 8);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    limit_fds(3, &before);
    if (tdm__spawn(&options, &process) == TDM_OK) { /* Many descriptors are open already. */
        wait_for_end(&process, &wait_status);
    } else {
        assert_non_null(strstr(tdm_error_detail(), "/bin/true"));
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void missing_program_is_named(void **state)
{
    char *const argv[] = {(char *)"nothing", NULL};
    struct tdm__spawn_options options = {
        .program = "/no/such/program", .argv = argv, .output_fd = -1};
    struct tdm__process process;

    (void)state;
    assert_int_equal(tdm__spawn(&options, &process), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "/no/such/program"));
    options.program = "/bin/sh";
    options.working_directory = "/no/such/directory";
    assert_int_equal(tdm__spawn(&options, &process), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "/no/such/directory"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* No child is left. */
}

static void signal_ends_the_child_and_is_reported(void **state)
{
    struct tdm__spawn_options options = {.program = "/bin/sleep", .output_fd = -1};
    char *const sleep_argv[] = {(char *)"sleep", (char *)"60", NULL};
    struct tdm__process process;
    int wait_status = 0;
    char text[64];

    (void)state;
    options.argv = sleep_argv;
    assert_int_equal(tdm__spawn(&options, &process), TDM_OK);
    assert_false(tdm__process_reap(&process, &wait_status));
    tdm__process_signal(&process, SIGKILL);
    wait_for_end(&process, &wait_status);
    assert_string_equal(tdm__wait_status_text(wait_status, text, sizeof(text)),
                        "signal 9 (killed)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_gets_environment_directory_and_output),
        cmocka_unit_test(descriptors_arrive_in_order_and_no_others),
        cmocka_unit_test(low_limit_of_descriptors_is_enough_or_reported),
        cmocka_unit_test(missing_program_is_named),
        cmocka_unit_test(signal_ends_the_child_and_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
