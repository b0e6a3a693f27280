/* reshard_check.c - runs a plan over real memory and looks at every element. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reshard_check.h"

#include "colocate/transfer/casts.h"
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
static uint32_t identity(const struct tdm__model *model, uint32_t tensor)
{
    switch (model->tensors[tensor].template_id) {
    case TDM__T_MTP_EMBED:
        return tdm__model_tensor_index(model, TDM__T_EMBED, 0, 0);
    case TDM__T_MTP_HEAD:
        return tdm__model_tensor_index(model, TDM__T_HEAD, 0, 0);
    default:
        return tensor;
    }
}

/* A hash of tensor, row and column: any sign, 64 powers of two, all bits of the fraction. */
static float element(const struct tdm__model *model, uint32_t tensor, uint32_t row, uint32_t column)
{
    uint64_t hash =
        tdm__splitmix64(identity(model, tensor), (uint64_t)row << 32 | column) ^ UINT64_C(0x5eed);
    uint32_t bits = (uint32_t)(hash & 0x807fffff) | (uint32_t)(96 + (hash >> 32) % 64) << 23;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float as_held(float value, uint8_t dtype)
{
    return dtype == TDM_BF16 ? tdm__bf16_to_float(tdm__bf16_from_float(value)) : value;
}

/* ---- a side with real memory ------------------------------------------------------------ */

struct memory {
    uint8_t *bytes;  /* The memory of one tensor, guarded by the sanitizer. */
    uint8_t *writes; /* Number of writes to each element. */
};

struct world {
    const struct tdm__model *model;
    const struct tdm__reshard *reshard;
    struct memory **from; /* By rank, then by tensor. */
    struct memory **to;
    struct memory *staging; /* By destination rank. */
};

static struct memory make_memory(uint64_t elements, uint64_t size_bytes)
{
    struct memory memory = {malloc(size_bytes + 1), calloc(elements + 1, 1)};

    assert_true(memory.bytes != NULL && memory.writes != NULL);
    memset(memory.bytes, 0xa5, size_bytes);
    return memory;
}

static struct memory **make_side(const struct tdm__rank_shards *shards, uint32_t ranks_count)
{
    struct memory **side = calloc(ranks_count, sizeof(*side));

    assert_non_null(side);
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        side[rank] = calloc(shards[rank].shard_tensors_count + 1, sizeof(**side));
        assert_non_null(side[rank]);
        for (uint32_t i = 0; i < shards[rank].shard_tensors_count; i++) {
            const struct tdm__shard_tensor *shard_tensor = &shards[rank].shard_tensors[i];

            side[rank][i] = make_memory(tdm__shard_tensor_elements(shard_tensor),
                                        tdm__shard_tensor_bytes(shard_tensor));
        }
    }
    return side;
}

static void drop_side(struct memory **side, const struct tdm__rank_shards *shards,
                      uint32_t ranks_count)
{
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        for (uint32_t i = 0; i < shards[rank].shard_tensors_count; i++) {
            free(side[rank][i].bytes);
            free(side[rank][i].writes);
        }
        free(side[rank]);
    }
    free(side);
}

static void put(const struct memory *memory, uint64_t index, uint8_t dtype, float value)
{
    if (dtype == TDM_BF16) {
        uint16_t bits = tdm__bf16_from_float(value);

        memcpy(memory->bytes + index * sizeof(bits), &bits, sizeof(bits));
    } else if (dtype == TDM_F8_E4M3) {
        memory->bytes[index] = tdm__e4m3_from_float(value);
    } else {
        assert_int_equal(dtype, TDM_F32);
        memcpy(memory->bytes + index * sizeof(value), &value, sizeof(value));
    }
}

static void fill_source(struct world *world)
{
    const struct tdm__reshard *reshard = world->reshard;

    for (uint32_t rank = 0; rank < reshard->from.sharding->ranks_count; rank++) {
        struct tdm__rank_shards shards;

        assert_int_equal(tdm__rank_shards_init(world->model, reshard->from.sharding, rank,
                                               TDM__SHARDS_SOURCE, &shards),
                         TDM_OK);
        for (uint32_t i = 0; i < shards.slices_count; i++) {
            const struct tdm__tensor_slice *slice = &shards.slices[i];
            const struct tdm__rectangle *r = &slice->rectangle;

            for (uint32_t j = 0; j < r->rows * r->columns; j++) {
                uint32_t row = j / r->columns;
                uint32_t column = j % r->columns;

                put(&world->from[rank][slice->shard_tensor],
                    slice->offset + (uint64_t)row * slice->pitch + column,
                    shards.shard_tensors[slice->shard_tensor].dtype,
                    element(world->model, slice->tensor, r->row + row, r->column + column));
            }
        }
        tdm__rank_shards_fini(&shards);
    }
}

