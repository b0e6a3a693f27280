/* message_test.c - structures survive encoding, and errors of decoding name the field. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct point {
    int32_t x;
    uint32_t y;
};

struct everything {
    int64_t integer;
    uint64_t natural;
    double number;
    bool truth;
    const char *text;
    const char *remark;
    struct tdm_bytes bytes;
    struct tdm__id id;
    const struct tdm_ndarray *array;
    struct tdm__message_value value;
    struct point origin;
    bool has_target;
    struct point target;
    struct tdm__message_list numbers;
    struct tdm__message_list points;
};

static const struct tdm__message *point_table(void)
{
    static const struct tdm__field fields[] = {
        {"x", TDM__FIELD_INT32, 0, offsetof(struct point, x), 0, NULL},
        {"y", TDM__FIELD_UINT32, 0, offsetof(struct point, y), 0, NULL},
    };
    static const struct tdm__message table = {"point", sizeof(struct point), 2, fields};

    return &table;
}

#define AT(name) offsetof(struct everything, name)

static const struct tdm__field everything_fields[] = {
    {"integer", TDM__FIELD_INT, 0, AT(integer), 0, NULL},
    {"natural", TDM__FIELD_UINT, 0, AT(natural), 0, NULL},
    {"number", TDM__FIELD_DOUBLE, 0, AT(number), 0, NULL},
    {"truth", TDM__FIELD_BOOL, 0, AT(truth), 0, NULL},
    {"text", TDM__FIELD_STRING, 0, AT(text), 0, NULL},
    {"remark", TDM__FIELD_OPTIONAL_STRING, 0, AT(remark), 0, NULL},
    {"bytes", TDM__FIELD_BYTES, 0, AT(bytes), 0, NULL},
    {"id", TDM__FIELD_ID, 0, AT(id), 0, NULL},
    {"array", TDM__FIELD_NDARRAY, 0, AT(array), 0, NULL},
    {"value", TDM__FIELD_VALUE, 0, AT(value), 0, NULL},
    {"origin", TDM__FIELD_MESSAGE, 0, AT(origin), 0, point_table},
    {"target", TDM__FIELD_OPTIONAL, 0, AT(target), AT(has_target), point_table},
    {"numbers", TDM__FIELD_LIST, TDM__FIELD_UINT32, AT(numbers), 0, NULL},
    {"points", TDM__FIELD_LIST, TDM__FIELD_MESSAGE, AT(points), 0, point_table},
};

enum { FIELDS = sizeof(everything_fields) / sizeof(everything_fields[0]) };

static const struct tdm__message everything = {"everything", sizeof(struct everything), FIELDS,
                                               everything_fields};

static const double array_data[2] = {1.5, -2.5};
static const struct tdm_ndarray array = {
    .dtype = TDM_F64, .dims_count = 1, .shape = {2}, .data = array_data};
static const uint32_t numbers[3] = {7, 0, UINT32_MAX};

static void write_forty_two(tdm_writer *writer, const void *arg)
{
    (void)arg;
    tdm_write_int(writer, 42);
}

/* Item `index` is the point (-index, index). */
static void get_point(const void *arg, uint32_t index, void *item_out)
{
    struct point *point = item_out;

    (void)arg;
    *point = (struct point){-(int32_t)index, index};
}

static struct everything sample(void)
{
    return (struct everything){.integer = INT64_MIN,
                               .natural = UINT64_MAX,
                               .number = 0.5,
                               .truth = true,
                               .text = "text",
                               .bytes = {"\1\2", 2},
                               .id = {{1, 2, 3}},
                               .array = &array,
                               .value = {.write = write_forty_two},
                               .origin = {INT32_MIN, UINT32_MAX},
                               .has_target = true,
                               .target = {3, 4},
                               .numbers = {.count = 3, .items = numbers},
                               .points = {.count = 5, .get = get_point}};
}

/* The caller destroys the document. */
static tdm_document *encode(const struct tdm__message *message, const void *structure)
{
    tdm_document *document;
    tdm_writer *writer;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__message_encode(message, structure, writer), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    tdm_writer_destroy(writer);
    return document;
}

