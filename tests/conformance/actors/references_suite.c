/* references_suite.c - conformance: values put, got, waited for, passed on, lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <poll.h>
#include <stdatomic.h>

enum { LARGE_NUMBERS = 200000 }; /* 1.6 MB: shared memory, not messages */

static tdm_ref *put(int64_t number)
{
    tdm_ref *ref = NULL;

    MUST(tdm_put(stage_runtime(), &ref, "i", number));
    return ref;
}

/* The reference that a method replies. */
static tdm_ref *given(tdm_ref *ref)
{
    tdm_ref *inner = NULL;

    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    return inner;
}

/* ---- put, get, wait --------------------------------------------------------------------- */

static void put_value_can_be_read_repeatedly(void **state)
{
    tdm_ref *ref;
    int64_t number;
    const char *text;

    (void)state;
    MUST(tdm_put(stage_runtime(), &ref, "is", (int64_t)7, "seven"));
    for (int i = 0; i < 3; i++) {
        MUST(tdm_get(ref, 0, "is", &number, &text));
        assert_int_equal(number, 7);
        assert_string_equal(text, "seven");
    }
    tdm_ref_release(ref);
}

static void get_times_out_before_a_late_result_and_succeeds_after(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *ref = stage_call(desk, "ask");

    (void)state;
    assert_int_equal(tdm_get(ref, 0, "i", &(int64_t){0}), TDM_E_TIMEOUT);
    assert_int_equal(tdm_get(ref, 20, "i", &(int64_t){0}), TDM_E_TIMEOUT);
    MUST(stage_status(stage_call_int(desk, "answer", 3)));
    assert_int_equal(stage_int(ref), 3);
    stage_end(desk);
}

static void get_of_many_returns_values_in_order(void **state)
{
    enum { MANY = 50 };
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    const tdm_value *values[MANY];
    tdm_ref *refs[MANY];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        refs[i] = i % 2 == 0 ? put(i) : stage_call_int(actor, "echo", i);
    }
    MUST(tdm_get_many(refs, MANY, TEST_TIMEOUT_MS, values));
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(tdm_value_int(tdm_value_at(values[i], 0), -1), i);
        tdm_ref_release(refs[i]);
    }
    stage_end(actor);
}

static void get_of_many_returns_the_first_failure_without_waiting(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *refs[2] = {stage_call(desk, "ask"), NULL};
    const tdm_value *values[2];

    (void)state;
    MUST(tdm_actor_call(actor, "fail", &refs[1], "s", "no luck"));
    assert_int_equal(tdm_get_many(refs, 2, TEST_TIMEOUT_MS, values), TDM_E_METHOD);
    stage_detail_has("no luck");
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    stage_end(actor);
    stage_end(desk);
}

static void wait_returns_when_enough_results_are_ready(void **state)
{
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *refs[3] = {stage_call(desk, "ask"), NULL, put(1)};
    uint8_t done[3];

    (void)state;
    MUST(tdm_actor_call(actor, "fail", &refs[1], "s", "done all the same"));
    MUST(tdm_wait(refs, 3, 2, TEST_TIMEOUT_MS, done));
    assert_true(done[0] == 0 && done[1] == 1 && done[2] == 1);
    assert_int_equal(tdm_wait(refs, 3, 3, 20, done), TDM_E_TIMEOUT);
    assert_true(done[0] == 0 && done[1] == 1 && done[2] == 1);
    MUST(stage_status(stage_call_int(desk, "answer", 1)));
    MUST(tdm_wait(refs, 3, 3, TEST_TIMEOUT_MS, done));
    assert_true(done[0] == 1);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    stage_end(actor);
    stage_end(desk);
}

static void count_done(void *arg, tdm_ref *ref)
{
    tdm_ref_release(ref);
    (void)atomic_fetch_add((atomic_int *)arg, 1);
}

