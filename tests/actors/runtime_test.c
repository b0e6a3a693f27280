/* runtime_test.c - a process has a runtime, starts another one, forks, and outlives its node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/driver_run.h"

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

static tdm_runtime *start(const struct tdm_runtime_options *options)
{
    tdm_runtime *runtime = NULL;
    tdm_status status = tdm_runtime_start(options, &runtime);

    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
    return runtime;
}

static void runtime_returns_its_node_and_address(void **state)
{
    tdm_runtime *runtime = start(NULL);
    struct tdm_runtime_info info;

    (void)state;
    assert_ptr_equal(tdm_runtime_current(), runtime);
    tdm_runtime_describe(runtime, &info);
    assert_int_equal(strlen(info.node_id), 32);
    assert_true(info.node_name[0] != '\0');
    assert_int_equal(strncmp(info.address, "unix:", 5), 0);
    assert_int_equal(access(info.directory, R_OK | W_OK | X_OK), 0);
    assert_string_equal(info.name_space, "default");
    assert_string_equal(info.actor_id, "");
    assert_string_equal(info.actor_name, "");
    assert_int_equal(info.gpus_count, 0);
    tdm_runtime_stop(runtime);
    assert_null(tdm_runtime_current());
}

/* Returns the largest memory, in MiB, that a process has had. */
static uint32_t peak_mib(pid_t pid)
{
    unsigned long kib = 0;
    char path[64];
    char line[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kib = strtoul(line + 6, NULL, 10);
        }
    }
    (void)fclose(file);
    assert_true(kib > 0);
    return (uint32_t)(kib >> 10);
}

/* A value takes 24 bytes and more in the daemon, also one that takes one byte in a message. These
 * 16 MiB took 390 MiB in the daemon before the number of values was limited. A sanitizer takes
 * memory of its own for the bytes of the message. */
static void daemon_reads_no_call_with_too_many_values(void **state)
{
    enum { NILS = 16 << 20, HEAD_BYTES = 5, PEAK_MIB = 128 };
    static const uint8_t head[HEAD_BYTES] = {0xdd, NILS >> 24, (NILS >> 16) & 255,
                                             (NILS >> 8) & 255, NILS & 255};
    tdm_runtime *runtime = start(NULL);
    pid_t daemon = driver_find_child(driver_find_child(getpid(), "tandem-super"), "tandemd");
    uint32_t before_mib = peak_mib(daemon);
    uint8_t *nils = malloc(HEAD_BYTES + NILS);
    tdm_document *reply = NULL;

    (void)state;
    assert_non_null(nils);
    memcpy(nils, head, HEAD_BYTES);
    memset(nils + HEAD_BYTES, 0xc0, NILS);
    assert_int_equal(tdm__runtime_call_daemon(runtime, "actor.create",
                                              (struct tdm_bytes){nils, HEAD_BYTES + NILS},
                                              TEST_TIMEOUT_MS, &reply),
                     TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "more than 524288 values"));
    assert_in_range(peak_mib(daemon) - before_mib, 0, PEAK_MIB);
    free(nils);
    tdm_runtime_stop(runtime);
}

static void one_runtime_follows_another(void **state)
{
    tdm_runtime *second;

    (void)state;
    for (int i = 0; i < 3; i++) {
        tdm_runtime *runtime = start(NULL);
        tdm_actor *actor = actor_fixture_create(runtime, NULL);
        int64_t pid = actor_fixture_call_int(actor, "pid");

        assert_int_equal(tdm_runtime_start(NULL, &second), TDM_E_STATE);
        tdm_actor_destroy(actor);
        tdm_runtime_stop(runtime);
        assert_true(wait_process_exit(pid, 0));
    }
    tdm_runtime_stop(NULL);
}

static void calls_after_the_stop_of_the_runtime_are_refused(void **state)
{
    tdm_runtime *runtime = start(NULL);
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    const struct tdm_bytes no_arguments = {(const uint8_t *)"\x90", 1};
    tdm_actor *another = actor;
    tdm_stream *stream;
    tdm_ref *ref;

    (void)state;
    tdm_runtime_stop(runtime);
    assert_int_equal(tdm_actor_call(actor, "pid", &ref, ""), TDM_E_STATE);
    assert_null(ref);
    assert_int_equal(tdm_actor_call_packed(actor, "pid", no_arguments, &ref), TDM_E_STATE);
    assert_null(ref);
    assert_int_equal(tdm_actor_stream(actor, "pid", NULL, &stream, ""), TDM_E_STATE);
    assert_int_equal(tdm_put(runtime, &ref, "i", (int64_t)1), TDM_E_STATE);
    assert_string_equal(tdm_error_detail(), "the runtime has stopped");
    assert_int_equal(tdm_actor_find(runtime, "pid", 0, &another), TDM_E_STATE);
    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &another, ""), TDM_E_STATE);
    assert_null(another);
    tdm_actor_destroy(actor);
    tdm_runtime_stop(runtime); /* The second stop does nothing. */
}

static void test_handles_can_be_destroyed_after_the_runtime_has_stopped(void **state)
{
    tdm_runtime *runtime = start(NULL);
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "late"});
    tdm_actor *found;

    (void)state;
    assert_int_equal(tdm_actor_find(runtime, "late", TEST_TIMEOUT_MS, &found), TDM_OK);
    tdm_runtime_stop(runtime);
    tdm_actor_destroy(found);
    tdm_actor_destroy(actor);
}

