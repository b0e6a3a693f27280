/* fork_server_test.c - further workers of a program are forked from a fork server. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

enum { WORKERS = 6 };

static tdm_runtime *runtime;

/* The thread sanitizer runs a thread of its own, so that every worker is executed instead of
 * forked. */
static int fork_servers_can_fork(void)
{
#ifdef __SANITIZE_THREAD__
    return 0;
#else
    return 1;
#endif
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

/* Returns the process that forked the actor's reaper: a fork server, or the daemon. */
static int64_t fork_server_of(tdm_actor *actor)
{
    return parent_of(actor_fixture_call_int(actor, "parent"));
}

static void later_workers_come_from_one_fork_server(void **state)
{
    struct tdm_actor_options options = {.environment = {"KIND=forked"}};
    tdm_actor *actors[WORKERS];
    int64_t parents[WORKERS];

    (void)state;
    for (int i = 0; i < WORKERS; i++) {
        actors[i] = actor_fixture_create(runtime, &options);
        parents[i] = fork_server_of(actors[i]);
    }
    if (fork_servers_can_fork()) {
        assert_int_not_equal(parents[0], parents[1]);
        for (int i = 2; i < WORKERS; i++) {
            assert_int_equal(parents[i], parents[1]);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        char text[32];

        actor_fixture_call_text(actors[i], "variable", "KIND", text, sizeof(text));
        assert_string_equal(text, "forked");
        actor_fixture_call_text(actors[i], "variable", "TANDEM_WORKER", text, sizeof(text));
        assert_string_equal(text, "(none)");
        tdm_actor_destroy(actors[i]);
    }
}

/* Workers on different GPUs differ in one variable, which is set after the fork. */
static void actors_on_different_gpus_share_a_fork_server(void **state)
{
    enum { GPUS = 4 };
    struct tdm_actor_options options = {.num_gpus = 1, .environment = {"KIND=on_gpus"}};
    tdm_actor *actors[GPUS];
    int64_t parents[GPUS];
    unsigned seen = 0;

    (void)state;
    for (int i = 0; i < GPUS; i++) {
        char text[32];

        actors[i] = actor_fixture_create(runtime, &options);
        parents[i] = fork_server_of(actors[i]);
        actor_fixture_call_text(actors[i], "variable", "CUDA_VISIBLE_DEVICES", text, sizeof(text));
        assert_int_equal(strlen(text), 1);
        seen |= 1U << (text[0] - '0');
        assert_true(i < 2 || !fork_servers_can_fork() || parents[i] == parents[1]);
    }
    assert_int_equal(seen, (1U << GPUS) - 1);
    for (int i = 0; i < GPUS; i++) {
        tdm_actor_destroy(actors[i]);
    }
}

/* Returns 1 if the process has a mapping of the file. */
static int maps(int64_t pid, const char *name)
{
    char line[1024];
    int found = 0;
    FILE *file;

    (void)snprintf(line, sizeof(line), "/proc/%lld/maps", (long long)pid);
    file = fopen(line, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        found = found || strstr(line, name) != NULL;
    }
    (void)fclose(file);
    return found;
}

static void ld_preload_applies_to_each_forked_worker(void **state)
{
    struct tdm_actor_options options = {
        .environment = {"LD_PRELOAD=libresolv.so.2", "ASAN_OPTIONS=verify_asan_link_order=0"}};
    tdm_actor *plain = actor_fixture_create(runtime, NULL);
    tdm_actor *actors[3];
    int64_t parent = 0;

    (void)state;
    assert_false(maps(actor_fixture_call_int(plain, "pid"), "libresolv"));
    for (int i = 0; i < 3; i++) {
        actors[i] = actor_fixture_create(runtime, &options);
        assert_true(maps(actor_fixture_call_int(actors[i], "pid"), "libresolv"));
        assert_true(i == 0 ||
                    /* The daemon has forked the reaper of a worker that was executed. */
                    fork_server_of(actors[i]) == parent);
        parent = fork_server_of(actors[i]);
    }
    for (int i = 0; i < 3; i++) {
        tdm_actor_destroy(actors[i]);
    }
    tdm_actor_destroy(plain);
}

/* Each kind of worker has its fork server; the least recently used one ends if there are too
 * many. */
static void least_recently_used_fork_server_ends(void **state)
{
    enum { KINDS = 20, KEPT = 16 };
    int64_t fork_servers[KINDS];
    int left = 0;

    (void)state;
    if (!fork_servers_can_fork()) {
        return;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        char variable[32];
        struct tdm_actor_options options = {.environment = {variable}};
        tdm_actor *actors[2];

        (void)snprintf(variable, sizeof(variable), "KIND=%d", kind);
        for (int i = 0; i < 2; i++) {
            actors[i] = actor_fixture_create(runtime, &options);
        }
        fork_servers[kind] = fork_server_of(actors[1]);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(tdm_actor_kill(actors[i], TEST_TIMEOUT_MS), TDM_OK);
            tdm_actor_destroy(actors[i]);
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        left += kill((pid_t)fork_servers[kind], 0) == 0;
    }
    assert_in_range(left, 1, KEPT);
    assert_int_equal(kill((pid_t)fork_servers[KINDS - 1], 0), 0);
}

static void forked_worker_is_described_and_its_death_reported(void **state)
{
    struct tdm_actor_options options = {.environment = {"KIND=mortal"}};

    (void)state;
    for (int i = 0; i < 20; i++) {
        tdm_actor *actor;
        struct tdm_actor_info info;
        tdm_ref *ref;

        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_OK);
        assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_describe(actor, &info);
        assert_true(info.pid > 1);
        assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
        assert_int_equal(tdm_get(ref, 1, ""), TDM_E_TIMEOUT);
        assert_int_equal(kill((pid_t)info.pid, i % 2 == 0 ? SIGKILL : SIGABRT), 0);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
        assert_non_null(
            strstr(tdm_error_detail(), i % 2 == 0 ? "signal 9 (killed)" : "signal 6 (aborted)"));
        tdm_ref_release(ref);
        tdm_actor_destroy(actor);
    }
}

static void many_workers_are_forked_at_once(void **state)
{
    tdm_actor *actors[WORKERS * 4];

    (void)state;
    for (int i = 0; i < WORKERS * 4; i++) {
        assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &actors[i], ""), TDM_OK);
    }
    for (int i = 0; i < WORKERS * 4; i++) {
        assert_true(actor_fixture_call_int(actors[i], "pid") > 1);
        tdm_actor_destroy(actors[i]);
    }
}

