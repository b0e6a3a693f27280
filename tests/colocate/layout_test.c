/* layout_test.c - slices are checked against their tensors and survive encoding. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm_tensor_info model[] = {{"w", TDM_F32, 2, {4, 6}}, {"s", TDM_F32, 0, {0}}};

static tdm_status check(struct tdm_slice slice)
{
    const struct tdm__layout layout = {&slice, 1};
    struct tdm__manifest *manifest;
    tdm_status status;

    assert_int_equal(tdm__manifest_create(model, 2, &manifest), TDM_OK);
    status = tdm__layout_check(&layout, manifest);
    tdm__manifest_destroy(manifest);
    return status;
}

static void slice_lies_in_its_tensor_or_is_refused(void **state)
{
    (void)state;
    assert_int_equal(check((struct tdm_slice){.offset = {3, 0}, .extent = {1, 6}}), TDM_OK);
    assert_int_equal(check((struct tdm_slice){.flat = 1, .offset = {23}, .extent = {1}}), TDM_OK);
    assert_int_equal(check((struct tdm_slice){.tensor = 1}), TDM_OK);
    assert_int_equal(check((struct tdm_slice){.tensor = 1, .flat = 1, .extent = {1}}), TDM_OK);
    assert_int_equal(check((struct tdm_slice){.tensor = 2}), TDM_E_INVAL);
    assert_int_equal(check((struct tdm_slice){.extent = {4, 0}}), TDM_E_INVAL);
    assert_int_equal(check((struct tdm_slice){.flat = 1, .offset = {1}, .extent = {24}}),
                     TDM_E_INVAL);
    assert_int_equal(check((struct tdm_slice){.offset = {UINT64_MAX, 0}, .extent = {2, 6}}),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "tensor w: dimension 0"));
}

static void layout_survives_the_wire_and_its_cuts_do_not(void **state)
{
    const struct tdm_slice slices[] = {
        {.tensor = 3, .flat = 1, .offset = {1}, .extent = {2}},
        {.tensor = 4, .offset = {1, 2, 3, 4}, .extent = {5, 6, 7, 8}}};
    static const char image[8];
    const struct tdm_slice placed[] = {{.tensor = 3, .flat = 1, .extent = {2}, .address = image},
                                       {.tensor = 3, .address = &image[5]}};
    struct tdm__layout layout = {slices, 2};
    struct tdm__layout back;
    struct tdm_bytes bytes;
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__layout_encode(&layout, NULL, writer), TDM_OK);
    bytes = tdm_writer_bytes(writer);
    assert_int_equal(tdm__layout_decode(bytes, &back), TDM_OK);
    assert_int_equal(back.slices_count, 2);
    assert_memory_equal(back.slices, slices, sizeof(slices));
    tdm__layout_fini(&back);
    tdm_writer_clear(writer);
    layout.slices = placed;
    assert_int_equal(tdm__layout_encode(&layout, image, writer), TDM_OK);
    bytes = tdm_writer_bytes(writer);
    assert_int_equal(tdm__layout_decode(bytes, &back), TDM_OK);
    assert_int_equal((uintptr_t)back.slices[0].address, 0);
    assert_int_equal((uintptr_t)back.slices[1].address, 5);
    tdm__layout_fini(&back);
    while (bytes.size_bytes > 0) {
        bytes.size_bytes--;
        assert_int_equal(tdm__layout_decode(bytes, &back), TDM_E_PROTOCOL);
    }
    tdm_writer_clear(writer);
    assert_int_equal(tdm_pack(writer, "((i?iiiiiiiiiis))", (int64_t)1, 1, (int64_t)1, (int64_t)1,
                              (int64_t)1, (int64_t)1, (int64_t)1, (int64_t)1, (int64_t)1,
                              (int64_t)1, (int64_t)1, (int64_t)1, "x"),
                     TDM_OK);
    assert_int_equal(tdm__layout_decode(tdm_writer_bytes(writer), &back), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "slices[0].address"));
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slice_lies_in_its_tensor_or_is_refused),
        cmocka_unit_test(layout_survives_the_wire_and_its_cuts_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
