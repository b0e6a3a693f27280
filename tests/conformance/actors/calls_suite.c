/* calls_suite.c - conformance: calls, their order, concurrency, cancellation, deadlines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <poll.h>

enum { CALLS = 500 };

/* ---- order ------------------------------------------------------------------------------ */

static void calls_of_one_caller_run_in_submission_order(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *last = NULL;

    (void)state;
    for (int64_t i = 1; i < CALLS; i++) {
        MUST(tdm_actor_call(actor, "append", NULL, "i", i));
    }
    last = stage_call_int(actor, "append", CALLS);
    assert_int_equal(stage_int(last), 0); /* No call came out of order. */
    stage_end(actor);
}

static void call_that_waits_for_its_argument_keeps_its_place(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    tdm_ref *refs[2];

    (void)state;
    MUST(tdm_actor_call(actor, "append", &refs[0], "r", question));
    refs[1] = stage_call_int(actor, "append", 2);
    assert_int_equal(tdm_get(refs[1], 20, "i", &(int64_t){0}), TDM_E_TIMEOUT);
    MUST(stage_status(stage_call_int(desk, "answer", 1)));
    assert_int_equal(stage_int(refs[0]), 0);
    assert_int_equal(stage_int(refs[1]), 0);
    tdm_ref_release(question);
    stage_end(actor);
    stage_end(desk);
}

static void calls_overtake_a_waiting_call_if_the_actor_allows_it(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *actor =
        stage_make("tester", &(struct tdm_actor_options){.allow_out_of_order = 1}, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    tdm_ref *held;

    (void)state;
    MUST(tdm_actor_call(actor, "add", &held, "r", question));
    for (int64_t i = 1; i <= 3; i++) { /* Calls without arguments to wait for keep their order. */
        assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), i);
    }
    MUST(stage_status(stage_call_int(desk, "answer", 7)));
    assert_int_equal(stage_int(held), 10);
    tdm_ref_release(question);
    stage_end(actor);
    stage_end(desk);
}

static void callers_do_not_wait_for_one_another(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *shared = stage_make("tester", NULL, NULL);
    tdm_actor *other = stage_make("holder", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    tdm_ref *held;

    (void)state;
    MUST(tdm_actor_call(shared, "add", &held, "r", question));
    MUST(tdm_actor_call(other, "employ", NULL, "h", shared));
    assert_int_equal(stage_int(stage_call_int(other, "ask", 5)), 5);
    MUST(stage_status(stage_call_int(desk, "answer", 7)));
    assert_int_equal(stage_int(held), 12);
    tdm_ref_release(question);
    stage_end(other);
    stage_end(shared);
    stage_end(desk);
}

static void actor_runs_no_other_method_while_one_waits(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    tdm_ref *read;
    tdm_ref *behind;

    (void)state;
    MUST(tdm_actor_call(holder, "keep", NULL, "R", question));
    read = stage_call(holder, "read");
    behind = stage_call_int(holder, "later", 3);
    assert_int_equal(tdm_get(behind, 50, "i", &(int64_t){0}), TDM_E_TIMEOUT);
    MUST(stage_status(stage_call_int(desk, "answer", 9)));
    assert_int_equal(stage_int(read), 9);
    assert_int_equal(stage_int(behind), 3);
    tdm_ref_release(question);
    stage_end(holder);
    stage_end(desk);
}

static void released_result_is_dropped_and_the_call_still_runs(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *ref = stage_call_int(actor, "add", 1);

    (void)state;
    tdm_ref_release(ref);
    MUST(tdm_actor_call(actor, "add", NULL, "i", (int64_t)1));
    assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), 3);
    stage_end(actor);
}

static void method_may_continue_after_its_reply(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    char text[64];

    (void)state;
    actor_fixture_call_text(actor, "greet", "you", text, sizeof(text));
    assert_string_equal(text, "hello");
    actor_fixture_call_text(actor, "greeted", "", text, sizeof(text));
    assert_string_equal(text, "you/you");
    stage_end(actor);
}

/* ---- several at once -------------------------------------------------------------------- */

