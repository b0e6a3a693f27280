/* tensor_slices_test.c - slices are copied to their places in order, or refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/host/host.h"
#include "colocate/weights/tensor_slices.h"

#include "colocate/transfer/rect_checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { IMAGE_BYTES = 256 };

/* An engine rank that keeps the columns 2 and 3 of a 4 x 8 tensor at byte 16 of its image. */
struct fixture {
    struct tdm__device *device;
    struct tdm__manifest *manifest;
    struct tdm__tensor_slices *parts;
    char image[IMAGE_BYTES];
    char source[64];
    struct tdm__tensor_record record;
    struct tdm__tensor_handles handles;
};

static int set_up(void **state)
{
    static struct fixture f;
    static const struct tdm_tensor_info info = {
        .name = "w", .dtype = TDM_BF16, .dims_count = 2, .shape = {4, 8}};
    const struct tdm_slice slice = {
        .tensor = 0, .offset = {0, 2}, .extent = {4, 2}, .address = f.image + 16};
    const struct tdm__layout layout = {&slice, 1};
    const struct tdm__strided_rows rows = {4, 4, 4, 4};

    memset(&f, 0, sizeof(f));
    TRY(tdm__device_host_kind.open(NULL, 0, "",
                                   &f.device)); /* The device is not asked for a block. */
    TRY(tdm__manifest_create(&info, 1, &f.manifest));
    TRY(tdm__tensor_slices_create(
        &(struct tdm__tensor_slices_options){f.manifest, &layout, f.image, IMAGE_BYTES}, &f.parts));
    memset(f.image, 9, sizeof(f.image));
    for (size_t i = 0; i < sizeof(f.source); i++) {
        f.source[i] = (char)i;
    }
    f.record = (struct tdm__tensor_record){.dtype = TDM_BF16,
                                           .dims_count = 2,
                                           .flags = TDM__TENSOR_SLICE,
                                           .shape = {4, 2},
                                           .stride = {2, 1},
                                           .offset = 4,
                                           .checksum = tdm__rect_checksum(&rows, f.source + 8),
                                           .image = 16};
    f.handles = (struct tdm__tensor_handles){.header = {.tensors_count = 1}, .tensors = &f.record};
    tdm__tensor_slices_begin_update(f.parts);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    tdm__tensor_slices_destroy(f->parts);
    tdm__manifest_destroy(f->manifest);
    tdm__device_close(f->device);
    return 0;
}

static tdm_status put(struct fixture *f)
{
    const struct tdm__tensor_slices_stage stage = {f->device, &f->handles, f->source, f->image,
                                                   TDM__VERIFY_FULL};

    return tdm__tensor_slices_stage(f->parts, &stage);
}

static void part_is_put_in_its_place_with_zeros_around(void **state)
{
    struct fixture *f = *state;
    char wanted[IMAGE_BYTES] = {0};

    memcpy(wanted + 16, f->source + 8, 16);
    assert_int_equal(tdm__tensor_slices_check_complete(f->parts), TDM_E_STATE);
    TRY(put(f));
    TRY(tdm__tensor_slices_check_complete(f->parts));
    assert_memory_equal(f->image, wanted, IMAGE_BYTES);
}

static void part_of_something_else_goes_nowhere(void **state)
{
    struct fixture *f = *state;
    const struct tdm__tensor_record good = f->record;
    char untouched[16];

    memset(untouched, 9, sizeof(untouched));
    f->record.image = 12; /* The record begins before the slice. */
    assert_int_equal(put(f), TDM_E_PROTOCOL);
    tdm__tensor_slices_begin_update(f->parts);
    f->record.image = 20; /* The record ends after the slice. */
    assert_int_equal(put(f), TDM_E_PROTOCOL);
    tdm__tensor_slices_begin_update(f->parts);
    f->record = good;
    f->record.dtype = TDM_F16; /* This dtype has the same size. */
    assert_int_equal(put(f), TDM_E_PROTOCOL);
    assert_memory_equal(f->image + 16, untouched, sizeof(untouched));
    tdm__tensor_slices_begin_update(f->parts);
    f->record = good;
    TRY(put(f));
}

