/* served_weights_test.c - the first tensor that is not as its update wrote it is found. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/served_weights.h"

#include "colocate/weights/checksum.h"
#include "tests/support/host_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TENSORS = 3, NUMBERS = 16, SCALES_OFFSET = 512, TENSOR_BYTES = 256 };

/* An engine rank with three tensors, of which the last one is kept as FP8 with scales. */
struct fixture {
    struct host_gpu *gpu;
    struct tdm__arena *arena;
    struct tdm__regions *regions;
    tdm_region *weights;
    struct tdm__manifest *manifest;
    struct tdm_slice slices[TENSORS];
    struct tdm_engine_ops ops;
    struct tdm__served_weights *served;
    char *image;            /* Address of the weights. */
    const char *copied;     /* Name of the tensor of which the library has a copy; NULL for none. */
    const char *copy_name;  /* What the library calls the copy; NULL: as the tensor. */
    char copy[NUMBERS * 4]; /* That copy. */
    tdm_status failure;     /* Failure of the library's function, or TDM_OK. */
};

static tdm_status show_copy(void *state, const struct tdm_tensor_info *tensor,
                            const struct tdm_slice *slice, void *data, size_t size_bytes,
                            const char **name_out)
{
    const struct fixture *fixture = state;

    (void)slice;
    if (fixture->failure != TDM_OK) {
        return tdm_fail(fixture->failure, "the copy cannot be read");
    }
    if (fixture->copied == NULL || strcmp(fixture->copied, tensor->name) != 0) {
        return TDM_E_NOT_FOUND;
    }
    assert_string_equal(*name_out, tensor->name);
    *name_out = fixture->copy_name != NULL ? fixture->copy_name : *name_out;
    assert_int_equal(size_bytes, sizeof(fixture->copy));
    memcpy(data, fixture->copy, size_bytes);
    return TDM_OK;
}

static void create_served(struct fixture *fixture, bool with_layout)
{
    const struct tdm__served_weights_options options = {
        .manifest = fixture->manifest,
        .layout = {fixture->slices, with_layout ? TENSORS : 0},
        .weights = fixture->weights,
        .device = fixture->gpu->devices[0],
        .ops = &fixture->ops,
        .state = fixture};

    tdm__served_weights_destroy(fixture->served);
    TRY(tdm__served_weights_create(&options, &fixture->served));
}

static int set_up(void **state)
{
    const struct tdm_tensor_info infos[TENSORS] = {
        {.name = "first", .dtype = TDM_F32, .dims_count = 1, .shape = {NUMBERS}},
        {.name = "second", .dtype = TDM_F32, .dims_count = 1, .shape = {NUMBERS}},
        {.name = "matrix", .dtype = TDM_F32, .dims_count = 2, .shape = {4, NUMBERS}}};
    const struct tdm_region_options options = {.tag = "weights", .size_bytes = 1};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->gpu = host_gpu_open(8 * MIB, false);
    TRY(tdm__arena_create(fixture->gpu->devices[0], 8 * MIB, &fixture->arena));
    TRY(tdm__regions_create(fixture->gpu->devices[0], fixture->arena, &fixture->regions));
    TRY(tdm__region_create(fixture->regions, &options, &fixture->weights));
    TRY(tdm__manifest_create(infos, TENSORS, &fixture->manifest));
    fixture->image = tdm_region_address(fixture->weights);
    memset(fixture->image, 7, MIB);
    for (uint32_t i = 0; i < TENSORS; i++) {
        /* The slices are in the reverse order of the tensors. */
        fixture->slices[TENSORS - 1 - i] =
            (struct tdm_slice){.tensor = i,
                               .extent = {infos[i].shape[0], infos[i].shape[1]},
                               .address = fixture->image + (size_t)i * TENSOR_BYTES};
    }
    fixture->slices[0].dtype = TDM_F8_E4M3;
    fixture->slices[0].scales = fixture->image + 2 * TENSOR_BYTES + SCALES_OFFSET;
    memset(fixture->copy, 7, sizeof(fixture->copy));
    fixture->ops.served = show_copy;
    create_served(fixture, true);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    tdm__served_weights_destroy(fixture->served);
    tdm__manifest_destroy(fixture->manifest);
    tdm_region_destroy(fixture->weights);
    tdm__regions_destroy(fixture->regions);
    tdm__arena_destroy(fixture->arena);
    host_gpu_close(fixture->gpu);
    free(fixture);
    return 0;
}

