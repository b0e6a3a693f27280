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
#include <sys/mman.h>

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

/* Address space of 4 GiB and some more, which takes no memory until it is written. */
enum { BEYOND_BYTES = 4096 };
#define SPARSE_BYTES (((size_t)1 << 32) + BEYOND_BYTES)

static char *sparse_open(void)
{
    char *sparse = mmap(NULL, SPARSE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_ptr_not_equal(sparse, MAP_FAILED);
    return sparse;
}

/* Returns how many bytes bytes of that size pack to. */
static size_t packed_size_of_bytes(size_t size_bytes)
{
    tdm_writer *counting = NULL;
    size_t packed_bytes;

    assert_int_equal(tdm__writer_create_counting(&counting), TDM_OK);
    tdm_write_bytes(counting, "", size_bytes);
    assert_int_equal(tdm_writer_status(counting), TDM_OK);
    packed_bytes = tdm_writer_bytes(counting).size_bytes;
    tdm_writer_destroy(counting);
    return packed_bytes;
}

/* Returns how many bytes an array of that many bytes packs to, behind one byte. */
static size_t packed_size_of_array(size_t size_bytes)
{
    const struct tdm_ndarray ndarray = {TDM_U8, 1, {size_bytes}, ""};
    tdm_writer *counting = NULL;
    size_t packed_bytes;

    assert_int_equal(tdm__writer_create_counting(&counting), TDM_OK);
    tdm_write_array(counting, 1);
    tdm_write_ndarray(counting, &ndarray);
    assert_int_equal(tdm_writer_status(counting), TDM_OK);
    packed_bytes = tdm_writer_bytes(counting).size_bytes;
    tdm_writer_destroy(counting);
    return packed_bytes;
}

static void bytes_and_arrays_may_exceed_4_gib(void **state)
{
    const size_t most = UINT32_MAX;

    (void)state;
    assert_int_equal(packed_size_of_bytes(most), 5 + most);
    assert_int_equal(packed_size_of_bytes(most + 1), TDM__LARGE_EXT_HEAD_BYTES + most + 1);
    assert_int_equal(packed_size_of_bytes(most << 10), TDM__LARGE_EXT_HEAD_BYTES + (most << 10));
    /* The head of an array of one dimension has 12 bytes. Elements begin at a multiple of 64. */
    assert_int_equal(packed_size_of_array(most - 12 - 45), 64 + most - 12 - 45);
    assert_int_equal(packed_size_of_array(most - 12 - 44), 64 + most - 12 - 44);
    assert_int_equal(packed_size_of_array(most), 64 + most);
    assert_int_equal(packed_size_of_array(most << 10), 64 + (most << 10));
}

/* The header of bytes or an array of 4 GiB or more is written as every header is: if this test
 * fails, see every_kind_is_packed_as_ever(). */
static void large_headers_are_packed_as_ever(void **state)
{
    static char head[BEYOND_BYTES];
    char *sparse = sparse_open();
    const struct tdm_ndarray ndarray = {TDM_I16, 1, {(size_t)1 << 31}, sparse};
    tdm_writer *over = NULL;

    (void)state;
    assert_int_equal(tdm__writer_create_over(head, sizeof(head), &over), TDM_OK);
    tdm_write_bytes(over, sparse, (size_t)UINT32_MAX + 1);
    assert_int_equal(tdm_writer_status(over), TDM_E_LIMIT); /* Only the header had room. */
    hex_expect((struct tdm_bytes){head, 10}, "d704 0000000100000000");
    tdm_writer_clear(over);
    tdm_write_ndarray(over, &ndarray);
    assert_int_equal(tdm_writer_status(over), TDM_E_LIMIT);
    hex_expect((struct tdm_bytes){head, 22}, "d705 0000000100000036 010a012a 0000000080000000");
    tdm_writer_destroy(over);
    assert_int_equal(munmap(sparse, SPARSE_BYTES), 0);
}

static void release_nothing(void *arg)
{
    (void)arg;
}

static void values_beyond_4_gib_are_read_in_place(void **state)
{
    static const char bytes_head[] = "\x92\xd7\x04\0\0\0\1\0\0\0\1"; /* 2 values: 4 GiB + 1. */
    static const char array_head[] = "\xd7\x05\0\0\0\1\0\0\0\x36\1\x0a\1\x2a\0\0\0\0\x80\0\0\0";
    char *sparse = sparse_open();
    struct tdm_bytes packed = {sparse, sizeof(bytes_head) - 1 + ((size_t)1 << 32) + 1 + 1};
    const struct tdm_ndarray *ndarray;
    tdm_document *document = NULL;

    (void)state;
    memcpy(sparse, bytes_head, sizeof(bytes_head) - 1);
    sparse[packed.size_bytes - 2] = 'z';
    sparse[packed.size_bytes - 1] = 7;
    assert_int_equal(tdm__document_parse_borrowed(packed, release_nothing, NULL, &document),
                     TDM_OK);
    packed = tdm_value_bytes(tdm_value_at(tdm_document_root(document), 0));
    assert_int_equal(packed.size_bytes, ((size_t)1 << 32) + 1);
    assert_int_equal(((const char *)packed.data)[packed.size_bytes - 1], 'z');
    assert_int_equal(tdm_value_int(tdm_value_at(tdm_document_root(document), 1), -1), 7);
    tdm_document_destroy(document);

    memcpy(sparse, array_head, sizeof(array_head) - 1);
    packed = (struct tdm_bytes){sparse, 64 + ((size_t)1 << 32)};
    assert_int_equal(tdm__document_parse_borrowed(packed, release_nothing, NULL, &document),
                     TDM_OK);
    ndarray = tdm_value_ndarray(tdm_document_root(document));
    assert_int_equal(ndarray->shape[0], (size_t)1 << 31);
    assert_ptr_equal(ndarray->data, sparse + 64);
    tdm_document_destroy(document);
    packed.size_bytes--;
    assert_int_equal(tdm__document_parse_borrowed(packed, release_nothing, NULL, &document),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "4294967350 bytes wanted at offset 10, 4294967349"));
    assert_int_equal(munmap(sparse, SPARSE_BYTES), 0);
}

static void size_beyond_the_header_is_refused(void **state)
{
    static const char full[TDM__EXT_BYTES_MAX + 1];
    const struct tdm_value text = {.kind = TDM_STRING,
                                   .as = {.data = "", .size_bytes = (size_t)UINT32_MAX + 1}};

    tdm_write_value(*state, &text);
    assert_int_equal(tdm_writer_status(*state), TDM_E_LIMIT);
    assert_string_equal(tdm_error_detail(), "packing values after 0 bytes: a string of 4294967296 "
                                            "bytes, it may have 4294967295");
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
        cmocka_unit_test(bytes_and_arrays_may_exceed_4_gib),
        cmocka_unit_test(large_headers_are_packed_as_ever),
        cmocka_unit_test(values_beyond_4_gib_are_read_in_place),
        WRITER_TEST(size_beyond_the_header_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
