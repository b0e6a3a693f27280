/* lifetimes_suite.c - conformance: how actors end, and with whom. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <signal.h>
#include <unistd.h>

/* ---- a diary that tells whether the exit hook ran --------------------------------------- */

static void diary_path(char path[96])
{
    (void)snprintf(path, 96, "%s/diary", getenv("TMPDIR"));
    (void)unlink(path);
}

static void expect_diary(const char *path, const char *wanted)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    assert_string_equal(text, wanted);
    (void)unlink(path);
}

/* ---- ends ------------------------------------------------------------------------------- */

static void actor_ends_after_its_calls_when_the_last_handle_is_released(void **state)
{
    char path[96];
    tdm_actor *actor;
    tdm_ref *refs[50];
    int64_t pid;

    (void)state;
    diary_path(path);
    actor = stage_make("mortal", NULL, path);
    pid = stage_pid(actor);
    for (int i = 0; i < 50; i++) {
        refs[i] = stage_call_int(actor, "perish", 0);
    }
    tdm_actor_destroy(actor);
    for (int i = 0; i < 50; i++) {
        MUST(stage_status(refs[i]));
    }
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    expect_diary(path, "born end ");
}

static void handle_found_by_name_does_not_keep_the_actor_alive(void **state)
{
    const struct tdm_actor_options options = {.name = "weak"};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    int64_t pid = stage_pid(actor);
    tdm_actor *found;

    (void)state;
    MUST(tdm_actor_find(stage_runtime(), "weak", TEST_TIMEOUT_MS, &found));
    tdm_actor_destroy(actor);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(found, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(found);
}

static void handle_in_another_process_keeps_the_actor_alive(void **state)
{
    tdm_actor *employer = stage_make("holder", NULL, NULL);
    tdm_actor *employee = stage_make("tester", NULL, NULL);
    int64_t pid = stage_pid(employee);

    (void)state;
    MUST(tdm_actor_call(employer, "employ", NULL, "h", employee));
    tdm_actor_destroy(employee); /* The other handle is still travelling. */
    assert_int_equal(stage_int(stage_call_int(employer, "ask", 2)), 2);
    assert_int_equal(kill((pid_t)pid, 0), 0);
    MUST(stage_try(employer, "dismiss"));
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    stage_end(employer);
}

static void kill_is_immediate_and_final(void **state)
{
    char path[96];
    tdm_actor *actor;
    tdm_ref *ref;
    int64_t pid;

    (void)state;
    for (int i = 0; i < 5; i++) {
        diary_path(path);
        actor = stage_make("mortal", &(struct tdm_actor_options){.max_restarts = -1}, path);
        pid = stage_pid(actor);
        MUST(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
        assert_true(wait_process_exit(pid, 0));
        assert_int_equal(stage_try(actor, "about"), TDM_E_ACTOR_DIED); /* each time */
        expect_diary(path, "born ");
        tdm_actor_destroy(actor);
    }
    actor = stage_make("tester", NULL, NULL);
    ref = stage_call(actor, "hang");
    MUST(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
    assert_int_equal(stage_status(ref), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void actor_that_waits_for_resources_can_be_killed(void **state)
{
    const struct tdm_actor_options all = {.resources = {{"licence", 2}}};
    tdm_actor *holders[2] = {NULL, NULL};
    tdm_actor *waiting;

    (void)state;
    for (uint32_t i = 0; i < stage_nodes(); i++) {
        holders[i] = stage_make("tester", &all, NULL);
    }
    MUST(tdm_actor_create(stage_runtime(), "tester", &all, &waiting, ""));
    assert_int_equal(tdm_actor_wait_ready(waiting, 20), TDM_E_TIMEOUT);
    stage_detail_has("it waits");
    MUST(tdm_actor_kill(waiting, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(waiting, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(waiting);
    for (uint32_t i = 0; i < stage_nodes(); i++) {
        stage_end(holders[i]);
    }
}

/* The employee lives as long as the arguments of the one that waits do. */
static void actor_that_waits_for_resources_ends_with_its_last_handle(void **state)
{
    const struct tdm_actor_options all = {.resources = {{"licence", 2}}};
    tdm_actor *employee = stage_make("tester", NULL, NULL);
    int64_t employee_pid = stage_pid(employee);
    tdm_actor *holders[2] = {NULL, NULL};
    tdm_actor *waiting;

    (void)state;
    for (uint32_t i = 0; i < stage_nodes(); i++) {
        holders[i] = stage_make("tester", &all, NULL);
    }
    MUST(tdm_actor_create(stage_runtime(), "tester", &all, &waiting, "h", employee));
    tdm_actor_destroy(employee);
    stage_await_state(waiting, "PENDING");
    assert_int_equal(kill((pid_t)employee_pid, 0), 0);
    tdm_actor_destroy(waiting);
    assert_true(wait_process_exit(employee_pid, TEST_TIMEOUT_MS));
    for (uint32_t i = 0; i < stage_nodes(); i++) {
        stage_end(holders[i]);
    }
}

static void actor_may_exit_by_itself(void **state)
{
    char path[96];
    tdm_actor *actor;
    const char *words = "";
    tdm_ref *ref;
    int64_t pid;

    (void)state;
    diary_path(path);
    actor = stage_make("mortal", &(struct tdm_actor_options){.max_restarts = -1}, path);
    pid = stage_pid(actor);
    ref = stage_call(actor, "leave");
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "s", &words)); /* The running call still gets its reply. */
    assert_string_equal(words, "farewell");
    tdm_ref_release(ref);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(actor, "about"), TDM_E_ACTOR_DIED);
    expect_diary(path, "born end ");
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_runtime_exit_actor(stage_runtime()), TDM_E_STATE);
}

/* ---- with whom -------------------------------------------------------------------------- */

static int64_t breed(tdm_actor *parent, const char *name, int detached)
{
    tdm_ref *ref = NULL;

    MUST(tdm_actor_call(parent, "breed", &ref, "s?", name, detached));
    return stage_int(ref);
}

static void children_end_with_their_creator(void **state)
{
    (void)state;
    for (int graceful = 0; graceful < 2; graceful++) {
        tdm_actor *parent = stage_make("mortal", NULL, "");
        /* A name comes free only after its holder's process is gone. */
        int64_t child = breed(parent, graceful == 0 ? "first-child" : "second-child", 0);

        assert_int_equal(kill((pid_t)child, 0), 0);
        if (graceful == 0) {
            MUST(tdm_actor_kill(parent, TEST_TIMEOUT_MS));
        }
        tdm_actor_destroy(parent);
        assert_true(wait_process_exit(child, TEST_TIMEOUT_MS));
    }
}

static void detached_actor_outlives_its_creator_and_handles(void **state)
{
    tdm_actor *parent = stage_make("mortal", NULL, "");
    int64_t child = breed(parent, "heir", 1);
    tdm_actor *found;

    (void)state;
    stage_end(parent);
    MUST(tdm_actor_find(stage_runtime(), "heir", TEST_TIMEOUT_MS, &found));
    assert_int_equal(stage_int(stage_call_int(found, "perish", 0)), 0);
    tdm_actor_destroy(found);
    MUST(tdm_actor_find(stage_runtime(), "heir", TEST_TIMEOUT_MS, &found));
    assert_int_equal(stage_pid(found), child);
    stage_end(found);
    assert_true(wait_process_exit(child, TEST_TIMEOUT_MS));
}

static void child_processes_end_with_the_actor(void **state)
{
    (void)state;
    for (int with_exec = 0; with_exec < 2; with_exec++) {
        tdm_actor *actor = stage_make("tester", NULL, NULL);
        tdm_ref *ref;
        int64_t pid;

        /* The process is in another session. */
        MUST(tdm_actor_call(actor, "stray", &ref, "?", with_exec));
        pid = stage_int(ref);
        assert_int_equal(kill((pid_t)pid, 0), 0);
        assert_int_equal(kill((pid_t)stage_pid(actor), SIGKILL), 0);
        assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
        tdm_actor_destroy(actor);
    }
}

static void unresponsive_actor_is_killed(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    int64_t pid = stage_pid(actor);

    (void)state;
    assert_true(stop_process(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    stage_detail_has("had not answered for");
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    tdm_actor_destroy(actor);
}

static void runtime_context_has_actor_and_node(void **state)
{
    const struct tdm_actor_options options = {.name = "self", .name_space = "mine"};
    struct tdm_runtime_info driver;
    tdm_actor *actor = stage_make("mortal", &options, "");
    const char *job;
    const char *class_name;
    const char *name;
    const char *name_space;
    int64_t restarts;
    int64_t pid;
    tdm_ref *ref = stage_call(actor, "about");

    (void)state;
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "iissss", &restarts, &pid, &job, &class_name, &name,
                 &name_space));
    tdm_runtime_describe(stage_runtime(), &driver);
    assert_int_equal(restarts, 0);
    assert_int_equal(pid, stage_pid(actor));
    assert_string_equal(job, driver.job_id);
    assert_string_equal(class_name, "mortal");
    assert_string_equal(name, "self");
    assert_string_equal(name_space, "mine");
    assert_string_equal(driver.actor_id, "");
    assert_int_equal(strlen(driver.node_id), 32);
    tdm_ref_release(ref);
    stage_end(actor);
}

static void actor_has_a_handle_to_itself(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    struct tdm_actor_info info;
    tdm_ref *ref = stage_call(actor, "myself");
    const char *id;
    tdm_actor *none;

    (void)state;
    tdm_actor_describe(actor, &info);
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "s", &id));
    assert_string_equal(id, info.id);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_current(stage_runtime(), &none), TDM_E_STATE);
    stage_end(actor);
}

/* ---- lent CPUs -------------------------------------------------------------------------- */

static void lent_cpus_are_free_for_others(void **state)
{
    static const struct tdm_bundle all[2] = {{.num_cpus = 4}, {.num_cpus = 4}};
    tdm_actor *actor = stage_make("tester", &(struct tdm_actor_options){.num_cpus = 2}, NULL);
    tdm_placement_group *group;

    (void)state;
    stage_await_free("CPU", 6);
    MUST(stage_status(stage_call(actor, "lend")));
    MUST(stage_status(stage_call(actor, "lend"))); /* The outermost of nested calls counts. */
    stage_await_free("CPU", 8);
    MUST(tdm_placement_group_create(stage_runtime(), all, 2, TDM_SPREAD, TEST_TIMEOUT_MS, &group));
    /* The actor goes on, although the group holds the CPUs. */
    MUST(stage_status(stage_call(actor, "take_back")));
    MUST(stage_status(stage_call(actor, "take_back")));
    assert_int_equal(stage_try(actor, "take_back"), TDM_E_STATE);
    MUST(tdm_placement_group_remove(group, TEST_TIMEOUT_MS));
    stage_await_free("CPU", 6);
    stage_end(actor);
    stage_await_free("CPU", 8);
}

static void actor_that_has_lent_its_cpus_may_die(void **state)
{
    const struct tdm_actor_options options = {.num_cpus = 2, .max_restarts = 1};
    tdm_actor *actor = stage_make("tester", &options, NULL);

    (void)state;
    MUST(stage_status(stage_call(actor, "lend")));
    stage_await_free("CPU", 8);
    MUST(tdm_actor_restart(actor, TEST_TIMEOUT_MS)); /* The next worker has the CPUs again. */
    stage_await_free("CPU", 6);
    MUST(stage_status(stage_call(actor, "lend")));
    stage_await_free("CPU", 8);
    stage_end(actor);
    stage_await_free("CPU", 8);
    actor = stage_make("tester", &(struct tdm_actor_options){.num_cpus = 3}, NULL);
    stage_await_free("CPU", 5);
    stage_end(actor);
}

int conformance_lifetimes(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_ends_after_its_calls_when_the_last_handle_is_released),
        cmocka_unit_test(handle_found_by_name_does_not_keep_the_actor_alive),
        cmocka_unit_test(handle_in_another_process_keeps_the_actor_alive),
        cmocka_unit_test(kill_is_immediate_and_final),
        cmocka_unit_test(actor_that_waits_for_resources_can_be_killed),
        cmocka_unit_test(actor_that_waits_for_resources_ends_with_its_last_handle),
        cmocka_unit_test(actor_may_exit_by_itself),
        cmocka_unit_test(children_end_with_their_creator),
        cmocka_unit_test(detached_actor_outlives_its_creator_and_handles),
        cmocka_unit_test(child_processes_end_with_the_actor),
        cmocka_unit_test(unresponsive_actor_is_killed),
        cmocka_unit_test(runtime_context_has_actor_and_node),
        cmocka_unit_test(actor_has_a_handle_to_itself),
        cmocka_unit_test(lent_cpus_are_free_for_others),
        cmocka_unit_test(actor_that_has_lent_its_cpus_may_die),
    };

    return cmocka_run_group_tests_name("lifetimes", tests, NULL, NULL);
}
