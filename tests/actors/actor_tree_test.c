/* actor_tree_test.c - however an actor ends, the processes that it has started end with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

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
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* ---- looking at processes --------------------------------------------------------------- */

/* Returns 1 if a process has the PID, also if it is a zombie. */
static int exists(int64_t pid)
{
    return kill((pid_t)pid, 0) == 0 || errno != ESRCH;
}

/* Returns the parent of a process. */
static int64_t parent_of(int64_t pid)
{
    char line[256] = "";
    const char *after_name;
    FILE *file;

    (void)snprintf(line, sizeof(line), "/proc/%lld/stat", (long long)pid);
    file = fopen(line, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    (void)fclose(file);
    after_name = strrchr(line, ')');
    assert_non_null(after_name);
    return strtoll(after_name + 4, NULL, 10);
}

/* Waits until the parent of a process is `parent`. */
static void await_parent(int64_t pid, int64_t parent)
{
    for (int i = 0; i < TEST_TIMEOUT_MS && parent_of(pid) != parent; i++) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(parent_of(pid), parent);
}

/* Returns the PSS of a process in KiB. */
static long pss_kib(int64_t pid)
{
    char path[64];
    char line[128];
    long kib = -1;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%lld/smaps_rollup", (long long)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Pss:", 4) == 0) {
            kib = strtol(line + 4, NULL, 10);
        }
    }
    (void)fclose(file);
    return kib;
}

/* ---- an actor with background processes ------------------------------------------------- */

/* An actor and two orphans of it in sessions of their own, one of which has executed a program. */
struct family {
    tdm_actor *actor;
    int64_t pid;
    int64_t reaper;
    int64_t strays[2];
};

static struct family make_family(void)
{
    struct family family = {.actor = actor_fixture_create(runtime, NULL)};

    family.pid = actor_fixture_call_int(family.actor, "pid");
    family.reaper = actor_fixture_call_int(family.actor, "parent");
    for (int with_exec = 0; with_exec < 2; with_exec++) {
        tdm_ref *ref;

        assert_int_equal(tdm_actor_call(family.actor, "stray", &ref, "?", with_exec), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &family.strays[with_exec]), TDM_OK);
        tdm_ref_release(ref);
        await_parent(family.strays[with_exec], family.reaper);
    }
    return family;
}

/* Once the end of the actor is known, no process of it is left. */
static void expect_ended(const struct family *family)
{
    if (actor_fixture_call(family->actor, "hang", NULL) != TDM_E_ACTOR_DIED) {
        fail_msg("%s", tdm_error_detail());
    }
    assert_false(exists(family->pid));
    assert_false(exists(family->strays[0]));
    assert_false(exists(family->strays[1]));
    tdm_actor_destroy(family->actor);
}

static void kill_ends_the_tree(void **state)
{
    (void)state;
    for (int forked = 0; forked < 3; forked++) { /* The first is executed, the others forked. */
        struct family family = make_family();

        assert_int_equal(tdm_actor_kill(family.actor, TEST_TIMEOUT_MS), TDM_OK);
        expect_ended(&family);
    }
}

static void crash_ends_the_tree(void **state)
{
    /* A sanitizer would report SIGSEGV as a mistake of the worker. */
    static const int signals[] = {SIGKILL, SIGABRT, SIGTERM};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct family family = make_family();

        assert_int_equal(kill((pid_t)family.pid, signals[i]), 0);
        expect_ended(&family);
    }
}

static void exit_ends_the_tree(void **state)
{
    (void)state;
    for (int code = 0; code < 2; code++) {
        struct family family = make_family();
        tdm_ref *ref;

        assert_int_equal(tdm_actor_call(family.actor, "exit", &ref, "i", (int64_t)code), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "n"), TDM_E_ACTOR_DIED);
        tdm_ref_release(ref);
        expect_ended(&family);
    }
}

