/* actor_test.c - actors are created, named, found, called and killed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;

/* Milliseconds that a reply of the daemon takes at most. */
enum { SOON_MS = 5000 };

static void calls_change_the_state_of_their_actor(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_actor *other = actor_fixture_create(runtime, NULL);
    tdm_ref *refs[3];
    int64_t total;

    (void)state;
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(tdm_actor_call(actor, "add", &refs[i], "i", i + 1), TDM_OK);
    }
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        assert_int_equal(total, (i + 1) * (i + 2) / 2);
        tdm_ref_release(refs[i]);
    }
    assert_int_not_equal(actor_fixture_call_int(actor, "pid"),
                         actor_fixture_call_int(other, "pid"));
    tdm_actor_destroy(actor);
    tdm_actor_destroy(other);
}

static void test_method_without_reply_is_read_as_nil(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    int64_t number;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "nothing", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "n"), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &number), TDM_E_TYPE);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

static void description_contains_the_process(void **state)
{
    tdm_actor *actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "described", .num_gpus = 1});
    struct tdm_runtime_info node;
    struct tdm_actor_info info;

    (void)state;
    tdm_runtime_describe(runtime, &node);
    tdm_actor_describe(actor, &info);
    assert_int_equal(info.pid, actor_fixture_call_int(actor, "pid"));
    assert_string_equal(info.name, "described");
    assert_string_equal(info.class_name, "tester");
    assert_string_equal(info.node_id, node.node_id);
    assert_int_equal(strlen(info.id), 32);
    assert_int_equal(info.gpus_count, 1);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

/* The order in which the daemon replies to two requests is random, so the test repeats them a
 * few times. */
static void waiting_handle_may_get_the_existing_actor(void **state)
{
    const struct tdm_actor_options options = {.name = "shared", .get_if_exists = 1};

    (void)state;
    for (int i = 0; i < 15; i++) {
        tdm_actor *first;
        tdm_actor *second;
        tdm_status status;

        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &first, ""), TDM_OK);
        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
        do {
            status = tdm_actor_wait_ready(second, 1);
        } while (status == TDM_E_TIMEOUT);
        assert_int_equal(status, TDM_OK);
        assert_int_equal(actor_fixture_call_int(first, "pid"),
                         actor_fixture_call_int(second, "pid"));
        assert_int_equal(tdm_actor_kill(first, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(first);
        tdm_actor_destroy(second);
    }
}

static void *await_ready(void *actor)
{
    return tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS) == TDM_OK ? actor : NULL;
}

/* The thread that waits also moves the handle. The thread sanitizer found that calls read what it
 * writes then. */
static void calls_are_made_while_a_handle_moves_to_the_existing_actor(void **state)
{
    enum { ROUNDS = 10, MOVED_CALLS = 200 };
    const struct tdm_actor_options options = {.name = "moves", .get_if_exists = 1};
    tdm_actor *existing;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &existing, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(existing, TEST_TIMEOUT_MS), TDM_OK);
    for (int i = 0; i < ROUNDS; i++) {
        tdm_actor *actor;
        pthread_t thread;
        void *ready;

        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_OK);
        assert_int_equal(pthread_create(&thread, NULL, await_ready, actor), 0);
        for (int j = 0; j < MOVED_CALLS; j++) {
            assert_int_equal(tdm_actor_call(actor, "add", NULL, "i", (int64_t)1), TDM_OK);
        }
        assert_int_equal(pthread_join(thread, &ready), 0);
        assert_ptr_equal(ready, actor);
        tdm_actor_destroy(actor);
    }
    assert_true(actor_fixture_call_int(existing, "pid") > 0);
    tdm_actor_destroy(existing);
}

/* A sanitizer needs several times the memory of a call. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CALLS = 150000 };
#else
enum { CALLS = 1000000 };
#endif

/* All calls are made before the first one ends. Before, those after the first 100,000 failed. */
static void calls_of_one_thread_need_no_pauses(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref **refs = calloc(CALLS + 1, sizeof(tdm_ref *));
    int64_t total = 0;

    (void)state;
    assert_non_null(refs);
    assert_int_equal(tdm_actor_call(actor, "linger", &refs[0], "i", (int64_t)500), TDM_OK);
    for (int i = 1; i <= CALLS; i++) {
        assert_int_equal(tdm_actor_call(actor, "add", &refs[i], "i", (int64_t)1), TDM_OK);
    }
    for (int i = 1; i <= CALLS; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        assert_int_equal(total, i);
        tdm_ref_release(refs[i]);
    }
    tdm_ref_release(refs[0]);
    free(refs);
    tdm_actor_destroy(actor);
}

static void name_finds_its_actor(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "named"});
    tdm_actor *found;

    (void)state;
    assert_int_equal(tdm_actor_find(runtime, "named", TEST_TIMEOUT_MS, &found), TDM_OK);
    assert_int_equal(actor_fixture_call_int(actor, "pid"), actor_fixture_call_int(found, "pid"));
    tdm_actor_destroy(found);
    assert_int_equal(tdm_actor_find(runtime, "nobody", TEST_TIMEOUT_MS, &found), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "nobody"));
    tdm_actor_destroy(actor);
}

