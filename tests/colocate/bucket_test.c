/* bucket_test.c - random models reach all ranks completely, through buckets and segments. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/bucket.h"

#include <xxhash.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 5, TENSORS_MAX = 12, SLICES_MAX = 256 };

static uint64_t random_state;

/* Returns the next number of the splitmix64 generator. */
static uint64_t random_next(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15U;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

static uint64_t random_below(uint64_t bound)
{
    return random_next() % bound;
}

struct model {
    struct tdm_tensor_info tensors[TENSORS_MAX];
    char names[TENSORS_MAX][16];
    uint32_t tensors_count;
    struct tdm_slice slices[RANKS_MAX][SLICES_MAX];
    struct tdm__layout layouts[RANKS_MAX];
    uint32_t ranks_count;
};

/* Returns byte `byte` of element `element` of a tensor, which every test expects. */
static uint8_t byte_of(uint32_t tensor, uint64_t element, uint64_t byte)
{
    const uint64_t key[] = {tensor, element};

    return (uint8_t)(XXH3_64bits(key, sizeof(key)) >> byte % 8 * 8);
}

static void give(struct model *model, struct tdm_slice slice)
{
    uint32_t rank = (uint32_t)random_below(model->ranks_count);
    struct tdm__layout *layout = &model->layouts[rank];

    assert_true(layout->slices_count < SLICES_MAX);
    model->slices[rank][layout->slices_count++] = slice;
}

/* Splits a box in two along a random dimension, again and again, until it is small or chance stops
 * it. */
static void scatter_box(struct model *model, struct tdm_slice slice, uint32_t dims, uint32_t depth)
{
    for (; depth > 0 && dims > 0; depth--) {
        uint32_t dimension = (uint32_t)random_below(dims);
        struct tdm_slice half = slice;
        uint64_t cut;

        if (slice.extent[dimension] < 2) {
            continue;
        }
        cut = 1 + random_below(slice.extent[dimension] - 1);
        half.offset[dimension] += cut;
        half.extent[dimension] -= cut;
        slice.extent[dimension] = cut;
        give(model, half);
    }
    give(model, slice);
}

static void scatter_flat(struct model *model, uint32_t tensor, uint64_t elements)
{
    for (uint64_t at = 0; at < elements;) {
        uint64_t count = 1 + random_below(elements - at);

        give(model,
             (struct tdm_slice){.tensor = tensor, .flat = 1, .offset = {at}, .extent = {count}});
        at += count;
    }
}

static void make_model(struct model *model)
{
    static const enum tdm_dtype dtypes[] = {TDM_F32, TDM_BF16, TDM_U8, TDM_I64};

    memset(model, 0, sizeof(*model));
    model->ranks_count = 1 + (uint32_t)random_below(RANKS_MAX);
    model->tensors_count = 1 + (uint32_t)random_below(TENSORS_MAX);
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        model->layouts[r].slices = model->slices[r];
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        struct tdm_tensor_info *tensor = &model->tensors[i];
        struct tdm_slice slice = {.tensor = i};

        (void)snprintf(model->names[i], sizeof(model->names[i]), "t%u", i);
        tensor->name = model->names[i];
        tensor->dtype = dtypes[random_below(4)];
        tensor->dims_count = (uint32_t)random_below(5);
        for (uint32_t k = 0; k < tensor->dims_count; k++) {
            tensor->shape[k] = 1 + random_below(9);
            slice.extent[k] = tensor->shape[k];
        }
        if (random_below(2) == 0) {
            scatter_flat(model, i, tdm_tensor_elements(tensor));
        } else {
            scatter_box(model, slice, tensor->dims_count, (uint32_t)random_below(6));
        }
    }
}

/* Fills the slice's own memory element by element in row-major order. This is independent of the
 * code under test. */
static void fill_slice(const struct model *model, struct tdm_slice *slice)
{
    const struct tdm_tensor_info *tensor = &model->tensors[slice->tensor];
    uint64_t element_bytes = tdm_dtype_bytes(tensor->dtype);
    uint32_t dims = slice->flat != 0 ? 1 : tensor->dims_count;
    uint64_t count = 1;
    uint8_t *data;

    for (uint32_t k = 0; k < dims; k++) {
        count *= slice->extent[k];
    }
    data = malloc(count * element_bytes);
    assert_non_null(data);
    for (uint64_t n = 0; n < count; n++) {
        uint64_t element = slice->flat != 0 ? slice->offset[0] + n : 0;
        uint64_t rest = n;
        uint64_t step = 1;

        for (uint32_t k = tensor->dims_count; slice->flat == 0 && k-- > 0;) {
            element += (slice->offset[k] + rest % slice->extent[k]) * step;
            rest /= slice->extent[k];
            step *= tensor->shape[k];
        }
        for (uint64_t b = 0; b < element_bytes; b++) {
            data[n * element_bytes + b] = byte_of(slice->tensor, element, b);
        }
    }
    slice->address = data;
}

