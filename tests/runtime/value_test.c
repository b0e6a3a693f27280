/* value_test.c - values survive packing, and malformed or excessive input is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/value.h>

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

/* Parses from a heap copy of the exact size, so that a read beyond it is seen. */
static tdm_status parse(const void *data, size_t size_bytes, tdm_document **document_out)
{
    char *copy = malloc(size_bytes + 1);
    struct tdm_bytes bytes = {copy + 1, size_bytes};
    tdm_status status;

    assert_non_null(copy);
    memcpy(copy + 1, data, size_bytes);
    status = tdm_document_parse(bytes, document_out);
    free(copy);
    return status;
}

static tdm_document *parse_written(tdm_writer *writer)
{
    struct tdm_bytes bytes = tdm_writer_bytes(writer);
    tdm_document *document = NULL;

    assert_int_equal(tdm_writer_status(writer), TDM_OK);
    assert_int_equal(parse(bytes.data, bytes.size_bytes, &document), TDM_OK);
    return document;
}

static void assert_refused(const void *data, size_t size_bytes, const char *why)
{
    tdm_document *document = NULL;

    assert_int_equal(parse(data, size_bytes, &document), TDM_E_PROTOCOL);
    assert_null(document);
    assert_non_null(strstr(tdm_error_detail(), why));
}

static void every_integer_survives(void **state)
{
    static const int64_t ints[] = {
        0,         1,         -1,         127,       128,       -32,         -33,   -128,
        -129,      255,       256,        32767,     -32768,    -32769,      65535, 65536,
        INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, -(1LL << 40)};

    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
        tdm_document *document;
        int64_t back = 0;

        tdm_writer_clear(*state);
        assert_int_equal(tdm_pack(*state, "i", ints[i]), TDM_OK);
        document = parse_written(*state);
        assert_int_equal(tdm_unpack(tdm_document_root(document), "i", &back), TDM_OK);
        assert_true(back == ints[i]);
        tdm_document_destroy(document);
    }
}

static void every_kind_survives_a_format(void **state)
{
    tdm_document *document;
    const tdm_value *any = NULL;
    const char *text = NULL;
    const char *none = "x";
    const void *data = NULL;
    size_t size_bytes = 0;
    uint64_t big = 0;
    double number = 0;
    double from_integer = 0;
    int truth = 0;
    int64_t inner = 0;

    assert_int_equal(tdm_pack(*state, "u f", (uint64_t)1), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "unknown letter at position 2"));
    assert_int_equal(tdm_writer_bytes(*state).size_bytes, 0);

    assert_int_equal(tdm_pack(*state, "uff?ssbn(i())s", UINT64_MAX, DBL_MIN, 2.0, 1, "wörter", NULL,
                              "\0\1", (size_t)2, (int64_t)-7, "v"),
                     TDM_OK);
    document = parse_written(*state);
    assert_int_equal(tdm_unpack(tdm_document_root(document), "uff?ssbn(i())v", &big, &number,
                                &from_integer, &truth, &text, &none, &data, &size_bytes, &inner,
                                &any),
                     TDM_OK);
    assert_true(big == UINT64_MAX && number == DBL_MIN && from_integer == 2.0 && truth == 1);
    assert_string_equal(text, "wörter");
    assert_null(none);
    assert_int_equal(size_bytes, 2);
    assert_memory_equal(data, "\0\1", 2);
    assert_true(inner == -7);
    assert_string_equal(tdm_value_string(any, ""), "v");
    tdm_document_destroy(document);
}

static void maps_are_found_by_key(void **state)
{
    tdm_document *document;
    const tdm_value *map;
    const char *key = NULL;

    assert_int_equal(tdm_pack(*state, "{sisss{s?}}", "a", (int64_t)1, "b", "two", "c", "d", 1),
                     TDM_OK);
    document = parse_written(*state);
    map = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_kind_of(map), TDM_MAP);
    assert_int_equal(tdm_value_count(map), 3);
    assert_int_equal(tdm_value_int(tdm_value_find(map, "a"), 0), 1);
    assert_string_equal(tdm_value_string(tdm_value_find(map, "b"), ""), "two");
    assert_int_equal(tdm_value_bool(tdm_value_find(tdm_value_find(map, "c"), "d"), 0), 1);
    assert_null(tdm_value_find(map, "e"));
    assert_null(tdm_value_find(tdm_value_find(map, "e"), "f"));
    assert_string_equal(tdm_value_string(tdm_value_pair(map, 1, &key), ""), "two");
    assert_string_equal(key, "b");
    assert_null(tdm_value_pair(map, 3, &key));
    tdm_document_destroy(document);
}

