/* worker_test.c - the process that is an actor: what it was given, what it may do, its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* What the kernel says the process was started with. */
static int was_started_with(int64_t pid, const char *entry)
{
    static char environment[1 << 17];
    char path[64];
    ssize_t got;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%lld/environ", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    got = read(fd, environment, sizeof(environment) - 1);
    (void)close(fd);
    assert_true(got > 0);
    environment[got] = '\0';
    for (const char *at = environment; at < environment + got; at += strlen(at) + 1) {
        if (strcmp(at, entry) == 0) {
            return 1;
        }
    }
    return 0;
}

static void the_environment_is_in_force_before_exec(void **state)
{
    tdm_actor *actor = actor_fixture_create(
        runtime,
        &(struct tdm_actor_options){.environment = {"TESTED=yes", "EMPTY=", "HOME=/else"}});
    char text[128];

    (void)state;
    assert_true(was_started_with(actor_fixture_call_int(actor, "pid"), "TESTED=yes"));
    actor_fixture_call_text(actor, "variable", "TESTED", text, sizeof(text));
    assert_string_equal(text, "yes");
    actor_fixture_call_text(actor, "variable", "EMPTY", text, sizeof(text));
    assert_string_equal(text, "");
    actor_fixture_call_text(actor, "variable", "HOME", text, sizeof(text));
    assert_string_equal(text, "/else");
    actor_fixture_call_text(actor, "variable", "TANDEM_WORKER", text, sizeof(text));
    assert_string_equal(text, "(none)");
    tdm_actor_destroy(actor);
}

static void the_working_directory_is_the_one_asked_for(void **state)
{
    tdm_actor *here = actor_fixture_create(runtime, NULL);
    tdm_actor *there =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.working_directory = "/usr"});
    tdm_actor *nowhere;
    char own[512];
    char text[512];

    (void)state;
    assert_non_null(getcwd(own, sizeof(own)));
    actor_fixture_call_text(here, "place", "", text, sizeof(text));
    assert_string_equal(text, own);
    actor_fixture_call_text(there, "place", "", text, sizeof(text));
    assert_string_equal(text, "/usr");
    tdm_actor_destroy(here);
    tdm_actor_destroy(there);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.working_directory = "/no/such"},
                                      &nowhere, ""),
                     TDM_OK);
    assert_int_equal(actor_fixture_call(nowhere, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "/no/such"));
    tdm_actor_destroy(nowhere);
}

static void
test_restarted_actor_uses_the_nodes_directory_if_that_of_its_creator_is_gone(void **state)
{
    char folder[] = "/tmp/tandem-worker-test-XXXXXX";
    char own[512];
    char node[512];
    char text[512];
    tdm_actor *actor;

    (void)state;
    assert_non_null(getcwd(own, sizeof(own)));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.max_restarts = 1, .max_task_retries = -1});
    assert_int_equal(chdir(own), 0);
    actor_fixture_call_text(actor, "place", "", text, sizeof(text));
    assert_string_equal(text, folder);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(kill((pid_t)actor_fixture_call_int(actor, "pid"), SIGKILL), 0);
    actor_fixture_call_text(actor, "variable", "TANDEM_DIRECTORY", node, sizeof(node));
    actor_fixture_call_text(actor, "place", "", text, sizeof(text));
    assert_string_equal(text, node);
    tdm_actor_destroy(actor);
}

