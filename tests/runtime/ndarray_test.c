/* ndarray_test.c - arrays survive packing, and malformed ones are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/ndarray.h"
#include "tests/support/hex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
    tdm_writer *writer = NULL;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    *state = writer;
    return 0;
}

static int tear_down(void **state)
{
    tdm_writer_destroy(*state);
    return 0;
}

static tdm_document *parse_written(tdm_writer *writer)
{
    tdm_document *document = NULL;

    assert_int_equal(tdm_writer_status(writer), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    return document;
}

static void every_dtype_and_number_of_dimensions_survives(void **state)
{
    static const uint8_t data[1 << 8] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

    for (int dtype = TDM_F32; dtype <= TDM_BOOL8; dtype++) {
        struct tdm_ndarray packed = {(enum tdm_dtype)dtype, 0, {0}, data};

        for (uint32_t dims = 0; dims <= TDM_NDARRAY_DIMS_MAX; dims++) {
            struct tdm_ndarray got = {.dims_count = 99};
            tdm_document *document;
            const char *text = NULL;

            if (dims > 0) {
                packed.shape[dims - 1] = dims < 6 ? 2 : 1;
            }
            packed.dims_count = dims;
            tdm_writer_clear(*state);
            assert_int_equal(tdm_pack(*state, "sa", "before", &packed), TDM_OK);
            document = parse_written(*state);
            assert_int_equal(tdm_unpack(tdm_document_root(document), "sa", &text, &got), TDM_OK);
            assert_true(got.dtype == packed.dtype && got.dims_count == dims);
            assert_memory_equal(got.shape, packed.shape, dims * sizeof(got.shape[0]));
            assert_memory_equal(got.data, data, tdm_ndarray_bytes(&packed));
            assert_int_equal((uintptr_t)got.data % TDM__NDARRAY_ALIGNMENT, 0);
            tdm_document_destroy(document);
        }
    }
}

/* The alignment does not depend on what is packed in front of the array. */
static void data_are_aligned_in_the_stream(void **state)
{
    struct tdm_ndarray ndarray = {TDM_U8, 1, {3}, "abc"};

    for (size_t front = 0; front < 200; front++) {
        struct tdm_bytes bytes;

        tdm_writer_clear(*state);
        for (size_t i = 0; i < front; i++) {
            tdm_write_nil(*state);
        }
        tdm_write_ndarray(*state, &ndarray);
        bytes = tdm_writer_bytes(*state);
        assert_int_equal((bytes.size_bytes - 3) % TDM__NDARRAY_ALIGNMENT, 0);
        assert_memory_equal((const char *)bytes.data + bytes.size_bytes - 3, "abc", 3);
    }
}

static void empty_array_needs_no_data(void **state)
{
    struct tdm_ndarray empty = {TDM_F32, 3, {UINT64_MAX, 0, UINT64_MAX}, NULL};
    tdm_document *document;
    const struct tdm_ndarray *got;

    tdm_write_ndarray(*state, &empty);
    document = parse_written(*state);
    assert_int_equal(tdm_value_kind_of(tdm_document_root(document)), TDM_NDARRAY);
    got = tdm_value_ndarray(tdm_document_root(document));
    assert_int_equal(got->dims_count, 3);
    assert_true(got->shape[0] == UINT64_MAX && got->shape[1] == 0);
    assert_int_equal(tdm_ndarray_bytes(got), 0);
    tdm_document_destroy(document);
    assert_null(tdm_value_ndarray(NULL));
}

static void impossible_array_is_not_packed(void **state)
{
    static const struct tdm_ndarray impossible[] = {
        {(enum tdm_dtype)0, 1, {1}, "x"},
        {(enum tdm_dtype)15, 1, {1}, "x"},
        {TDM_U8, 9, {1}, "x"},
        {TDM_U8, 1, {1}, NULL},
        {TDM_F64, 1, {1ULL << 61}, "x"},
        {TDM_U8, 2, {1ULL << 32, 1ULL << 32}, "x"},
    };

    for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
        tdm_writer_clear(*state);
        assert_int_equal(tdm_pack(*state, "a", &impossible[i]), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), "impossible dtype or shape"));
    }
}

static void array_with_inconsistent_fields_is_refused(void **state)
{
    static const struct {
        const char *hex;
        const char *why;
    } wrong[] = {
        {"c7 00 01", "its head is missing, bytes: 0"},
        {"d5 01 0107", "its head is missing, bytes: 2"},
        {"c7 05 01 02070000 2a", "unknown version 2"},
        {"c7 05 01 00070000 2a", "unknown version 0"},
        {"c7 05 01 01000000 2a", "unknown dtype 0"},
        {"c7 05 01 010f0000 2a", "unknown dtype 15"},
        {"c7 05 01 01070900 2a", "more than 8 dimensions: 9"},
        {"c7 05 01 01070100 2a", "its head is cut short, bytes: 5"},
        {"c7 05 01 01070002 00", "its head is cut short, bytes: 5"},
        {"c7 05 01 01070001 01", "a padding byte is 1"},
        {"c7 44 01 01070040 0000000000000000000000000000000000000000000000000000000000000000"
         "0000000000000000000000000000000000000000000000000000000000000000",
         "padding bytes 64"},
        {"d6 01 01070000", "do not make its bytes: 0"},
        {"c7 06 01 01070000 2a2b", "do not make its bytes: 2"},
        {"c7 0d 01 01070100 0000000000000002 2a", "do not make its bytes: 1"},
        {"c7 0c 01 01080100 2000000000000000", "do not make its bytes: 0"},
        {"c7 14 01 01070200 0000000100000000 0000000100000000", "do not make its bytes: 0"},
        {"c9 ffffffff 01 01070000 2a", "4294967295 bytes wanted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char memory[128];
        tdm_document *document = NULL;

        assert_int_equal(
            tdm_document_parse(hex_read(wrong[i].hex, memory, sizeof(memory)), &document),
            TDM_E_PROTOCOL);
        assert_null(document);
        assert_non_null(strstr(tdm_error_detail(), wrong[i].why));
    }
}

static void smaller_header_is_read_too(void **state)
{
    char memory[16];
    tdm_document *document = NULL;
    const struct tdm_ndarray *got;

    (void)state;
    assert_int_equal(
        tdm_document_parse(hex_read("c7 05 01 01070000 2a", memory, sizeof(memory)), &document),
        TDM_OK);
    got = tdm_value_ndarray(tdm_document_root(document));
    assert_true(got->dims_count == 0 && *(const uint8_t *)got->data == 0x2a);
    tdm_document_destroy(document);
}

#define NDARRAY_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NDARRAY_TEST(every_dtype_and_number_of_dimensions_survives),
        NDARRAY_TEST(data_are_aligned_in_the_stream),
        NDARRAY_TEST(empty_array_needs_no_data),
        NDARRAY_TEST(impossible_array_is_not_packed),
        NDARRAY_TEST(array_with_inconsistent_fields_is_refused),
        NDARRAY_TEST(smaller_header_is_read_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