static void threads_of_an_actor_run_at_once(void **state)
{
    tdm_actor *actor = stage_make("crowd", &(struct tdm_actor_options){.max_concurrency = 4}, NULL);
    tdm_ref *refs[4];
    int64_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        refs[i] = stage_call_int(actor, "meet", 4);
    }
    for (int i = 0; i < 4; i++) {
        threads[i] = stage_int(refs[i]);
        for (int other = 0; other < i; other++) {
            assert_int_not_equal(threads[i], threads[other]);
        }
    }
    stage_end(actor);
}

static void methods_at_once_are_limited_by_max_concurrency(void **state)
{
    tdm_actor *patient =
        stage_make("patient", &(struct tdm_actor_options){.max_concurrency = 2}, NULL);
    tdm_ref *refs[2] = {stage_call(patient, "endure"), stage_call(patient, "endure")};
    tdm_ref *third = stage_call(patient, "begun");

    (void)state;
    assert_int_equal(tdm_get(third, 50, "i", &(int64_t){0}), TDM_E_TIMEOUT);
    MUST(tdm_cancel(refs[0], 0));
    assert_true(stage_int(third) >= 1);
    MUST(tdm_cancel(refs[1], 0));
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    stage_end(patient);
}

static void busy_concurrency_group_does_not_block_the_others(void **state)
{
    tdm_actor *actor = stage_make("grouped_crowd", NULL, NULL);
    tdm_ref *refs[2] = {stage_call_int(actor, "meet", 2), NULL};

    (void)state;
    /* The reply comes while "meet" is running. */
    while (stage_int(stage_call(actor, "here")) < 1) {
    }
    refs[1] = stage_call_int(actor, "meet", 2);
    MUST(stage_status(refs[0]));
    MUST(stage_status(refs[1]));
    stage_end(actor);
}

static void concurrency_group_has_a_limit_of_its_own(void **state)
{
    tdm_actor *actor = stage_make("grouped_crowd", NULL, NULL);
    tdm_ref *refs[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        refs[i] = stage_call_int(actor, "meet", 3);
    }
    while (stage_int(stage_call(actor, "here")) < 2) {
    }
    assert_int_equal(stage_int(stage_call(actor, "here")), 2);
    MUST(tdm_cancel(refs[0], 0));
    tdm_ref_release(refs[0]);
    MUST(stage_status(refs[1]));
    MUST(stage_status(refs[2]));
    stage_end(actor);
}

static tdm_ref *meet_in(tdm_actor *crowd, const char *group)
{
    const struct tdm_call_options options = {.concurrency_group = group};
    tdm_ref *ref;

    MUST(tdm_actor_call_with(crowd, "meet", &options, &ref, "i", (int64_t)3));
    return ref;
}

/* Two meet in their own group, and would wait for ever: the third comes by another one. */
static void call_may_choose_its_concurrency_group(void **state)
{
    tdm_actor *crowd = stage_make("grouped_crowd", NULL, NULL);
    tdm_ref *refs[3] = {stage_call_int(crowd, "meet", 3), stage_call_int(crowd, "meet", 3)};

    (void)state;
    assert_int_equal(stage_status(meet_in(crowd, "nonsense")), TDM_E_NOT_FOUND);
    stage_detail_has(
        "grouped_crowd does not have the concurrency group that the call of meet names; it has: "
        "default, ");
    refs[2] = meet_in(crowd, "default");
    for (int i = 0; i < 3; i++) {
        MUST(stage_status(refs[i]));
    }
    stage_end(crowd);
}

static void asynchronous_actor_replies_later_from_any_thread(void **state)
{
    enum { QUESTIONS = 200 };
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *refs[QUESTIONS];

    (void)state;
    for (int i = 0; i < QUESTIONS; i++) {
        refs[i] = stage_call(desk, "ask");
    }
    assert_int_equal(stage_int(stage_call(desk, "asked")), QUESTIONS);
    MUST(stage_status(stage_call_int(desk, "answer", 42)));
    for (int i = 0; i < QUESTIONS; i++) {
        assert_int_equal(stage_int(refs[i]), 42);
    }
    refs[0] = stage_call(desk, "ask");
    MUST(stage_try(desk, "refuse"));
    assert_int_equal(stage_status(refs[0]), TDM_E_METHOD);
    stage_detail_has("question 0 is not for us");
    stage_end(desk);
}

