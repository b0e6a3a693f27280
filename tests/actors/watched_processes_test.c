/* watched_processes_test.c - an actor fails when a process that it watches ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* ---- the actor -------------------------------------------------------------------------- */

struct keeper {
    pid_t child;
};

/* (exit code; -1 to live until a signal) Starts a child, watches it and replies its pid. */
static tdm_status keeper_start(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    int64_t code;
    pid_t child;

    TDM_TRY(tdm_call_unpack(call, "i", &code));
    child = fork();
    if (child == 0) {
        while (code < 0) {
            (void)poll(NULL, 0, -1);
        }
        _exit((int)code);
    }
    keeper->child = child;
    TDM_TRY(tdm_actor_watch(tdm_runtime_current(), child));
    return tdm_call_reply(call, "i", (int64_t)child);
}

_Noreturn static tdm_status keeper_hang(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    for (;;) {
        (void)poll(NULL, 0, -1);
    }
}

/* Ends the child without failing, and replies the status of a second end of the watch. */
static tdm_status keeper_stop(tdm_call *call, void *self)
{
    const struct keeper *keeper = self;

    TDM_TRY(tdm_actor_unwatch(tdm_runtime_current(), keeper->child));
    (void)kill(keeper->child, SIGKILL);
    (void)waitpid(keeper->child, NULL, 0);
    return tdm_call_reply(call, "ii",
                          (int64_t)tdm_actor_unwatch(tdm_runtime_current(), keeper->child),
                          (int64_t)tdm_actor_watch(tdm_runtime_current(), keeper->child));
}

/* (pid) Replies the status of watching that process. */
static tdm_status keeper_watch(tdm_call *call, void *self)
{
    int64_t pid;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &pid));
    return tdm_call_reply(call, "i", (int64_t)tdm_actor_watch(tdm_runtime_current(), pid));
}

static void keeper_destruct(void *self)
{
    const struct keeper *keeper = self;

    if (keeper->child > 0) {
        (void)kill(keeper->child, SIGKILL);
        (void)waitpid(keeper->child, NULL, 0);
    }
}

TDM_ACTOR_CLASS(keeper, .state_bytes = sizeof(struct keeper), .destruct = keeper_destruct,
                .methods = {{"start", keeper_start},
                            {"hang", keeper_hang},
                            {"stop", keeper_stop},
                            {"watch", keeper_watch}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_actor *make_keeper(int32_t max_restarts)
{
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "keeper",
                                      &(struct tdm_actor_options){.max_restarts = max_restarts},
                                      &actor, ""),
                     TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

static int64_t call_with_int(tdm_actor *actor, const char *method, int64_t argument)
{
    int64_t result = 0;
    tdm_ref *ref;

    assert_int_equal(tdm_actor_call(actor, method, &ref, "i", argument), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &result), TDM_OK);
    tdm_ref_release(ref);
    return result;
}

/* Checks that a call fails because the actor died, and that the text has both parts. */
static void expect_death(tdm_ref *ref, const char *part, const char *other_part)
{
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "n"), TDM_E_ACTOR_DIED);
    if (strstr(tdm_error_detail(), part) == NULL ||
        strstr(tdm_error_detail(), other_part) == NULL) {
        fail_msg("%s", tdm_error_detail());
    }
    tdm_ref_release(ref);
}

static void actor_fails_when_its_child_is_killed(void **state)
{
    tdm_actor *actor = make_keeper(0);
    int64_t child = call_with_int(actor, "start", -1);
    char process[64];
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(kill((pid_t)child, SIGKILL), 0);
    (void)snprintf(process, sizeof(process), "its process %lld (", (long long)child);
    expect_death(ref, process, "signal 9 (killed)");
    tdm_actor_destroy(actor);
}

static void actor_fails_with_the_exit_code_of_its_child(void **state)
{
    tdm_actor *actor = make_keeper(0);
    tdm_ref *start;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "start", &start, "i", (int64_t)3), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    expect_death(ref, "its process ", "exit code 3");
    tdm_ref_release(start);
    tdm_actor_destroy(actor);
}

static void actor_is_restarted_after_the_failure(void **state)
{
    tdm_actor *actor = make_keeper(1);
    int64_t child = call_with_int(actor, "start", -1);
    struct tdm_actor_info info;
    tdm_ref *ref;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(kill((pid_t)child, SIGKILL), 0);
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    child = 0;
    while (child == 0) { /* A call that the first incarnation has received fails. */
        assert_int_equal(tdm_actor_call(actor, "start", &ref, "i", (int64_t)-1), TDM_OK);
        (void)tdm_get(ref, TEST_TIMEOUT_MS, "i", &child);
        tdm_ref_release(ref);
    }
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(kill((pid_t)child, SIGKILL), 0);
    expect_death(ref, "its process ", "signal 9 (killed)");
    tdm_actor_destroy(actor);
}

static void watch_may_be_ended(void **state)
{
    tdm_actor *actor = make_keeper(0);
    int64_t again;
    int64_t watch;
    tdm_ref *ref;

    (void)state;
    (void)call_with_int(actor, "start", -1);
    assert_int_equal(tdm_actor_call(actor, "stop", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "ii", &again, &watch), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(again, TDM_E_NOT_FOUND);
    assert_int_equal(watch, TDM_E_NOT_FOUND); /* The process has been reaped. */
    tdm_actor_destroy(actor);
}

static void process_is_watched_once_and_only_if_it_exists(void **state)
{
    tdm_actor *actor = make_keeper(0);
    int64_t child = call_with_int(actor, "start", -1);

    (void)state;
    assert_int_equal(call_with_int(actor, "watch", child), TDM_E_EXISTS);
    assert_int_equal(call_with_int(actor, "watch", 0), TDM_E_NOT_FOUND);
    assert_int_equal(call_with_int(actor, "watch", -1), TDM_E_NOT_FOUND);
    assert_int_equal(call_with_int(actor, "watch", 1), TDM_OK); /* It need not be a child. */
    tdm_actor_destroy(actor);
}

static void graceful_end_may_end_the_child(void **state)
{
    tdm_actor *actor = make_keeper(0);
    struct tdm_actor_info info;
    int64_t child = call_with_int(actor, "start", -1);

    (void)state;
    tdm_actor_describe(actor, &info);
    tdm_actor_destroy(actor);
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(child, TEST_TIMEOUT_MS));
}

static void driver_watches_nothing(void **state)
{
    (void)state;
    assert_int_equal(tdm_actor_watch(runtime, getpid()), TDM_E_STATE);
    assert_int_equal(tdm_actor_unwatch(runtime, getpid()), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_fails_when_its_child_is_killed),
        cmocka_unit_test(actor_fails_with_the_exit_code_of_its_child),
        cmocka_unit_test(actor_is_restarted_after_the_failure),
        cmocka_unit_test(watch_may_be_ended),
        cmocka_unit_test(process_is_watched_once_and_only_if_it_exists),
        cmocka_unit_test(graceful_end_may_end_the_child),
        cmocka_unit_test(driver_watches_nothing),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