/* Compares and checks what was found; `tensor` is UINT32_MAX if no tensor differs. */
static void assert_found(const struct fixture *fixture, uint32_t tensor, const char *words)
{
    struct tdm__served_difference difference;

    TRY(tdm__served_weights_compare(fixture->served, &difference));
    assert_int_equal(difference.tensor, tensor);
    if (strstr(difference.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", difference.text, words);
    }
}

static void equal_weights_have_no_difference(void **state)
{
    struct fixture *fixture = *state;
    struct tdm__served_difference difference;

    assert_int_equal(tdm__served_weights_compare(fixture->served, &difference), TDM_E_STATE);
    TRY(tdm__served_weights_record(fixture->served, NULL));
    assert_found(fixture, UINT32_MAX, "all 3 slices in the region \"weights\"");
    assert_found(fixture, UINT32_MAX, "keeps 1 of them in another dtype");
    fixture->image[3 * TENSOR_BYTES + SCALES_OFFSET] ^= 1; /* No slice has this byte. */
    assert_found(fixture, UINT32_MAX, "no tensor differs");
}

static void first_changed_tensor_is_named(void **state)
{
    struct fixture *fixture = *state;

    TRY(tdm__served_weights_record(fixture->served, NULL));
    fixture->image[2 * TENSOR_BYTES + SCALES_OFFSET + 3] ^= 1;
    assert_found(fixture, 2, "differs is matrix: its scales");
    fixture->image[TENSOR_BYTES + 5] ^= 1;
    assert_found(fixture, 1, "differs is second: its part of the region \"weights\"");
    fixture->image[5] ^= 1;
    assert_found(fixture, 0, "differs is first");
    TRY(tdm__served_weights_record(fixture->served, NULL)); /* The next version is live. */
    assert_found(fixture, UINT32_MAX, "no tensor differs");
}

static void copy_that_was_not_renewed_is_named(void **state)
{
    struct fixture *fixture = *state;
    struct tdm__served_difference difference;

    TRY(tdm__served_weights_record(fixture->served, NULL));
    fixture->copied = "second";
    assert_found(fixture, UINT32_MAX, "no tensor differs");
    memset(fixture->image, 8, 2 * TENSOR_BYTES);
    TRY(tdm__served_weights_record(fixture->served, NULL));
    assert_found(fixture, 1, "differs is second: the copy from which the engine computes");
    fixture->copy_name = "tied";
    assert_found(fixture, 1, "differs is tied: the copy of second from which the engine computes");
    fixture->failure = TDM_E_METHOD;
    assert_int_equal(tdm__served_weights_compare(fixture->served, &difference), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "served(\"matrix\"): the copy cannot be read"));
}

static void engine_without_a_layout_compares_whole_tensors(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t sums[TENSORS] = {1, tdm__checksum_tensor(fixture->copy, sizeof(fixture->copy)),
                                    3};

    create_served(fixture, false);
    fixture->copied = "second";
    TRY(tdm__served_weights_record(fixture->served, sums));
    assert_found(fixture, UINT32_MAX, "so are the 1 copies");
    fixture->copy[1] ^= 1;
    assert_found(fixture, 1, "differs is second: the copy");
    fixture->copied = NULL;
    assert_found(fixture, UINT32_MAX, "a function served() of its library would show");
    fixture->image[9] ^= 1;
    assert_found(fixture, UINT32_MAX, "the region \"weights\" has changed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_weights_have_no_difference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(first_changed_tensor_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy_that_was_not_renewed_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_without_a_layout_compares_whole_tensors, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
