/* bucket_test.c - models are divided into buckets of whole tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/bucket.h"

#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TENSORS_MAX = 12 };

static const struct tdm_tensor_info pair[] = {{"first", TDM_F32, 2, {4, 6}},
                                              {"second", TDM_U8, 1, {10}}};

/* Returns a manifest of the pair of tensors, to be destroyed. */
static struct tdm__manifest *manifest_of_pair(void)
{
    struct tdm__manifest *manifest;

    TRY(tdm__manifest_create(pair, 2, &manifest));
    return manifest;
}

static void small_tensors_share_a_bucket(void **state)
{
    struct tdm__manifest *manifest = manifest_of_pair();
    struct tdm__bucket_plan *plan;

    (void)state;
    TRY(tdm__bucket_plan_create(manifest, 266, &plan));
    assert_int_equal(plan->buckets_count, 1);
    assert_int_equal(plan->tensor_offsets[1], 256);
    assert_int_equal(plan->buckets[0].size_bytes, 266);
    assert_int_equal(plan->image_bytes, 266);
    assert_int_equal(tdm__bucket_tensors_max(plan), 2);
    tdm__bucket_plan_destroy(plan);
    TRY(tdm__bucket_plan_create(manifest, 265, &plan));
    assert_int_equal(plan->buckets_count, 2);
    assert_int_equal(tdm__bucket_tensors_max(plan), 1);
    tdm__bucket_plan_destroy(plan);
    tdm__manifest_destroy(manifest);
}

static void large_tensor_gets_its_own_bucket(void **state)
{
    struct tdm__manifest *manifest = manifest_of_pair();
    struct tdm__bucket_plan *plan;

    (void)state;
    TRY(tdm__bucket_plan_create(manifest, 50, &plan));
    assert_int_equal(plan->buckets_count, 2);
    assert_int_equal(plan->bucket_bytes_max, 96);
    assert_int_equal(plan->buckets[1].size_bytes, 10);
    assert_int_equal(plan->buckets[1].image_offset, 256);
    assert_int_equal(plan->image_bytes, 266);
    tdm__bucket_plan_destroy(plan);
    assert_int_equal(tdm__bucket_plan_create(manifest, 0, &plan), TDM_E_INVAL);
    tdm__manifest_destroy(manifest);
}

static void random_models_are_divided_in_order(void **state)
{
    struct test_random chance = test_random_init("bucket", 1);

    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct tdm_tensor_info tensors[TENSORS_MAX] = {{.name = NULL}};
        char names[TENSORS_MAX][16];
        struct tdm_slice slices[TENSORS_MAX];
        uint32_t count = 1 + (uint32_t)test_random_below(&chance, TENSORS_MAX);
        uint64_t bucket_bytes = 1 + test_random_below(&chance, 4096);
        struct tdm__manifest *manifest;
        struct tdm__bucket_plan *plan;
        uint32_t next = 0;
        uint64_t end = 0;

        for (uint32_t i = 0; i < count; i++) {
            (void)snprintf(names[i], sizeof(names[i]), "t%u", i);
            tensors[i] = (struct tdm_tensor_info){
                .name = names[i], .dtype = TDM_BF16, .dims_count = test_random_below(&chance, 4)};
            for (uint32_t dim = 0; dim < tensors[i].dims_count; dim++) {
                tensors[i].shape[dim] = 1 + test_random_below(&chance, 12);
            }
        }
        TRY(tdm__manifest_create(tensors, count, &manifest));
        TRY(tdm__bucket_plan_create(manifest, bucket_bytes, &plan));
        tdm__bucket_plan_slices(plan, manifest, slices);
        for (uint32_t b = 0; b < plan->buckets_count; b++) {
            const struct tdm__bucket *bucket = &plan->buckets[b];

            assert_int_equal(bucket->tensors_first, next);
            assert_true(bucket->image_offset >= end && bucket->image_offset < end + 256);
            assert_int_equal(bucket->image_offset % TDM__BUCKET_ALIGNMENT, 0);
            assert_true(bucket->size_bytes <= bucket_bytes || bucket->tensors_count == 1);
            for (uint32_t i = 0; i < bucket->tensors_count; i++, next++) {
                uint64_t begin = (uint64_t)(uintptr_t)slices[next].address;

                assert_int_equal(slices[next].tensor, next);
                assert_int_equal(begin, bucket->image_offset + plan->tensor_offsets[next]);
                assert_true(begin >= end && begin % TDM__BUCKET_ALIGNMENT == 0);
                assert_memory_equal(slices[next].extent, tensors[next].shape,
                                    sizeof(slices[next].extent));
                end = begin + tdm_tensor_bytes(&tensors[next]);
            }
            assert_int_equal(bucket->image_offset + bucket->size_bytes, end);
        }
        assert_int_equal(next, count);
        assert_int_equal(plan->image_bytes, end);
        tdm__bucket_plan_destroy(plan);
        tdm__manifest_destroy(manifest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tensors_share_a_bucket),
        cmocka_unit_test(large_tensor_gets_its_own_bucket),
        cmocka_unit_test(random_models_are_divided_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