/* ---- running a plan --------------------------------------------------------------------- */

static void count_writes(uint8_t *writes, const struct tdm__rect_copy *copy)
{
    for (uint32_t row = 0; row < copy->rows; row++) {
        for (uint32_t column = 0; column < copy->columns; column++) {
            writes[copy->to_offset + (uint64_t)row * copy->to_pitch + column]++;
        }
    }
}

static void run_copy(struct world *world, uint32_t rank, const struct tdm__rect_copy *copy)
{
    const struct tdm__rank_copies *plan = &world->reshard->ranks[rank];
    const struct memory *from = copy->from_tensor == TDM__STAGING
                                    ? &world->staging[rank]
                                    : &world->from[copy->from_rank][copy->from_tensor];
    bool is_staged = copy->to_tensor == TDM__STAGING;
    struct memory *to = is_staged ? &world->staging[rank] : &world->to[rank][copy->to_tensor];
    const struct tdm__scales_location *scales = NULL;
    struct memory *scales_to = NULL;

    if (copy->conversion == TDM__CONVERT_FP8) {
        assert_true(copy->scales < plan->scales_count);
        scales = &plan->scales[copy->scales];
        scales_to = &world->to[rank][scales->tensor];
        for (uint32_t row = 0; row < (copy->rows + 127) / 128; row++) {
            for (uint32_t column = 0; column < (copy->columns + 127) / 128; column++) {
                scales_to->writes[scales->offset + (uint64_t)row * scales->pitch + column]++;
            }
        }
    }
    if (!is_staged) {
        count_writes(to->writes, copy);
    }
    tdm__rect_copy_execute(copy, from->bytes, to->bytes, scales,
                           scales_to == NULL ? NULL : (float *)(void *)scales_to->bytes);
}

static void run_plan(struct world *world)
{
    for (uint32_t rank = 0; rank < world->reshard->to.sharding->ranks_count; rank++) {
        const struct tdm__rank_copies *plan = &world->reshard->ranks[rank];

        world->staging[rank] = make_memory(0, plan->staging_bytes);
        for (uint32_t i = 0; i < plan->copies_count; i++) {
            run_copy(world, rank, &plan->copies[i]);
        }
        for (uint32_t i = 0; i < plan->staged_copies_count; i++) {
            run_copy(world, rank, &plan->staged_copies[i]);
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

/* By looking at all of them: the nearest, of two as near the even one. */
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
static float scale_reference(const struct tdm__model *model, uint32_t tensor, uint32_t row,
                             uint32_t column, uint8_t dtype)
{
    const struct tdm__model_tensor *info = &model->tensors[tensor];
    float largest = 1e-10f;

    for (uint32_t r = row / 128 * 128; r < info->rows && r < row / 128 * 128 + 128; r++) {
        for (uint32_t c = column / 128 * 128; c < info->columns && c < column / 128 * 128 + 128;
             c++) {
            largest = fmaxf(largest, fabsf(as_held(element(model, tensor, r, c), dtype)));
        }
    }
    return largest / 448.0f;
}

/* ---- checking --------------------------------------------------------------------------- */

static void check_fp8(const struct world *world, const struct tdm__rank_shards *shards,
                      uint32_t rank, const struct tdm__tensor_slice *slice)
{
    const struct tdm__tensor_slice *scale = &shards->slices[slice->scale];
    const struct tdm__rectangle *r = &slice->rectangle;
    uint8_t dtype = (uint8_t)(world->reshard->from.sharding->dtype == TDM_F32 ? TDM_F32 : TDM_BF16);

    for (uint32_t j = 0; j < scale->rectangle.rows * scale->rectangle.columns; j++) {
        uint32_t block_row = j / scale->rectangle.columns * 128;
        uint32_t block_column = j % scale->rectangle.columns * 128;
        float wanted = scale_reference(world->model, slice->tensor, r->row + block_row,
                                       r->column + block_column, dtype);
        float scale_value;

        memcpy(&scale_value,
               world->to[rank][scale->shard_tensor].bytes +
                   4 * (scale->offset + (uint64_t)(block_row / 128) * scale->pitch +
                        block_column / 128),
               sizeof(scale_value));
        assert_memory_equal(&scale_value, &wanted, sizeof(wanted));
        /* Only every seventh element is compared, because the reference is slow. */
        for (uint32_t k = 0; k < 128 * 128; k += 7) {
            uint32_t row = block_row + k / 128;
            uint32_t column = block_column + k % 128;

            if (row < r->rows && column < r->columns) {
                float value = as_held(
                    element(world->model, slice->tensor, r->row + row, r->column + column), dtype);

                assert_int_equal(world->to[rank][slice->shard_tensor]
                                     .bytes[slice->offset + (uint64_t)row * slice->pitch + column],
                                 e4m3_reference(value * (1.0f / wanted)));
            }
        }
    }
}

/* Also takes back the writes that had to be: what is left is too much or too little. */
static void check_piece(const struct world *world, const struct tdm__rank_shards *shards,
                        uint32_t rank, const struct tdm__tensor_slice *slice)
{
    const struct tdm__rectangle *r = &slice->rectangle;
    const struct memory *memory = &world->to[rank][slice->shard_tensor];
    uint8_t dtype = shards->shard_tensors[slice->shard_tensor].dtype;
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)dtype);
    bool is_scale = world->model->tensors[slice->tensor].kind == TDM__TENSOR_KIND_SCALE;
    bool is_made =
        world->reshard->from.sharding->dtype != TDM_F8_E4M3 && (is_scale || dtype == TDM_F8_E4M3);

    for (uint32_t j = 0; j < r->rows * r->columns; j++) {
        uint64_t index = slice->offset + (uint64_t)(j / r->columns) * slice->pitch + j % r->columns;
        uint8_t wanted_bytes[4];
        const struct memory wanted = {wanted_bytes, NULL};

        memory->writes[index]--;
        if (is_made) {
            continue;
        }
        put(&wanted, 0, dtype,
            element(world->model, slice->tensor, r->row + j / r->columns,
                    r->column + j % r->columns));
        assert_memory_equal(memory->bytes + index * element_bytes, wanted_bytes, element_bytes);
    }
    if (is_made && !is_scale) {
        check_fp8(world, shards, rank, slice);
    }
}

static void check_destination(const struct world *world)
{
    const struct tdm__reshard *reshard = world->reshard;

    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        struct tdm__rank_shards shards;

        assert_int_equal(tdm__rank_shards_init(world->model, reshard->to.sharding, rank,
                                               TDM__SHARDS_DESTINATION, &shards),
                         TDM_OK);
        for (uint32_t i = 0; i < shards.slices_count; i++) {
            check_piece(world, &shards, rank, &shards.slices[i]);
        }
        for (uint32_t i = 0; i < shards.shard_tensors_count; i++) {
            for (uint64_t j = 0; j < tdm__shard_tensor_elements(&shards.shard_tensors[i]); j++) {
                assert_int_equal(world->to[rank][i].writes[j], 0);
            }
        }
        tdm__rank_shards_fini(&shards);
    }
}