/* The name is written into the store only when the actor has a place. */
static void name_finds_an_actor_that_is_being_created(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        char name[32];
        struct tdm_actor_options options = {.name = name};
        tdm_actor *actor;
        tdm_actor *found;

        (void)snprintf(name, sizeof(name), "new %d", i);
        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_OK);
        assert_int_equal(tdm_actor_find(runtime, name, TEST_TIMEOUT_MS, &found), TDM_OK);
        assert_int_equal(actor_fixture_call_int(found, "pid"),
                         actor_fixture_call_int(actor, "pid"));
        tdm_actor_destroy(found);
        tdm_actor_destroy(actor);
    }
}

/* Lets the actor `seeker`, which is another process, find or create the named actor. Returns the
 * status of waiting 0 ms for that. */
static int64_t seek(tdm_actor *seeker, const char *name, int with_creation)
{
    tdm_ref *ref;
    int64_t status = TDM_OK;

    assert_int_equal(tdm_actor_call(seeker, "seek", &ref, "s?", name, with_creation), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &status), TDM_OK);
    tdm_ref_release(ref);
    return status;
}

/* The constructor waits for a file. Who finds its actor has a handle whose calls wait for that. */
static void name_finds_an_actor_whose_constructor_runs(void **state)
{
    static const struct tdm_actor_options options = {.name = "slow",
                                                     .metadata = {"its methods", 11}};
    struct tdm_actor_options existing = {.name = "slow", .get_if_exists = 1};
    char gate[] = "/tmp/tandem-gate-XXXXXX";
    struct tdm_actor_info info;
    tdm_actor *actor;
    tdm_actor *seeker = actor_fixture_create(runtime, NULL);
    tdm_actor *second;
    tdm_actor *found[2];
    int64_t status;
    int64_t pid;

    (void)state;
    assert_non_null(mkdtemp(gate));
    assert_int_equal(rmdir(gate), 0);
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, "ss", "gate", gate),
                     TDM_OK);
    assert_int_equal(tdm_actor_create(runtime, "tester", &existing, &second, ""), TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_find(runtime, "slow", SOON_MS, &found[i]), TDM_OK);
        tdm_actor_describe(found[i], &info);
        assert_int_equal(info.pid, 0);
        assert_int_equal(tdm_actor_wait_ready(found[i], 0), TDM_E_TIMEOUT);
    }
    assert_int_equal(seek(seeker, "slow", 1), TDM_E_TIMEOUT);
    assert_int_equal(seek(seeker, "slow", 0), TDM_E_TIMEOUT);
    assert_int_equal(tdm_actor_wait_ready(second, 0), TDM_E_TIMEOUT);
    assert_int_equal(close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    pid = actor_fixture_call_int(actor, "pid");
    assert_int_equal(actor_fixture_call_int(second, "pid"), pid);
    assert_int_equal(actor_fixture_call_int(seeker, "sought"), pid);
    status = seek(seeker, "slow", 1); /* The daemon may already have replied, or not yet. */
    assert_true(status == TDM_E_TIMEOUT || status == TDM_OK);
    assert_int_equal(actor_fixture_call_int(seeker, "sought"), pid);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(actor_fixture_call_int(found[i], "pid"), pid);
        assert_int_equal(tdm_actor_metadata(found[i]).size_bytes, 11);
        tdm_actor_destroy(found[i]);
    }
    tdm_actor_destroy(second);
    tdm_actor_destroy(seeker);
    tdm_actor_destroy(actor);
    assert_int_equal(unlink(gate), 0);
}

/* With get_if_exists the daemon may decide that another actor has the name. */
static void name_finds_the_holder_for_which_its_creator_settles(void **state)
{
    struct tdm_actor_options options = {.name = "settled", .get_if_exists = 1};
    tdm_actor *first = actor_fixture_create(runtime, &options);

    (void)state;
    for (int i = 0; i < 10; i++) {
        tdm_actor *second;
        tdm_actor *found;

        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
        assert_int_equal(tdm_actor_find(runtime, "settled", TEST_TIMEOUT_MS, &found), TDM_OK);
        assert_int_equal(actor_fixture_call_int(found, "pid"),
                         actor_fixture_call_int(first, "pid"));
        tdm_actor_destroy(found);
        tdm_actor_destroy(second);
    }
    tdm_actor_destroy(first);
}

