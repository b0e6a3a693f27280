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

/* Fails the test unless the values of the failure are those of an objector. */
static void expect_objection(const tdm_value *values, int64_t number, int64_t objections)
{
    tdm_ref *inner;

    assert_non_null(values);
    assert_int_equal(tdm_value_count(values), 3);
    assert_int_equal(tdm_value_int(tdm_value_at(values, 0), -1), number);
    assert_int_equal(tdm_value_int(tdm_value_at(values, 1), -1), objections);
    MUST(tdm_value_ref(stage_runtime(), tdm_value_at(values, 2), &inner));
    assert_int_equal(stage_int(inner), number);
}

static void failure_carries_values_beside_its_text(void **state)
{
    tdm_actor *objector = stage_make("objector", NULL, NULL);
    tdm_ref *ref = stage_call_int(objector, "object", 7);
    tdm_ref *kept = stage_call(objector, "wait");

    (void)state;
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "an objection");
    expect_objection(tdm_ref_failure(ref), 7, 1);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    assert_null(tdm_ref_failure(kept)); /* It is not there yet. */
    MUST(stage_try(objector, "refuse"));
    assert_int_equal(tdm_get(kept, TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    expect_objection(tdm_ref_failure(kept), 2, 2);
    tdm_ref_release(kept);
    tdm_ref_release(ref);
    stage_end(objector);
}

static void values_of_a_failure_pass_through_references_and_arguments(void **state)
{
    tdm_actor *objector = stage_make("objector", NULL, NULL);
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_ref *borrowed = NULL;
    tdm_ref *argued;
    tdm_ref *reply;

    (void)state;
    MUST(tdm_actor_call(holder, "employ", NULL, "h", objector));
    MUST(tdm_actor_call(holder, "object", &reply, "i", INT64_C(6)));
    MUST(tdm_get(reply, TEST_TIMEOUT_MS, "R", &borrowed)); /* Of another process. */
    assert_int_equal(tdm_get(borrowed, TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    expect_objection(tdm_ref_failure(borrowed), 6, 1);
    MUST(tdm_actor_call(objector, "object", &argued, "r", borrowed));
    assert_int_equal(tdm_get(argued, TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    expect_objection(tdm_ref_failure(argued), 6, 1);
    tdm_ref_release(argued);
    tdm_ref_release(borrowed);
    tdm_ref_release(reply);
    stage_end(holder);
    stage_end(objector);
}

static void values_of_a_failure_pass_through_retries_streams_and_several_results(void **state)
{
    const struct tdm_call_options retried = {.max_retries = 2, .retry_failures = {TDM_E_METHOD}};
    const struct tdm_call_options several = {.results_count = 2};
    tdm_actor *objector = stage_make("objector", NULL, NULL);
    tdm_stream *stream = NULL;
    tdm_ref *refs[2];
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call_with(objector, "object", &retried, &ref, "i", INT64_C(8)));
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    expect_objection(tdm_ref_failure(ref), 8, 3);
    tdm_ref_release(ref);
    MUST(tdm_actor_call_with(objector, "object", &several, refs, "i", INT64_C(9)));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
        expect_objection(tdm_ref_failure(refs[i]), 9, 4);
        tdm_ref_release(refs[i]);
    }
    MUST(tdm_actor_stream(objector, "falter", NULL, &stream, ""));
    MUST(tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref));
    assert_int_equal(stage_int(ref), 0);
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref), TDM_E_METHOD);
    expect_objection(tdm_stream_failure(stream), 1, 5);
    MUST(tdm_stream_completed(stream, &ref));
    expect_objection(tdm_ref_failure(ref), 1, 5);
    tdm_ref_release(ref);
    tdm_stream_destroy(stream);
    stage_end(objector);
}

static void failure_without_values_has_none(void **state)
{
    tdm_actor *tester = stage_make("tester", NULL, NULL);
    tdm_actor *objector = stage_make("objector", NULL, NULL);
    tdm_ref *failed = stage_call(tester, "missing");
    tdm_ref *value = stage_call_int(tester, "add", 1);
    tdm_ref *exceeding = stage_call(objector, "exceed");

    (void)state;
    assert_int_equal(tdm_get(failed, TEST_TIMEOUT_MS, ""), TDM_E_NOT_FOUND);
    assert_null(tdm_ref_failure(failed));
    MUST(tdm_get(value, TEST_TIMEOUT_MS, "i", &(int64_t){0}));
    assert_null(tdm_ref_failure(value));
    assert_int_equal(tdm_get(exceeding, TEST_TIMEOUT_MS, ""), TDM_E_LIMIT);
    stage_detail_has("16777222 bytes, it may carry 16777216");
    assert_null(tdm_ref_failure(exceeding));
    tdm_ref_release(exceeding);
    tdm_ref_release(value);
    tdm_ref_release(failed);
    stage_end(objector);
    stage_end(tester);
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
    stage_detail_has("ms ago, probably started");
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
    tdm_ref_release(stage_call(desk, "ask"));
    ref = stage_call(desk, "ask");
    assert_int_equal(tdm_get(ref, 40, ""), TDM_E_TIMEOUT);
    stage_detail_has("no result within 40 ms: method ask of actor ");
    stage_detail_has("perhaps not started: call ");
    tdm_ref_release(ref);
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
        cmocka_unit_test(failure_carries_values_beside_its_text),
        cmocka_unit_test(values_of_a_failure_pass_through_references_and_arguments),
        cmocka_unit_test(values_of_a_failure_pass_through_retries_streams_and_several_results),
        cmocka_unit_test(failure_without_values_has_none),
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
