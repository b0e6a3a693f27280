/* layout_pair_check.c - runs the plan between two layouts over real memory and looks at every
 * element. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The memory of a rank is one buffer. A run executes the copies as weight_writer.c does, and counts
 * the writes of each byte. The values that should be there come from the shards of the ranks and a
 * plain reference of FP8, not from the slices that the plan was compiled from. */
#include "tests/support/layout_pair_check.h"

#include "colocate/transfer/casts.h"
#include "colocate/weights/convert.h"
#include "runtime/splitmix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- every element says which one it is ------------------------------------------------- */

/* Tensors that some layouts keep once under two names have the same elements. */
static uint64_t identity(const struct tdm__model_tensor *tensor)
{
    switch (tensor->template_id) {
    case TDM__T_MTP_EMBED:
        return TDM__T_EMBED;
    case TDM__T_MTP_HEAD:
        return TDM__T_HEAD;
    default:
        return tensor->template_id | (uint64_t)tensor->layer << 16 | (uint64_t)tensor->expert << 32;
    }
}

/* A hash of tensor, row and column: any sign, 64 powers of two, all bits of the fraction. */
static float element(const struct tdm__model_tensor *tensor, uint32_t row, uint32_t column)
{
    uint64_t hash =
        tdm__splitmix64(identity(tensor), (uint64_t)row << 32 | column) ^ UINT64_C(0x5eed);
    uint32_t bits = (uint32_t)(hash & 0x807fffff) | (uint32_t)(96 + (hash >> 32) % 64) << 23;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float as_held(float value, uint8_t dtype)
{
    return dtype == TDM_BF16 ? tdm__bf16_to_float(tdm__bf16_from_float(value)) : value;
}

static void put(uint8_t *to, uint8_t dtype, float value)
{
    if (dtype == TDM_BF16) {
        uint16_t bits = tdm__bf16_from_float(value);

        memcpy(to, &bits, sizeof(bits));
    } else {
        assert_int_equal(dtype, TDM_F32);
        memcpy(to, &value, sizeof(value));
    }
}

/* Returns the offset in bytes in a rank's memory of an element of a slice, counted row by row. */
static uint64_t offset_of(const struct tdm__named_layout *named,
                          const struct tdm__tensor_slice *slice, uint32_t index)
{
    const struct tdm__shard_tensor *shard_tensor =
        &named->shards.shard_tensors[slice->shard_tensor];
    uint64_t place = slice->offset + (uint64_t)(index / slice->rectangle.columns) * slice->pitch +
                     index % slice->rectangle.columns;

    return named->tensors[slice->shard_tensor].offset_bytes +
           place * tdm_dtype_bytes((enum tdm_dtype)shard_tensor->dtype);
}

static uint8_t dtype_of(const struct tdm__named_layout *named,
                        const struct tdm__tensor_slice *slice)
{
    return named->shards.shard_tensors[slice->shard_tensor].dtype;
}

/* Returns the memory of a trainer rank. The caller frees it. */
static uint8_t *filled_memory(const struct tdm__named_layout *named)
{
    uint8_t *memory = malloc(named->size_bytes + 1);

    assert_non_null(memory);
    memset(memory, 0xa5, named->size_bytes);
    for (uint32_t i = 0; i < named->shards.slices_count; i++) {
        const struct tdm__tensor_slice *slice = &named->shards.slices[i];
        const struct tdm__rectangle *r = &slice->rectangle;

        for (uint32_t j = 0; j < r->rows * r->columns; j++) {
            put(memory + offset_of(named, slice, j), dtype_of(named, slice),
                element(&named->model->tensors[slice->tensor], r->row + j / r->columns,
                        r->column + j % r->columns));
        }
    }
    return memory;
}

/* ---- running a plan --------------------------------------------------------------------- */

/* The memory of all ranks while a plan runs. */
struct world {
    const struct layout_pair *pair;
    uint8_t **from;  /* By trainer rank. */
    float *scales;   /* Shared FP8 scales. */
    uint8_t *to;     /* Image of the engine rank that is being checked. */
    uint8_t *writes; /* Number of writes of each byte of `to`. */
};

static const uint8_t *source_of(const struct world *world, const struct tdm__rect_copy *copy)
{
    const struct tdm_slice *slice =
        &world->pair->from.layouts[copy->from_rank].slices[copy->from_tensor];

    return world->from[copy->from_rank] + (uintptr_t)slice->address +
           copy->from_offset * tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
}

static void find_scales(struct world *world)
{
    const struct tdm__scales *scales = &world->pair->plan->scales;

    world->scales = calloc(scales->count + 1, sizeof(*world->scales));
    assert_non_null(world->scales);
    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__rect_copy *measure = &scales->measures[i];
        float *found = malloc((tdm__scales_measured_count(measure) + 1) * sizeof(*found));
        struct tdm__copy_op op = tdm__convert_copy_op(measure, source_of(world, measure), found);
        uint64_t sum;

        assert_non_null(found);
        op.to_pitch = tdm__convert_blocks_count(measure->columns);
        assert_int_equal(tdm__copy_op_execute(&op, &sum), TDM_OK);
        tdm__scales_merge(measure, found, world->scales);
        free(found);
    }
}

