/* format_test.c - formats with references and handles: placeholders, filling and unpacking. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"
#include "runtime/wire/placeholders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The references and handles of these tests are strings. */

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

static tdm_status pack_with_placeholders(tdm_writer *writer, struct tdm__placeholders *placeholders,
                                         const char *format, ...)
{
    va_list args;
    tdm_status status;

    va_start(args, format);
    status = tdm__pack_with_placeholders(writer, format, args, placeholders);
    va_end(args);
    return status;
}

static tdm_status fill(void *arg, tdm_writer *writer, char letter, void *object)
{
    struct tdm_bytes bytes = {object, strlen(object)};

    if (arg != NULL && strcmp(arg, object) == 0) {
        return tdm__fail(TDM_E_ACTOR_DIED, "%s", (const char *)object);
    }
    if (letter == 'r') {
        tdm_write_string(writer, object);
    } else {
        tdm__write_ext(writer, letter == 'R' ? TDM__EXT_REFERENCE : TDM__EXT_HANDLE, bytes);
    }
    return TDM_OK;
}

/* Packs seven objects, two of them without anything between them, and some values. */
static tdm_document *packed_and_filled(tdm_writer *packed)
{
    tdm_writer *filled = NULL;
    tdm_document *document = NULL;
    struct tdm__placeholders placeholders;

    assert_int_equal(tdm_writer_create(&filled), TDM_OK);
    assert_int_equal(pack_with_placeholders(packed, &placeholders, "rRi(h{sR})rhr", "one", "two",
                                            (int64_t)3, "four", "key", "five", "six", "seven",
                                            "eight"),
                     TDM_OK);
    assert_int_equal(placeholders.count, 3);
    assert_int_equal(placeholders.links_count, 4);
    assert_int_equal(
        tdm__fill_placeholders(filled, tdm_writer_bytes(packed), &placeholders, fill, NULL),
        TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(filled), &document), TDM_OK);
    tdm_writer_destroy(filled);
    return document;
}

static void assert_ext(const tdm_value *value, enum tdm_value_kind kind, const char *text)
{
    struct tdm_bytes bytes = tdm__value_ext(value);

    assert_int_equal(tdm_value_kind_of(value), kind);
    assert_int_equal(bytes.size_bytes, strlen(text));
    assert_memory_equal(bytes.data, text, bytes.size_bytes);
}

static void placeholders_are_filled_where_their_letters_stand(void **state)
{
    tdm_document *document = packed_and_filled(*state);
    const tdm_value *root = tdm_document_root(document);
    const tdm_value *group = tdm_value_at(root, 3);

    assert_string_equal(tdm_value_string(tdm_value_at(root, 0), ""), "one");
    assert_ext(tdm_value_at(root, 1), TDM_REFERENCE, "two");
    assert_int_equal(tdm_value_int(tdm_value_at(root, 2), 0), 3);
    assert_ext(tdm_value_at(group, 0), TDM_HANDLE, "four");
    assert_ext(tdm_value_find(tdm_value_at(group, 1), "key"), TDM_REFERENCE, "five");
    assert_string_equal(tdm_value_string(tdm_value_at(root, 4), ""), "six");
    assert_ext(tdm_value_at(root, 5), TDM_HANDLE, "seven");
    assert_string_equal(tdm_value_string(tdm_value_at(root, 6), ""), "eight");
    tdm_document_destroy(document);
}

static void placeholder_that_cannot_be_filled_says_why(void **state)
{
    tdm_writer *filled = NULL;
    struct tdm__placeholders placeholders;

    assert_int_equal(tdm_writer_create(&filled), TDM_OK);
    assert_int_equal(pack_with_placeholders(*state, &placeholders, "rR", "one", "two"), TDM_OK);
    assert_int_equal(
        tdm__fill_placeholders(filled, tdm_writer_bytes(*state), &placeholders, fill, "two"),
        TDM_E_ACTOR_DIED);
    assert_string_equal(tdm_error_detail(), "two");
    tdm_writer_destroy(filled);
}

static void placeholders_have_their_places_and_their_limit(void **state)
{
    char format[TDM__PLACEHOLDERS_MAX + 2];
    struct tdm__placeholders placeholders;

    assert_int_equal(pack_with_placeholders(*state, &placeholders, "i(r)", (int64_t)1, "x"),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "r inside a group"));
    memset(format, 'R', TDM__PLACEHOLDERS_MAX + 1);
    format[TDM__PLACEHOLDERS_MAX + 1] = '\0';
    assert_int_equal(pack_with_placeholders(*state, &placeholders, format), TDM_E_LIMIT);
    assert_int_equal(placeholders.count + placeholders.links_count, 0);
    assert_int_equal(tdm_writer_bytes(*state).size_bytes, 0);
}

