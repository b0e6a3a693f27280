/* errors_suite.c - conformance: what failures say, and to whom. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <signal.h>

static void every_status_has_a_distinct_text(void **state)
{
    static const tdm_status statuses[] = {
#define X(name, value, text) name,
        TDM_STATUS_MAP(X)
#undef X
    };
    enum { STATUSES = sizeof(statuses) / sizeof(statuses[0]) };

    (void)state;
    for (int i = 0; i < STATUSES; i++) {
        for (int other = 0; other < i; other++) {
            assert_string_not_equal(tdm_strerror(statuses[i]), tdm_strerror(statuses[other]));
        }
    }
}

static void failure_of_a_method_arrives_with_its_text(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "fail", "prompt 7 is too long"), TDM_E_METHOD);
    stage_detail_has("prompt 7 is too long");
    assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), 1); /* The actor still lives. */
    stage_end(actor);
}

static void method_may_fail_with_any_status(void **state)
{
    static const tdm_status statuses[] = {TDM_E_NOMEM, TDM_E_EXISTS, TDM_E_DEVICE_FULL,
                                          TDM_E_TIMEOUT};
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        assert_int_equal(stage_status(stage_call_int(actor, "status", statuses[i])), statuses[i]);
    }
    stage_end(actor);
}

static void failure_passes_through_actors_that_waited_for_it(void **state)
{
    tdm_actor *asker = stage_make("holder", NULL, NULL);
    tdm_actor *keeper = stage_make("tester", NULL, NULL);
    tdm_ref *failed;

    (void)state;
    MUST(tdm_actor_call(keeper, "fail", &failed, "s", "at the source"));
    MUST(tdm_actor_call(asker, "keep", NULL, "R", failed));
    assert_int_equal(stage_try(asker, "read"), TDM_E_METHOD);
    stage_detail_has("at the source");
    tdm_ref_release(failed);
    stage_end(asker);
    stage_end(keeper);
}

static void unknown_method_is_named_in_the_error(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(stage_try(actor, "fly"), TDM_E_NOT_FOUND);
    stage_detail_has("fly");
    stage_end(actor);
}

static void wrong_argument_types_are_reported_with_both_types(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "add", "five"), TDM_E_TYPE);
    stage_detail_has("wanted an integer, got a string");
    assert_int_equal(stage_try(actor, "add"), TDM_E_TYPE);
    assert_int_equal(stage_int(stage_call_int(actor, "add", 5)), 5);
    stage_end(actor);
}

static void result_of_the_wrong_type_is_reported_and_stays_readable(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *ref = stage_call_int(actor, "add", 5);
    const char *text;

    (void)state;
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "s", &text), TDM_E_TYPE);
    assert_int_equal(stage_int(ref), 5);
    stage_end(actor);
}

static void death_report_has_signal_method_and_time(void **state)
{
    const struct tdm_actor_options options = {.name = "victim"};
    tdm_actor *actor = stage_make("tester", &options, NULL);
    tdm_ref *ref = stage_call(actor, "hang");
    char pid[32];

    (void)state;
    (void)snprintf(pid, sizeof(pid), "pid %lld", (long long)stage_pid(actor));
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    assert_int_equal(kill((pid_t)stage_pid(actor), SIGKILL), 0);
    assert_int_equal(stage_status(ref), TDM_E_ACTOR_DIED);
    stage_detail_has("actor victim died");
    stage_detail_has("signal 9 (killed)");
    stage_detail_has(pid);
    stage_detail_has("in method hang");
    stage_detail_has("ms after it began");
    assert_int_equal(stage_try(actor, "pid"), TDM_E_ACTOR_DIED);
    stage_detail_has("signal 9 (killed)");
    tdm_actor_destroy(actor);
}

static void death_report_has_the_exit_code(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(stage_status(stage_call_int(actor, "exit", 7)), TDM_E_ACTOR_DIED);
    stage_detail_has("exit code 7");
    tdm_actor_destroy(actor);
}

static void death_report_has_the_last_lines_of_stderr(void **state)
{
    tdm_actor *actor = stage_make("mortal", NULL, "");

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "mumble", "the shard is torn"), TDM_E_ACTOR_DIED);
    stage_detail_has("| the shard is torn");
    tdm_actor_destroy(actor);
}

static void timeout_names_the_method(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = 40};
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call_with(desk, "ask", &soon, &ref, ""));
    assert_int_equal(stage_status(ref), TDM_E_TIMEOUT);
    stage_detail_has("in method ask");
    stage_end(desk);
}

static void invalid_arguments_of_the_caller_fail_at_once(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *ref = NULL;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "", &ref, ""), TDM_E_INVAL);
    assert_int_equal(tdm_actor_call(actor, "add", &ref, "%"), TDM_E_INVAL);
    assert_string_not_equal(tdm_error_detail(), "");
    assert_int_equal(tdm_put(stage_runtime(), &ref, "%"), TDM_E_INVAL);
    stage_end(actor);
}

int conformance_errors(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_distinct_text),
        cmocka_unit_test(failure_of_a_method_arrives_with_its_text),
        cmocka_unit_test(method_may_fail_with_any_status),
        cmocka_unit_test(failure_passes_through_actors_that_waited_for_it),
        cmocka_unit_test(unknown_method_is_named_in_the_error),
        cmocka_unit_test(wrong_argument_types_are_reported_with_both_types),
        cmocka_unit_test(result_of_the_wrong_type_is_reported_and_stays_readable),
        cmocka_unit_test(death_report_has_signal_method_and_time),
        cmocka_unit_test(death_report_has_the_exit_code),
        cmocka_unit_test(death_report_has_the_last_lines_of_stderr),
        cmocka_unit_test(timeout_names_the_method),
        cmocka_unit_test(invalid_arguments_of_the_caller_fail_at_once),
    };

    return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