static void asynchronous_actor_limits_its_open_calls(void **state)
{
    tdm_actor *desk = stage_make("desk", &(struct tdm_actor_options){.max_concurrency = 3}, NULL);
    tdm_ref *refs[2] = {stage_call(desk, "ask"), stage_call(desk, "ask")};
    tdm_ref *third;
    tdm_ref *behind;

    (void)state;
    assert_int_equal(stage_int(stage_call(desk, "asked")), 2);
    third = stage_call(desk, "ask");
    behind = stage_call(desk, "asked");
    assert_int_equal(tdm_get(behind, 50, "i", &(int64_t){0}), TDM_E_TIMEOUT);
    MUST(tdm_cancel(refs[0], 0));
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    tdm_ref_release(third);
    tdm_ref_release(behind);
    stage_end(desk);
}

/* ---- several results -------------------------------------------------------------------- */

static void method_may_have_several_results(void **state)
{
    const struct tdm_call_options options = {.results_count = 3};
    tdm_actor *actor = stage_make("holder", NULL, NULL);
    tdm_ref *refs[3];

    (void)state;
    MUST(tdm_actor_call_with(actor, "several", &options, refs, "i", (int64_t)5));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stage_int(refs[i]), 5 + i);
    }
    stage_end(actor);
}

static void wrong_number_of_results_fails_all_of_them(void **state)
{
    const struct tdm_call_options options = {.results_count = 2};
    tdm_actor *actor = stage_make("holder", NULL, NULL);
    tdm_ref *refs[2];

    (void)state;
    MUST(tdm_actor_call_with(actor, "several", &options, refs, "i", (int64_t)5));
    assert_int_equal(stage_status(refs[0]), TDM_E_TYPE);
    assert_int_equal(stage_status(refs[1]), TDM_E_TYPE);
    stage_detail_has("2");
    stage_end(actor);
}

/* ---- cancellation and limits ------------------------------------------------------------ */

static void canceled_call_that_waits_for_an_argument_never_runs(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    tdm_ref *first;
    tdm_ref *second = NULL;

    (void)state;
    MUST(tdm_actor_call(actor, "add", &first, "r", question));
    second = stage_call_int(actor, "add", 100);
    MUST(tdm_cancel(second, 0));
    assert_int_equal(stage_status(second), TDM_E_CANCELED);
    MUST(stage_status(stage_call_int(desk, "answer", 1)));
    assert_int_equal(stage_int(first), 1);
    assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), 2);
    tdm_ref_release(question);
    stage_end(actor);
    stage_end(desk);
}

static void canceled_call_in_the_queue_of_the_actor_never_runs(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_ref *question = stage_call(desk, "ask");
    tdm_ref *read;
    tdm_ref *dropped;

    (void)state;
    MUST(tdm_actor_call(holder, "keep", NULL, "R", question));
    read = stage_call(holder, "read"); /* It runs until the desk replies. */
    dropped = stage_call(holder, "drop");
    assert_int_equal(tdm_get(dropped, 20, ""), TDM_E_TIMEOUT);
    MUST(tdm_cancel(dropped, 0));
    assert_int_equal(stage_status(dropped), TDM_E_CANCELED);
    MUST(stage_status(stage_call_int(desk, "answer", 4)));
    assert_int_equal(stage_int(read), 4);
    assert_int_equal(stage_int(stage_call(holder, "read")), 4); /* The actor still lives. */
    tdm_ref_release(question);
    stage_end(holder);
    stage_end(desk);
}

static tdm_actor *make_patient(void)
{
    return stage_make("patient", &(struct tdm_actor_options){.max_concurrency = 2}, NULL);
}

