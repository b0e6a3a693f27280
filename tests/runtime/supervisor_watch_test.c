/* supervisor_watch_test.c - a supervisor that is stopped is continued. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/supervisor_watch.h"

#include "runtime/clock.h"
#include "runtime/log.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG_MS = 20000 };

static bool has_continued(void *arg)
{
    const pid_t *process = arg;
    int status;

    return waitpid(*process, &status, WCONTINUED | WNOHANG) == *process && WIFCONTINUED(status);
}

/* The log names the process, and what was done about it. */
static void expect_log(int log, pid_t process)
{
    char expected[64];
    char text[1024];
    ssize_t got = pread(log, text, sizeof(text) - 1, 0);

    assert_true(got > 0);
    text[got] = '\0';
    (void)snprintf(expected, sizeof(expected), "the supervisor of this node (pid %d) is stopped",
                   (int)process);
    assert_non_null(strstr(text, expected));
    assert_non_null(strstr(text, "continued by SIGCONT"));
}

static void stopped_supervisor_is_continued_and_named(void **state)
{
    struct tdm__supervisor_watch *watch;
    struct tdm__loop *loop;
    int log = memfd_create("log", MFD_CLOEXEC);
    pid_t process = fork();
    int status;

    (void)state;
    if (process == 0) {
        for (;;) {
            (void)poll(NULL, 0, -1);
        }
    }
    assert_true(process > 0);
    assert_true(log >= 0);
    tdm__log_add_output(log);
    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    assert_int_equal(tdm__supervisor_watch_create(loop, process, &watch), TDM_OK);
    assert_int_equal(kill(process, SIGSTOP), 0);
    assert_int_equal(waitpid(process, &status, WUNTRACED), process);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(tdm__loop_run(loop, has_continued, &process, tdm__deadline_after(LONG_MS)),
                     TDM_OK);
    tdm__log_add_output(-1);
    expect_log(log, process);
    (void)close(log);
    tdm__supervisor_watch_destroy(watch);
    tdm__loop_destroy(loop);
    (void)kill(process, SIGKILL);
    (void)waitpid(process, &status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_supervisor_is_continued_and_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
