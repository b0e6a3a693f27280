/* restarts_suite.c - conformance: actors that come back, and calls that are sent again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <signal.h>
#include <unistd.h>

static void restarted_actor_is_the_same_with_a_new_state(void **state)
{
    const struct tdm_actor_options options = {.name = "phoenix", .max_restarts = 1};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    struct tdm_actor_info before;
    struct tdm_actor_info after;
    tdm_actor *found;
    int64_t pid;

    (void)state;
    tdm_actor_describe(actor, &before);
    assert_int_equal(stage_int(stage_call_int(actor, "add", 5)), 5);
    assert_int_equal(kill((pid_t)before.pid, SIGKILL), 0);
    assert_true(wait_process_exit(before.pid, TEST_TIMEOUT_MS));
    pid = stage_int_of_next_life(actor, "pid");
    assert_int_not_equal(pid, before.pid);
    MUST(tdm_actor_find(stage_runtime(), "phoenix", TEST_TIMEOUT_MS, &found));
    tdm_actor_describe(found, &after);
    assert_string_equal(before.id, after.id);
    assert_int_equal(stage_int(stage_call_int(found, "add", 1)), 1);
    assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), 2);
    tdm_actor_destroy(found);
    stage_end(actor);
}

static void constructor_runs_again_with_its_arguments(void **state)
{
    char path[96];
    char text[64] = "";
    tdm_actor *actor;
    FILE *diary;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/lives", getenv("TMPDIR"));
    actor = stage_make("mortal",
                       &(struct tdm_actor_options){.max_restarts = 1, .max_task_retries = 1}, path);
    assert_int_equal(stage_int(stage_call_int(actor, "perish", 1)), 1);
    diary = fopen(path, "r");
    assert_non_null(diary);
    assert_non_null(fgets(text, sizeof(text), diary));
    assert_string_equal(text, "born born ");
    (void)fclose(diary);
    (void)unlink(path);
    stage_end(actor);
}

/* A restarted "holder" reads what its constructor was given, though its creator has no handle
 * to it any more: one that is detached, or that `boss` has a handle to. */
static void check_kept_arguments(struct tdm_actor_options options, tdm_actor *boss)
{
    tdm_actor *employee = stage_make("tester", NULL, NULL);
    int64_t employee_pid = stage_pid(employee);
    tdm_actor *holder;
    tdm_actor *found;
    tdm_ref *ref;
    int64_t pid;

    options.max_restarts = 1;
    options.name = "keeper";
    MUST(tdm_put(stage_runtime(), &ref, "i", (int64_t)41));
    MUST(tdm_actor_create(stage_runtime(), "holder", &options, &holder, "Rh", ref, employee));
    tdm_ref_release(ref);
    tdm_actor_destroy(employee);
    MUST(tdm_actor_wait_ready(holder, TEST_TIMEOUT_MS));
    if (boss != NULL) {
        MUST(tdm_actor_call(boss, "employ", &ref, "h", holder));
        MUST(stage_status(ref));
    }
    tdm_actor_destroy(holder);
    MUST(tdm_actor_find(stage_runtime(), "keeper", TEST_TIMEOUT_MS, &found));
    pid = stage_pid(found);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_int_of_next_life(found, "read"), 41);
    assert_int_equal(stage_int(stage_call_int(found, "ask", 1)), 1);
    stage_end(found);
    assert_true(wait_process_exit(employee_pid, TEST_TIMEOUT_MS)); /* No arguments are kept now. */
}

static void constructor_arguments_stay_when_the_creator_releases_them(void **state)
{
    tdm_actor *boss = stage_make("holder", NULL, NULL);

    (void)state;
    check_kept_arguments((struct tdm_actor_options){.detached = 1}, NULL);
    check_kept_arguments((struct tdm_actor_options){0}, boss);
    stage_end(boss);
}

