/* failpoint_test.c - a process breaks at the selected failpoint, only there and only once. */
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
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/failpoint-test-XXXXXX";
static char file[64];

/* Hits two failpoints three times each in a child process.  Returns its wait status. */
static int hit_failpoints_in_child(const char *process, const char *rule)
{
    pid_t pid = fork();
    int status = -1;

    assert_true(pid >= 0);
    if (pid == 0) {
        if (rule != NULL) {
            (void)setenv("TANDEM_FAILPOINT", rule, 1);
        }
        if (process != NULL) {
            tdm__failpoint_set_process(process);
        }
        for (int i = 0; i < 3; i++) {
            tdm__failpoint_hit("other.failpoint");
            tdm__failpoint_hit("this.failpoint");
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

static const char *rule_text(const char *process, const char *failpoint, int count,
                             const char *action)
{
    static char text[256];

    (void)unlink(file);
    (void)snprintf(text, sizeof(text), "%s %s %d %s %s", process, failpoint, count, action, file);
    return text;
}

static void expect_not_broken(int status)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* Checks what the broken process has written to the file. */
static void expect_report(const char *process, int64_t after_ns)
{
    FILE *report = fopen(file, "re");
    long long when_ns = 0;
    char name[16];
    int pid = 0;

    assert_non_null(report);
    assert_int_equal(fscanf(report, "%15s %d %lld", name, &pid, &when_ns), 3);
    (void)fclose(report);
    assert_string_equal(name, process);
    assert_true(pid > 0);
    assert_in_range(when_ns, after_ns, tdm__clock_ns());
}

static void process_breaks_at_its_failpoint(void **state)
{
    int64_t begin_ns = tdm__clock_ns();
    int status = hit_failpoints_in_child("me", rule_text("me", "this.failpoint", 3, "kill"));

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    expect_report("me", begin_ns);
    status = hit_failpoints_in_child(NULL, rule_text("driver", "this.failpoint", 1, "stop"));
    assert_true(WIFSTOPPED(status));
}

static void other_processes_do_not_break(void **state)
{
    (void)state;
    expect_not_broken(hit_failpoints_in_child("you", rule_text("me", "this.failpoint", 1, "kill")));
    expect_not_broken(hit_failpoints_in_child("me", rule_text("me", "no.failpoint", 1, "kill")));
    expect_not_broken(hit_failpoints_in_child("me", rule_text("me", "this.failpoint", 4, "kill")));
    expect_not_broken(hit_failpoints_in_child("me", NULL));
    assert_int_not_equal(access(file, F_OK), 0);
}

static void no_process_breaks_twice(void **state)
{
    const char *rule = rule_text("me", "this.failpoint", 1, "kill");

    (void)state;
    assert_true(WIFSIGNALED(hit_failpoints_in_child("me", rule)));
    expect_not_broken(hit_failpoints_in_child("me", rule));
}

static void two_failpoints_break_two_processes(void **state)
{
    char second[512];
    int length = snprintf(second, sizeof(second), "you other.failpoint 1 stop %s.1;", file);

    (void)state;
    (void)snprintf(second + length, sizeof(second) - (size_t)length, "%s",
                   rule_text("me", "this.failpoint", 2, "kill"));
    assert_true(WIFSTOPPED(hit_failpoints_in_child("you", second)));
    assert_true(WIFSIGNALED(hit_failpoints_in_child("me", second)));
    expect_not_broken(hit_failpoints_in_child("them", second));
    (void)snprintf(second, sizeof(second), "%s.1", file);
    assert_int_equal(unlink(second), 0);
}

static void noted_hit_only_creates_the_file(void **state)
{
    int64_t begin_ns = tdm__clock_ns();

    (void)state;
    expect_not_broken(hit_failpoints_in_child("me", rule_text("me", "this.failpoint", 4, "note")));
    assert_int_not_equal(access(file, F_OK), 0);
    expect_not_broken(hit_failpoints_in_child("me", rule_text("me", "this.failpoint", 3, "note")));
    expect_report("me", begin_ns);
}

/* Four rules are read; the last one stops the process. */
static void four_failpoints_may_be_chosen(void **state)
{
    char rules[1024];
    int length = 0;

    (void)state;
    (void)rule_text("me", "", 1, "note");
    for (int i = 1; i <= 4; i++) {
        length += snprintf(rules + length, sizeof(rules) - (size_t)length,
                           "me this.failpoint %d %s %s.%d%s", i < 4 ? i : 3,
                           i < 4 ? "note" : "stop", file, i, i < 4 ? ";" : "");
    }
    assert_true(WIFSTOPPED(hit_failpoints_in_child("me", rules)));
    for (int i = 1; i <= 4; i++) {
        char path[80];

        (void)snprintf(path, sizeof(path), "%s.%d", file, i);
        assert_int_equal(unlink(path), 0);
    }
}

static void step_is_skipped_from_the_chosen_hit_on(void **state)
{
    pid_t pid;
    int status = -1;

    (void)state;
    expect_not_broken(hit_failpoints_in_child("me", rule_text("me", "this.failpoint", 1, "skip")));
    assert_int_not_equal(access(file, F_OK), 0);
    pid = fork();
    if (pid == 0) {
        (void)setenv("TANDEM_FAILPOINT", rule_text("me", "this.step", 2, "skip"), 1);
        tdm__failpoint_set_process("me");
        status = tdm__failpoint_skips("other.step") || tdm__failpoint_skips("this.step") ||
                 !tdm__failpoint_skips("this.step") || !tdm__failpoint_skips("this.step");
        tdm__failpoint_set_process("you");
        _exit(status || tdm__failpoint_skips("this.step"));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void byte_is_changed_at_the_chosen_hit(void **state)
{
    pid_t pid;
    int status = -1;

    (void)state;
    expect_not_broken(
        hit_failpoints_in_child("me", rule_text("me", "this.failpoint", 1, "change")));
    assert_int_not_equal(access(file, F_OK), 0);
    pid = fork();
    if (pid == 0) {
        char sent[] = "abc";
        const struct tdm_bytes bytes = {sent, 3};

        (void)setenv("TANDEM_FAILPOINT", rule_text("me", "this.bytes", 2, "change"), 1);
        tdm__failpoint_set_process("me");
        tdm__failpoint_change("other.bytes", bytes);
        tdm__failpoint_change("this.bytes", bytes);
        status = strcmp(sent, "abc") != 0;
        tdm__failpoint_change("this.bytes", bytes);
        status = status || strcmp(sent, "acc") != 0;
        tdm__failpoint_change("this.bytes", bytes); /* Only that hit changes a byte. */
        _exit(status || strcmp(sent, "acc") != 0 || access(file, F_OK) != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(unlink(file), 0);
}

static void malformed_failpoint_is_ignored(void **state)
{
    (void)state;
    expect_not_broken(hit_failpoints_in_child("me", "me this.failpoint"));
    expect_not_broken(hit_failpoints_in_child("me", "me this.failpoint 1 explode /tmp/x"));
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
        cmocka_unit_test(process_breaks_at_its_failpoint),
        cmocka_unit_test(other_processes_do_not_break),
        cmocka_unit_test(no_process_breaks_twice),
        cmocka_unit_test(two_failpoints_break_two_processes),
        cmocka_unit_test(noted_hit_only_creates_the_file),
        cmocka_unit_test(four_failpoints_may_be_chosen),
        cmocka_unit_test(step_is_skipped_from_the_chosen_hit_on),
        cmocka_unit_test(byte_is_changed_at_the_chosen_hit),
        cmocka_unit_test(malformed_failpoint_is_ignored),
    };

    return cmocka_run_group_tests(tests, make, clean);
}