static void gpu_ids_are_in_the_environment(void **state)
{
    tdm_actor *pair = actor_fixture_create(runtime, &(struct tdm_actor_options){.num_gpus = 2});
    tdm_actor *none = actor_fixture_create(runtime, NULL);
    tdm_actor *keeper = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.num_gpus = 1,
                                             .keep_visible_devices = 1,
                                             .environment = {"CUDA_VISIBLE_DEVICES=mine"}});
    char text[64];

    (void)state;
    actor_fixture_call_text(pair, "variable", "CUDA_VISIBLE_DEVICES", text, sizeof(text));
    assert_string_equal(text, "GPU-a,GPU-b");
    actor_fixture_call_text(pair, "gpus", "", text, sizeof(text));
    assert_string_equal(text, "0,1");
    actor_fixture_call_text(none, "variable", "CUDA_VISIBLE_DEVICES", text, sizeof(text));
    assert_string_equal(text, "");
    actor_fixture_call_text(keeper, "variable", "CUDA_VISIBLE_DEVICES", text, sizeof(text));
    assert_string_equal(text, "mine");
    assert_int_equal(tdm_actor_kill(pair, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_kill(keeper, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(pair);
    tdm_actor_destroy(none);
    tdm_actor_destroy(keeper);
}

static void fractional_requests_share_a_gpu_and_whole_ones_do_not(void **state)
{
    struct tdm_actor_options part = {.num_gpus = 0.4};
    tdm_actor *parts[3];
    tdm_actor *whole;
    char first[16];
    char other[16];

    (void)state;
    for (int i = 0; i < 3; i++) {
        parts[i] = actor_fixture_create(runtime, &part);
    }
    whole = actor_fixture_create(runtime, &(struct tdm_actor_options){.num_gpus = 1});
    actor_fixture_call_text(parts[0], "gpus", "", first, sizeof(first));
    actor_fixture_call_text(parts[1], "gpus", "", other, sizeof(other));
    assert_string_equal(first, other);
    actor_fixture_call_text(parts[2], "gpus", "", other, sizeof(other));
    assert_string_not_equal(first, other);
    actor_fixture_call_text(whole, "gpus", "", first, sizeof(first));
    assert_string_not_equal(first, other);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_actor_kill(parts[i], TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(parts[i]);
    }
    assert_int_equal(tdm_actor_kill(whole, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(whole);
}

static void actor_makes_actors_that_end_with_it(void **state)
{
    tdm_actor *parent = actor_fixture_create(runtime, NULL);
    tdm_actor *child;
    int64_t pid;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(parent, "breed", &ref, "s", "child"), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_find(runtime, "child", TEST_TIMEOUT_MS, &child), TDM_OK);
    assert_int_equal(actor_fixture_call_int(child, "pid"), pid);
    assert_int_equal(tdm_actor_kill(parent, TEST_TIMEOUT_MS), TDM_OK);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(actor_fixture_call(child, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "actor child died"));
    tdm_actor_destroy(parent);
    tdm_actor_destroy(child);
}

static void actor_calls_another_and_waits(void **state)
{
    tdm_actor *target =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "target"});
    tdm_actor *caller = actor_fixture_create(runtime, NULL);
    tdm_ref *ref;
    int64_t total;

    (void)state;
    for (int64_t i = 1; i <= 3; i++) {
        assert_int_equal(tdm_actor_call(caller, "relay", &ref, "s", "target"), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        assert_int_equal(total, i);
        tdm_ref_release(ref);
    }
    assert_int_equal(actor_fixture_call(caller, "relay", "nobody"), TDM_E_NOT_FOUND);
    tdm_actor_destroy(target);
    tdm_actor_destroy(caller);
}

static void class_may_live_in_a_library(void **state)
{
    struct tdm_actor_options options = {.library = TDM_TEST_BUILD_DIR "/tests/tester_library.so"};
    tdm_actor *actor;
    tdm_ref *ref;
    const char *text;
    const void *id;
    size_t id_bytes;

    (void)state;
    for (int round = 0; round < 3; round++) { /* by exec, then from a fork_server */
        assert_int_equal(tdm_actor_create(runtime, "librarian", &options, &actor, ""), TDM_OK);
        assert_int_equal(tdm_actor_call(actor, "answer", &ref, ""), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "sb", &text, &id, &id_bytes), TDM_OK);
        assert_string_equal(text, "shh");
        assert_int_equal(id_bytes, 32);
        tdm_ref_release(ref);
        tdm_actor_destroy(actor);
    }
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "no class \"tester\" in "));
    assert_non_null(strstr(tdm_error_detail(), "tester_library.so"));
    tdm_actor_destroy(actor);
    options.library = "/no/such/library.so";
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_E_IO);
    options.library = "no_such_library.so";
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "no_such_library.so"));
    tdm_actor_destroy(actor);
}

static void strays_end_with_their_actor(void **state)
{
    (void)state;
    for (int with_exec = 0; with_exec < 2; with_exec++) {
        tdm_actor *actor = actor_fixture_create(runtime, NULL);
        int64_t pid;
        tdm_ref *ref;

        assert_int_equal(tdm_actor_call(actor, "stray", &ref, "?", with_exec), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid), TDM_OK);
        tdm_ref_release(ref);
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
        tdm_actor_destroy(actor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_is_in_force_before_exec),
        cmocka_unit_test(the_working_directory_is_the_one_asked_for),
        cmocka_unit_test(
            test_restarted_actor_uses_the_nodes_directory_if_that_of_its_creator_is_gone),
        cmocka_unit_test(gpu_ids_are_in_the_environment),
        cmocka_unit_test(fractional_requests_share_a_gpu_and_whole_ones_do_not),
        cmocka_unit_test(actor_makes_actors_that_end_with_it),
        cmocka_unit_test(actor_calls_another_and_waits),
        cmocka_unit_test(class_may_live_in_a_library),
        cmocka_unit_test(strays_end_with_their_actor),
    };
    int failed;

    /* What the daemon itself may see; only the driver's copy of this program comes this far. */
    if (getenv("TANDEM_WORKER") == NULL) {
        (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c", 1);
    }
    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