static void each_slice(struct model *model, void (*visit)(const struct model *, struct tdm_slice *))
{
    for (uint32_t r = 0; r < model->ranks_count; r++) {
        for (uint32_t i = 0; i < model->layouts[r].slices_count; i++) {
            visit(model, &model->slices[r][i]);
        }
    }
}

static void free_slice(const struct model *model, struct tdm_slice *slice)
{
    (void)model;
    free((void *)slice->address);
}

static void check_image(const struct model *model, const struct tdm__bucket_plan *plan,
                        uint32_t bucket, const uint8_t *image)
{
    const struct tdm__bucket *description = &plan->buckets[bucket];

    for (uint32_t i = 0; i < description->tensors_count; i++) {
        uint32_t tensor = description->tensors_first + i;
        uint64_t element_bytes = tdm_dtype_bytes(model->tensors[tensor].dtype);
        uint64_t offset = plan->tensor_offsets[tensor];

        assert_int_equal(offset % TDM__BUCKET_ALIGNMENT, 0);
        for (uint64_t b = 0; b < tdm_tensor_bytes(&model->tensors[tensor]); b++) {
            assert_int_equal(image[offset + b],
                             byte_of(tensor, b / element_bytes, b % element_bytes));
        }
    }
}

static void run(const struct tdm__copy_op *copy_ops, uint32_t count)
{
    uint64_t sum;

    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(tdm__copy_op_execute(&copy_ops[i], &sum), TDM_OK);
    }
}

/* Packs the segments of all ranks one after the other, as an all-gather leaves them, and unpacks
 * all of them. */
static void exchange(const struct model *model, const struct tdm__bucket_plan *plan)
{
    uint32_t tensors = 0;

    for (uint32_t b = 0; b < plan->buckets_count; b++) {
        uint64_t part_bytes = plan->buckets[b].segment_bytes_max;
        uint8_t *segments = malloc(part_bytes * plan->ranks_count);
        uint8_t *image = calloc(1, plan->buckets[b].size_bytes);
        struct tdm__copy_op *copy_ops = calloc(plan->runs_count + 1, sizeof(*copy_ops));

        assert_true(segments != NULL && image != NULL && copy_ops != NULL);
        assert_int_equal(plan->buckets[b].tensors_first, tensors);
        tensors += plan->buckets[b].tensors_count;
        for (uint32_t r = 0; r < plan->ranks_count; r++) {
            run(copy_ops, tdm__bucket_pack(plan, b, r, model->slices[r], segments + r * part_bytes,
                                           copy_ops));
        }
        for (uint32_t r = 0; r < plan->ranks_count; r++) {
            run(copy_ops,
                tdm__bucket_unpack(plan, b, r, segments + r * part_bytes, image, copy_ops));
        }
        check_image(model, plan, b, image);
        free(segments);
        free(image);
        free(copy_ops);
    }
    assert_int_equal(tensors, model->tensors_count);
}

static void any_layout_arrives_completely(void **state)
{
    uint64_t seed = (uint64_t)(uintptr_t)&random_state ^ 0x5eed;
    static struct model model;

    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    random_state = seed;
    for (unsigned round = 0; round < 300; round++) {
        struct tdm__bucket_options options = {.bucket_bytes = 1 + random_below(4096),
                                              .capacity_bytes = 1 << 20};
        struct tdm__manifest *manifest;
        struct tdm__bucket_plan *plan;

        make_model(&model);
        each_slice(&model, fill_slice);
        assert_int_equal(tdm__manifest_create(model.tensors, model.tensors_count, &manifest),
                         TDM_OK);
        tdm_status status =
            tdm__bucket_plan_create(manifest, &options, model.layouts, model.ranks_count, &plan);
        if (status != TDM_OK) {
            fail_msg("%s", tdm_error_detail());
        }
        exchange(&model, plan);
        tdm__bucket_plan_destroy(plan);
        each_slice(&model, free_slice);
        tdm__manifest_destroy(manifest);
    }
}

/* ---- by hand ------------------------------------------------------------------------- */

static const struct tdm_tensor_info pair[] = {{"first", TDM_F32, 2, {4, 6}},
                                              {"second", TDM_U8, 1, {10}}};

static tdm_status plan_pair(const struct tdm_slice *slices, uint32_t count, uint64_t bucket_bytes,
                            uint64_t capacity_bytes, struct tdm__bucket_plan **plan_out)
{
    const struct tdm__layout layouts[] = {{slices, 1}, {slices + 1, count - 1}};
    const struct tdm__bucket_options options = {bucket_bytes, capacity_bytes};
    struct tdm__manifest *manifest;
    tdm_status status;

    assert_int_equal(tdm__manifest_create(pair, 2, &manifest), TDM_OK);
    status = tdm__bucket_plan_create(manifest, &options, layouts, 2, plan_out);
    tdm__manifest_destroy(manifest);
    return status;
}