static void running_method_learns_that_it_is_canceled(void **state)
{
    tdm_actor *patient = make_patient();
    tdm_ref *ref = stage_call(patient, "endure");

    (void)state;
    while (stage_int(stage_call(patient, "begun")) < 1) {
    }
    MUST(tdm_cancel(ref, 0));
    assert_int_equal(stage_status(ref), TDM_E_CANCELED);
    while (stage_int(stage_call(patient, "ended")) < 1) {
    }
    stage_end(patient);
}

static void running_method_is_told_that_it_is_canceled(void **state)
{
    tdm_actor *patient = make_patient();
    tdm_ref *ref = stage_call(patient, "listen");

    (void)state;
    while (stage_int(stage_call(patient, "begun")) < 1) {
    }
    MUST(tdm_cancel(ref, 0));
    assert_int_equal(stage_status(ref), TDM_E_CANCELED);
    while (stage_int(stage_call(patient, "ended")) < 1) {
    }
    stage_end(patient);
}

static void await_count(tdm_actor *patient, const char *which, int64_t count)
{
    while (stage_int(stage_call(patient, which)) < count) {
    }
}

/* The first has the second have the third endure. */
static void recursive_cancel_reaches_child_calls(void **state)
{
    tdm_actor *patients[3] = {make_patient(), make_patient(), make_patient()};
    tdm_ref *alone;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call(patients[0], "delegate", &alone, "h", patients[2]));
    await_count(patients[2], "begun", 1);
    MUST(tdm_cancel(alone, 0));
    assert_int_equal(stage_status(alone), TDM_E_CANCELED);
    MUST(tdm_actor_call(patients[1], "delegate", &ref, "hh", patients[2], patients[0]));
    stage_end(patients[2]);
    patients[2] = make_patient(); /* The previous one was not told of the cancellation. */
    assert_int_equal(stage_status(ref), TDM_E_ACTOR_DIED);

    MUST(tdm_actor_call(patients[0], "delegate", &ref, "hh", patients[2], patients[1]));
    await_count(patients[2], "begun", 1);
    assert_int_equal(stage_int(stage_call(patients[2], "ended")), 0);
    MUST(tdm_cancel(ref, TDM_CANCEL_CHILDREN));
    assert_int_equal(stage_status(ref), TDM_E_CANCELED);
    await_count(patients[2], "ended", 1);
    for (int i = 0; i < 3; i++) {
        stage_end(patients[i]);
    }
}

static void forced_cancel_kills_an_unresponsive_actor(void **state)
{
    tdm_actor *deaf = stage_make("tester", NULL, NULL);
    int64_t pid = stage_pid(deaf);
    tdm_ref *ref = stage_call(deaf, "hang");

    (void)state;
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    MUST(tdm_cancel(ref, 1));
    assert_int_equal(stage_status(ref), TDM_E_CANCELED);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_equal(stage_try(deaf, "pid"), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(deaf);
}

static void forced_cancel_restarts_a_restartable_actor(void **state)
{
    tdm_actor *deaf = stage_make("tester", &(struct tdm_actor_options){.max_restarts = 1}, NULL);
    int64_t pid = stage_pid(deaf);
    tdm_ref *ref = stage_call(deaf, "hang");

    (void)state;
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    MUST(tdm_cancel(ref, 1));
    assert_int_equal(stage_status(ref), TDM_E_CANCELED);
    assert_true(wait_process_exit(pid, TEST_TIMEOUT_MS));
    assert_int_not_equal(stage_int_of_next_life(deaf, "pid"), pid);
    stage_end(deaf);
}

static void completed_call_cannot_be_canceled(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *ref = stage_call_int(actor, "add", 6);
    tdm_ref *put;

    (void)state;
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "i", &(int64_t){0}));
    MUST(tdm_cancel(ref, 0));
    assert_int_equal(stage_int(ref), 6);
    MUST(tdm_put(stage_runtime(), &put, "i", (int64_t)1));
    assert_int_equal(tdm_cancel(put, 0), TDM_E_STATE);
    tdm_ref_release(put);
    stage_end(actor);
}