static void test_every_kind_survives(void **state)
{
    const struct everything sent = sample();
    tdm_document *document = encode(&everything, &sent);
    struct everything got;
    struct point point;
    uint32_t number;

    (void)state;
    assert_int_equal(tdm__message_decode(&everything, tdm_document_root(document), &got), TDM_OK);
    assert_true(got.integer == INT64_MIN && got.natural == UINT64_MAX && got.number == 0.5);
    assert_true(got.truth);
    assert_string_equal(got.text, "text");
    assert_null(got.remark);
    assert_int_equal(got.bytes.size_bytes, 2);
    assert_memory_equal(got.bytes.data, "\1\2", 2);
    assert_true(tdm__id_equal(&got.id, &sent.id));
    assert_memory_equal(got.array->data, array_data, sizeof(array_data));
    assert_int_equal(tdm_value_int(got.value.value, 0), 42);
    assert_true(got.origin.x == INT32_MIN && got.origin.y == UINT32_MAX);
    assert_true(got.has_target && got.target.x == 3 && got.target.y == 4);
    assert_int_equal(got.numbers.count, 3);
    tdm__message_list_read(&got.numbers, 2, &number, sizeof(number));
    assert_true(number == UINT32_MAX);
    assert_int_equal(got.points.count, 5);
    tdm__message_list_read(&got.points, 4, &point, sizeof(point));
    assert_true(point.x == -4 && point.y == 4);
    tdm_document_destroy(document);
}

/* What was decoded can be sent on, also its lists and values. */
static void test_decoded_message_encodes_to_the_same_bytes(void **state)
{
    const struct everything sent = sample();
    tdm_document *first = encode(&everything, &sent);
    struct everything got;
    tdm_document *second;

    (void)state;
    assert_int_equal(tdm__message_decode(&everything, tdm_document_root(first), &got), TDM_OK);
    second = encode(&everything, &got);
    assert_int_equal(tdm__document_packed_bytes(first), tdm__document_packed_bytes(second));
    tdm_document_destroy(second);
    tdm_document_destroy(first);
}

static void test_absent_message_is_nil(void **state)
{
    struct everything sent = sample();
    struct everything got;
    tdm_document *document;

    (void)state;
    sent.has_target = false;
    sent.remark = "remark";
    document = encode(&everything, &sent);
    assert_int_equal(tdm__message_decode(&everything, tdm_document_root(document), &got), TDM_OK);
    assert_false(got.has_target);
    assert_string_equal(got.remark, "remark");
    tdm_document_destroy(document);
}

/* Decodes [x, y] as a point. */
static tdm_status decode_point(const char *format, ...)
{
    tdm_document *document;
    tdm_writer *writer;
    struct point point;
    tdm_status status;
    va_list args;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    va_start(args, format);
    assert_int_equal(tdm_pack_va(writer, format, args), TDM_OK);
    va_end(args);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    status = tdm__message_decode(point_table(), tdm_document_root(document), &point);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return status;
}

static void test_numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    assert_int_equal(decode_point("iu", (int64_t)INT32_MAX, (uint64_t)UINT32_MAX), TDM_OK);
    assert_int_equal(decode_point("iu", (int64_t)INT32_MAX + 1, (uint64_t)0), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(),
                        "message field point.x: expected an integer that fits int32_t, "
                        "found the integer 2147483648");
    assert_int_equal(decode_point("iu", (int64_t)INT32_MIN - 1, (uint64_t)0), TDM_E_PROTOCOL);
    assert_int_equal(decode_point("iu", (int64_t)0, (uint64_t)UINT32_MAX + 1), TDM_E_PROTOCOL);
    assert_int_equal(decode_point("ii", (int64_t)0, (int64_t)-1), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "found the integer -1"));
}

static void test_wrong_number_of_fields_is_named(void **state)
{
    (void)state;
    assert_int_equal(decode_point("i", (int64_t)0), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(), "message point: expected 2 fields (x, y), found 1");
    assert_int_equal(decode_point("iii", (int64_t)0, (int64_t)0, (int64_t)0), TDM_E_PROTOCOL);
    assert_int_equal(decode_point(""), TDM_E_PROTOCOL);
}

static void test_no_value_is_refused(void **state)
{
    struct point point;

    (void)state;
    assert_int_equal(tdm__message_decode(point_table(), NULL, &point), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(),
                        "message field point: expected an array, found nothing");
}