static void strings_end_with_nul_whatever_their_length(void **state)
{
    static const size_t lengths[] = {0, 1, 31, 32, 255, 256, 65535, 65536, 100000};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        char *text = malloc(lengths[i] + 1);
        tdm_document *document;
        const char *first = NULL;
        const char *second = NULL;

        assert_non_null(text);
        memset(text, 'a' + (int)i, lengths[i]);
        text[lengths[i]] = '\0';
        tdm_writer_clear(*state);
        assert_int_equal(tdm_pack(*state, "ss", text, text), TDM_OK);
        document = parse_written(*state);
        assert_int_equal(tdm_unpack(tdm_document_root(document), "ss", &first, &second), TDM_OK);
        assert_string_equal(first, text);
        assert_string_equal(second, text);
        tdm_document_destroy(document);
        free(text);
    }
}

static void parsed_value_writes_the_same_bytes(void **state)
{
    static const struct tdm_bytes packed_seven = {"\x07", 1};
    tdm_writer *again = NULL;
    tdm_document *document;
    struct tdm_bytes first;
    struct tdm_bytes second;

    assert_int_equal(tdm_pack(*state, "iuf?sbn({sp})", (int64_t)-1, UINT64_MAX, 0.5, 0, "s", "b",
                              (size_t)1, "k", &packed_seven),
                     TDM_OK);
    document = parse_written(*state);
    assert_int_equal(tdm_writer_create(&again), TDM_OK);
    tdm_write_value(again, tdm_document_root(document));
    first = tdm_writer_bytes(*state);
    second = tdm_writer_bytes(again);
    assert_int_equal(first.size_bytes, second.size_bytes);
    assert_memory_equal(first.data, second.data, first.size_bytes);
    tdm_document_destroy(document);
    tdm_writer_destroy(again);
}

static void another_kind_gives_the_otherwise(void **state)
{
    tdm_document *document;
    const tdm_value *text;

    assert_int_equal(tdm_pack(*state, "s", "x"), TDM_OK);
    document = parse_written(*state);
    text = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_int(text, 5), 5);
    assert_int_equal(tdm_value_uint(text, 6), 6);
    assert_true(tdm_value_double(text, 0.5) == 0.5);
    assert_int_equal(tdm_value_bool(text, 1), 1);
    assert_null(tdm_value_bytes(text).data);
    assert_int_equal(tdm_value_count(text), 0);
    assert_string_equal(tdm_value_string(NULL, "y"), "y");
    tdm_document_destroy(document);
}

static void expect_mismatch(tdm_writer *writer, const char *format, const char *why)
{
    tdm_document *document = parse_written(writer);
    int64_t first = 1234;
    int64_t second = 1234;

    assert_int_equal(tdm_unpack(tdm_document_root(document), format, &first, &second), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(), why);
    assert_true(first == 1234 && second == 1234);
    tdm_document_destroy(document);
}

static void mismatch_names_both_shapes(void **state)
{
    tdm_writer *writer = *state;

    assert_int_equal(tdm_pack(writer, "is", (int64_t)1, "x"), TDM_OK);
    expect_mismatch(writer, "ii", "argument 2: wanted an integer, got a string");
    expect_mismatch(writer, "i", "wanted (i), got 2 values (is)");
    expect_mismatch(writer, "i(i)", "argument 2: wanted an array, got a string");
    tdm_writer_clear(writer);
    assert_int_equal(tdm_pack(writer, "i(if)", (int64_t)1, (int64_t)2, 0.5), TDM_OK);
    expect_mismatch(writer, "i(i?)", "argument 2: argument 2: wanted a bool, got a double");
    expect_mismatch(writer, "i(i)", "argument 2: wanted (i), got 2 values (if)");
    tdm_writer_clear(writer);
    assert_int_equal(tdm_pack(writer, "iu", (int64_t)-3, UINT64_MAX), TDM_OK);
    expect_mismatch(writer, "ui", "argument 1: wanted an integer that fits uint64_t, got -3");
    expect_mismatch(writer, "ii",
                    "argument 2: wanted an integer that fits int64_t, got 18446744073709551615");
    tdm_writer_clear(writer);
    tdm_write_nil(writer);
    expect_mismatch(writer, "i", "wanted an array, got nil");
}

