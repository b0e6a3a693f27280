/* merged_handles_test.c - what several writers describe becomes one description, or is refused by
 * the writer's rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/merged_handles.h"

#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tandem/error.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WRITERS = 3, TENSORS = 2, BYTES_MAX = 1024 };

/* What one writer describes, which a test may change before it is encoded. */
struct part {
    struct tdm__tensor_handles_header header;
    struct tdm__storage_record storages[2];
    struct tdm__tensor_record tensors[TENSORS];
    unsigned char bytes[BYTES_MAX];
};

static struct part parts[WRITERS];
static struct tdm__bucket_description descriptions[WRITERS];

/* Writer 2 * i describes the tensors i and i + 10. */
static void describe_parts(void)
{
    for (uint32_t i = 0; i < WRITERS; i++) {
        struct part *part = &parts[i];

        *part = (struct part){.header = {.storages_count = 1,
                                         .tensors_count = TENSORS,
                                         .update = {{1}},
                                         .node = {{2}},
                                         .epoch = 3,
                                         .bucket = 4,
                                         .buckets_count = 5}};
        part->storages[0] = (struct tdm__storage_record){.gpu = {{3}},
                                                         .key = {{4}},
                                                         .size_bytes = 64,
                                                         .allocation_bytes = 128,
                                                         .reference = i,
                                                         .writer = 2 * i};
        part->storages[1] = part->storages[0];
        for (uint32_t k = 0; k < TENSORS; k++) {
            part->tensors[k] = (struct tdm__tensor_record){.tensor = i + 10 * k,
                                                           .dtype = TDM_F32,
                                                           .dims_count = 2,
                                                           .flags = TDM__TENSOR_SLICE,
                                                           .shape = {1, 2},
                                                           .stride = {2, 1}};
        }
    }
}

static tdm_status accept_all(const void *arg, const struct tdm__tensor_handles *handles)
{
    (void)arg;
    (void)handles;
    return TDM_OK;
}

/* Refuses the description with the tensor `*arg`. */
static tdm_status refuse_tensor(const void *arg, const struct tdm__tensor_handles *handles)
{
    return handles->tensors[0].tensor == *(const uint32_t *)arg
               ? tdm__fail(TDM_E_DEVICE, "not this one")
               : TDM_OK;
}

/* Encodes the parts and merges them. */
static tdm_status merge(tdm__handles_check *check, const void *arg,
                        struct tdm__tensor_handles *merged)
{
    for (uint32_t i = 0; i < WRITERS; i++) {
        struct part *part = &parts[i];
        const struct tdm__tensor_handles handles = {part->header, part->storages, part->tensors};
        size_t bytes = tdm__tensor_handles_bytes(&handles);

        assert_true(bytes <= sizeof(part->bytes));
        TRY(tdm__tensor_handles_encode(&handles, part->bytes, bytes));
        descriptions[i] = (struct tdm__bucket_description){2 * i, {part->bytes, bytes}};
    }
    return tdm__merged_handles_decode(descriptions, WRITERS, check, arg, merged);
}

/* Fails unless merging the parts is refused with this status, and the error says `words` and names
 * the writer with the rank `writer`. */
static void assert_refused(tdm_status status, uint32_t writer, const char *words)
{
    struct tdm__tensor_handles merged;
    char name[64];

    assert_int_equal(merge(accept_all, NULL, &merged), status);
    (void)snprintf(name, sizeof(name), "what trainer rank %u described: ", writer);
    if (strstr(tdm_error_detail(), words) == NULL || strstr(tdm_error_detail(), name) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", tdm_error_detail(), name, words);
    }
    describe_parts();
}

static void tensors_of_all_writers_keep_their_writers(void **state)
{
    struct tdm__tensor_handles merged;

    (void)state;
    describe_parts();
    TRY(merge(accept_all, NULL, &merged));
    assert_int_equal(merged.header.bucket, 4);
    assert_int_equal(merged.header.storages_count, WRITERS);
    assert_int_equal(merged.header.tensors_count, WRITERS * TENSORS);
    for (uint32_t i = 0; i < WRITERS * TENSORS; i++) {
        assert_int_equal(merged.tensors[i].tensor, i / TENSORS + 10 * (i % TENSORS));
        assert_int_equal(merged.storages[merged.tensors[i].storage].writer, 2 * (i / TENSORS));
    }
    tdm__tensor_handles_fini(&merged);
}