static void placeholders_are_refused_outside_calls_and_puts(void **state)
{
    static const char *const formats[] = {"r", "iR", "(h)"};
    void *object = NULL;

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        assert_int_equal(tdm_pack(*state, formats[i], "x", "x"), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), "only allowed"));
        assert_int_equal(tdm_unpack(NULL, formats[i], &object, &object), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), "only allowed"));
    }
}

/* ---- unpacking with hooks --------------------------------------------------------------- */

struct hooks_log {
    const char *refused; /* Object that cannot be opened; NULL if all can. */
    uint32_t opened_count;
    uint32_t dropped_count;
};

static tdm_status open_object(void *arg, char letter, struct tdm_bytes bytes, void **object_out)
{
    struct hooks_log *log = arg;
    char *object = calloc(1, bytes.size_bytes + 2);

    assert_non_null(object);
    object[0] = letter;
    memcpy(object + 1, bytes.data, bytes.size_bytes);
    if (log->refused != NULL && strcmp(object, log->refused) == 0) {
        free(object);
        return tdm__fail(TDM_E_NOT_FOUND, "%s", log->refused);
    }
    log->opened_count++;
    *object_out = object;
    return TDM_OK;
}

static void drop_object(void *arg, char letter, void *object)
{
    assert_int_equal(*(char *)object, letter);
    ((struct hooks_log *)arg)->dropped_count++;
    free(object);
}

static tdm_status unpack_with(struct hooks_log *log, const tdm_value *array, const char *format,
                              ...)
{
    struct tdm__unpack_hooks hooks = {open_object, drop_object, log};
    va_list args;
    tdm_status status;

    va_start(args, format);
    status = tdm__unpack_with_hooks(array, format, args, &hooks);
    va_end(args);
    return status;
}

static void references_and_handles_are_opened_by_hooks(void **state)
{
    struct hooks_log log = {.refused = NULL};
    tdm_document *document = packed_and_filled(*state);
    const tdm_value *map = NULL;
    const char *texts[3] = {NULL};
    char *objects[3] = {NULL};
    int64_t number = 0;

    assert_int_equal(unpack_with(&log, tdm_document_root(document), "sRi(hv)shs", &texts[0],
                                 &objects[0], &number, &objects[1], &map, &texts[1], &objects[2],
                                 &texts[2]),
                     TDM_OK);
    assert_int_equal(log.opened_count, 3);
    assert_int_equal(log.dropped_count, 0);
    assert_string_equal(objects[0], "Rtwo");
    assert_string_equal(objects[1], "hfour");
    assert_string_equal(objects[2], "hseven");
    assert_int_equal(number, 3);
    for (size_t i = 0; i < 3; i++) {
        free(objects[i]);
    }
    tdm_document_destroy(document);
}

static void nothing_is_left_open_when_one_cannot_be(void **state)
{
    struct hooks_log log = {.refused = "hseven"};
    tdm_document *document = packed_and_filled(*state);
    const tdm_value *any[6];
    char *objects[3] = {NULL};

    assert_int_equal(unpack_with(&log, tdm_document_root(document), "vRv(hv)vhv", &any[0],
                                 &objects[0], &any[1], &objects[1], &any[2], &any[3], &objects[2],
                                 &any[4]),
                     TDM_E_NOT_FOUND);
    assert_int_equal(log.opened_count, 2);
    assert_int_equal(log.dropped_count, 2);
    assert_null(objects[0]);
    assert_int_equal(unpack_with(&log, tdm_document_root(document), "vhv(hv)vhv"), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(),
                        "argument 2: wanted an actor's handle, got a reference");
    assert_int_equal(log.opened_count, 2);
    tdm_document_destroy(document);
}

#define FORMAT_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FORMAT_TEST(placeholders_are_filled_where_their_letters_stand),
        FORMAT_TEST(placeholder_that_cannot_be_filled_says_why),
        FORMAT_TEST(placeholders_have_their_places_and_their_limit),
        FORMAT_TEST(placeholders_are_refused_outside_calls_and_puts),
        FORMAT_TEST(references_and_handles_are_opened_by_hooks),
        FORMAT_TEST(nothing_is_left_open_when_one_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