static void wrong_format_is_refused_and_writes_nothing(void **state)
{
    static const char *const wrong[] = {
        "(",  ")",    "{s}", "{is}", "(}",
        "x",  "{s(}", "i)",  "{",    "((((((((((((((((((((((((((((((((((",
        "i s"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(tdm_pack(*state, wrong[i], (int64_t)1, "a", "b"), TDM_E_INVAL);
        assert_int_equal(tdm_writer_bytes(*state).size_bytes, 0);
    }
    assert_int_equal(tdm_unpack(NULL, "p"), TDM_E_INVAL);
    assert_int_equal(tdm_unpack(NULL, "i"), TDM_E_TYPE);
}

static void bombs_are_refused_by_their_header(void **state)
{
    (void)state;
    assert_refused("\xdd\xff\xff\xff\xff\xc0", 6, "4294967295 bytes wanted at offset 5, 1 are");
    assert_refused("\xdf\xff\xff\xff\xff\xc0", 6, "8589934590 bytes wanted");
    assert_refused("\xdb\xff\xff\xff\xff", 5, "4294967295 bytes wanted");
    assert_refused("\xc6\xff\xff\xff\xffx", 6, "4294967295 bytes wanted");
    assert_refused("\x92\xc0", 2, "2 bytes wanted");
}

static void invalid_value_is_refused(void **state)
{
    (void)state;
    assert_refused("", 0, "1 bytes wanted at offset 0");
    assert_refused("\xc1", 1, "unknown type 0xc1");
    assert_refused("\xd4\x06\x02", 3, "unknown extension type 6 at offset 1");
    assert_refused("\xd4\x04\x02", 3, "the size at offset 2 has 1 bytes instead of 8");
    assert_refused("\xd7\x05\xff\xff\xff\xff\xff\xff\xff\xffx", 11,
                   "18446744073709551615 bytes wanted at offset 10, 1 are");
    assert_refused("\xc7\x01\xff\x02", 4, "unknown extension type 255 at offset 2");
    assert_refused("\xc0\xc0", 2, "it ends at offset 1 of 2 bytes");
    assert_refused("\xcf\x01", 2, "8 bytes wanted");
    assert_refused("\xa3"
                   "a\0b",
                   4, "NUL byte");
}

static void depth_64_parses_and_65_is_refused(void **state)
{
    char nested[66];
    tdm_document *document = NULL;

    (void)state;
    memset(nested, 0x91, sizeof(nested));
    nested[64] = 1;
    assert_int_equal(parse(nested, 65, &document), TDM_OK);
    tdm_document_destroy(document);
    nested[64] = (char)0x91;
    nested[65] = 1;
    assert_refused(nested, 66, "deeper than 64");
}

static void every_cut_of_a_value_is_refused(void **state)
{
    struct tdm_bytes bytes;

    assert_int_equal(tdm_pack(*state, "uf?sbn(i{su})", UINT64_MAX, 1.5, 1, "text", "bytes",
                              (size_t)5, (int64_t)-70000, "key", (uint64_t)70000),
                     TDM_OK);
    bytes = tdm_writer_bytes(*state);
    for (size_t size = 0; size < bytes.size_bytes; size++) {
        assert_refused(bytes.data, size, "wanted at offset");
    }
}

#define VALUE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VALUE_TEST(every_integer_survives),
        VALUE_TEST(every_kind_survives_a_format),
        VALUE_TEST(maps_are_found_by_key),
        VALUE_TEST(strings_end_with_nul_whatever_their_length),
        VALUE_TEST(parsed_value_writes_the_same_bytes),
        VALUE_TEST(another_kind_gives_the_otherwise),
        VALUE_TEST(mismatch_names_both_shapes),
        VALUE_TEST(wrong_format_is_refused_and_writes_nothing),
        VALUE_TEST(bombs_are_refused_by_their_header),
        VALUE_TEST(invalid_value_is_refused),
        VALUE_TEST(depth_64_parses_and_65_is_refused),
        VALUE_TEST(every_cut_of_a_value_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
