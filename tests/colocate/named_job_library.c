/* named_job_library.c - a job library of named layouts: every element tells where it belongs.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/named.h"

#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* What lies where follows from the layout's name alone; that the pieces are right is
 * shards_test's business, that each arrives at its place is what this is for. */
struct side {
    const struct tdm_rank_context *context; /* borrowed */
    struct tdm__named *named;               /* owned: the pieces */
    char *weights;
};

static tdm_status open_side(const struct tdm_rank_context *context, const char *section,
                            void **state_out)
{
    struct tdm__named_options options = {.config = context->config,
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
        status = tdm__named_create(&options, &side->named);
    }
    if (status != TDM_OK) {
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

    tdm__named_destroy(side->named);
    free(side);
}

static tdm_status regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out)
{
    const struct side *side = state;

    specs[0] =
        (struct tdm_region_spec){"weights", side->context->tensors_bytes, TDM_REGION_KEEP};
    *count_out = 1;
    return TDM_OK;
}

/* ---- elements --------------------------------------------------------------------------- */

/* A small whole number, which bfloat16 holds as well. */
static float value_of(uint32_t tensor, uint64_t row, uint64_t column)
{
    uint64_t mixed = (tensor * UINT64_C(0x9e3779b97f4a7c15)) ^
                     (row * UINT64_C(0xbf58476d1ce4)) ^ (column * UINT64_C(0x94d049bb13));

    return (float)(1 + (mixed ^ mixed >> 29) % 255);
}

static char *place_of(const struct side *side, const struct tdm__piece *piece, uint64_t row,
                      uint64_t column)
{
    const struct tdm_rank_tensor *tensor = &side->context->tensors[piece->local];
    uint64_t element = piece->offset + row * piece->pitch + column;

    return side->weights + tensor->offset_bytes + element * tdm_dtype_bytes(tensor->info.dtype);
}

static void put(const struct side *side, const struct tdm__piece *piece, uint64_t row,
                uint64_t column)
{
    float value =
        value_of(piece->tensor, piece->rectangle.row + row, piece->rectangle.column + column);

    memcpy(place_of(side, piece, row, column), &value, sizeof(value));
}

static tdm_status check(const struct side *side, const struct tdm__piece *piece, uint64_t row,
                        uint64_t column)
{
    const struct tdm_rank_tensor *tensor = &side->context->tensors[piece->local];
    float wanted =
        value_of(piece->tensor, piece->rectangle.row + row, piece->rectangle.column + column);
    uint32_t bits = 0;
    float value;

    if (tensor->info.dtype == TDM_BF16) {
        memcpy((char *)&bits + 2, place_of(side, piece, row, column), 2);
    } else {
        memcpy(&bits, place_of(side, piece, row, column), 4);
    }
    memcpy(&value, &bits, sizeof(value));
    return value == wanted
               ? TDM_OK
               : tdm_fail(TDM_E_STATE, "%s: row %llu, column %llu: %g, not %g",
                          tensor->info.name, (unsigned long long)row,
                          (unsigned long long)column, (double)value, (double)wanted);
}

/* ---- the tables ------------------------------------------------------------------------- */

static tdm_status start_trainer(void *state, void *const *addresses)
{
    struct side *side = state;

    side->weights = addresses[0];
    for (uint32_t i = 0; i < side->named->shards.pieces_count; i++) {
        const struct tdm__piece *piece = &side->named->shards.pieces[i];

        for (uint64_t row = 0; row < piece->rectangle.rows; row++) {
            for (uint64_t column = 0; column < piece->rectangle.columns; column++) {
                put(side, piece, row, column);
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
static tdm_status generate(void *state, const struct tdm_prompt *prompts,
                           uint32_t prompts_count, const struct tdm_sampling *sampling,
                           struct tdm_completion *completions)
{
    const struct side *side = state;

    (void)prompts;
    (void)prompts_count;
    (void)sampling;
    (void)completions;
    for (uint32_t i = 0; i < side->named->shards.pieces_count; i++) {
        const struct tdm__piece *piece = &side->named->shards.pieces[i];

        for (uint64_t row = 0; row < piece->rectangle.rows; row++) {
            for (uint64_t column = 0; column < piece->rectangle.columns; column++) {
                TDM_TRY(check(side, piece, row, column));
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

static float reward(const char *prompt, const char *answer,
                    const struct tdm_completion *completion, float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    (void)token_rewards;
    return 0;
}

TDM_JOB_LIBRARY(.name = "named", .trainer = &trainer_ops, .engine = &engine_ops,
                .reward = reward);