static void graceful_end_ends_the_tree(void **state)
{
    struct family family = make_family();

    (void)state;
    tdm_actor_destroy(family.actor);
    assert_true(wait_process_exit(family.pid, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(family.strays[0], TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(family.strays[1], TEST_TIMEOUT_MS));
}

/* The daemon takes the place of the reaper. */
static void killed_reaper_takes_the_tree_with_it(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct family family = make_family();

        assert_int_equal(kill((pid_t)family.reaper, SIGKILL), 0);
        expect_ended(&family);
    }
}

/* A traced process that was killed is not reaped before its tracer, this process, waits for it. */
static void restart_waits_for_a_process_that_does_not_end(void **state)
{
    enum { LONGER_THAN_PATIENCE_MS = 2500 };
    tdm_actor *actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.max_restarts = 1, .max_task_retries = -1});
    struct tdm_actor_info info;
    int64_t stray = 0;
    int64_t pid = 0;
    tdm_ref *ref;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm_actor_call(actor, "stray", &ref, "?", 0), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &stray), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(ptrace(PTRACE_SEIZE, (pid_t)stray, NULL, NULL), 0);
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    assert_int_equal(tdm_actor_call(actor, "pid", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, LONGER_THAN_PATIENCE_MS, "n"), TDM_E_TIMEOUT);
    assert_int_equal(waitpid((pid_t)stray, NULL, __WALL), stray);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid), TDM_OK);
    tdm_ref_release(ref);
    assert_true(pid > 0 && pid != info.pid);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void tree_of_one_actor_only_is_ended(void **state)
{
    struct family first = make_family();
    struct family second = make_family();

    (void)state;
    assert_int_equal(tdm_actor_kill(first.actor, TEST_TIMEOUT_MS), TDM_OK);
    expect_ended(&first);
    assert_true(exists(second.strays[0]) && exists(second.strays[1]));
    assert_int_equal(parent_of(second.strays[0]), second.reaper);
    assert_true(wait_process_exit(first.reaper, TEST_TIMEOUT_MS));
    assert_int_equal(tdm_actor_kill(second.actor, TEST_TIMEOUT_MS), TDM_OK);
    expect_ended(&second);
}

static void reaper_is_small(void **state)
{
    struct family family = make_family();

    (void)state;
    print_message("PSS: worker %ld KiB, reaper %ld KiB\n", pss_kib(family.pid),
                  pss_kib(family.reaper));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_in_range(pss_kib(family.reaper), 1, 1024);
#endif
    assert_int_equal(tdm_actor_kill(family.actor, TEST_TIMEOUT_MS), TDM_OK);
    expect_ended(&family);
}

/* ---- the end of the node ---------------------------------------------------------------- */

static void expect_no_process(const struct family *family)
{
    assert_true(wait_process_exit(family->pid, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(family->reaper, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(family->strays[0], TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(family->strays[1], TEST_TIMEOUT_MS));
}

static void restart_runtime(void)
{
    tdm_runtime_stop(runtime);
    assert_int_equal(tdm_runtime_start(NULL, &runtime), TDM_OK);
}

static void end_of_the_driver_ends_the_trees(void **state)
{
    struct family family = make_family();

    (void)state;
    tdm_actor_destroy(make_family().actor);
    restart_runtime();
    expect_no_process(&family);
    tdm_actor_destroy(family.actor);
}

static void killed_daemon_ends_the_trees(void **state)
{
    struct family families[2];

    (void)state;
    families[0] = make_family(); /* The first reaper of a node is a child of the daemon. */
    families[1] = make_family();
    assert_int_equal(kill((pid_t)parent_of(families[0].reaper), SIGKILL), 0);
    expect_no_process(&families[0]);
    expect_no_process(&families[1]);
    tdm_actor_destroy(families[0].actor);
    tdm_actor_destroy(families[1].actor);
    restart_runtime();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_ends_the_tree),
        cmocka_unit_test(crash_ends_the_tree),
        cmocka_unit_test(exit_ends_the_tree),
        cmocka_unit_test(graceful_end_ends_the_tree),
        cmocka_unit_test(killed_reaper_takes_the_tree_with_it),
        cmocka_unit_test(restart_waits_for_a_process_that_does_not_end),
        cmocka_unit_test(tree_of_one_actor_only_is_ended),
        cmocka_unit_test(reaper_is_small),
        cmocka_unit_test(end_of_the_driver_ends_the_trees),
        cmocka_unit_test(killed_daemon_ends_the_trees),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