static void actor_is_restarted_up_to_max_restarts(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = 2, .max_task_retries = -1};
    tdm_actor *actor = stage_make("mortal", &options, "");

    (void)state;
    assert_int_equal(stage_int(stage_call_int(actor, "perish", 2)), 2);
    assert_int_equal(stage_status(stage_call_int(actor, "perish", 9)), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void actor_can_be_restarted_on_request(void **state)
{
    tdm_actor *actor = stage_make("tester", &(struct tdm_actor_options){.max_restarts = 1}, NULL);
    int64_t pid = stage_pid(actor);

    (void)state;
    MUST(tdm_actor_restart(actor, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_not_equal(stage_int_of_next_life(actor, "pid"), pid);
    MUST(tdm_actor_restart(actor, TEST_TIMEOUT_MS)); /* That was its only restart. */
    while (stage_try(actor, "pid") == TDM_OK) {
    }
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void call_in_flight_fails_on_restart_unless_it_may_be_retried(void **state)
{
    tdm_actor *actor = stage_make("mortal", &(struct tdm_actor_options){.max_restarts = -1}, "");

    (void)state;
    assert_int_equal(stage_status(stage_call_int(actor, "perish", 1)), TDM_E_ACTOR_RESTARTING);
    stage_detail_has("in method perish");
    stage_end(actor);
}

static void failure_by_a_restart_says_how_the_process_ended(void **state)
{
    tdm_actor *actor = stage_make("tester", &(struct tdm_actor_options){.max_restarts = 1}, NULL);
    tdm_ref *ref = stage_call_int(actor, "exit", 7);

    (void)state;
    assert_int_equal(stage_status(ref), TDM_E_ACTOR_RESTARTING);
    stage_detail_has("exit code 7; it was restarted, in method exit, call ");
    stage_detail_has(", pid ");
    stage_end(actor);
}

static void calls_made_during_a_restart_wait_for_its_end(void **state)
{
    tdm_actor *actor = stage_make("mortal", &(struct tdm_actor_options){.max_restarts = -1}, "");
    tdm_ref *refs[10];

    (void)state;
    assert_int_equal(stage_status(stage_call_int(actor, "perish", 1)), TDM_E_ACTOR_RESTARTING);
    for (int i = 0; i < 10; i++) {
        refs[i] = stage_call_int(actor, "perish", 1);
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(stage_int(refs[i]), 1);
    }
    stage_end(actor);
}

static void retriable_call_is_sent_again_after_a_restart(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = -1, .max_task_retries = 2};
    tdm_actor *actor = stage_make("mortal", &options, "");

    (void)state;
    assert_int_equal(stage_int(stage_call_int(actor, "perish", 2)), 2);
    assert_int_equal(stage_status(stage_call_int(actor, "perish", 9)),
                     TDM_E_ACTOR_RESTARTING); /* Three deaths have happened. */
    stage_end(actor);
}

static void retries_may_be_set_for_one_call(void **state)
{
    const struct tdm_call_options once = {.max_retries = 1};
    const struct tdm_call_options never = {.max_retries = -2};
    tdm_actor *plain = stage_make("mortal", &(struct tdm_actor_options){.max_restarts = -1}, "");
    tdm_actor *eager = stage_make(
        "mortal", &(struct tdm_actor_options){.max_restarts = -1, .max_task_retries = -1}, "");
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call_with(plain, "perish", &once, &ref, "i", (int64_t)1));
    assert_int_equal(stage_int(ref), 1);
    MUST(tdm_actor_call_with(eager, "perish", &never, &ref, "i", (int64_t)1));
    assert_int_equal(stage_status(ref), TDM_E_ACTOR_RESTARTING);
    stage_end(plain);
    stage_end(eager);
}

static void failing_method_is_not_retried_by_default(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = -1, .max_task_retries = -1};
    tdm_actor *actor = stage_make("tester", &options, NULL);

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "fail", "once is enough"), TDM_E_METHOD);
    assert_int_equal(stage_int(stage_call(actor, "pid")), stage_pid(actor));
    stage_end(actor);
}

static void voluntary_exit_is_not_restarted(void **state)
{
    tdm_actor *actor = stage_make("mortal", &(struct tdm_actor_options){.max_restarts = -1}, "");

    (void)state;
    MUST(stage_try(actor, "leave"));
    stage_await_state(actor, "DEAD");
    assert_int_equal(stage_try(actor, "about"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static tdm_ref *stumble(tdm_actor *actor, int64_t every, int32_t retries, tdm_status failure)
{
    const struct tdm_call_options options = {.max_retries = retries,
                                             .retry_failures = {TDM_E_IO, failure}};
    tdm_ref *ref;

    MUST(tdm_actor_call_with(actor, "stumble", &options, &ref, "i", every));
    return ref;
}

static void failing_method_is_retried_if_requested(void **state)
{
    tdm_actor *actor = stage_make("stumbler", NULL, NULL);

    (void)state;
    assert_int_equal(stage_int(stumble(actor, 3, 2, TDM_ANY_FAILURE)), 3);
    assert_int_equal(stage_status(stumble(actor, 100, 2, TDM_ANY_FAILURE)), TDM_E_METHOD);
    stage_detail_has("stumbled the 6. time");
    assert_int_equal(stage_int(stumble(actor, 10, -1, TDM_ANY_FAILURE)), 10);
    assert_int_equal(stage_status(stumble(actor, 100, 2, TDM_OK)), TDM_E_METHOD);
    assert_int_equal(stage_status(stumble(actor, 100, 0, TDM_ANY_FAILURE)),
                     TDM_E_METHOD); /* none left */
    assert_int_equal(stage_int(stage_call(actor, "runs")), 12);
    stage_end(actor);
}

static void failing_method_is_retried_only_after_listed_failures(void **state)
{
    tdm_actor *actor = stage_make("stumbler", NULL, NULL);
    const struct tdm_call_options mistake = {.retry_failures = {(tdm_status)2}};
    tdm_ref *ref;

    (void)state;
    assert_int_equal(stage_int(stumble(actor, 3, 2, TDM_E_METHOD)), 3);
    assert_int_equal(stage_status(stumble(actor, 100, 2, TDM_E_DEVICE)), TDM_E_METHOD);
    assert_int_equal(stage_int(stage_call(actor, "runs")), 4);
    assert_int_equal(tdm_actor_call_with(actor, "runs", &mistake, &ref, ""), TDM_E_INVAL);
    stage_end(actor);
}

int conformance_restarts(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarted_actor_is_the_same_with_a_new_state),
        cmocka_unit_test(actor_can_be_restarted_on_request),
        cmocka_unit_test(constructor_runs_again_with_its_arguments),
        cmocka_unit_test(constructor_arguments_stay_when_the_creator_releases_them),
        cmocka_unit_test(actor_is_restarted_up_to_max_restarts),
        cmocka_unit_test(call_in_flight_fails_on_restart_unless_it_may_be_retried),
        cmocka_unit_test(failure_by_a_restart_says_how_the_process_ended),
        cmocka_unit_test(calls_made_during_a_restart_wait_for_its_end),
        cmocka_unit_test(retriable_call_is_sent_again_after_a_restart),
        cmocka_unit_test(retries_may_be_set_for_one_call),
        cmocka_unit_test(failing_method_is_not_retried_by_default),
        cmocka_unit_test(failing_method_is_retried_if_requested),
        cmocka_unit_test(failing_method_is_retried_only_after_listed_failures),
        cmocka_unit_test(voluntary_exit_is_not_restarted),
    };

    return cmocka_run_group_tests_name("restarts", tests, NULL, NULL);
}
