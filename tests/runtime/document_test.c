/* document_test.c - a borrowed document copies only what it must and releases the bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHIFT_MAX = 64 };

/* Bytes that a document borrows, at a chosen distance from an aligned address. */
struct loan {
    char *memory;
    struct tdm_bytes bytes;
    uint32_t released_count;
};

static void loan_released(void *arg)
{
    ((struct loan *)arg)->released_count++;
}

static void loan_make(struct loan *loan, struct tdm_bytes content, size_t shift)
{
    loan->memory = aligned_alloc(64, (content.size_bytes + SHIFT_MAX + 63) / 64 * 64);
    assert_non_null(loan->memory);
    memcpy(loan->memory + shift, content.data, content.size_bytes);
    loan->bytes = (struct tdm_bytes){loan->memory + shift, content.size_bytes};
    loan->released_count = 0;
}

static bool lies_in(const void *pointer, struct tdm_bytes bytes)
{
    uintptr_t at = (uintptr_t)pointer;
    uintptr_t start = (uintptr_t)bytes.data;

    return at >= start && at < start + bytes.size_bytes;
}

static int set_up(void **state)
{
    static const double numbers[] = {1.5, 2.5, 3.5};
    static const struct tdm_ndarray ndarray = {TDM_F64, 1, {3}, numbers};
    tdm_writer *writer = NULL;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, 6);
    tdm_write_string(writer, "text");
    tdm_write_bytes(writer, "bytes", 5);
    tdm__write_ext(writer, TDM__EXT_REFERENCE, (struct tdm_bytes){"first", 5});
    tdm_write_ndarray(writer, &ndarray);
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "key");
    tdm__write_ext(writer, TDM__EXT_HANDLE, (struct tdm_bytes){"second", 6});
    tdm__write_ext(writer, TDM__EXT_REFERENCE, (struct tdm_bytes){"", 0});
    assert_int_equal(tdm_writer_status(writer), TDM_OK);
    *state = writer;
    return 0;
}

static int tear_down(void **state)
{
    tdm_writer_destroy(*state);
    return 0;
}

static void assert_content(const tdm_value *root)
{
    const struct tdm_ndarray *ndarray = tdm_value_ndarray(tdm_value_at(root, 3));

    assert_string_equal(tdm_value_string(tdm_value_at(root, 0), ""), "text");
    assert_memory_equal(tdm_value_bytes(tdm_value_at(root, 1)).data, "bytes", 5);
    assert_int_equal((uintptr_t)ndarray->data % sizeof(double), 0);
    assert_true(((const double *)ndarray->data)[2] == 3.5);
}

/* A nil takes one byte when it is packed, and 24 when it is parsed. */
static void values_beyond_a_limit_are_refused_and_the_bytes_stay(void **state)
{
    static char nils[5 + 1000] = "\xdd\0\0\3\xe8";
    struct tdm_bytes bytes = {nils, sizeof(nils)};
    struct loan loan = {.released_count = 0};
    tdm_document *document = NULL;

    (void)state;
    memset(nils + 5, 0xc0, 1000);
    assert_int_equal(tdm__document_parse_limited(bytes, 1000, loan_released, &loan, &document),
                     TDM_E_LIMIT);
    assert_string_equal(tdm_error_detail(), "packed value: more than 1000 values");
    assert_int_equal(loan.released_count, 0);
    assert_int_equal(tdm__document_parse_limited(bytes, 1001, loan_released, &loan, &document),
                     TDM_OK);
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 1000);
    tdm_document_destroy(document);
    assert_int_equal(loan.released_count, 1);
}