static void runtime_stops_with_all_kinds_of_open_operations(void **state)
{
    tdm_runtime *runtime = start(NULL);
    tdm_actor *busy = actor_fixture_create(runtime, NULL);
    tdm_actor *unready;
    tdm_actor *waiting;
    tdm_ref *refs[3];

    (void)state;
    assert_int_equal(tdm_actor_call(busy, "linger", &refs[0], "i", (int64_t)50), TDM_OK);
    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &unready, ""), TDM_OK);
    assert_int_equal(tdm_actor_call(unready, "pid", &refs[1], ""), TDM_OK);
    assert_int_equal(tdm_actor_call(unready, "echo", &refs[2], "r", refs[0]), TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_create(runtime, "tester",
                                          &(struct tdm_actor_options){.num_gpus = 3}, &waiting, ""),
                         TDM_OK);
        tdm_actor_destroy(waiting);
    }
    tdm_actor_destroy(busy);
    tdm_actor_destroy(unready);
    tdm_runtime_stop(runtime);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
}

static void forked_child_cannot_use_the_runtime_of_its_parent(void **state)
{
    tdm_runtime *runtime = start(NULL);
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    int wait_status;
    tdm_ref *ref;
    pid_t child;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "linger", &ref, "i", (int64_t)50), TDM_OK);
    child = fork();
    if (child == 0) {
        tdm_actor *other;
        tdm_ref *second;
        int good = tdm_runtime_current() == NULL &&
                   tdm_get(ref, TEST_TIMEOUT_MS, "") == TDM_E_STATE &&
                   strstr(tdm_error_detail(), "forked") != NULL &&
                   tdm_actor_call(actor, "pid", &second, "") == TDM_E_STATE &&
                   tdm_actor_create(runtime, "tester", NULL, &other, "") == TDM_E_STATE &&
                   tdm_actor_find(runtime, "x", 1000, &other) == TDM_E_STATE &&
                   tdm_actor_kill(actor, 1000) == TDM_E_STATE &&
                   tdm_actor_wait_ready(actor, 1000) == TDM_E_STATE;

        tdm_runtime_stop(runtime);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
    tdm_ref_release(ref);
    assert_true(actor_fixture_call_int(actor, "pid") > 1);
    tdm_actor_destroy(actor);
    tdm_runtime_stop(runtime);
}

static void every_question_after_the_daemons_death_names_it(void **state)
{
    tdm_runtime *runtime = start(NULL);
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_actor *waiting;
    tdm_actor *other;
    tdm_placement_group *group;
    char words[64];
    tdm_ref *ref;
    pid_t daemon = driver_find_child(driver_find_child(getpid(), "tandem-super"), "tandemd");

    (void)state;
    assert_true(daemon > 1);
    (void)snprintf(words, sizeof(words), "the daemon (pid %d) ended by signal 9 (killed)",
                   (int)daemon);
    assert_int_equal(
        tdm_actor_create(runtime, "tester", &(struct tdm_actor_options){.num_gpus = 4}, &other, ""),
        TDM_OK);
    assert_int_equal(tdm_actor_create(runtime, "tester", &(struct tdm_actor_options){.num_gpus = 4},
                                      &waiting, ""),
                     TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 20, ""), TDM_E_TIMEOUT);
    assert_int_equal(kill(daemon, SIGKILL), 0);
    assert_int_equal(tdm_actor_wait_ready(waiting, TEST_TIMEOUT_MS), TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), words));
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), words));
    assert_non_null(strstr(tdm_error_detail(), "in method hang"));
    assert_int_equal(actor_fixture_call(waiting, "pid", NULL), TDM_E_NODE_LOST);
    tdm_actor_destroy(other);
    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &other, ""), TDM_E_NODE_LOST);
    assert_int_equal(tdm_actor_find(runtime, "x", TEST_TIMEOUT_MS, &other), TDM_E_NODE_LOST);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_E_NODE_LOST);
    assert_int_equal(tdm_placement_group_create(runtime, (struct tdm_bundle[]){{.num_cpus = 1}}, 1,
                                                TDM_PACK, TEST_TIMEOUT_MS, &group),
                     TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), words));
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(waiting);
    tdm_runtime_stop(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runtime_returns_its_node_and_address),
        cmocka_unit_test(daemon_reads_no_call_with_too_many_values),
        cmocka_unit_test(one_runtime_follows_another),
        cmocka_unit_test(calls_after_the_stop_of_the_runtime_are_refused),
        cmocka_unit_test(test_handles_can_be_destroyed_after_the_runtime_has_stopped),
        cmocka_unit_test(runtime_stops_with_all_kinds_of_open_operations),
        cmocka_unit_test(forked_child_cannot_use_the_runtime_of_its_parent),
        cmocka_unit_test(every_question_after_the_daemons_death_names_it),
    };
    int failed;

    if (getenv("TANDEM_WORKER") != NULL) {
        (void)start(NULL); /* never returns */
    }
    actor_fixture_prepare();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_clean_up();
}