static void callback_runs_once_when_the_result_is_ready(void **state)
{
    static atomic_int calls;
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *ref = stage_call(desk, "ask");

    (void)state;
    MUST(tdm_ref_on_done(ref, count_done, &calls));
    assert_int_equal(atomic_load(&calls), 0);
    MUST(stage_status(stage_call_int(desk, "answer", 1)));
    for (int i = 0; i < TEST_TIMEOUT_MS && atomic_load(&calls) == 0; i++) {
        (void)poll(NULL, 0, 1);
    }
    MUST(tdm_ref_on_done(put(1), count_done, &calls)); /* at once */
    assert_int_equal(atomic_load(&calls), 2);
    stage_end(desk);
}

static void copied_reference_has_its_own_lifetime(void **state)
{
    tdm_ref *ref = put(5);
    tdm_ref *copy;

    (void)state;
    MUST(tdm_ref_copy(ref, &copy));
    tdm_ref_release(ref);
    assert_int_equal(stage_int(copy), 5);
}

static void result_outlives_its_actor(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *ref = stage_call_int(actor, "add", 8);

    (void)state;
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "i", &(int64_t){0}));
    stage_end(actor);
    assert_int_equal(stage_int(ref), 8);
}

/* ---- as arguments ----------------------------------------------------------------------- */

static void top_level_references_are_resolved_and_nested_ones_passed_on(void **state)
{
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_ref *ref = put(3);
    int64_t kinds[2];
    tdm_ref *reply;

    (void)state;
    MUST(tdm_actor_call(holder, "kinds", &reply, "r(R)", ref, ref));
    MUST(tdm_get(reply, TEST_TIMEOUT_MS, "ii", &kinds[0], &kinds[1]));
    assert_int_equal(kinds[0], TDM_INT);
    assert_int_equal(kinds[1], TDM_REFERENCE);
    tdm_ref_release(reply);
    tdm_ref_release(ref);
    stage_end(holder);
}

static void large_values_hold_references(void **state)
{
    static const char bytes[1 << 20] = "large";
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_ref *inner = put(4);
    tdm_ref *found = NULL;
    tdm_ref *outer;
    tdm_ref *reply;
    const void *data;
    size_t size_bytes;
    int64_t kinds[2];

    (void)state;
    MUST(tdm_put(stage_runtime(), &outer, "Rb", inner, (const void *)bytes, sizeof(bytes)));
    tdm_ref_release(inner);
    MUST(
        tdm_actor_call(holder, "kinds", &reply, "b(R)", (const void *)bytes, sizeof(bytes), outer));
    MUST(tdm_get(reply, TEST_TIMEOUT_MS, "ii", &kinds[0], &kinds[1]));
    assert_int_equal(kinds[0], TDM_BYTES);
    assert_int_equal(kinds[1], TDM_REFERENCE);
    tdm_ref_release(reply);
    MUST(tdm_get(outer, TEST_TIMEOUT_MS, "Rb", &found, &data, &size_bytes));
    assert_int_equal(size_bytes, sizeof(bytes));
    assert_string_equal(data, "large");
    tdm_ref_release(outer);
    assert_int_equal(stage_int(found), 4);
    stage_end(holder);
}

static void failed_argument_fails_its_call(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *failed;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call(actor, "fail", &failed, "s", "nothing to add"));
    MUST(tdm_actor_call(actor, "add", &ref, "r", failed));
    assert_int_equal(stage_status(ref), TDM_E_METHOD);
    stage_detail_has("nothing to add");
    assert_int_equal(stage_int(stage_call_int(actor, "add", 1)), 1);
    tdm_ref_release(failed);
    stage_end(actor);
}

static void borrowed_value_outlives_the_reference_of_its_owner(void **state)
{
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_ref *ref = put(17);

    (void)state;
    MUST(tdm_actor_call(holder, "keep", NULL, "R", ref));
    tdm_ref_release(ref);
    assert_int_equal(stage_int(stage_call(holder, "read")), 17);
    assert_int_equal(stage_int(stage_call(holder, "read")), 17);
    MUST(stage_try(holder, "drop"));
    stage_end(holder);
}

