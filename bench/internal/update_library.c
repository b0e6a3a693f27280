/* update_library.c - a job library without a model: tensors to be updated, and no more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* Every element follows from its place, so that an engine can tell whether it has its weights.
 * Trainers hold flat parts of each tensor, engines rows of each: as FSDP and TP have them. */
enum { TENSORS_MAX = 1024, NAME_BYTES = 16, COLUMNS = 256 };

struct model {
    uint32_t rank;
    uint32_t ranks_count;
    uint32_t tensors_count;
    uint64_t part_elements; /* of a tensor, on one rank */
    float *weights;         /* in the region: this rank's parts, one after the other */
    struct tdm_tensor_info tensors[TENSORS_MAX];
    struct tdm_slice slices[TENSORS_MAX];
    char names[TENSORS_MAX][NAME_BYTES];
};

/* ---- both ------------------------------------------------------------------------------- */

static float element(uint32_t tensor, uint64_t index)
{
    return (float)(((uint64_t)tensor * 257 + index) & 0xffff);
}

static uint64_t region_bytes(const struct model *model)
{
    return (uint64_t)model->tensors_count * model->part_elements * sizeof(float);
}

static tdm_status name_tensors(struct model *model, const struct tdm_rank_context *context)
{
    int64_t count;
    int64_t size_bytes;
    uint64_t rows;

    TDM_TRY(tdm_config_int(context->config, "model.tensors", 64, &count));
    TDM_TRY(tdm_config_int(context->config, "model.tensor_bytes", 1 << 20, &size_bytes));
    rows = (uint64_t)size_bytes / (COLUMNS * sizeof(float));
    if (count < 1 || count > TENSORS_MAX || size_bytes < 1 || rows < context->ranks_count ||
        rows % context->ranks_count != 0) {
        return tdm_fail(TDM_E_INVAL, "%lld tensors of %lld bytes on %u ranks", (long long)count,
                        (long long)size_bytes, context->ranks_count);
    }
    model->rank = context->rank;
    model->ranks_count = context->ranks_count;
    model->tensors_count = (uint32_t)count;
    model->part_elements = rows * COLUMNS / context->ranks_count;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        (void)snprintf(model->names[i], NAME_BYTES, "tensor.%u", i);
        model->tensors[i] = (struct tdm_tensor_info){.name = model->names[i],
                                                     .dtype = TDM_F32,
                                                     .dims_count = 2,
                                                     .shape = {rows, COLUMNS}};
    }
    return TDM_OK;
}

static tdm_status model_open(const struct tdm_rank_context *context, void **state_out)
{
    struct model *model = calloc(1, sizeof(*model));
    tdm_status status;

    if (model == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a model");
    }
    status = name_tensors(model, context);
    if (status != TDM_OK) {
        free(model);
        return status;
    }
    *state_out = model;
    return TDM_OK;
}

static tdm_status model_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                uint32_t *count_out)
{
    specs[0] = (struct tdm_region_spec){"weights", region_bytes(state), TDM_REGION_KEEP};
    *count_out = 1;
    return TDM_OK;
}

/* ---- the trainer ------------------------------------------------------------------------ */

static tdm_status trainer_start(void *state, void *const *addresses)
{
    struct model *model = state;
    uint64_t first = model->rank * model->part_elements;

    model->weights = addresses[0];
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        float *part = model->weights + i * model->part_elements;

        for (uint64_t at = 0; at < model->part_elements; at++) {
            part[at] = element(i, first + at);
        }
        model->slices[i] = (struct tdm_slice){.tensor = i,
                                              .flat = 1,
                                              .offset = {first},
                                              .extent = {model->part_elements},
                                              .address = part};
    }
    return TDM_OK;
}

static tdm_status trainer_layout(void *state, const struct tdm_tensor_info **tensors_out,
                                 uint32_t *tensors_count_out,
                                 const struct tdm_slice **slices_out,
                                 uint32_t *slices_count_out)
{
    const struct model *model = state;

    *tensors_out = model->tensors;
    *tensors_count_out = model->tensors_count;
    *slices_out = model->slices;
    *slices_count_out = model->tensors_count;
    return TDM_OK;
}