static void parts_stand_for_values_of_other_documents(void **state)
{
    const tdm_value *parts[2];
    struct loan loan = {.released_count = 0};
    tdm_document *document = NULL;
    tdm_document *other = NULL;
    const tdm_value *root;
    tdm_writer *writer = NULL;

    assert_int_equal(tdm_document_parse(tdm_writer_bytes(*state), &other), TDM_OK);
    parts[0] = tdm_document_root(other);
    parts[1] = tdm_value_at(parts[0], 0);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, 4);
    tdm_write_int(writer, 1);
    tdm__write_part(writer, 0);
    tdm__write_part(writer, 1);
    tdm_write_string(writer, "end");
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_E_PROTOCOL);
    assert_int_equal(tdm__document_parse_parts(tdm_writer_bytes(writer), parts, 1, loan_released,
                                               &loan, &document),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "part 1"));
    assert_int_equal(loan.released_count, 0);
    assert_int_equal(tdm__document_parse_parts(tdm_writer_bytes(writer), parts, 2, loan_released,
                                               &loan, &document),
                     TDM_OK);
    root = tdm_document_root(document);
    assert_int_equal(tdm_value_count(root), 4);
    assert_content(tdm_value_at(root, 1));
    assert_ptr_equal(tdm_value_ndarray(tdm_value_at(tdm_value_at(root, 1), 3)),
                     tdm_value_ndarray(tdm_value_at(parts[0], 3)));
    assert_string_equal(tdm_value_string(tdm_value_at(root, 2), ""), "text");
    assert_string_equal(tdm_value_string(tdm_value_at(root, 3), ""), "end");
    tdm_document_destroy(document);
    assert_int_equal(loan.released_count, 1);
    tdm_document_destroy(other);
    tdm_writer_destroy(writer);
}

static void only_strings_are_copied_from_aligned_borrowed_bytes(void **state)
{
    struct loan loan;
    tdm_document *document = NULL;
    const tdm_value *root;

    loan_make(&loan, tdm_writer_bytes(*state), 0);
    assert_int_equal(tdm__document_parse_borrowed(loan.bytes, loan_released, &loan, &document),
                     TDM_OK);
    root = tdm_document_root(document);
    assert_content(root);
    assert_false(lies_in(tdm_value_string(tdm_value_at(root, 0), ""), loan.bytes));
    assert_true(lies_in(tdm_value_bytes(tdm_value_at(root, 1)).data, loan.bytes));
    assert_true(lies_in(tdm__value_ext(tdm_value_at(root, 2)).data, loan.bytes));
    assert_true(lies_in(tdm_value_ndarray(tdm_value_at(root, 3))->data, loan.bytes));
    assert_int_equal(loan.released_count, 0);
    tdm_document_destroy(document);
    assert_int_equal(loan.released_count, 1);
    free(loan.memory);
}

static void array_that_lies_badly_is_copied(void **state)
{
    for (size_t shift = 0; shift < SHIFT_MAX; shift++) {
        struct loan loan;
        tdm_document *document = NULL;
        const tdm_value *root;

        loan_make(&loan, tdm_writer_bytes(*state), shift);
        assert_int_equal(tdm__document_parse_borrowed(loan.bytes, loan_released, &loan, &document),
                         TDM_OK);
        root = tdm_document_root(document);
        assert_content(root);
        assert_int_equal(lies_in(tdm_value_ndarray(tdm_value_at(root, 3))->data, loan.bytes),
                         shift % sizeof(double) == 0);
        tdm_document_destroy(document);
        free(loan.memory);
    }
}

static void empty_array_is_aligned_and_outlives_its_bytes(void **state)
{
    static const struct tdm_ndarray empty = {TDM_F64, 1, {0}, NULL};
    tdm_writer *writer = NULL;
    tdm_document *document = NULL;
    const struct tdm_ndarray *ndarray;
    struct loan loan;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, 2);
    tdm_write_ndarray(writer, &empty);
    tdm_write_nil(writer);
    loan_make(&loan, tdm_writer_bytes(writer), 1);
    assert_int_equal(tdm_document_parse(loan.bytes, &document), TDM_OK);
    ndarray = tdm_value_ndarray(tdm_value_at(tdm_document_root(document), 0));
    assert_int_equal((uintptr_t)ndarray->data % sizeof(double), 0);
    assert_false(lies_in(ndarray->data, loan.bytes));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    free(loan.memory);
}