static void borrower_passes_a_reference_on(void **state)
{
    tdm_actor *first = stage_make("holder", NULL, NULL);
    tdm_actor *second = stage_make("holder", NULL, NULL);
    tdm_actor *third = stage_make("holder", NULL, NULL);
    tdm_ref *ref = given(stage_call_int(first, "make", 23));

    (void)state;
    MUST(tdm_actor_call(second, "keep", NULL, "R", ref));
    tdm_ref_release(ref);
    ref = given(stage_call(second, "give"));
    MUST(tdm_actor_call(third, "keep", NULL, "R", ref));
    tdm_ref_release(ref);
    MUST(stage_try(second, "drop"));
    assert_int_equal(stage_int(stage_call(third, "read")), 23);
    stage_end(first);
    stage_end(second);
    stage_end(third);
}

static void reference_without_a_value_can_be_passed_on(void **state)
{
    tdm_actor *maker = stage_make("holder", NULL, NULL);
    tdm_actor *keeper = stage_make("holder", NULL, NULL);
    tdm_ref *late = stage_call_int(maker, "later", 29);

    (void)state;
    MUST(tdm_actor_call(keeper, "keep", NULL, "R", late));
    tdm_ref_release(late);
    assert_int_equal(stage_int(stage_call(keeper, "read")), 29);
    stage_end(keeper);
    stage_end(maker);
}

static void references_inside_values_live_as_long_as_the_values(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    tdm_ref *inner = put(31);
    tdm_ref *outer;
    tdm_ref *reply;
    tdm_ref *found;
    const tdm_value *value;

    (void)state;
    MUST(tdm_put(stage_runtime(), &outer, "(sR)", "inside", inner));
    tdm_ref_release(inner);
    MUST(tdm_actor_call(actor, "echo", &reply, "r", outer));
    tdm_ref_release(outer);
    MUST(tdm_get(reply, TEST_TIMEOUT_MS, "v", &value));
    MUST(tdm_value_ref(stage_runtime(), tdm_value_at(value, 1), &found));
    tdm_ref_release(reply);
    assert_int_equal(stage_int(found), 31);
    stage_end(actor);
}

static void death_of_the_owner_loses_values_that_were_not_fetched(void **state)
{
    tdm_actor *owner = stage_make("holder", NULL, NULL);
    tdm_actor *borrower = stage_make("holder", NULL, NULL);
    tdm_ref *here = given(stage_call_int(owner, "make", 1));
    tdm_ref *lost = given(stage_call_int(owner, "make", 2));

    (void)state;
    MUST(tdm_get(here, TEST_TIMEOUT_MS, "i", &(int64_t){0}));
    MUST(tdm_actor_call(borrower, "keep", NULL, "R", lost));
    stage_end(owner);
    assert_int_equal(stage_status(lost), TDM_E_OWNER_DIED);
    assert_int_equal(stage_try(borrower, "read"), TDM_E_OWNER_DIED);
    assert_int_equal(stage_int(here), 1);
    stage_end(borrower);
}

static void death_of_a_borrower_loses_no_value(void **state)
{
    tdm_actor *borrower = stage_make("holder", NULL, NULL);
    tdm_ref *ref = put(37);

    (void)state;
    MUST(tdm_actor_call(borrower, "keep", NULL, "R", ref));
    assert_int_equal(stage_int(stage_call(borrower, "read")), 37);
    stage_end(borrower);
    assert_int_equal(stage_int(ref), 37);
}

/* ---- values freed ----------------------------------------------------------------------- */

static void assert_freed(tdm_ref *ref)
{
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &(int64_t){0}), TDM_E_VALUE_LOST);
    stage_detail_has("freed by its owner");
}

static void freed_value_is_lost_to_processes_that_have_not_read_it(void **state)
{
    tdm_actor *unread = stage_make("holder", NULL, NULL);
    tdm_actor *reader = stage_make("holder", NULL, NULL);
    tdm_ref *ref = put(41);
    tdm_ref *copy;
    tdm_ref *sum;

    (void)state;
    MUST(tdm_ref_copy(ref, &copy));
    MUST(tdm_actor_call(unread, "keep", NULL, "R", ref));
    MUST(tdm_actor_call(reader, "keep", NULL, "R", ref));
    assert_int_equal(stage_int(stage_call(reader, "read")), 41);
    MUST(tdm_ref_free_value(ref));
    MUST(tdm_ref_free_value(copy)); /* Freeing a freed value does nothing. */
    assert_freed(ref);
    assert_freed(copy);
    assert_int_equal(stage_try(unread, "read"), TDM_E_VALUE_LOST);
    stage_detail_has("freed by its owner");
    assert_int_equal(stage_int(stage_call(reader, "read")), 41);
    MUST(tdm_actor_call(reader, "kinds", &sum, "rr", ref, ref));
    assert_int_equal(stage_status(sum), TDM_E_VALUE_LOST);
    tdm_ref_release(copy);
    tdm_ref_release(ref);
    stage_end(reader);
    stage_end(unread);
}

