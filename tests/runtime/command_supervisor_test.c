/* command_supervisor_test.c - tests that a supervisor ends the whole process tree of its command.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/file.h"
#include "runtime/process/command_supervisor.h"
#include "runtime/process/spawn.h"

#include <errno.h>
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
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 20000, LONG_GRACE_MS = 60000, SHORT_GRACE_MS = 200 };

/* Path of the file into which commands of the test write process ids. */
static char pids_path[] = "/tmp/supervisor_test.XXXXXX";

/* Starts a supervisor of `sh -c script`. */
static pid_t supervisor_start(const char *script, int64_t grace_ms)
{
    char *argv[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
                    (char *)(uintptr_t)script, pids_path, NULL};
    char grace[24];
    char *words[] = {(char *)(uintptr_t) "tandemd",
                     (char *)(uintptr_t)TDM__SUPERVISE_COMMAND_WORD,
                     grace,
                     argv[0],
                     argv[1],
                     argv[2],
                     argv[3],
                     NULL};
    pid_t pid;

    (void)snprintf(grace, sizeof(grace), "%lld", (long long)grace_ms);
    pid = fork();
    if (pid == 0) {
        tdm__command_supervisor_run_if_one(7, words);
        _exit(99); /* The function has returned. */
    }
    assert_true(pid > 0);
    return pid;
}

/* Waits for the end of a supervisor and returns its wait status. */
static int supervisor_end(pid_t pid)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    int status;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
        (void)poll(NULL, 0, 5);
    }
    return status;
}

/* Waits until the file of process ids has `count` lines, and reads the last process id. */
static pid_t wait_pids(int count)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    for (;;) {
        char text[1024];
        const char *line = text;
        int lines = 0;

        (void)tdm__file_read_text(pids_path, text, sizeof(text));
        for (char *end = strchr(text, '\n'); end != NULL; end = strchr(end + 1, '\n')) {
            if (++lines == count) {
                return (pid_t)strtol(line, NULL, 10);
            }
            line = end + 1;
        }
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
        (void)poll(NULL, 0, 5);
    }
}

static int set_up(void **state)
{
    int fd;

    (void)state;
    (void)snprintf(pids_path, sizeof(pids_path), "/tmp/supervisor_test.XXXXXX");
    fd = mkstemp(pids_path);
    return fd < 0 || close(fd) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(pids_path);
}

static void test_exit_code_is_that_of_the_command(void **state)
{
    int status;

    (void)state;
    status = supervisor_end(supervisor_start("exit 0", LONG_GRACE_MS));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = supervisor_end(supervisor_start("exit 3", LONG_GRACE_MS));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    status = supervisor_end(supervisor_start("kill -9 $$", LONG_GRACE_MS));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_command_that_cannot_start_ends_the_supervisor(void **state)
{
    char *words[] = {(char *)(uintptr_t) "tandemd", (char *)(uintptr_t)TDM__SUPERVISE_COMMAND_WORD,
                     (char *)(uintptr_t) "1", (char *)(uintptr_t) "/no/such/program", NULL};
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        tdm__command_supervisor_run_if_one(4, words);
        _exit(99);
    }
    status = supervisor_end(pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 127);
    /* Another first word has no effect. */
    words[1] = (char *)(uintptr_t) "--listen";
    tdm__command_supervisor_run_if_one(4, words);
}

static void test_process_in_its_own_session_ends_with_the_command(void **state)
{
    pid_t pid = supervisor_start("setsid sh -c 'echo $$ >>$0; exec sleep 1000' $0 & "
                                 "until test -s $0; do sleep 0.01; done; exit 5",
                                 LONG_GRACE_MS);
    int status = supervisor_end(pid);

    (void)state;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    assert_true(kill(wait_pids(1), 0) < 0 && errno == ESRCH);
}

static void test_stop_sends_sigterm_and_waits_for_the_command(void **state)
{
    pid_t pid = supervisor_start("trap 'echo bye >>$0; exit 7' TERM; echo $$ >>$0; "
                                 "while :; do sleep 0.01; done",
                                 LONG_GRACE_MS);
    int status;

    (void)state;
    (void)wait_pids(1);
    assert_int_equal(kill(pid, SIGTERM), 0);
    status = supervisor_end(pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    (void)wait_pids(2);
}

static void test_command_that_ignores_sigterm_is_killed_after_the_grace_time(void **state)
{
    pid_t pid = supervisor_start("trap '' TERM; sleep 1000 & setsid sleep 1000 & echo $! >>$0; "
                                 "while :; do sleep 0.01; done",
                                 SHORT_GRACE_MS);
    pid_t stray = wait_pids(1);
    int status;

    (void)state;
    assert_int_equal(kill(pid, SIGTERM), 0);
    status = supervisor_end(pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(kill(stray, 0) < 0 && errno == ESRCH);
}

/* The command ends at once by SIGTERM. Another process of its group gets the time to clean up. */
static void test_stop_waits_for_the_whole_process_group(void **state)
{
    pid_t pid =
        supervisor_start("sh -c 'trap \"sleep 0.2; echo bye >>$0; exit 0\" TERM; echo $$ >>$0; "
                         "while :; do sleep 0.01; done' $0 & wait",
                         LONG_GRACE_MS);
    int status;

    (void)state;
    (void)wait_pids(1);
    assert_int_equal(kill(pid, SIGTERM), 0);
    status = supervisor_end(pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    (void)wait_pids(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exit_code_is_that_of_the_command, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_command_that_cannot_start_ends_the_supervisor, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_process_in_its_own_session_ends_with_the_command,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_sends_sigterm_and_waits_for_the_command, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_command_that_ignores_sigterm_is_killed_after_the_grace_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_waits_for_the_whole_process_group, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