/* Sums of the steps are the cost that was stated. */
static void check_cost(const struct tdm__reshard *reshard)
{
    uint64_t bytes_by_locality[TDM__LOCALITIES_COUNT] = {0};
    uint32_t copies_max = 0;

    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        const struct tdm__rank_copies *plan = &reshard->ranks[rank];

        for (uint32_t i = 0; i < plan->copies_count; i++) {
            const struct tdm__rank_location *from =
                &reshard->from.locations[plan->copies[i].from_rank];
            const struct tdm__rank_location *to = &reshard->to.locations[rank];
            int locality = from->node != to->node ? TDM__LOCALITY_OTHER_NODE
                           : from->gpu != to->gpu ? TDM__LOCALITY_SAME_NODE
                                                  : TDM__LOCALITY_SAME_GPU;

            assert_int_equal(plan->copies[i].locality, locality);
            bytes_by_locality[locality] += tdm__rect_copy_bytes(&plan->copies[i]);
        }
        if (plan->copies_count + plan->staged_copies_count > copies_max) {
            copies_max = plan->copies_count + plan->staged_copies_count;
        }
    }
    assert_memory_equal(bytes_by_locality, reshard->cost.bytes_by_locality,
                        sizeof(bytes_by_locality));
    assert_int_equal(copies_max, reshard->cost.copies_max);
}

void reshard_check_run(const struct tdm__model *model, const struct tdm__reshard *reshard)
{
    uint32_t from_ranks = reshard->from.sharding->ranks_count;
    uint32_t to_ranks = reshard->to.sharding->ranks_count;
    struct world world = {.model = model,
                          .reshard = reshard,
                          .from = make_side(reshard->from_shards, from_ranks),
                          .to = make_side(reshard->to_shards, to_ranks),
                          .staging = calloc(to_ranks, sizeof(*world.staging))};

    assert_non_null(world.staging);
    fill_source(&world);
    run_plan(&world);
    check_destination(&world);
    check_cost(reshard);
    drop_side(world.from, reshard->from_shards, from_ranks);
    drop_side(world.to, reshard->to_shards, to_ranks);
    for (uint32_t rank = 0; rank < to_ranks; rank++) {
        free(world.staging[rank].bytes);
        free(world.staging[rank].writes);
    }
    free(world.staging);
}