static void rows_become_one_run_and_columns_one_each(void **state)
{
    const struct tdm_slice slices[] = {{.tensor = 0, .extent = {2, 6}},
                                       {.tensor = 0, .offset = {2, 0}, .extent = {2, 2}},
                                       {.tensor = 0, .offset = {2, 2}, .extent = {2, 4}},
                                       {.tensor = 1, .flat = 1, .extent = {10}}};
    struct tdm__bucket_plan *plan;

    (void)state;
    assert_int_equal(plan_pair(slices, 4, 512, 512, &plan), TDM_OK);
    assert_int_equal(plan->buckets_count, 1);
    assert_int_equal(plan->tensor_offsets[1], 256);
    assert_int_equal(tdm__bucket_find_segment(plan, 0, 0)->runs_count, 1);
    assert_int_equal(tdm__bucket_find_segment(plan, 0, 0)->size_bytes, 48);
    assert_int_equal(tdm__bucket_find_segment(plan, 0, 1)->runs_count, 5);
    assert_int_equal(plan->buckets[0].segment_bytes_max, 58);
    tdm__bucket_plan_destroy(plan);
}

static void equal_slices_are_contributed_once(void **state)
{
    const struct tdm_slice slices[] = {{.tensor = 0, .extent = {4, 6}},
                                       {.tensor = 0, .extent = {4, 6}},
                                       {.tensor = 1, .flat = 1, .extent = {10}}};
    struct tdm__bucket_plan *plan;

    (void)state;
    assert_int_equal(plan_pair(slices, 3, 512, 512, &plan), TDM_OK);
    assert_int_equal(tdm__bucket_find_segment(plan, 0, 0)->size_bytes, 96);
    assert_int_equal(tdm__bucket_find_segment(plan, 0, 1)->size_bytes, 10);
    tdm__bucket_plan_destroy(plan);
}

static void large_tensor_gets_its_own_bucket_or_is_refused(void **state)
{
    const struct tdm_slice slices[] = {{.tensor = 0, .flat = 1, .extent = {24}},
                                       {.tensor = 1, .flat = 1, .extent = {10}}};
    struct tdm__bucket_plan *plan;

    (void)state;
    assert_int_equal(plan_pair(slices, 2, 50, 96, &plan), TDM_OK);
    assert_int_equal(plan->buckets_count, 2);
    assert_int_equal(plan->bucket_bytes_max, 96);
    assert_int_equal(plan->buckets[1].size_bytes, 10);
    tdm__bucket_plan_destroy(plan);
    assert_int_equal(plan_pair(slices, 2, 50, 95, &plan), TDM_E_BUDGET);
    assert_non_null(strstr(tdm_error_detail(), "first has 96 bytes, the staging memory 95"));
}

static void refuses(struct tdm_slice last, const char *words)
{
    const struct tdm_slice slices[] = {
        {.tensor = 0, .flat = 1, .extent = {24}}, {.tensor = 1, .flat = 1, .extent = {4}}, last};
    struct tdm__bucket_plan *plan;

    assert_int_equal(plan_pair(slices, 3, 512, 512, &plan), TDM_E_INVAL);
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("%s", tdm_error_detail());
    }
}

static void elements_held_never_or_twice_are_refused_by_name(void **state)
{
    (void)state;
    refuses((struct tdm_slice){.tensor = 1, .flat = 1, .offset = {5}, .extent = {5}},
            "tensor second: elements 4 to 4 are in no rank's slices");
    refuses((struct tdm_slice){.tensor = 1, .flat = 1, .offset = {4}, .extent = {5}},
            "tensor second: elements 9 to 9 are in no rank's slices");
    refuses((struct tdm_slice){.tensor = 1, .flat = 1, .offset = {3}, .extent = {7}},
            "tensor second: elements 3 to 3 are in slices of rank 1 and of rank 1");
    refuses((struct tdm_slice){.tensor = 0, .offset = {1, 2}, .extent = {1, 2}},
            "tensor first: elements 8 to 9 are in slices of rank 0 and of rank 1");
    refuses((struct tdm_slice){.tensor = 1, .flat = 1, .offset = {4}, .extent = {7}},
            "rank 1: slice 1 of tensor second");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_arrives_completely),
        cmocka_unit_test(rows_become_one_run_and_columns_one_each),
        cmocka_unit_test(equal_slices_are_contributed_once),
        cmocka_unit_test(large_tensor_gets_its_own_bucket_or_is_refused),
        cmocka_unit_test(elements_held_never_or_twice_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
