/* tensor_handles_test.c - handle records survive encoding, and malformed ones are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/tensor_handles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { STORAGES = 2, TENSORS = 3 };

/* A valid description that a test corrupts before it encodes it by hand. */
struct sample {
    struct tdm__tensor_handles_header header;
    struct tdm__storage_record storages[STORAGES];
    struct tdm__tensor_record tensors[TENSORS];
};

static struct sample make_sample(void)
{
    struct sample sample = {
        .header = {.magic = TDM__TENSOR_HANDLES_MAGIC,
                   .version = TDM__TENSOR_HANDLES_VERSION,
                   .header_bytes = sizeof(struct tdm__tensor_handles_header),
                   .storages_count = STORAGES,
                   .tensors_count = TENSORS,
                   .update = {{1}},
                   .node = {{2}},
                   .epoch = 7,
                   .bucket = 1,
                   .buckets_count = 2},
        .tensors =
            {{.tensor = 0, .dtype = TDM_BF16, .dims_count = 2, .shape = {4, 8}, .stride = {8, 1}},
             {.tensor = 1, .dtype = TDM_F32, .offset = 16, .flags = TDM__TENSOR_REQUIRES_GRAD},
             {.tensor = 2,
              .storage = 1,
              .dtype = TDM_U8,
              .dims_count = 1,
              .shape = {100},
              .stride = {10}}},
    };

    for (uint32_t i = 0; i < STORAGES; i++) {
        sample.storages[i] = (struct tdm__storage_record){.gpu = {{3}},
                                                          .key = {{(uint8_t)(4 + i)}},
                                                          .size_bytes = i == 0 ? 68 : 991,
                                                          .offset_bytes = 32,
                                                          .allocation_bytes = 1023};
    }
    return sample;
}

static tdm_status decode(const struct sample *sample, size_t size_bytes)
{
    struct tdm__tensor_handles handles = {.storages = NULL};
    tdm_status status =
        tdm__tensor_handles_decode((struct tdm_bytes){sample, size_bytes}, &handles);

    tdm__tensor_handles_fini(&handles);
    return status;
}

static void handles_survive_the_wire(void **state)
{
    struct sample sample = make_sample();
    struct tdm__tensor_handles out = {sample.header, sample.storages, sample.tensors};
    struct tdm__tensor_handles in;
    struct sample wire;

    (void)state;
    memset(&wire, 0, sizeof(wire));
    assert_int_equal(tdm__tensor_handles_bytes(&out), sizeof(wire));
    assert_int_equal(tdm__tensor_handles_encode(&out, &wire, sizeof(wire)), TDM_OK);
    assert_int_not_equal(wire.header.checksum, 0);
    sample.header.checksum = wire.header.checksum;
    assert_memory_equal(&wire, &sample, sizeof(wire));
    assert_int_equal(tdm__tensor_handles_decode((struct tdm_bytes){&wire, sizeof(wire)}, &in),
                     TDM_OK);
    assert_memory_equal(in.tensors, sample.tensors, sizeof(sample.tensors));
    tdm__tensor_handles_fini(&in);
}

static void length_that_does_not_fit_is_refused(void **state)
{
    struct sample sample = make_sample();

    (void)state;
    for (size_t bytes = 0; bytes < sizeof(sample); bytes++) {
        assert_int_equal(decode(&sample, bytes), TDM_E_PROTOCOL);
    }
    sample.header.tensors_count = UINT32_MAX;
    assert_int_equal(decode(&sample, sizeof(sample)), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "4294967295"));
}

#define BREAKS(place, value, words)                                                                \
    do {                                                                                           \
        struct sample broken = make_sample();                                                      \
        broken.place = (value);                                                                    \
        assert_int_equal(decode(&broken, sizeof(broken)), TDM_E_PROTOCOL);                         \
        assert_non_null(strstr(tdm_error_detail(), words));                                        \
    } while (0)

static void every_wrong_field_is_refused_by_name(void **state)
{
    (void)state;
    BREAKS(header.magic, 0, "magic");
    BREAKS(header.version, 4, "version 4");
    BREAKS(header.bucket, 2, "bucket 2 of 2");
    BREAKS(header.epoch, 0, "epoch 0");
    BREAKS(header.update.bytes[0], 0, "not both given");
    BREAKS(storages[1].key.bytes[0], 0, "storage 1 has no key");
    BREAKS(storages[0].gpu.bytes[0], 0, "storage 0 has no gpu");
    BREAKS(storages[1].offset_bytes, 33, "storage 1: 991 bytes at 33");
    BREAKS(storages[1].offset_bytes, UINT64_MAX, "storage 1");
    BREAKS(storages[0].flags, 2, "storage 0: flags 2");
    BREAKS(storages[0].flags, TDM__STORAGE_EVENT_SYNC, "event 0");
    BREAKS(storages[1].reserved[1], 1, "reserved");
    BREAKS(tensors[2].storage, 2, "storage 2 of 2");
    BREAKS(tensors[0].dtype, 0, "dtype 0");
    BREAKS(tensors[0].dims_count, 5, "5 dimensions");
    BREAKS(tensors[0].dims_count, 1, "shape 4 8");
    BREAKS(tensors[0].flags, 4, "flags 4");
    BREAKS(tensors[1].reserved, 1, "reserved");
    BREAKS(tensors[1].reserved_tail, 1, "reserved");
}

