/* scheme_model_buckets_test.c - packs tensors into buckets. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/model_buckets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TENSORS = 3, ROOM = 4096 };

static const struct tdm_tensor_info infos[TENSORS] = {
    {.name = "a", .dtype = TDM_F32, .dims_count = 2, .shape = {4, 8}},
    {.name = "b", .dtype = TDM_U8, .dims_count = 1, .shape = {3}},
    {.name = "c", .dtype = TDM_F64, .dims_count = 0},
};

static struct tdm__model_buckets make(uint64_t bucket_bytes)
{
    struct tdm__model_buckets model_buckets;
    struct tdm__manifest *manifest;

    assert_int_equal(tdm__manifest_create(infos, TENSORS, &manifest), TDM_OK);
    assert_int_equal(tdm__model_buckets_create(manifest, bucket_bytes, &model_buckets), TDM_OK);
    return model_buckets;
}

static void packed_bucket_shows_every_tensor_and_its_sum(void **state)
{
    static const uint64_t bucket_bytes[] = {1, 300, ROOM};
    static _Alignas(8) unsigned char sources[TENSORS][128];
    const void *addresses[TENSORS];

    (void)state;
    for (int i = 0; i < TENSORS; i++) {
        memset(sources[i], 17 * (i + 1), sizeof(sources[i]));
        addresses[i] = sources[i];
    }
    for (size_t k = 0; k < 3; k++) {
        struct tdm__model_buckets model_buckets = make(bucket_bytes[k]);
        uint32_t tensors = 0;

        for (uint32_t bucket = 0; bucket < model_buckets.plan->buckets_count; bucket++) {
            const struct tdm__bucket *about = &model_buckets.plan->buckets[bucket];
            unsigned char image[ROOM];
            uint64_t sums[TENSORS];

            tdm__model_buckets_pack(&model_buckets, bucket, addresses, image, sums);
            for (uint32_t i = 0; i < about->tensors_count; i++, tensors++) {
                assert_true(sums[i] == tdm__checksum_tensor(
                                           sources[about->tensors_first + i],
                                           tdm_tensor_bytes(&infos[about->tensors_first + i])));
                assert_memory_equal(
                    image + model_buckets.plan->tensor_offsets[about->tensors_first + i],
                    sources[about->tensors_first + i],
                    tdm_tensor_bytes(&infos[about->tensors_first + i]));
            }
        }
        assert_int_equal(tensors, TENSORS);
        assert_int_equal(model_buckets.plan->buckets_count, k == 0 ? TENSORS : k == 1 ? 2 : 1);
        tdm__model_buckets_fini(&model_buckets);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_bucket_shows_every_tensor_and_its_sum),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
