/* call_arguments_test.c - references among the arguments of calls: awaited, filled in, in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime;
static tdm_actor *first;
static tdm_actor *second;

static int64_t total_of(tdm_ref *ref)
{
    int64_t total;

    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    tdm_ref_release(ref);
    return total;
}

static void reference_becomes_its_value(void **state)
{
    tdm_ref *put;
    tdm_ref *ref;
    const char *text;
    int64_t number;

    (void)state;
    assert_int_equal(tdm_put(runtime, &put, "i", (int64_t)41), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "echo", &ref, "r", put), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "echo", NULL, "(r)", put), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "r inside a group"));
    tdm_ref_release(put); /* The call holds the reference. */
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &number), TDM_OK);
    assert_int_equal(number, 41);
    tdm_ref_release(ref);

    assert_int_equal(tdm_put(runtime, &put, "si", "pair", (int64_t)2), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "echo", &ref, "r", put), TDM_OK);
    tdm_ref_release(put);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "(si)", &text, &number), TDM_OK);
    assert_string_equal(text, "pair");
    tdm_ref_release(ref);
}

/* A few bytes are copied into the pending call; more stay where they were packed. */
static void arguments_of_every_length_arrive_as_they_were(void **state)
{
    enum { LENGTHS = 600 };
    static tdm_ref *refs[LENGTHS];
    static char text[LENGTHS + 1];

    (void)state;
    for (int i = 0; i < LENGTHS; i++) {
        assert_int_equal(tdm_actor_call(first, "echo", &refs[i], "s", text), TDM_OK);
        text[i] = (char)('a' + i % 26);
    }
    for (int i = 0; i < LENGTHS; i++) {
        const char *reply;

        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, "s", &reply), TDM_OK);
        assert_int_equal(strlen(reply), i);
        assert_memory_equal(reply, text, (size_t)i);
        tdm_ref_release(refs[i]);
    }
}

/* The memory of the arguments is reused after each outcome of a call. */
static void nothing_is_left_of_the_arguments_of_the_call_before(void **state)
{
    static char text[1000];
    tdm_ref *put;
    tdm_ref *refs[4];
    const char *reply;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(tdm_put(runtime, &put, "i", (int64_t)7), TDM_OK);
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(tdm_actor_call(first, "echo", NULL, "i(r)", i, put), TDM_E_INVAL);
        assert_int_equal(tdm_actor_call(first, "echo", &refs[0], "i", i), TDM_OK);
        assert_int_equal(tdm_actor_call(first, "echo", &refs[1], "s", text), TDM_OK);
        assert_int_equal(tdm_actor_call(first, "echo", &refs[2], "r", put), TDM_OK);
        assert_int_equal(tdm_actor_call(first, "echo", &refs[3], "i", -i), TDM_OK);
        assert_int_equal(total_of(refs[0]), i);
        assert_int_equal(tdm_get(refs[1], TEST_TIMEOUT_MS, "s", &reply), TDM_OK);
        assert_string_equal(reply, text);
        tdm_ref_release(refs[1]);
        assert_int_equal(total_of(refs[2]), 7);
        assert_int_equal(total_of(refs[3]), -i);
    }
    tdm_ref_release(put);
}

static void calls_wait_behind_one_with_a_pending_argument(void **state)
{
    tdm_ref *slow;
    tdm_ref *blocked;
    tdm_ref *behind;
    uint8_t done;

    (void)state;
    /* Method append (1) must be executed first although its argument arrives last. */
    assert_int_equal(tdm_actor_call(first, "linger", NULL, "i", (int64_t)100), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "add", &slow, "i", (int64_t)1), TDM_OK);
    assert_int_equal(tdm_actor_call(second, "append", &blocked, "r", slow), TDM_OK);
    assert_int_equal(tdm_actor_call(second, "append", &behind, "i", (int64_t)2), TDM_OK);
    assert_int_equal(tdm_wait(&behind, 1, 1, 20, &done), TDM_E_TIMEOUT);
    assert_int_equal(total_of(blocked), 0);
    assert_int_equal(total_of(behind), 0);
    assert_int_equal(total_of(slow), 1);
}

static void chain_over_two_actors_runs_by_itself(void **state)
{
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_put(runtime, &ref, "i", (int64_t)0), TDM_OK);
    for (int i = 0; i < 50; i++) {
        tdm_ref *next;

        assert_int_equal(tdm_actor_call(i % 2 == 0 ? first : second, "echo", &next, "r", ref),
                         TDM_OK);
        tdm_ref_release(ref);
        ref = next;
    }
    assert_int_equal(total_of(ref), 0);
}

static void failed_reference_fails_the_calls_that_take_it(void **state)
{
    tdm_ref *failed;
    tdm_ref *refs[3];

    (void)state;
    /* The calls wait for each other's failure in two queues, so that each failure releases the
     * other queue. */
    assert_int_equal(tdm_actor_call(first, "fail", &failed, "s", "no such prompt"), TDM_OK);
    assert_int_equal(tdm_actor_call(second, "echo", &refs[0], "r", failed), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "echo", &refs[1], "r", refs[0]), TDM_OK);
    assert_int_equal(tdm_actor_call(second, "echo", &refs[2], "r", refs[1]), TDM_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
        assert_non_null(strstr(tdm_error_detail(), "reference 1 among the arguments"));
        assert_non_null(strstr(tdm_error_detail(), "no such prompt"));
        tdm_ref_release(refs[i]);
    }
    /* With a reference that has failed already, the call fails when it is made. */
    assert_int_equal(tdm_actor_call(second, "echo", &refs[0], "r", failed), TDM_OK);
    assert_int_equal(tdm_get(refs[0], TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    tdm_ref_release(refs[0]);
    tdm_ref_release(failed);
    assert_true(actor_fixture_call_int(second, "pid") > 0);
}

static void waiting_calls_fail_when_the_awaited_actor_dies(void **state)
{
    tdm_actor *mortal = actor_fixture_create(runtime, NULL);
    tdm_ref *lost;
    tdm_ref *blocked;
    tdm_ref *behind;

    (void)state;
    assert_int_equal(tdm_actor_call(mortal, "exit", &lost, "i", (int64_t)3), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "echo", &blocked, "r", lost), TDM_OK);
    assert_int_equal(tdm_actor_call(first, "echo", &behind, "i", (int64_t)5), TDM_OK);
    assert_int_equal(tdm_get(blocked, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    assert_int_equal(total_of(behind), 5);
    tdm_ref_release(lost);
    tdm_ref_release(blocked);
    tdm_actor_destroy(mortal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_becomes_its_value),
        cmocka_unit_test(arguments_of_every_length_arrive_as_they_were),
        cmocka_unit_test(nothing_is_left_of_the_arguments_of_the_call_before),
        cmocka_unit_test(calls_wait_behind_one_with_a_pending_argument),
        cmocka_unit_test(chain_over_two_actors_runs_by_itself),
        cmocka_unit_test(failed_reference_fails_the_calls_that_take_it),
        cmocka_unit_test(waiting_calls_fail_when_the_awaited_actor_dies),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    first = actor_fixture_create(runtime, NULL);
    second = actor_fixture_create(runtime, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
    return failed + actor_fixture_close(runtime);
}