static void call_fails_at_its_deadline(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = 60};
    tdm_actor *patient = make_patient();
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call_with(patient, "endure", &soon, &ref, ""));
    assert_int_equal(stage_status(ref), TDM_E_TIMEOUT);
    stage_end(patient);
}

static void method_sees_the_deadline_of_its_caller(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = TEST_TIMEOUT_MS};
    tdm_actor *patient = make_patient();
    int64_t remaining_ms;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call_with(patient, "left", &soon, &ref, ""));
    remaining_ms = stage_int(ref);
    assert_true(remaining_ms > 0 && remaining_ms <= TEST_TIMEOUT_MS);
    assert_int_equal(stage_int(stage_call(patient, "left")), TDM_FOREVER);
    stage_end(patient);
}

static void too_many_pending_calls_are_refused_at_once(void **state)
{
    tdm_actor *desk = stage_make("desk", &(struct tdm_actor_options){.max_pending_calls = 3}, NULL);
    tdm_ref *refs[3];
    tdm_ref *more = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        refs[i] = stage_call(desk, "ask");
    }
    assert_int_equal(stage_int(stage_call(desk, "asked")), 2);
    refs[2] = stage_call(desk, "ask");
    assert_int_equal(tdm_actor_call(desk, "ask", &more, ""), TDM_E_AGAIN);
    stage_detail_has("its limit is 3");
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    stage_end(desk);
}

static void passed_handle_works_in_another_process(void **state)
{
    tdm_actor *employer = stage_make("holder", NULL, NULL);
    tdm_actor *employee = stage_make("tester", NULL, NULL);

    (void)state;
    MUST(tdm_actor_call(employer, "employ", NULL, "h", employee));
    for (int64_t i = 1; i <= 3; i++) {
        assert_int_equal(stage_int(stage_call_int(employer, "ask", 1)), i);
    }
    assert_int_equal(stage_int(stage_call_int(employee, "add", 1)), 4);
    stage_end(employer);
    stage_end(employee);
}

int conformance_calls(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_one_caller_run_in_submission_order),
        cmocka_unit_test(call_that_waits_for_its_argument_keeps_its_place),
        cmocka_unit_test(calls_overtake_a_waiting_call_if_the_actor_allows_it),
        cmocka_unit_test(callers_do_not_wait_for_one_another),
        cmocka_unit_test(actor_runs_no_other_method_while_one_waits),
        cmocka_unit_test(released_result_is_dropped_and_the_call_still_runs),
        cmocka_unit_test(method_may_continue_after_its_reply),
        cmocka_unit_test(threads_of_an_actor_run_at_once),
        cmocka_unit_test(methods_at_once_are_limited_by_max_concurrency),
        cmocka_unit_test(busy_concurrency_group_does_not_block_the_others),
        cmocka_unit_test(concurrency_group_has_a_limit_of_its_own),
        cmocka_unit_test(call_may_choose_its_concurrency_group),
        cmocka_unit_test(asynchronous_actor_replies_later_from_any_thread),
        cmocka_unit_test(asynchronous_actor_limits_its_open_calls),
        cmocka_unit_test(method_may_have_several_results),
        cmocka_unit_test(wrong_number_of_results_fails_all_of_them),
        cmocka_unit_test(canceled_call_that_waits_for_an_argument_never_runs),
        cmocka_unit_test(canceled_call_in_the_queue_of_the_actor_never_runs),
        cmocka_unit_test(running_method_learns_that_it_is_canceled),
        cmocka_unit_test(running_method_is_told_that_it_is_canceled),
        cmocka_unit_test(recursive_cancel_reaches_child_calls),
        cmocka_unit_test(forced_cancel_kills_an_unresponsive_actor),
        cmocka_unit_test(forced_cancel_restarts_a_restartable_actor),
        cmocka_unit_test(completed_call_cannot_be_canceled),
        cmocka_unit_test(call_fails_at_its_deadline),
        cmocka_unit_test(method_sees_the_deadline_of_its_caller),
        cmocka_unit_test(too_many_pending_calls_are_refused_at_once),
        cmocka_unit_test(passed_handle_works_in_another_process),
    };

    return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}
