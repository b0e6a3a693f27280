/* format_pack_test.c - formats with lists whose length is known at run time only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/placeholders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_writer *writer;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm_writer_destroy(writer);
    return 0;
}

static tdm_status pack_with_placeholders(struct tdm__placeholders *placeholders, const char *format,
                                         ...)
{
    va_list args;
    tdm_status status;

    va_start(args, format);
    status = tdm__pack_with_placeholders(writer, format, args, placeholders);
    va_end(args);
    return status;
}

/* Fills a placeholder with the text that stands for its object. */
static tdm_status fill_with_text(void *arg, tdm_writer *filled, char letter, void *object)
{
    (void)arg;
    (void)letter;
    tdm_write_string(filled, object);
    return TDM_OK;
}

static void lists_are_spliced_into_the_arrays_around_them(void **state)
{
    struct tdm_ndarray array = {.dtype = TDM_U8, .dims_count = 1, .shape = {3}, .data = "xyz"};
    struct tdm_item two[] = {{.letter = 'b', .object = "one", .size_bytes = 3},
                             {.letter = 'a', .object = &array}};
    struct tdm_items full = {two, 2};
    struct tdm_items empty = {NULL, 0};
    tdm_document *document;
    const tdm_value *root;

    (void)state;
    assert_int_equal(tdm_pack(writer, "i*(*(*)i)*s", INT64_C(1), &full, &empty, &full, INT64_C(2),
                              &empty, "end"),
                     TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    root = tdm_document_root(document);
    assert_int_equal(tdm_value_count(root), 5);
    assert_memory_equal(tdm_value_bytes(tdm_value_at(root, 1)).data, "one", 3);
    assert_memory_equal(tdm_value_ndarray(tdm_value_at(root, 2))->data, "xyz", 3);
    assert_int_equal(tdm_value_count(tdm_value_at(root, 3)), 2);
    assert_int_equal(tdm_value_count(tdm_value_at(tdm_value_at(root, 3), 0)), 2);
    assert_string_equal(tdm_value_string(tdm_value_at(root, 4), ""), "end");
    tdm_document_destroy(document);
}

static void lists_of_objects_leave_placeholders(void **state)
{
    struct tdm_item nested[] = {{.letter = 'R', .object = "reference"},
                                {.letter = 'h', .object = "handle"}};
    struct tdm_item values[] = {{.letter = 'r', .object = "value"}};
    struct tdm_items nested_list = {nested, 2};
    struct tdm_items value_list = {values, 1};
    struct tdm__placeholders placeholders;
    tdm_writer *filled;
    tdm_document *document;
    const tdm_value *root;

    (void)state;
    assert_int_equal(
        pack_with_placeholders(&placeholders, "s(&)&", "text", &nested_list, &value_list), TDM_OK);
    assert_int_equal(placeholders.count, 1);
    assert_int_equal(placeholders.links_count, 2);
    assert_int_equal(tdm_writer_create(&filled), TDM_OK);
    assert_int_equal(tdm__fill_placeholders(filled, tdm_writer_bytes(writer), &placeholders,
                                            fill_with_text, NULL),
                     TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(filled), &document), TDM_OK);
    root = tdm_document_root(document);
    assert_int_equal(tdm_value_count(root), 3);
    assert_string_equal(tdm_value_string(tdm_value_at(tdm_value_at(root, 1), 1), ""), "handle");
    assert_string_equal(tdm_value_string(tdm_value_at(root, 2), ""), "value");
    tdm_document_destroy(document);
    tdm_writer_destroy(filled);
}

static void lists_may_contain_arrays(void **state)
{
    const int64_t number = 7;
    struct tdm_item objects[] = {{.letter = 'R', .object = "reference"}};
    struct tdm_items inner = {objects, 1};
    struct tdm_item values[] = {{.letter = 'i', .object = &number},
                                {.letter = 'b', .object = "one", .size_bytes = 3},
                                {.letter = '(', .object = &inner}};
    struct tdm_items value = {values, 3};
    struct tdm_item results[] = {{.letter = '(', .object = &value},
                                 {.letter = '(', .object = &value}};
    struct tdm_items list = {results, 2};
    struct tdm__placeholders placeholders;
    tdm_document *document;
    const tdm_value *second;
    tdm_writer *filled;

    (void)state;
    assert_int_equal(pack_with_placeholders(&placeholders, "&", &list), TDM_OK);
    assert_int_equal(placeholders.links_count, 2);
    assert_int_equal(tdm_writer_create(&filled), TDM_OK);
    assert_int_equal(tdm__fill_placeholders(filled, tdm_writer_bytes(writer), &placeholders,
                                            fill_with_text, NULL),
                     TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(filled), &document), TDM_OK);
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 2);
    second = tdm_value_at(tdm_document_root(document), 1);
    assert_int_equal(tdm_value_int(tdm_value_at(second, 0), 0), 7);
    assert_memory_equal(tdm_value_bytes(tdm_value_at(second, 1)).data, "one", 3);
    assert_string_equal(tdm_value_string(tdm_value_at(tdm_value_at(second, 2), 0), ""),
                        "reference");
    tdm_document_destroy(document);
    tdm_writer_destroy(filled);

    value.count = 2; /* Without the reference the letter * takes it, too. */
    tdm_writer_clear(writer);
    assert_int_equal(tdm_pack(writer, "*", &list), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    second = tdm_value_at(tdm_document_root(document), 1);
    assert_int_equal(tdm_value_count(second), 2);
    tdm_document_destroy(document);
    value.count = 3;
    assert_int_equal(tdm_pack(writer, "*", &list), TDM_E_INVAL);
    values[2].object = &list; /* A list inside of itself. */
    assert_int_equal(tdm_pack(writer, "*", &list), TDM_E_INVAL);
    values[2].object = NULL;
    assert_int_equal(tdm_pack(writer, "*", &list), TDM_E_INVAL);
}

