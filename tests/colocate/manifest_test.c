/* manifest_test.c - a list of tensors is checked and hashed, and survives encoding. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm_tensor_info model[] = {
    {"embed", TDM_BF16, 2, {7, 3}},
    {"scale", TDM_F32, 0, {0}},
    {"experts", TDM_F8_E4M3, 4, {2, 3, 4, 5}},
};
enum { MODEL = sizeof(model) / sizeof(model[0]) };

static void refuses(struct tdm_tensor_info second, tdm_status status, const char *words)
{
    struct tdm_tensor_info tensors[] = {model[0], second};
    struct tdm__manifest *manifest = NULL;

    assert_int_equal(tdm__manifest_create(tensors, 2, &manifest), status);
    assert_non_null(strstr(tdm_error_detail(), words));
    assert_null(manifest);
}

static void manifest_refuses_lists_that_make_no_sense(void **state)
{
    const uint64_t huge = (uint64_t)1 << 47;
    struct tdm__manifest *manifest;

    (void)state;
    refuses((struct tdm_tensor_info){"embed", TDM_F32, 1, {1}}, TDM_E_INVAL, "embed");
    refuses((struct tdm_tensor_info){"a b", TDM_F32, 1, {1}}, TDM_E_INVAL, "0x20");
    refuses((struct tdm_tensor_info){"none", TDM_F32, 2, {1, 0}}, TDM_E_INVAL, "empty");
    refuses((struct tdm_tensor_info){"huge", TDM_F32, 1, {huge}}, TDM_E_LIMIT, "huge");
    refuses((struct tdm_tensor_info){"odd", (enum tdm_dtype)99, 1, {1}}, TDM_E_INVAL, "odd");
    assert_int_equal(tdm__manifest_create(model, 0, &manifest), TDM_E_INVAL);
}

static void the_hash_tells_name_dtype_shape_and_order_apart(void **state)
{
    struct tdm__manifest *manifest;
    struct tdm__hash hash;

    (void)state;
    assert_int_equal(tdm__manifest_create(model, MODEL, &manifest), TDM_OK);
    assert_int_equal(manifest->size_bytes, 7 * 3 * 2 + 4 + 120);
    hash = manifest->hash;
    tdm__manifest_destroy(manifest);
    for (unsigned change = 0; change < 4; change++) {
        struct tdm_tensor_info other[MODEL];

        memcpy(other, model, sizeof(other));
        switch (change) {
        case 0:
            other[0].name = "embeds";
            break;
        case 1:
            other[0].dtype = TDM_F16;
            break;
        case 2:
            other[0].shape[0] = 3;
            other[0].shape[1] = 7;
            break;
        default:
            other[0] = model[2];
            other[2] = model[0];
            break;
        }
        assert_int_equal(tdm__manifest_create(other, MODEL, &manifest), TDM_OK);
        assert_false(tdm__hash_equal(&manifest->hash, &hash));
        tdm__manifest_destroy(manifest);
    }
}

static void manifest_survives_the_wire(void **state)
{
    struct tdm__model_manifest_message message;
    struct tdm__manifest *manifest;
    struct tdm__manifest *back;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm__manifest_create(model, MODEL, &manifest), TDM_OK);
    message = tdm__manifest_to_message(manifest);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__model_manifest_encode(&message, writer), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__model_manifest_decode(tdm_document_root(document), &message), TDM_OK);
    assert_int_equal(tdm__manifest_from_message(&message, &back), TDM_OK);
    assert_true(tdm__hash_equal(&manifest->hash, &back->hash));
    assert_string_equal(back->tensors[2].name, "experts");
    tdm__manifest_destroy(back);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    tdm__manifest_destroy(manifest);
}

/* Packs and decodes a list of tensors by a format, and expects that it is no manifest. */
static void assert_refused(const char *said, const char *format, ...)
{
    struct tdm__model_manifest_message message;
    struct tdm__manifest *manifest;
    tdm_document *document;
    tdm_writer *writer;
    va_list args;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    va_start(args, format);
    assert_int_equal(tdm_pack_va(writer, format, args), TDM_OK);
    va_end(args);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__model_manifest_decode(tdm_document_root(document), &message), TDM_OK);
    assert_int_equal(tdm__manifest_from_message(&message, &manifest), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), said));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void message_that_is_no_manifest_is_refused(void **state)
{
    const int64_t one = 1;

    (void)state;
    assert_refused("0 tensors", "()");
    assert_refused("x is empty", "((si(i)))", "x", one, (int64_t)0);
    assert_refused("5 dimensions", "((si(iiiii)))", "x", one, one, one, one, one, one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_refuses_lists_that_make_no_sense),
        cmocka_unit_test(the_hash_tells_name_dtype_shape_and_order_apart),
        cmocka_unit_test(manifest_survives_the_wire),
        cmocka_unit_test(message_that_is_no_manifest_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
