/* call_test.c - what a method reads, replies, and how it fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime;
static tdm_actor *actor;

static void wrong_method_names_the_right_ones(void **state)
{
    (void)state;
    assert_int_equal(actor_fixture_call(actor, "subtract", NULL), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "class tester has no method \"subtract\""));
    assert_non_null(strstr(tdm_error_detail(), "add, append"));
}

static void wrong_arguments_tell_both_shapes(void **state)
{
    (void)state;
    assert_int_equal(actor_fixture_call(actor, "add", "three"), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(),
                        "the arguments: argument 1: wanted an integer, got a string");
    assert_int_equal(actor_fixture_call(actor, "add", NULL), TDM_E_TYPE);
    assert_non_null(strstr(tdm_error_detail(), "wanted (i), got 0 values ()"));
}

static void failing_method_sends_its_text(void **state)
{
    (void)state;
    assert_int_equal(actor_fixture_call(actor, "fail", "prompt 3 is too long"), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "prompt 3 is too long");
    assert_int_equal(actor_fixture_call_int(actor, "pid") > 0, 1);
}

static void every_status_reaches_the_caller(void **state)
{
#define X(name, value, text) name,
    static const tdm_status statuses[] = {TDM_STATUS_MAP(X)};
#undef X

    (void)state;
    for (size_t i = 1; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        tdm_ref *ref;

        assert_int_equal(tdm_actor_call(actor, "status", &ref, "i", (int64_t)statuses[i]), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), statuses[i]);
        assert_string_equal(tdm_error_detail(), "as asked");
        tdm_ref_release(ref);
    }
}

static void arguments_outlive_the_reply(void **state)
{
    char text[64];

    (void)state;
    actor_fixture_call_text(actor, "greet", "whoever reads this", text, sizeof(text));
    assert_string_equal(text, "hello");
    actor_fixture_call_text(actor, "greeted", "", text, sizeof(text));
    assert_string_equal(text, "whoever reads this/whoever reads this");
}

static void second_reply_is_refused_and_the_first_stands(void **state)
{
    tdm_ref *ref;
    const char *once;
    int64_t total;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "add", &ref, "i", (int64_t)0), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_call(actor, "twice", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "s", &once), TDM_OK);
    assert_string_equal(once, "once");
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_call(actor, "add", &ref, "i", (int64_t)0), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    assert_int_equal(total, TDM_E_STATE);
    tdm_ref_release(ref);
}

static void values_come_back_as_they_went(void **state)
{
    tdm_ref *ref;
    int64_t integer;
    double number;
    const char *text;
    int truth;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "echo", &ref, "(if(s)?)", (int64_t)-5, 2.5, "deep", 1),
                     TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "(if(s)?)", &integer, &number, &text, &truth),
                     TDM_OK);
    assert_int_equal(integer, -5);
    assert_true(number == 2.5);
    assert_string_equal(text, "deep");
    assert_int_equal(truth, 1);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "s", &text), TDM_E_TYPE);
    assert_non_null(strstr(tdm_error_detail(), "the result"));
    tdm_ref_release(ref);
}

static void replies_of_many_megabytes_arrive_completely(void **state)
{
    static const uint64_t sizes[] = {0, 1, 65536, 3 << 20, 17 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tdm_ref *ref;
        const void *bytes;
        size_t size_bytes;

        assert_int_equal(tdm_actor_call(actor, "blob", &ref, "u", sizes[i]), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes), TDM_OK);
        assert_int_equal(size_bytes, sizes[i]);
        for (size_t at = 0; at < size_bytes; at += 4093) {
            assert_int_equal(((const uint8_t *)bytes)[at], 0x5a);
        }
        tdm_ref_release(ref);
    }
}

static void reply_larger_than_any_frame_arrives(void **state)
{
    tdm_ref *ref;
    const void *bytes;
    size_t size_bytes;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "blob", &ref, "u", UINT64_C(300) << 20), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes), TDM_OK);
    assert_int_equal(size_bytes, UINT64_C(300) << 20);
    assert_int_equal(((const uint8_t *)bytes)[size_bytes - 1], 0x5a);
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_method_names_the_right_ones),
        cmocka_unit_test(wrong_arguments_tell_both_shapes),
        cmocka_unit_test(failing_method_sends_its_text),
        cmocka_unit_test(every_status_reaches_the_caller),
        cmocka_unit_test(arguments_outlive_the_reply),
        cmocka_unit_test(second_reply_is_refused_and_the_first_stands),
        cmocka_unit_test(values_come_back_as_they_went),
        cmocka_unit_test(replies_of_many_megabytes_arrive_completely),
        cmocka_unit_test(reply_larger_than_any_frame_arrives),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    actor = actor_fixture_create(runtime, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_actor_destroy(actor);
    return failed + actor_fixture_close(runtime);
}