static void one_description_stays_as_it_is(void **state)
{
    struct tdm__tensor_handles merged;

    (void)state;
    describe_parts();
    parts[0].header.storages_count = 2;
    parts[0].tensors[1].storage = 1;
    assert_int_equal(merge(accept_all, NULL, &merged), TDM_E_PROTOCOL); /* Of several. */
    descriptions[0].writer = TDM__WRITER_UNKNOWN;
    TRY(tdm__merged_handles_decode(descriptions, 1, accept_all, NULL, &merged));
    assert_int_equal(merged.header.storages_count, 2);
    assert_int_equal(merged.tensors[1].storage, 1);
    tdm__tensor_handles_fini(&merged);
}

static void parts_that_do_not_belong_together_are_refused(void **state)
{
    (void)state;
    describe_parts();
    parts[1].header.bucket = 3;
    assert_refused(TDM_E_PROTOCOL, 2, "bucket 3 of 5, epoch 3");
    parts[2].header.buckets_count = 6;
    assert_refused(TDM_E_PROTOCOL, 4, "bucket 4 of 6");
    parts[1].header.epoch = 4;
    assert_refused(TDM_E_PROTOCOL, 2, "epoch 4");
    parts[1].header.update.bytes[0] = 9;
    assert_refused(TDM_E_PROTOCOL, 2, "another update or node");
    parts[1].header.node.bytes[0] = 9;
    assert_refused(TDM_E_PROTOCOL, 2, "another update or node");
    parts[1].storages[0].key.bytes[0] = 9;
    assert_refused(TDM_E_PROTOCOL, 2, "or of another block");
    parts[1].storages[0].gpu.bytes[0] = 9;
    assert_refused(TDM_E_PROTOCOL, 2, "or of another block");
    parts[1].storages[0].offset_bytes = 8;
    assert_refused(TDM_E_PROTOCOL, 2, "64 bytes at 8");
    parts[1].header.storages_count = 2;
    assert_refused(TDM_E_PROTOCOL, 2, "1 and 2 storages");
}

static void writer_has_one_description_of_its_own(void **state)
{
    struct tdm__tensor_handles merged;

    (void)state;
    describe_parts();
    parts[2].storages[0].writer = 0;
    assert_refused(TDM_E_PROTOCOL, 4, "was written by rank 0, given by rank 4");
    TRY(merge(accept_all, NULL, &merged));
    tdm__tensor_handles_fini(&merged);
    descriptions[2] = descriptions[0];
    assert_int_equal(tdm__merged_handles_decode(descriptions, WRITERS, accept_all, NULL, &merged),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "descriptions 0 and 2 are both of trainer rank 0"));
}

static void changed_or_refused_part_names_its_writer(void **state)
{
    struct tdm__tensor_handles merged;
    uint32_t tensor = 1;

    (void)state;
    describe_parts();
    assert_int_equal(merge(refuse_tensor, &tensor, &merged), TDM_E_DEVICE);
    assert_non_null(strstr(tdm_error_detail(), "what trainer rank 2 described: not this one"));
    parts[2].bytes[256] ^= 1; /* The checksum of its first tensor. */
    assert_int_equal(tdm__merged_handles_decode(descriptions, WRITERS, accept_all, NULL, &merged),
                     TDM_E_CHECKSUM);
    assert_non_null(
        strstr(tdm_error_detail(), "what trainer rank 4 described: reading the description"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_all_writers_keep_their_writers),
        cmocka_unit_test(one_description_stays_as_it_is),
        cmocka_unit_test(parts_that_do_not_belong_together_are_refused),
        cmocka_unit_test(writer_has_one_description_of_its_own),
        cmocka_unit_test(changed_or_refused_part_names_its_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