static tdm_status trainer_step(void *state, const struct tdm_batch *batch,
                               struct tdm_metrics *metrics)
{
    (void)state;
    (void)batch;
    (void)metrics;
    return tdm_fail(TDM_E_UNSUPPORTED, "these tensors do not learn");
}

static tdm_status trainer_keep(void *state, const char *directory)
{
    (void)state;
    return tdm_fail(TDM_E_UNSUPPORTED, "these tensors are not kept in %s", directory);
}

static const struct tdm_trainer_ops trainer_ops = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                                   .open = model_open,
                                                   .regions = model_regions,
                                                   .start = trainer_start,
                                                   .layout = trainer_layout,
                                                   .step = trainer_step,
                                                   .save = trainer_keep,
                                                   .load = trainer_keep,
                                                   .close = free};

/* ---- the engine ------------------------------------------------------------------------- */

static tdm_status engine_start(void *state, void *const *addresses)
{
    ((struct model *)state)->weights = addresses[0];
    return TDM_OK;
}

static tdm_status find_tensor(const struct model *model, const struct tdm_tensor_info *info,
                              uint32_t *tensor_out)
{
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        if (strcmp(info->name, model->names[i]) == 0 &&
            tdm_tensor_bytes(info) == tdm_tensor_bytes(&model->tensors[i])) {
            *tensor_out = i;
            return TDM_OK;
        }
    }
    return tdm_fail(TDM_E_INVAL, "tensor %s is unknown or of another size", info->name);
}

static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *views,
                              uint32_t views_count)
{
    const struct model *model = state;
    uint64_t part = model->part_elements;

    for (uint32_t i = 0; i < views_count; i++) {
        uint32_t tensor;

        TDM_TRY(find_tensor(model, &views[i].info, &tensor));
        memcpy((float *)weights + tensor * part,
               (const float *)views[i].data + model->rank * part, part * sizeof(float));
    }
    return TDM_OK;
}

/* Rows of each tensor, one tensor behind the other. */
static tdm_status engine_layout(void *state, const struct tdm_tensor_info *tensors,
                                uint32_t tensors_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out)
{
    struct model *model = state;
    uint64_t rows = model->part_elements / COLUMNS;

    for (uint32_t i = 0; i < tensors_count; i++) {
        uint32_t tensor;

        TDM_TRY(find_tensor(model, &tensors[i], &tensor));
        model->slices[i] =
            (struct tdm_slice){.tensor = i,
                               .offset = {model->rank * rows},
                               .extent = {rows, COLUMNS},
                               .address = model->weights + tensor * model->part_elements};
    }
    *slices_out = model->slices;
    *slices_count_out = tensors_count;
    return TDM_OK;
}

static void engine_begin(void *state)
{
    (void)state; /* what is missing is found by generate() */
}

static tdm_status engine_ready(void *state)
{
    (void)state;
    return TDM_OK;
}

/* Answers nothing; fails where the weights are not all there. */
static tdm_status engine_generate(void *state, const struct tdm_prompt *prompts,
                                  uint32_t prompts_count, const struct tdm_sampling *sampling,
                                  struct tdm_completion *completions)
{
    const struct model *model = state;
    uint64_t first = model->rank * model->part_elements;

    (void)prompts;
    (void)prompts_count;
    (void)sampling;
    (void)completions;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const float *part = model->weights + i * model->part_elements;

        for (uint64_t at = 0; at < model->part_elements; at++) {
            if (part[at] != element(i, first + at)) {
                return tdm_fail(TDM_E_STATE, "element %llu of tensor %u has not come",
                                (unsigned long long)(first + at), i);
            }
        }
    }
    return TDM_OK;
}

static const struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                 .open = model_open,
                                                 .regions = model_regions,
                                                 .start = engine_start,
                                                 .load = engine_load,
                                                 .complete = engine_ready,
                                                 .begin = engine_begin,
                                                 .flush_cache = engine_ready,
                                                 .generate = engine_generate,
                                                 .close = free,
                                                 .layout = engine_layout};

static float reward(const char *prompt, const char *answer,
                    const struct tdm_completion *completion, float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    (void)token_rewards;
    return 0;
}

TDM_JOB_LIBRARY(.name = "update", .trainer = &trainer_ops, .engine = &engine_ops,
                .reward = reward);