/* An actor without a place is not unknown: who found it waits as its creator does. */
static void name_finds_an_actor_without_a_place(void **state)
{
    struct tdm_actor_options options = {.resources = {{"disk", 2}}};
    tdm_actor *has_the_disk = actor_fixture_create(runtime, &options);
    tdm_actor *waits;
    tdm_actor *found;

    (void)state;
    options.name = "waits";
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &waits, ""), TDM_OK);
    assert_int_equal(tdm_actor_find(runtime, "waits", SOON_MS, &found), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(found, 20), TDM_E_TIMEOUT);
    assert_int_equal(tdm_actor_kill(has_the_disk, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(actor_fixture_call_int(found, "pid"), actor_fixture_call_int(waits, "pid"));
    tdm_actor_destroy(found);
    tdm_actor_destroy(waits);
    tdm_actor_destroy(has_the_disk);
}

static void name_is_taken_until_its_actor_is_dead(void **state)
{
    struct tdm_actor_options options = {.name = "unique"};

    (void)state;
    for (int round = 0; round < 5; round++) {
        tdm_actor *actor = actor_fixture_create(runtime, &options);
        tdm_actor *second;

        assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
        assert_int_equal(actor_fixture_call(second, "pid", NULL), TDM_E_EXISTS);
        assert_non_null(strstr(tdm_error_detail(), "unique"));
        tdm_actor_destroy(second);
        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actor);
    }
}

static void first_call_reports_a_failed_creation(void **state)
{
    tdm_actor *actor;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &actor, "s", "broken"), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "the engine has no fuel"));
    assert_non_null(strstr(tdm_error_detail(), "its constructor"));
    assert_non_null(strstr(tdm_error_detail(), "node "));
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);

    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &actor, "s", "exit"), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "exit code 7"));
    tdm_actor_destroy(actor);

    assert_int_equal(tdm_actor_create(runtime, "no_such", NULL, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "no class \"no_such\" in "));
    tdm_actor_destroy(actor);
}

static void wrong_options_are_refused_at_once(void **state)
{
    tdm_actor *actor;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "", NULL, &actor, ""), TDM_E_INVAL);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.num_gpus = 1.5}, &actor, ""),
                     TDM_E_INVAL);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.environment = {"NONSENSE"}},
                                      &actor, ""),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "NONSENSE"));
}

static void killed_actor_stays_dead(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    int64_t pid = actor_fixture_call_int(actor, "pid");
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_true(wait_process_exit(pid, 0));
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    tdm_ref_release(ref);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void actor_waits_for_resources_of_others(void **state)
{
    struct tdm_actor_options options = {.num_gpus = 4};
    tdm_actor *first = actor_fixture_create(runtime, &options);
    tdm_actor *second;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(second, 100), TDM_E_TIMEOUT);
    assert_int_equal(tdm_actor_kill(first, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(second, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_kill(second, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
}

static void actor_that_waits_can_be_killed(void **state)
{
    struct tdm_actor_options options = {.num_gpus = 4};
    tdm_actor *first = actor_fixture_create(runtime, &options);
    tdm_actor *second;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(second, 50), TDM_E_TIMEOUT);
    assert_int_equal(tdm_actor_kill(second, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(actor_fixture_call(second, "pid", NULL), TDM_E_ACTOR_DIED);
    assert_int_equal(tdm_actor_kill(first, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
}

static void first_call_reports_resources_that_no_node_has(void **state)
{
    tdm_actor *actor;

    (void)state;
    assert_int_equal(
        tdm_actor_create(runtime, "tester", &(struct tdm_actor_options){.num_gpus = 5}, &actor, ""),
        TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "GPU 5"));
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.resources = {{"licence", 2}}},
                                      &actor, ""),
                     TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "pid", NULL), TDM_E_NO_RESOURCES);
    tdm_actor_destroy(actor);
}

static void named_resources_are_counted(void **state)
{
    struct tdm_actor_options options = {.resources = {{"disk", 1.5}}};
    tdm_actor *first = actor_fixture_create(runtime, &options);
    tdm_actor *second;

    (void)state;
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &second, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(second, 50), TDM_E_TIMEOUT);
    assert_int_equal(tdm_actor_kill(first, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(second, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_change_the_state_of_their_actor),
        cmocka_unit_test(test_method_without_reply_is_read_as_nil),
        cmocka_unit_test(description_contains_the_process),
        cmocka_unit_test(waiting_handle_may_get_the_existing_actor),
        cmocka_unit_test(calls_are_made_while_a_handle_moves_to_the_existing_actor),
        cmocka_unit_test(calls_of_one_thread_need_no_pauses),
        cmocka_unit_test(name_finds_its_actor),
        cmocka_unit_test(name_finds_an_actor_that_is_being_created),
        cmocka_unit_test(name_finds_the_holder_for_which_its_creator_settles),
        cmocka_unit_test(name_finds_an_actor_whose_constructor_runs),
        cmocka_unit_test(name_finds_an_actor_without_a_place),
        cmocka_unit_test(name_is_taken_until_its_actor_is_dead),
        cmocka_unit_test(first_call_reports_a_failed_creation),
        cmocka_unit_test(wrong_options_are_refused_at_once),
        cmocka_unit_test(killed_actor_stays_dead),
        cmocka_unit_test(actor_waits_for_resources_of_others),
        cmocka_unit_test(actor_that_waits_can_be_killed),
        cmocka_unit_test(first_call_reports_resources_that_no_node_has),
        cmocka_unit_test(named_resources_are_counted),
    };
    int failed;

    (void)setenv("TANDEM_RESOURCES", "disk=2", 1);
    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