/* Replaces field `index` of the sample by one packed value and decodes. */
static void expect_refusal(uint32_t index, const char *format, const char *detail)
{
    const struct everything sent = sample();
    tdm_document *document = encode(&everything, &sent);
    tdm_document *wrong;
    struct everything got;
    tdm_writer *writer;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, FIELDS);
    for (uint32_t i = 0; i < FIELDS; i++) {
        if (i == index) {
            assert_int_equal(tdm_pack(writer, format, (int64_t)1, (int64_t)2), TDM_OK);
        } else {
            tdm_write_value(writer, tdm_value_at(tdm_document_root(document), i));
        }
    }
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &wrong), TDM_OK);
    assert_int_equal(tdm__message_decode(&everything, tdm_document_root(wrong), &got),
                     TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(), detail);
    tdm_document_destroy(wrong);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void test_wrong_type_is_named_with_its_path(void **state)
{
    (void)state;
    expect_refusal(0, "ii",
                   "message field everything.integer: expected an integer that fits int64_t, "
                   "found an array");
    expect_refusal(3, "", "message field everything.truth: expected a bool, found an array");
    expect_refusal(4, "", "message field everything.text: expected a string, found an array");
    expect_refusal(7, "",
                   "message field everything.id: expected an id of 16 bytes, found an array");
    expect_refusal(8, "", "message field everything.array: expected an ndarray, found an array");
    expect_refusal(10, "i", "message everything.origin: expected 2 fields (x, y), found 1");
    expect_refusal(10, "?i",
                   "message field everything.origin.x: expected an integer that fits int32_t, "
                   "found a bool");
    expect_refusal(11, "i", "message everything.target: expected 2 fields (x, y), found 1");
    expect_refusal(12, "i?",
                   "message field everything.numbers[1]: expected an integer that fits "
                   "uint32_t, found a bool");
    expect_refusal(13, "(i?)",
                   "message field everything.points[0].y: expected an integer that fits "
                   "uint32_t, found a bool");
}

/* Returns the hash of a message with two fields. */
static uint64_t hash_of(const char *name, const char *field, enum tdm__field_kind kind)
{
    const struct tdm__field fields[] = {
        {"x", TDM__FIELD_INT32, TDM__FIELD_INT32, 0, 0, NULL},
        {field, kind, TDM__FIELD_UINT, 8, 0, NULL},
    };
    const struct tdm__message message = {name, 16, 2, fields};

    return tdm__message_hash(&message, TDM__MESSAGE_HASH_START);
}

/* The number is fixed, so that the versions of builds for all machines agree. */
static void test_hash_of_a_table_is_fixed(void **state)
{
    (void)state;
    assert_true(tdm__message_hash_text("", TDM__MESSAGE_HASH_START) ==
                UINT64_C(0xaf63bd4c8601b7df));
    assert_true(tdm__message_hash(point_table(), TDM__MESSAGE_HASH_START) ==
                UINT64_C(0x38e07428251fbb3b));
}

static void test_hash_changes_with_names_and_kinds(void **state)
{
    uint64_t hash = hash_of("message", "y", TDM__FIELD_UINT32);

    (void)state;
    assert_true(hash == hash_of("message", "y", TDM__FIELD_UINT32));
    assert_true(hash != hash_of("massage", "y", TDM__FIELD_UINT32));
    assert_true(hash != hash_of("message", "z", TDM__FIELD_UINT32));
    assert_true(hash != hash_of("message", "y", TDM__FIELD_UINT));
    assert_true(hash != hash_of("message", "y", TDM__FIELD_LIST));
    assert_true(hash_of("a", "bc", TDM__FIELD_INT) != hash_of("ab", "c", TDM__FIELD_INT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_survives),
        cmocka_unit_test(test_decoded_message_encodes_to_the_same_bytes),
        cmocka_unit_test(test_absent_message_is_nil),
        cmocka_unit_test(test_numbers_out_of_range_are_refused),
        cmocka_unit_test(test_wrong_number_of_fields_is_named),
        cmocka_unit_test(test_no_value_is_refused),
        cmocka_unit_test(test_wrong_type_is_named_with_its_path),
        cmocka_unit_test(test_hash_of_a_table_is_fixed),
        cmocka_unit_test(test_hash_changes_with_names_and_kinds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