static void refused_bytes_stay_the_callers(void **state)
{
    struct loan loan;
    tdm_document *document = NULL;

    loan_make(&loan, tdm_writer_bytes(*state), 0);
    loan.bytes.size_bytes--;
    assert_int_equal(tdm__document_parse_borrowed(loan.bytes, loan_released, &loan, &document),
                     TDM_E_PROTOCOL);
    assert_null(document);
    assert_int_equal(loan.released_count, 0);
    free(loan.memory);
}

static void plain_document_outlives_its_bytes(void **state)
{
    struct loan loan;
    tdm_document *document = NULL;

    loan_make(&loan, tdm_writer_bytes(*state), 1);
    assert_int_equal(tdm_document_parse(loan.bytes, &document), TDM_OK);
    free(loan.memory);
    assert_content(tdm_document_root(document));
    assert_memory_equal(tdm__value_ext(tdm_value_at(tdm_document_root(document), 2)).data, "first",
                        5);
    tdm_document_destroy(document);
}

static void references_and_handles_are_listed_in_order(void **state)
{
    tdm_document *document = NULL;
    uint32_t count = 0;
    const tdm_value *const *exts;

    assert_int_equal(tdm_document_parse(tdm_writer_bytes(*state), &document), TDM_OK);
    exts = tdm__document_exts(document, &count);
    assert_int_equal(count, 3);
    assert_int_equal(tdm_value_kind_of(exts[0]), TDM_REFERENCE);
    assert_int_equal(tdm_value_kind_of(exts[1]), TDM_HANDLE);
    assert_int_equal(tdm_value_kind_of(exts[2]), TDM_REFERENCE);
    assert_int_equal(tdm__value_ext(exts[1]).size_bytes, 6);
    assert_memory_equal(tdm__value_ext(exts[1]).data, "second", 6);
    assert_int_equal(tdm__value_ext(exts[2]).size_bytes, 0);
    assert_null(tdm__value_ext(tdm_document_root(document)).data);
    tdm_document_destroy(document);
    assert_int_equal(tdm_document_parse((struct tdm_bytes){"\xc0", 1}, &document), TDM_OK);
    (void)tdm__document_exts(document, &count);
    assert_int_equal(count, 0);
    tdm_document_destroy(document);
}

static void reference_over_1024_bytes_is_refused(void **state)
{
    uint8_t packed[6 + TDM__EXT_BYTES_MAX + 1] = {0xc9, 0, 0, 4, 0, TDM__EXT_REFERENCE};
    tdm_document *document = NULL;

    (void)state;
    assert_int_equal(tdm_document_parse((struct tdm_bytes){packed, sizeof(packed) - 1}, &document),
                     TDM_OK);
    tdm_document_destroy(document);
    document = NULL;
    packed[4] = 1;
    assert_int_equal(tdm_document_parse((struct tdm_bytes){packed, sizeof(packed)}, &document),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "has 1025 bytes, the limit is 1024"));
    assert_null(document);
}

#define DOCUMENT_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOCUMENT_TEST(only_strings_are_copied_from_aligned_borrowed_bytes),
        DOCUMENT_TEST(parts_stand_for_values_of_other_documents),
        DOCUMENT_TEST(values_beyond_a_limit_are_refused_and_the_bytes_stay),
        DOCUMENT_TEST(array_that_lies_badly_is_copied),
        DOCUMENT_TEST(empty_array_is_aligned_and_outlives_its_bytes),
        DOCUMENT_TEST(refused_bytes_stay_the_callers),
        DOCUMENT_TEST(plain_document_outlives_its_bytes),
        DOCUMENT_TEST(references_and_handles_are_listed_in_order),
        DOCUMENT_TEST(reference_over_1024_bytes_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