static void wrong_lists_are_refused(void **state)
{
    struct tdm_item item = {.letter = 'r', .object = "value"};
    struct tdm_items list = {&item, 1};
    struct tdm_items without_items = {NULL, 1};
    struct tdm__placeholders placeholders;

    (void)state;
    assert_int_equal(tdm_pack(writer, "*", &list), TDM_E_INVAL);
    assert_int_equal(tdm_pack(writer, "*", &without_items), TDM_E_INVAL);
    assert_int_equal(tdm_pack(writer, "*", (void *)NULL), TDM_E_INVAL);
    assert_int_equal(tdm_pack(writer, "&", &list), TDM_E_INVAL);
    assert_int_equal(tdm_pack(writer, "{s*}", "key", &list), TDM_E_INVAL);
    /* The value of a reference cannot stand in a group. */
    assert_int_equal(pack_with_placeholders(&placeholders, "(&)", &list), TDM_E_INVAL);
    assert_int_equal(tdm_writer_bytes(writer).size_bytes, 0);
}

static tdm_status pack_with_objects(tdm_writer *target, const char *format, ...)
{
    va_list args;
    tdm_status status;

    va_start(args, format);
    status = tdm__pack_with_objects(target, format, args, fill_with_text, NULL);
    va_end(args);
    return status;
}

static bool awaits_values(const char *format, ...)
{
    va_list args;
    bool awaits;

    va_start(args, format);
    awaits = tdm__format_awaits_values(format, args);
    va_end(args);
    return awaits;
}

static void objects_are_written_where_they_stand(void **state)
{
    static const double numbers[] = {1, 2};
    struct tdm_ndarray array = {.dtype = TDM_F64, .dims_count = 1, .shape = {2}, .data = numbers};
    struct tdm_item listed[] = {{.letter = 'R', .object = "two"},
                                {.letter = 'h', .object = "three"}};
    struct tdm_items list = {listed, 2};
    const tdm_value *root;
    tdm_document *document;
    const char *bytes;

    (void)state;
    assert_int_equal(pack_with_objects(writer, "iR(&)a", INT64_C(1), "one", &list, &array), TDM_OK);
    bytes = tdm_writer_bytes(writer).data;
    /* The array is aligned although objects of any size stand in front of it. */
    assert_memory_equal(bytes + 64, numbers, sizeof(numbers));
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    root = tdm_document_root(document);
    assert_int_equal(tdm_value_count(root), 4);
    assert_string_equal(tdm_value_string(tdm_value_at(root, 1), ""), "one");
    assert_string_equal(tdm_value_string(tdm_value_at(tdm_value_at(root, 2), 0), ""), "two");
    assert_string_equal(tdm_value_string(tdm_value_at(tdm_value_at(root, 2), 1), ""), "three");
    tdm_document_destroy(document);
}

static void values_of_references_are_not_objects(void **state)
{
    struct tdm_item listed[] = {{.letter = 'R', .object = "one"}, {.letter = 'r', .object = "two"}};
    struct tdm_items both = {listed, 2};
    struct tdm_items first = {listed, 1};
    struct tdm_items none = {NULL, 1};

    (void)state;
    assert_true(awaits_values("sr", "x", "one"));
    assert_true(awaits_values("s&", "x", &both));
    assert_false(awaits_values("s&", "x", &first));
    assert_false(awaits_values("sR", "x", "one"));
    assert_false(awaits_values("s&", "x", &none)); /* Packing reports that the list is NULL. */
    assert_int_equal(pack_with_objects(writer, "r", "one"), TDM_E_INVAL);
    assert_int_equal(pack_with_objects(writer, "&", &both), TDM_E_INVAL);
    assert_int_equal(pack_with_objects(writer, "&", &none), TDM_E_INVAL);
    assert_int_equal(tdm_writer_bytes(writer).size_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lists_are_spliced_into_the_arrays_around_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(lists_of_objects_leave_placeholders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lists_may_contain_arrays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_lists_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(objects_are_written_where_they_stand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(values_of_references_are_not_objects, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
