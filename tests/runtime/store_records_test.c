/* store_records_test.c - records are copied into one block, sorted, and found. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void append(struct tdm__store_records *records, const char *key, uint64_t version,
                   const char *text)
{
    tdm__store_records_append(records, key, strlen(key), version,
                              (struct tdm_bytes){text, strlen(text)});
}

static void copy_needs_nothing_of_the_original(void **state)
{
    char key[] = "key";
    char bytes[] = "bytes";
    const struct tdm__store_record items[2] = {{key, 4, {bytes, 5}}, {"other", 5, {NULL, 0}}};
    struct tdm__store_records *records;

    (void)state;
    assert_int_equal(tdm__store_records_copy(items, 2, &records), TDM_OK);
    memset(key, 'x', sizeof(key));
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(records->count, 2);
    assert_string_equal(records->items[0].key, "key");
    assert_true(records->items[0].version == 4);
    assert_int_equal(records->items[0].bytes.size_bytes, 5);
    assert_memory_equal(records->items[0].bytes.data, "bytes", 5);
    assert_string_equal(records->items[1].key, "other");
    assert_int_equal(records->items[1].bytes.size_bytes, 0);
    free(records);
}

static void sorted_records_are_there_once(void **state)
{
    static const char *const expected[] = {"a", "a/1", "b", "c"};
    struct tdm__store_records *records;

    (void)state;
    assert_int_equal(tdm__store_records_create(6, 64, &records), TDM_OK);
    append(records, "c", 1, "C");
    append(records, "a", 2, "A");
    append(records, "b", 3, "B");
    append(records, "a/1", 4, "A1");
    append(records, "a", 2, "A");
    append(records, "c", 1, "C");
    tdm__store_records_sort(records);
    assert_int_equal(records->count, 4);
    for (uint32_t i = 0; i < records->count; i++) {
        assert_string_equal(records->items[i].key, expected[i]);
    }
    free(records);
}

static void record_is_found_by_its_complete_key(void **state)
{
    static const struct tdm__store_record items[3] = {
        {"a", 1, {NULL, 0}}, {"ab", 2, {NULL, 0}}, {"b", 3, {NULL, 0}}};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_ptr_equal(tdm__store_records_find(items, 3, items[i].key), &items[i]);
    }
    assert_null(tdm__store_records_find(items, 3, "aa"));
    assert_null(tdm__store_records_find(items, 3, ""));
    assert_null(tdm__store_records_find(items, 3, "c"));
    assert_null(tdm__store_records_find(items, 0, "a"));
}

static void empty_list_is_copied_into_a_block(void **state)
{
    struct tdm__store_records *records;

    (void)state;
    assert_int_equal(tdm__store_records_copy(NULL, 0, &records), TDM_OK);
    tdm__store_records_sort(records);
    assert_int_equal(records->count, 0);
    free(records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_needs_nothing_of_the_original),
        cmocka_unit_test(sorted_records_are_there_once),
        cmocka_unit_test(record_is_found_by_its_complete_key),
        cmocka_unit_test(empty_list_is_copied_into_a_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