static void run_copy(struct world *world, uint32_t rank, const struct tdm__rect_copy *copy)
{
    const struct tdm__transfer_plan *plan = world->pair->plan;
    const struct tdm_slice *wanted = &world->pair->to.layouts[rank].slices[copy->to_tensor];
    uint64_t at = tdm__transfer_plan_image_offset(plan, rank, copy);
    struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
    const void *from = copy->from_tensor == TDM__TRANSFER_PLAN_SCALES
                           ? (const void *)(world->scales + copy->from_offset)
                           : source_of(world, copy);
    struct tdm__copy_op op = tdm__convert_copy_op(copy, from, world->to + at);
    uint64_t sum;

    tdm__scales_attach(&plan->scales, wanted, copy, world->scales, &op);
    assert_int_equal(tdm__copy_op_execute(&op, &sum), TDM_OK);
    for (uint64_t row = 0; row < rows.count; row++) {
        for (uint64_t i = 0; i < rows.size_bytes; i++) {
            world->writes[at + row * rows.to_pitch + i]++;
        }
    }
}

/* ---- the reference of FP8 --------------------------------------------------------------- */

/* The value of each of the 127 codes from zero up. */
static double e4m3_value(int code)
{
    int power = code >> 3;
    double fraction = (code & 7) / 8.0;

    return power == 0 ? ldexp(fraction, -6) : ldexp(1 + fraction, power - 7);
}

/* Returns the FP8 number (E4M3) nearest to `value`. It compares all of them, and chooses the even
 * one of two that are equally near. */
static uint8_t e4m3_reference(float value)
{
    double size = fabs((double)value);
    int best = 0;

    for (int code = 1; code <= 0x7e; code++) {
        double better = fabs(e4m3_value(code) - size) - fabs(e4m3_value(best) - size);

        if (better < 0 || (better == 0 && code % 2 == 0)) {
            best = code;
        }
    }
    return (uint8_t)(best | (signbit(value) ? 0x80 : 0));
}

/* Of the block that an element of the whole tensor is in. */
static float scale_reference(const struct tdm__model_tensor *tensor, uint32_t row, uint32_t column,
                             uint8_t dtype)
{
    float largest = 1e-10f;

    for (uint32_t r = row / 128 * 128; r < tensor->rows && r < row / 128 * 128 + 128; r++) {
        for (uint32_t c = column / 128 * 128; c < tensor->columns && c < column / 128 * 128 + 128;
             c++) {
            largest = fmaxf(largest, fabsf(as_held(element(tensor, r, c), dtype)));
        }
    }
    return largest / 448.0f;
}

/* ---- checking --------------------------------------------------------------------------- */

static void check_fp8(const struct world *world, const struct tdm__named_layout *named,
                      const struct tdm__tensor_slice *slice)
{
    const struct tdm__model_tensor *tensor = &named->model->tensors[slice->tensor];
    const struct tdm__tensor_slice *scale = &named->shards.slices[slice->scale];
    const struct tdm__rectangle *r = &slice->rectangle;
    uint8_t held = world->pair->from.sharding->dtype == TDM_F32 ? TDM_F32 : TDM_BF16;

    for (uint32_t j = 0; j < scale->rectangle.rows * scale->rectangle.columns; j++) {
        uint32_t block_row = j / scale->rectangle.columns * 128;
        uint32_t block_column = j % scale->rectangle.columns * 128;
        float wanted = scale_reference(tensor, r->row + block_row, r->column + block_column, held);

        assert_memory_equal(world->to + offset_of(named, scale, j), &wanted, sizeof(wanted));
        /* Only every seventh element is compared, because the reference is slow. */
        for (uint32_t k = 0; k < 128 * 128; k += 7) {
            uint32_t row = block_row + k / 128;
            uint32_t column = block_column + k % 128;

            if (row < r->rows && column < r->columns) {
                float value = as_held(element(tensor, r->row + row, r->column + column), held);

                assert_int_equal(world->to[offset_of(named, slice, row * r->columns + column)],
                                 e4m3_reference(value * (1.0f / wanted)));
            }
        }
    }
}

