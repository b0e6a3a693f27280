/* errors_suite.c - conformance: what failures say, and to whom. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <signal.h>

static void every_status_has_a_text_of_its_own(void **state)
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

static void a_methods_failure_arrives_with_its_words(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "fail", "prompt 7 is too long"), TDM_E_METHOD);
    stage_detail_has("prompt 7 is too long");
    assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), 1); /* The actor still lives. */
    stage_end(actor);
}

static void a_method_may_fail_with_any_status(void **state)
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

static void a_failure_passes_through_those_who_waited_for_it(void **state)
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

static void an_unknown_method_is_named(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(stage_try(actor, "fly"), TDM_E_NOT_FOUND);
    stage_detail_has("fly");
    stage_end(actor);
}

static void arguments_of_another_shape_are_told_with_both_shapes(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "add", "five"), TDM_E_TYPE);
    stage_detail_has("wanted an integer, got a string");
    assert_int_equal(stage_try(actor, "add"), TDM_E_TYPE);
    assert_int_equal(stage_int(stage_call_int(actor, "add", 5)), 5);
    stage_end(actor);
}

static void a_result_of_another_shape_is_told_and_can_be_read_again(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *ref = stage_call_int(actor, "add", 5);
    const char *text;

    (void)state;
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "s", &text), TDM_E_TYPE);
    assert_int_equal(stage_int(ref), 5);
    stage_end(actor);
}

static void a_death_tells_signal_method_and_time(void **state)
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

static void a_death_tells_the_exit_code(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);

    (void)state;
    assert_int_equal(stage_status(stage_call_int(actor, "exit", 7)), TDM_E_ACTOR_DIED);
    stage_detail_has("exit code 7");
    tdm_actor_destroy(actor);
}

static void a_death_tells_its_last_words(void **state)
{
    tdm_actor *actor = stage_make("mortal", NULL, "");

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "mumble", "the shard is torn"), TDM_E_ACTOR_DIED);
    stage_detail_has("| the shard is torn");
    tdm_actor_destroy(actor);
}

static void a_timeout_says_what_was_waited_for(void **state)
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

static void mistakes_of_the_caller_are_told_at_once(void **state)
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
        cmocka_unit_test(every_status_has_a_text_of_its_own),
        cmocka_unit_test(a_methods_failure_arrives_with_its_words),
        cmocka_unit_test(a_method_may_fail_with_any_status),
        cmocka_unit_test(a_failure_passes_through_those_who_waited_for_it),
        cmocka_unit_test(an_unknown_method_is_named),
        cmocka_unit_test(arguments_of_another_shape_are_told_with_both_shapes),
        cmocka_unit_test(a_result_of_another_shape_is_told_and_can_be_read_again),
        cmocka_unit_test(a_death_tells_signal_method_and_time),
        cmocka_unit_test(a_death_tells_the_exit_code),
        cmocka_unit_test(a_death_tells_its_last_words),
        cmocka_unit_test(a_timeout_says_what_was_waited_for),
        cmocka_unit_test(mistakes_of_the_caller_are_told_at_once),
    };

    return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
