/* failpoint_test.c - a process breaks at the step it was told, there only, and once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/failpoint.h"

#include "runtime/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/step-test-XXXXXX";
static char file[64];

/* In a process of its own: passes the step three times; its status as waitpid() tells it. */
static int run(const char *process, const char *plan)
{
    pid_t pid = fork();
    int status = -1;

    assert_true(pid >= 0);
    if (pid == 0) {
        if (plan != NULL) {
            (void)setenv("TANDEM_FAILPOINT", plan, 1);
        }
        if (process != NULL) {
            tdm__failpoint_set_process(process);
        }
        for (int i = 0; i < 3; i++) {
            tdm__failpoint_hit("other.step");
            tdm__failpoint_hit("this.step");
        }
        _exit(7);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status)) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    return status;
}

static const char *plan_of(const char *process, const char *step, int count, const char *action)
{
    static char text[256];

    (void)unlink(file);
    (void)snprintf(text, sizeof(text), "%s %s %d %s %s", process, step, count, action, file);
    return text;
}

static void expect_kept_going(int status)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* What the file says of who broke. */
static void expect_told(const char *process, int64_t after_ns)
{
    FILE *told = fopen(file, "re");
    long long when_ns = 0;
    char name[16];
    int pid = 0;

    assert_non_null(told);
    assert_int_equal(fscanf(told, "%15s %d %lld", name, &pid, &when_ns), 3);
    (void)fclose(told);
    assert_string_equal(name, process);
    assert_true(pid > 0);
    assert_in_range(when_ns, after_ns, tdm__clock_ns());
}

static void it_breaks_where_it_was_told(void **state)
{
    int64_t begin_ns = tdm__clock_ns();
    int status = run("me", plan_of("me", "this.step", 3, "kill"));

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    expect_told("me", begin_ns);
    status = run(NULL, plan_of("driver", "this.step", 1, "stop"));
    assert_true(WIFSTOPPED(status));
}

static void nobody_else_breaks(void **state)
{
    (void)state;
    expect_kept_going(run("you", plan_of("me", "this.step", 1, "kill")));
    expect_kept_going(run("me", plan_of("me", "no.step", 1, "kill")));
    expect_kept_going(run("me", plan_of("me", "this.step", 4, "kill")));
    expect_kept_going(run("me", NULL));
    assert_int_not_equal(access(file, F_OK), 0);
}

static void nobody_breaks_twice(void **state)
{
    const char *plan = plan_of("me", "this.step", 1, "kill");

    (void)state;
    assert_true(WIFSIGNALED(run("me", plan)));
    expect_kept_going(run("me", plan));
}

static void two_failpoints_break_two_processes(void **state)
{
    char second[512];
    int length = snprintf(second, sizeof(second), "you other.step 1 stop %s.1;", file);

    (void)state;
    (void)snprintf(second + length, sizeof(second) - (size_t)length, "%s",
                   plan_of("me", "this.step", 2, "kill"));
    assert_true(WIFSTOPPED(run("you", second)));
    assert_true(WIFSIGNALED(run("me", second)));
    expect_kept_going(run("them", second));
    (void)snprintf(second, sizeof(second), "%s.1", file);
    assert_int_equal(unlink(second), 0);
}

static void a_malformed_failpoint_is_ignored(void **state)
{
    (void)state;
    expect_kept_going(run("me", "me this.step"));
    expect_kept_going(run("me", "me this.step 1 explode /tmp/x"));
}

static int make(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(file, sizeof(file), "%s/broken", directory);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    (void)unlink(file);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_breaks_where_it_was_told),
        cmocka_unit_test(nobody_else_breaks),
        cmocka_unit_test(nobody_breaks_twice),
        cmocka_unit_test(two_failpoints_break_two_processes),
        cmocka_unit_test(a_malformed_failpoint_is_ignored),
    };

    return cmocka_run_group_tests(tests, make, clean);
}