/* Also takes back the writes that had to be: what is left is too much or too little. */
static void check_slice(const struct world *world, const struct tdm__named_layout *named,
                        const struct tdm__tensor_slice *slice)
{
    const struct tdm__model_tensor *tensor = &named->model->tensors[slice->tensor];
    const struct tdm__rectangle *r = &slice->rectangle;
    uint8_t dtype = dtype_of(named, slice);
    size_t bytes = tdm_dtype_bytes((enum tdm_dtype)dtype);
    bool is_plain = tensor->kind != TDM__TENSOR_KIND_SCALE && dtype != TDM_F8_E4M3;

    for (uint32_t j = 0; j < r->rows * r->columns; j++) {
        uint64_t at = offset_of(named, slice, j);
        uint8_t wanted[4];

        for (size_t k = 0; k < bytes; k++) {
            world->writes[at + k]--;
        }
        if (is_plain) {
            put(wanted, dtype,
                element(tensor, r->row + j / r->columns, r->column + j % r->columns));
            assert_memory_equal(world->to + at, wanted, bytes);
        }
    }
    if (dtype == TDM_F8_E4M3) {
        check_fp8(world, named, slice);
    }
}

/* Runs the copies of an engine rank and looks at its memory. */
static void check_rank(struct world *world, uint32_t rank)
{
    const struct tdm__named_layout *named = &world->pair->to.ranks[rank];
    const struct tdm__transfer_plan_image *image = &world->pair->plan->images[rank];

    world->to = malloc(named->size_bytes + 1);
    world->writes = calloc(named->size_bytes + 1, 1);
    assert_true(world->to != NULL && world->writes != NULL);
    for (uint32_t i = 0; i < image->copies_count; i++) {
        run_copy(world, rank, &image->copies[i]);
    }
    for (uint32_t i = 0; i < named->shards.slices_count; i++) {
        check_slice(world, named, &named->shards.slices[i]);
    }
    for (uint64_t i = 0; i < named->size_bytes; i++) {
        assert_int_equal(world->writes[i], 0);
    }
    free(world->to);
    free(world->writes);
}

/* Sums of the copies are the cost that was stated. */
static void check_cost(const struct tdm__transfer_plan *plan)
{
    uint64_t bytes[TDM__LOCALITIES_COUNT] = {0};
    uint32_t copies_max = 0;

    for (uint32_t rank = 0; rank < plan->to_count; rank++) {
        const struct tdm__transfer_plan_image *image = &plan->images[rank];

        for (uint32_t i = 0; i < image->copies_count; i++) {
            struct tdm__strided_rows rows = tdm__convert_written_rows(&image->copies[i]);

            bytes[image->copies[i].locality] += rows.count * rows.size_bytes;
        }
        copies_max = image->copies_count > copies_max ? image->copies_count : copies_max;
    }
    assert_memory_equal(bytes, plan->cost.bytes_by_locality, sizeof(bytes));
    assert_int_equal(copies_max, plan->cost.copies_max);
}

void layout_pair_check(const struct layout_pair *pair)
{
    uint32_t ranks = pair->from.sharding->ranks_count;
    struct world world = {.pair = pair, .from = calloc(ranks, sizeof(*world.from))};

    assert_non_null(world.from);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        world.from[rank] = filled_memory(&pair->from.ranks[rank]);
    }
    find_scales(&world);
    for (uint32_t rank = 0; rank < pair->to.sharding->ranks_count; rank++) {
        check_rank(&world, rank);
    }
    check_cost(pair->plan);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        free(world.from[rank]);
    }
    free(world.from);
    free(world.scales);
}