static void killed_fork_server_takes_its_workers_and_is_replaced(void **state)
{
    struct tdm_actor_options options = {.environment = {"KIND=orphan"}};
    tdm_actor *first = actor_fixture_create(runtime, &options);
    tdm_actor *second = actor_fixture_create(runtime, &options);
    tdm_actor *third;
    int64_t fork_server = fork_server_of(second);

    (void)state;
    if (fork_servers_can_fork()) {
        assert_int_equal(kill((pid_t)fork_server, SIGKILL), 0);
        assert_int_equal(actor_fixture_call(second, "hang", NULL), TDM_E_ACTOR_DIED);
        assert_true(actor_fixture_call_int(first, "pid") > 1);
    }
    third = actor_fixture_create(runtime, &options);
    if (fork_servers_can_fork()) {
        assert_int_not_equal(fork_server_of(third), fork_server);
    }
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
    tdm_actor_destroy(third);
}

/* Lets a worker hang in a call, kills it, and expects the report of its death. */
static void kill_and_expect_report(tdm_actor *actor)
{
    struct tdm_actor_info info;
    tdm_ref *ref;

    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 1, ""), TDM_E_TIMEOUT);
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "signal 9 (killed)"));
    tdm_ref_release(ref);
}

/* The worker that the fork server was asked for is executed, and another fork server forks the next
 * ones. The death of a worker that it has forked is reported meanwhile. */
static void stopped_fork_server_delays_one_worker_and_no_report(void **state)
{
    struct tdm_actor_options options = {.environment = {"KIND=frozen"}};
    tdm_actor *actors[5];
    int64_t stopped;
    int64_t daemon;

    (void)state;
    if (!fork_servers_can_fork()) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        actors[i] = actor_fixture_create(runtime, &options);
    }
    daemon = fork_server_of(actors[0]);
    stopped = fork_server_of(actors[1]);
    assert_int_equal(fork_server_of(actors[2]), stopped);
    assert_int_equal(kill((pid_t)stopped, SIGSTOP), 0);
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actors[3], ""), TDM_OK);
    kill_and_expect_report(actors[1]);
    assert_int_equal(tdm_actor_wait_ready(actors[3], 0), TDM_E_TIMEOUT); /* It is not forked yet. */
    assert_int_equal(fork_server_of(actors[3]), daemon);
    assert_int_equal(fork_server_of(actors[2]), stopped); /* Its workers live. */
    actors[4] = actor_fixture_create(runtime, &options);
    assert_int_not_equal(fork_server_of(actors[4]), stopped);
    assert_int_equal(kill((pid_t)stopped, SIGCONT), 0);
    assert_true(actor_fixture_call_int(actors[2], "pid") > 1);
    for (int i = 0; i < 5; i++) {
        tdm_actor_destroy(actors[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_workers_come_from_one_fork_server),
        cmocka_unit_test(actors_on_different_gpus_share_a_fork_server),
        cmocka_unit_test(ld_preload_applies_to_each_forked_worker),
        cmocka_unit_test(forked_worker_is_described_and_its_death_reported),
        cmocka_unit_test(many_workers_are_forked_at_once),
        cmocka_unit_test(killed_fork_server_takes_its_workers_and_is_replaced),
        cmocka_unit_test(stopped_fork_server_delays_one_worker_and_no_report),
        cmocka_unit_test(least_recently_used_fork_server_ends),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