static void bucket_comes_once_and_in_order(void **state)
{
    struct fixture *f = *state;

    f->handles.header.bucket = 3;
    TRY(put(f));
    assert_int_equal(put(f), TDM_E_STATE);
    f->handles.header.bucket = 2;
    assert_int_equal(put(f), TDM_E_STATE);
    tdm__tensor_slices_begin_update(f->parts);
    TRY(put(f));
    TRY(tdm__tensor_slices_check_complete(f->parts));
}

static void received_slices_count_unless_they_are_sent_again(void **state)
{
    struct fixture *f = *state;

    f->handles.header.bucket = 3;
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, true).next, 0);
    TRY(put(f));
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, true).next, 4);
    tdm__tensor_slices_resume_update(f->parts);
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, true).next,
                     0); /* Other processes may write there. */
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, false).next, 4);
    TRY(tdm__tensor_slices_check_complete(f->parts));
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, true).next, 4);
    assert_int_equal(put(f), TDM_E_STATE); /* The update is settled and this bucket is present. */
    tdm__tensor_slices_resume_update(f->parts);
    TRY(put(f)); /* The update starts with the first bucket. */
    TRY(tdm__tensor_slices_check_complete(f->parts));
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, true).next, 4);
    tdm__tensor_slices_resume_update(f->parts);
    f->handles.header.bucket = 4;
    f->record.checksum++;
    assert_int_equal(put(f), TDM_E_CHECKSUM);
    assert_int_equal(tdm__tensor_slices_resume_log(f->parts, true).next, 0);
}

static void wrong_sum_spoils_the_update(void **state)
{
    struct fixture *f = *state;

    f->record.checksum++;
    assert_int_equal(put(f), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "tensor w: 4 rows of 4 bytes"));
    f->record.checksum--;
    f->handles.header.bucket = 1;
    assert_int_equal(put(f), TDM_E_STATE);
    assert_int_equal(tdm__tensor_slices_check_complete(f->parts), TDM_E_STATE);
}

static void nothing_is_put_outside_the_image(void **state)
{
    struct fixture *f = *state;
    const uint64_t places[] = {IMAGE_BYTES - 14, UINT64_MAX, UINT64_MAX - 15};

    for (size_t i = 0; i < 3; i++) {
        f->record.image = places[i];
        assert_int_equal(put(f), TDM_E_PROTOCOL);
        tdm__tensor_slices_begin_update(f->parts);
    }
    f->record.flags = 0;
    assert_int_equal(put(f), TDM_E_PROTOCOL);
}

static void layout_outside_the_image_is_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct tdm_slice slices[] = {
        {.flat = 1, .extent = {8}, .address = f->image + 16},
        {.flat = 1, .offset = {8}, .extent = {8}, .address = f->image + 30}};
    const struct tdm__layout layout = {slices, 2};
    const struct tdm__tensor_slices_options options = {f->manifest, &layout, f->image, IMAGE_BYTES};
    struct tdm__tensor_slices *parts;

    assert_int_equal(tdm__tensor_slices_create(&options, &parts), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "tensor w: a slice from 30 to 46"));
    slices[1].address = f->image + IMAGE_BYTES - 15;
    assert_int_equal(tdm__tensor_slices_create(&options, &parts), TDM_E_INVAL);
    slices[1].address = f->image + IMAGE_BYTES - 16;
    TRY(tdm__tensor_slices_create(&options, &parts));
    tdm__tensor_slices_destroy(parts);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(part_is_put_in_its_place_with_zeros_around),
        WITH_FIXTURE(part_of_something_else_goes_nowhere),
        WITH_FIXTURE(bucket_comes_once_and_in_order),
        WITH_FIXTURE(received_slices_count_unless_they_are_sent_again),
        WITH_FIXTURE(wrong_sum_spoils_the_update),
        WITH_FIXTURE(nothing_is_put_outside_the_image),
        WITH_FIXTURE(layout_outside_the_image_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