static void only_the_owner_frees_and_only_complete_values(void **state)
{
    tdm_actor *holder = stage_make("holder", NULL, NULL);
    tdm_actor *desk = stage_make("desk", NULL, NULL);
    tdm_ref *borrowed = given(stage_call_int(holder, "make", 43));
    tdm_ref *late = stage_call(desk, "ask");
    tdm_ref *failed = NULL;

    (void)state;
    assert_int_equal(tdm_ref_free_value(borrowed), TDM_E_STATE);
    assert_int_equal(stage_int(borrowed), 43);
    assert_int_equal(tdm_ref_free_value(late), TDM_E_STATE);
    MUST(stage_status(stage_call_int(desk, "answer", 3)));
    assert_int_equal(stage_int(late), 3);
    MUST(tdm_actor_call(desk, "fly", &failed, ""));
    assert_int_equal(tdm_get(failed, TEST_TIMEOUT_MS, ""), TDM_E_NOT_FOUND);
    MUST(tdm_ref_free_value(failed));
    assert_int_equal(stage_status(failed), TDM_E_NOT_FOUND);
    stage_end(desk);
    stage_end(holder);
}

/* ---- values ----------------------------------------------------------------------------- */

static void values_of_every_type_are_returned_unchanged(void **state)
{
    tdm_actor *actor = stage_make("tester", NULL, NULL);
    const float numbers[2][3] = {{1, 2, 3}, {4, 5, 6}};
    struct tdm_ndarray array = {TDM_F32, 2, {2, 3}, numbers};
    const tdm_value *value;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_call(actor, "echo", &ref, "(iuf?sbn(is){sf}a)", INT64_MIN, UINT64_MAX, 0.1, 1,
                        "text", "by\0tes", (size_t)6, (int64_t)1, "inner", "key", 2.5, &array));
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "v", &value));
    assert_int_equal(tdm_value_count(value), 10);
    assert_true(tdm_value_int(tdm_value_at(value, 0), 0) == INT64_MIN);
    assert_true(tdm_value_uint(tdm_value_at(value, 1), 0) == UINT64_MAX);
    assert_true(tdm_value_double(tdm_value_at(value, 2), 0) == 0.1);
    assert_int_equal(tdm_value_bool(tdm_value_at(value, 3), 0), 1);
    assert_string_equal(tdm_value_string(tdm_value_at(value, 4), ""), "text");
    assert_int_equal(tdm_value_bytes(tdm_value_at(value, 5)).size_bytes, 6);
    assert_int_equal(tdm_value_kind_of(tdm_value_at(value, 6)), TDM_NIL);
    assert_string_equal(tdm_value_string(tdm_value_at(tdm_value_at(value, 7), 1), ""), "inner");
    assert_true(tdm_value_double(tdm_value_find(tdm_value_at(value, 8), "key"), 0) == 2.5);
    array = *tdm_value_ndarray(tdm_value_at(value, 9));
    assert_true(array.dims_count == 2 && array.shape[0] == 2 && array.shape[1] == 3);
    assert_memory_equal(array.data, numbers, sizeof(numbers));
    tdm_ref_release(ref);
    stage_end(actor);
}

static tdm_ref *range(tdm_actor *holder, uint64_t count)
{
    tdm_ref *ref = NULL;

    MUST(tdm_actor_call(holder, "range", &ref, "u", count));
    return ref;
}

static int64_t sum(tdm_actor *holder, tdm_ref *numbers)
{
    tdm_ref *ref = NULL;

    MUST(tdm_actor_call(holder, "sum", &ref, "r", numbers));
    return stage_int(ref);
}

