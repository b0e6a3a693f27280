/* named_job_library.c - a job library of named layouts: every element tells where it belongs.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/named_layout.h"
#include "colocate/transfer/casts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

enum { SCALES = 8 };

/* Of a block of a tensor that an engine keeps as FP8. */
struct scale {
    uint32_t tensor;
    uint64_t row; /* First row of the block. */
    uint64_t column;
    float value; /* 0: of none yet */
};

/* What lies where follows from the layout's name alone; that the slices are right is
 * shards_test's business, that each arrives at its place is what this is for. */
struct side {
    const struct tdm_rank_context *context; /* borrowed */
    struct tdm__named_layout *named_layout; /* Owned layout with the slices of this rank. */
    /* Owned array: number of each tensor, not counting the scales that FP8 adds. */
    uint32_t *numbers;
    char *weights;
    /* The scales that were found last, by the column of their blocks. */
    struct scale scales[SCALES];
};

static tdm_status number_tensors(struct side *side)
{
    const struct tdm__model *model = side->named_layout->model;
    uint32_t number = 0;

    side->numbers = calloc(model->tensors_count + 1u, sizeof(*side->numbers));
    if (side->numbers == NULL) {
        return tdm_fail(TDM_E_NOMEM, "numbers of tensors");
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        side->numbers[i] = number;
        number += model->tensors[i].kind == TDM__TENSOR_KIND_SCALE ? 0 : 1;
    }
    return TDM_OK;
}

static tdm_status open_side(const struct tdm_rank_context *context, const char *section,
                            void **state_out)
{
    struct tdm__named_layout_options options = {.config = context->config,
                                                .section = section,
                                                .rank = context->rank,
                                                .ranks_count = context->ranks_count};
    struct side *side = calloc(1, sizeof(*side));
    tdm_status status;

    if (side == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a side");
    }
    side->context = context;
    status = tdm_config_string(context->config, "model.config", "", &options.model_config);
    if (status == TDM_OK) {
        status = tdm__named_layout_create(&options, &side->named_layout);
    }
    if (status == TDM_OK) {
        status = number_tensors(side);
    }
    if (status != TDM_OK) {
        tdm__named_layout_destroy(side->named_layout);
        free(side);
        return status;
    }
    *state_out = side;
    return TDM_OK;
}

static tdm_status open_trainer(const struct tdm_rank_context *context, void **state_out)
{
    return open_side(context, "trainer", state_out);
}

static tdm_status open_engine(const struct tdm_rank_context *context, void **state_out)
{
    return open_side(context, "engine", state_out);
}

static void close_side(void *state)
{
    struct side *side = state;

    tdm__named_layout_destroy(side->named_layout);
    free(side->numbers);
    free(side);
}

static tdm_status regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out)
{
    const struct side *side = state;

    specs[0] = (struct tdm_region_spec){"weights", side->context->tensors_bytes, TDM_REGION_KEEP};
    *count_out = 1;
    return TDM_OK;
}

/* ---- elements --------------------------------------------------------------------------- */

/* A small whole number, doubled some times, which bfloat16 holds as well: parts of a block of
 * 128 x 128 have other largest ones than the block. */
static float value_of(uint32_t tensor, uint64_t row, uint64_t column)
{
    uint64_t mixed = (tensor * UINT64_C(0x9e3779b97f4a7c15)) ^ (row * UINT64_C(0xbf58476d1ce4)) ^
                     (column * UINT64_C(0x94d049bb13));

    return ldexpf((float)(1 + (mixed ^ mixed >> 29) % 255), (int)(row / 24 % 5 + column / 40 % 3));
}

/* Of the block that begins there. */
static float find_scale(const struct side *side, uint32_t tensor, uint64_t row, uint64_t column)
{
    const struct tdm__model_tensor *info = &side->named_layout->model->tensors[tensor];
    float largest = 0;

    for (uint64_t i = row; i < row + TDM__FP8_BLOCK && i < info->rows; i++) {
        for (uint64_t k = column; k < column + TDM__FP8_BLOCK && k < info->columns; k++) {
            largest = fmaxf(largest, value_of(side->numbers[tensor], i, k));
        }
    }
    return largest / 448.0f;
}

/* Of the block in which an element lies. */
static float scale_of(struct side *side, uint32_t tensor, uint64_t row, uint64_t column)
{
    uint64_t first_row = row / TDM__FP8_BLOCK * TDM__FP8_BLOCK;
    uint64_t first_column = column / TDM__FP8_BLOCK * TDM__FP8_BLOCK;
    struct scale *scale = &side->scales[column / TDM__FP8_BLOCK % SCALES];

    if (scale->value <= 0 || scale->tensor != tensor || scale->row != first_row ||
        scale->column != first_column) {
        *scale = (struct scale){tensor, first_row, first_column,
                                find_scale(side, tensor, first_row, first_column)};
    }
    return scale->value;
}

static char *place_of(const struct side *side, const struct tdm__tensor_slice *slice, uint64_t row,
                      uint64_t column)
{
    const struct tdm_rank_tensor *tensor = &side->context->tensors[slice->shard_tensor];
    uint64_t element = slice->offset + row * slice->pitch + column;

    return side->weights + tensor->offset_bytes + element * tdm_dtype_bytes(tensor->info.dtype);
}

static void put(const struct side *side, const struct tdm__tensor_slice *slice, uint64_t row,
                uint64_t column)
{
    float value = value_of(side->numbers[slice->tensor], slice->rectangle.row + row,
                           slice->rectangle.column + column);
    uint16_t half = tdm__bf16_from_float(value);

    if (side->context->tensors[slice->shard_tensor].info.dtype == TDM_BF16) {
        memcpy(place_of(side, slice, row, column), &half, sizeof(half));
    } else {
        memcpy(place_of(side, slice, row, column), &value, sizeof(value));
    }
}

