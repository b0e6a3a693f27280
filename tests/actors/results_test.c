/* results_test.c - values that are put are read, awaited, copied and freed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void test_several_results_are_read_together(void **state)
{
    struct object_fixture *scene = *state;
    const tdm_value *values[2] = {NULL, NULL};
    tdm_ref *refs[2];

    TRY(tdm_put(scene->runtime, &refs[0], "i", (int64_t)3));
    TRY(tdm_put(scene->runtime, &refs[1], "s", "four"));
    TRY(tdm_get_many(refs, 2, 0, values));
    assert_int_equal(tdm_value_int(tdm_value_at(values[0], 0), 0), 3);
    assert_string_equal(tdm_value_string(tdm_value_at(values[1], 0), ""), "four");
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
}

static void test_waiting_reports_which_results_are_missing(void **state)
{
    struct object_fixture *scene = *state;
    uint8_t done[2] = {9, 9};
    tdm_ref *refs[2];

    TRY(tdm_put(scene->runtime, &refs[0], "i", (int64_t)3));
    TRY(tdm__ref_create(scene->runtime, &refs[1]));
    TRY(tdm_wait(refs, 2, 1, 0, done));
    assert_int_equal(done[0], 1);
    assert_int_equal(done[1], 0);
    assert_int_equal(tdm_wait(refs, 2, 2, 0, done), TDM_E_TIMEOUT);
    assert_int_equal(tdm_wait(refs, 2, 3, 0, done), TDM_E_INVAL);
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
}

static void test_a_freed_value_is_lost_for_all_copies(void **state)
{
    struct object_fixture *scene = *state;
    int64_t number = 0;
    tdm_ref *copy;
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)3));
    TRY(tdm_ref_copy(ref, &copy));
    TRY(tdm_get(copy, 0, "i", &number));
    assert_int_equal(number, 3);
    TRY(tdm_ref_free_value(ref));
    tdm_ref_release(ref);
    assert_int_equal(tdm_get(copy, 0, "i", &number), TDM_E_VALUE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "freed by its owner"));
    tdm_ref_release(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(test_several_results_are_read_together),
        OBJECT_FIXTURE_TEST(test_waiting_reports_which_results_are_missing),
        OBJECT_FIXTURE_TEST(test_a_freed_value_is_lost_for_all_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