static void tensor_outside_its_storage_is_refused(void **state)
{
    (void)state;
    BREAKS(tensors[1].offset, 17, "bytes 68 to 72 are not in storage 0 of 68");
    BREAKS(tensors[2].shape[0], 101, "tensor 2");
    BREAKS(tensors[2].stride[0], UINT64_MAX, "overflow");
    BREAKS(tensors[2].stride[0], (UINT64_MAX - 1) / 99 + 1, "overflow");
    BREAKS(tensors[2].offset, UINT64_MAX, "overflow");
    BREAKS(tensors[1].offset, UINT64_MAX / 4 + 1, "overflow");
    BREAKS(tensors[0].shape[0], UINT64_MAX, "tensor 0");
}

static void another_node_or_gpu_is_refused(void **state)
{
    struct sample sample = make_sample();
    struct tdm__tensor_handles handles = {sample.header, sample.storages, sample.tensors};
    const struct tdm__id node = {{2}};
    const struct tdm__id gpu = {{3}};
    const struct tdm__id other = {{9}};

    (void)state;
    assert_int_equal(tdm__tensor_handles_check_location(&handles, &node, &gpu), TDM_OK);
    assert_int_equal(tdm__tensor_handles_check_location(&handles, &other, &gpu), TDM_E_DEVICE);
    assert_int_equal(tdm__tensor_handles_check_location(&handles, &node, &other), TDM_E_DEVICE);
    assert_int_equal(tdm__tensor_handles_check_location(&handles, &node, NULL), TDM_OK);
    assert_int_equal(tdm__tensor_handles_check_location(&handles, &other, NULL), TDM_E_DEVICE);
    sample.storages[1].gpu = other;
    assert_int_equal(tdm__tensor_handles_check_location(&handles, &node, &gpu), TDM_E_DEVICE);
    assert_non_null(strstr(tdm_error_detail(), "storage 1"));
}

static void tensors_that_are_not_the_manifests_are_refused(void **state)
{
    const struct tdm_tensor_info model[] = {
        {"a", TDM_BF16, 2, {4, 8}}, {"b", TDM_F32, 0, {0}}, {"c", TDM_U8, 1, {100}}};
    struct sample sample = make_sample();
    struct tdm__tensor_handles handles = {sample.header, sample.storages, sample.tensors};
    struct tdm__manifest *manifest;
    struct tdm_tensor_view view;
    float storage[17];

    (void)state;
    assert_int_equal(tdm__manifest_create(model, 3, &manifest), TDM_OK);
    assert_int_equal(tdm__tensor_handles_check_manifest(&handles, manifest), TDM_OK);
    view = tdm__tensor_handles_view(&handles, 1, manifest, storage);
    assert_string_equal(view.info.name, "b");
    assert_ptr_equal(view.data, &storage[16]);
    sample.tensors[0].shape[1] = 7;
    assert_int_equal(tdm__tensor_handles_check_manifest(&handles, manifest), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "(a)"));
    sample.tensors[0].tensor = 3;
    assert_int_equal(tdm__tensor_handles_check_manifest(&handles, manifest), TDM_E_PROTOCOL);
    tdm__manifest_destroy(manifest);
}

static void no_byte_changes_unnoticed(void **state)
{
    struct sample sample = make_sample();
    struct tdm__tensor_handles out = {sample.header, sample.storages, sample.tensors};
    struct sample wire;

    (void)state;
    assert_int_equal(tdm__tensor_handles_encode(&out, &wire, sizeof(wire)), TDM_OK);
    assert_int_equal(decode(&wire, sizeof(wire)), TDM_OK);
    for (size_t i = 0; i < sizeof(wire); i++) {
        struct sample changed = wire;

        ((unsigned char *)&changed)[i] ^= 1;
        assert_int_not_equal(decode(&changed, sizeof(changed)), TDM_OK);
    }
    sample = wire;
    sample.tensors[0].checksum++; /* No check of a single field notices that. */
    assert_int_equal(decode(&sample, sizeof(sample)), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "the checksum of the description"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_survive_the_wire),
        cmocka_unit_test(length_that_does_not_fit_is_refused),
        cmocka_unit_test(no_byte_changes_unnoticed),
        cmocka_unit_test(every_wrong_field_is_refused_by_name),
        cmocka_unit_test(tensor_outside_its_storage_is_refused),
        cmocka_unit_test(another_node_or_gpu_is_refused),
        cmocka_unit_test(tensors_that_are_not_the_manifests_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
