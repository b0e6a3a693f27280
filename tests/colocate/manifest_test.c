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

static void manifest_survives_the_wire_and_its_cuts_do_not(void **state)
{
    struct tdm__manifest *manifest;
    struct tdm__manifest *back;
    tdm_writer *writer;
    struct tdm_bytes bytes;

    (void)state;
    assert_int_equal(tdm__manifest_create(model, MODEL, &manifest), TDM_OK);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__manifest_encode(manifest, writer), TDM_OK);
    bytes = tdm_writer_bytes(writer);
    assert_int_equal(tdm__manifest_decode(bytes, &back), TDM_OK);
    assert_true(tdm__hash_equal(&manifest->hash, &back->hash));
    assert_string_equal(back->tensors[2].name, "experts");
    tdm__manifest_destroy(back);
    while (bytes.size_bytes > 0) {
        bytes.size_bytes--;
        assert_int_equal(tdm__manifest_decode(bytes, &back), TDM_E_PROTOCOL);
    }
    tdm_writer_clear(writer);
    assert_int_equal(tdm_pack(writer, "i((si(i)))", (int64_t)1, "x", (int64_t)1, (int64_t)0),
                     TDM_OK);
    assert_int_equal(tdm__manifest_decode(tdm_writer_bytes(writer), &back), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "x is empty"));
    tdm_writer_destroy(writer);
    tdm__manifest_destroy(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_refuses_lists_that_make_no_sense),
        cmocka_unit_test(the_hash_tells_name_dtype_shape_and_order_apart),
        cmocka_unit_test(manifest_survives_the_wire_and_its_cuts_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
