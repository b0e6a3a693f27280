/* writer_test.c - the packed bytes never change, and counting agrees with writing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/writer.h"
#include "tests/support/hex.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
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

/* If this test fails, files and clusters of other versions cannot be read any more: do not
 * change what is expected, but give the new format a new type or version. */
static void every_kind_is_packed_as_ever(void **state)
{
    static const int16_t numbers[] = {1, -2, 0x1234};
    static const struct tdm_ndarray ndarray = {TDM_I16, 2, {3, 1}, numbers};
    static const struct tdm_ndarray scalar = {TDM_U8, 0, {0}, "\x2a"};
    tdm_writer *writer = *state;

    tdm_write_array(writer, 10);
    tdm_write_nil(writer);
    tdm_write_bool(writer, 1);
    tdm_write_int(writer, -300);
    tdm_write_uint(writer, 70000);
    tdm_write_double(writer, 0.5);
    tdm_write_string(writer, "text");
    tdm_write_bytes(writer, "\0\xff", 2);
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "k");
    tdm_write_int(writer, 7);
    tdm__write_ext(writer, TDM__EXT_REFERENCE, (struct tdm_bytes){"ref", 3});
    tdm__write_ext(writer, TDM__EXT_HANDLE, (struct tdm_bytes){"handle", 6});
    hex_expect(tdm_writer_bytes(writer),
               "9a c0 c3 d1fed4 ce00011170 cb3fe0000000000000 a474657874 c40200ff 81a16b07"
               "c90000000302 726566 c90000000603 68616e646c65");
    tdm_writer_clear(writer);
    tdm_write_ndarray(writer, &ndarray);
    hex_expect(tdm_writer_bytes(writer), "c90000004001 010a0226 0000000000000003 0000000000000001"
                                         "00000000000000000000000000000000000000"
                                         "00000000000000000000000000000000000000"
                                         "0100feff3412");
    tdm_write_ndarray(writer, &scalar);
    assert_int_equal(tdm_writer_bytes(writer).size_bytes, 128 + 1);
    assert_int_equal(((const uint8_t *)tdm_writer_bytes(writer).data)[128], 0x2a);
}

/* Writes values of every kind, with an array whose padding depends on its position. */
static tdm_status write_all(tdm_writer *writer, const struct tdm_ndarray *ndarray)
{
    return tdm_pack(writer, "ia(sa{sb})f", (int64_t)1, ndarray, "x", ndarray, "key", "value",
                    (size_t)5, 0.25);
}

static void counting_and_writing_over_memory_agree_with_growing(void **state)
{
    static const double numbers[100] = {1, 2, 3};
    struct tdm_ndarray ndarray = {TDM_F64, 1, {100}, numbers};
    tdm_writer *counting = NULL;
    tdm_writer *over = NULL;
    struct tdm_bytes grown;
    void *memory;

    assert_int_equal(write_all(*state, &ndarray), TDM_OK);
    grown = tdm_writer_bytes(*state);
    assert_int_equal(tdm__writer_create_counting(&counting), TDM_OK);
    assert_int_equal(write_all(counting, &ndarray), TDM_OK);
    assert_null(tdm_writer_bytes(counting).data);
    assert_int_equal(tdm_writer_bytes(counting).size_bytes, grown.size_bytes);
    /* Exact size, so that the sanitizer detects an overrun. */
    memory = malloc(grown.size_bytes);
    assert_non_null(memory);
    assert_int_equal(tdm__writer_create_over(memory, grown.size_bytes, &over), TDM_OK);
    assert_int_equal(write_all(over, &ndarray), TDM_OK);
    assert_ptr_equal(tdm_writer_bytes(over).data, memory);
    assert_memory_equal(memory, grown.data, grown.size_bytes);
    tdm_write_nil(over);
    assert_int_equal(tdm_writer_status(over), TDM_E_LIMIT);
    tdm_writer_destroy(over);
    tdm_writer_destroy(counting);
    free(memory);
}

static void memory_too_small_fails_and_stays_failed(void **state)
{
    char memory[8] = "";
    tdm_writer *over = NULL;

    (void)state;
    assert_int_equal(tdm__writer_create_over(memory, 6, &over), TDM_OK);
    tdm_write_string(over, "eight by");
    assert_int_equal(tdm_writer_status(over), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "the memory it was given"));
    tdm_write_nil(over);
    assert_int_equal(tdm_writer_status(over), TDM_E_LIMIT);
    assert_int_equal(memory[6], 0);
    tdm_writer_clear(over);
    tdm_write_nil(over);
    assert_int_equal(tdm_writer_status(over), TDM_OK);
    assert_int_equal(tdm_writer_bytes(over).size_bytes, 1);
    tdm_writer_destroy(over);
}

static void size_beyond_the_header_is_refused(void **state)
{
    static const char full[TDM__EXT_BYTES_MAX + 1];

    tdm_write_bytes(*state, full, (size_t)UINT32_MAX + 1);
    assert_int_equal(tdm_writer_status(*state), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "4 GiB"));
    tdm_writer_clear(*state);
    tdm__write_ext(*state, TDM__EXT_HANDLE, (struct tdm_bytes){full, TDM__EXT_BYTES_MAX});
    assert_int_equal(tdm_writer_status(*state), TDM_OK);
    tdm__write_ext(*state, TDM__EXT_HANDLE, (struct tdm_bytes){full, TDM__EXT_BYTES_MAX + 1});
    assert_int_equal(tdm_writer_status(*state), TDM_E_LIMIT);
}

#define WRITER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WRITER_TEST(every_kind_is_packed_as_ever),
        WRITER_TEST(counting_and_writing_over_memory_agree_with_growing),
        WRITER_TEST(memory_too_small_fails_and_stays_failed),
        WRITER_TEST(size_beyond_the_header_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