/* The bits of an element as its dtype has them. */
static uint32_t bits_wanted(struct side *side, const struct tdm__tensor_slice *slice, uint64_t row,
                            uint64_t column)
{
    uint64_t down = slice->rectangle.row + row;
    uint64_t across = slice->rectangle.column + column;
    float value = value_of(side->numbers[slice->tensor], down, across);
    uint32_t bits;

    if (side->named_layout->model->tensors[slice->tensor].kind == TDM__TENSOR_KIND_SCALE) {
        value = scale_of(side, slice->tensor - 1, down * TDM__FP8_BLOCK, across * TDM__FP8_BLOCK);
    } else if (side->context->tensors[slice->shard_tensor].info.dtype == TDM_F8_E4M3) {
        return tdm__e4m3_from_float(value * (1.0f / scale_of(side, slice->tensor, down, across)));
    }
    memcpy(&bits, &value, sizeof(bits));
    return side->context->tensors[slice->shard_tensor].info.dtype == TDM_BF16 ? bits >> 16 : bits;
}

static tdm_status check(struct side *side, const struct tdm__tensor_slice *slice, uint64_t row,
                        uint64_t column)
{
    const struct tdm_rank_tensor *tensor = &side->context->tensors[slice->shard_tensor];
    uint32_t wanted = bits_wanted(side, slice, row, column);
    uint32_t bits = 0;

    memcpy(&bits, place_of(side, slice, row, column), tdm_dtype_bytes(tensor->info.dtype));
    return bits == wanted ? TDM_OK
                          : tdm_fail(TDM_E_STATE, "%s: row %llu, column %llu: bits %x, not %x",
                                     tensor->info.name, (unsigned long long)row,
                                     (unsigned long long)column, bits, wanted);
}

/* ---- the tables ------------------------------------------------------------------------- */

static tdm_status start_trainer(void *state, void *const *addresses)
{
    struct side *side = state;

    side->weights = addresses[0];
    for (uint32_t i = 0; i < side->named_layout->shards.slices_count; i++) {
        const struct tdm__tensor_slice *slice = &side->named_layout->shards.slices[i];

        for (uint64_t row = 0; row < slice->rectangle.rows; row++) {
            for (uint64_t column = 0; column < slice->rectangle.columns; column++) {
                put(side, slice, row, column);
            }
        }
    }
    return TDM_OK;
}

static tdm_status start_engine(void *state, void *const *addresses)
{
    ((struct side *)state)->weights = addresses[0];
    return TDM_OK;
}

/* Answers nothing; fails where an element is not what it has to be. */
static tdm_status generate(void *state, const struct tdm_prompt *prompts, uint32_t prompts_count,
                           const struct tdm_sampling *sampling, struct tdm_completion *completions)
{
    struct side *side = state;

    (void)prompts;
    (void)prompts_count;
    (void)sampling;
    (void)completions;
    for (uint32_t i = 0; i < side->named_layout->shards.slices_count; i++) {
        const struct tdm__tensor_slice *slice = &side->named_layout->shards.slices[i];

        for (uint64_t row = 0; row < slice->rectangle.rows; row++) {
            for (uint64_t column = 0; column < slice->rectangle.columns; column++) {
                TDM_TRY(check(side, slice, row, column));
            }
        }
    }
    return TDM_OK;
}

static tdm_status layout(void *state, const struct tdm_tensor_info **tensors_out,
                         uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                         uint32_t *slices_count_out)
{
    (void)state;
    (void)tensors_out;
    (void)tensors_count_out;
    (void)slices_out;
    (void)slices_count_out;
    return tdm_fail(TDM_E_STATE, "a named layout is not the library's to tell");
}

static tdm_status step(void *state, const struct tdm_batch *batch, struct tdm_metrics *metrics)
{
    (void)state;
    (void)batch;
    (void)metrics;
    return tdm_fail(TDM_E_UNSUPPORTED, "these tensors do not learn");
}

static tdm_status keep(void *state, const char *directory)
{
    (void)state;
    return tdm_fail(TDM_E_UNSUPPORTED, "these tensors are not kept in %s", directory);
}

static tdm_status load(void *state, void *weights, const struct tdm_tensor_view *views,
                       uint32_t views_count)
{
    (void)state;
    (void)weights;
    (void)views_count;
    return tdm_fail(TDM_E_UNSUPPORTED, "%s comes whole", views[0].info.name);
}

static void begin(void *state)
{
    (void)state;
}

static tdm_status ready(void *state)
{
    (void)state;
    return TDM_OK;
}

static const struct tdm_trainer_ops trainer_ops = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                                   .open = open_trainer,
                                                   .regions = regions,
                                                   .start = start_trainer,
                                                   .layout = layout,
                                                   .step = step,
                                                   .save = keep,
                                                   .load = keep,
                                                   .close = close_side};

static const struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                 .open = open_engine,
                                                 .regions = regions,
                                                 .start = start_engine,
                                                 .load = load,
                                                 .complete = ready,
                                                 .begin = begin,
                                                 .flush_cache = ready,
                                                 .generate = generate,
                                                 .close = close_side};

static float reward(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    (void)token_rewards;
    return 0;
}

TDM_JOB_LIBRARY(.name = "named", .trainer = &trainer_ops, .engine = &engine_ops, .reward = reward);