static void large_value_arrives_wherever_it_is_read(void **state)
{
    const int64_t expected = (int64_t)LARGE_NUMBERS * (LARGE_NUMBERS - 1) / 2;
    tdm_actor *first = stage_make("holder", NULL, NULL);
    tdm_actor *second = stage_make("holder", NULL, NULL);
    tdm_ref *refs[2] = {range(first, LARGE_NUMBERS), range(second, LARGE_NUMBERS)};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tdm_ndarray array;
        tdm_ref *copy;

        assert_int_equal(sum(first, refs[i]), expected);
        assert_int_equal(sum(second, refs[i]), expected);
        MUST(tdm_get(refs[i], TEST_TIMEOUT_MS, "a", &array));
        MUST(tdm_put(stage_runtime(), &copy, "a", &array));
        assert_int_equal(sum(first, copy), expected);
        assert_int_equal(sum(second, copy), expected);
        tdm_ref_release(copy);
        tdm_ref_release(refs[i]);
    }
    stage_end(first);
    stage_end(second);
}

/* What this process may do to the memory there: "r--s", "rw-p", … */
static void rights_to(const void *address, char rights[5])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from;
    unsigned long to;
    char line[512];
    char seen[5];

    rights[0] = '\0';
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%lx-%lx %4s", &from, &to, seen) == 3 && (uintptr_t)address >= from &&
            (uintptr_t)address < to) {
            (void)snprintf(rights, 5, "%s", seen);
        }
    }
    (void)fclose(maps);
}

static void large_value_of_this_node_is_read_in_place(void **state)
{
    struct tdm_runtime_info here;
    struct tdm_actor_options options = {.scheduling = TDM_SCHEDULE_NODE};
    struct tdm_ndarray array;
    tdm_actor *holder;
    tdm_ref *ref;
    char rights[5];

    (void)state;
    tdm_runtime_describe(stage_runtime(), &here);
    options.node_id = here.node_id;
    holder = stage_make("holder", &options, NULL);
    ref = range(holder, LARGE_NUMBERS);
    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "a", &array));
    assert_int_equal((uintptr_t)array.data % sizeof(int64_t), 0);
    rights_to(array.data, rights);
    assert_string_equal(rights, "r--s"); /* The memory is shared and read-only. */
    stage_end(holder);
    assert_int_equal(((const int64_t *)array.data)[LARGE_NUMBERS - 1], LARGE_NUMBERS - 1);
    tdm_ref_release(ref);
}

int conformance_references(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_value_can_be_read_repeatedly),
        cmocka_unit_test(get_times_out_before_a_late_result_and_succeeds_after),
        cmocka_unit_test(get_of_many_returns_values_in_order),
        cmocka_unit_test(get_of_many_returns_the_first_failure_without_waiting),
        cmocka_unit_test(wait_returns_when_enough_results_are_ready),
        cmocka_unit_test(callback_runs_once_when_the_result_is_ready),
        cmocka_unit_test(copied_reference_has_its_own_lifetime),
        cmocka_unit_test(result_outlives_its_actor),
        cmocka_unit_test(top_level_references_are_resolved_and_nested_ones_passed_on),
        cmocka_unit_test(large_values_hold_references),
        cmocka_unit_test(failed_argument_fails_its_call),
        cmocka_unit_test(borrowed_value_outlives_the_reference_of_its_owner),
        cmocka_unit_test(borrower_passes_a_reference_on),
        cmocka_unit_test(reference_without_a_value_can_be_passed_on),
        cmocka_unit_test(references_inside_values_live_as_long_as_the_values),
        cmocka_unit_test(death_of_the_owner_loses_values_that_were_not_fetched),
        cmocka_unit_test(death_of_a_borrower_loses_no_value),
        cmocka_unit_test(freed_value_is_lost_to_processes_that_have_not_read_it),
        cmocka_unit_test(only_the_owner_frees_and_only_complete_values),
        cmocka_unit_test(values_of_every_type_are_returned_unchanged),
        cmocka_unit_test(large_value_arrives_wherever_it_is_read),
        cmocka_unit_test(large_value_of_this_node_is_read_in_place),
    };

    return cmocka_run_group_tests_name("references", tests, NULL, NULL);
}
