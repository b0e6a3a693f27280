/* large_job_library.c - a job library whose model is one large tensor (model.mib). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* All bytes of the model are the number of the step that was learned last. The engine checks one
 * byte of each page, so that no test needs long. The weights lose their contents in a pause, so
 * that a pause needs no copy of them. */
enum { PAGE_BYTES = 4096 };

static struct tdm_tensor_info tensor = {.name = "large", .dtype = TDM_U8, .dims_count = 1};

/* A trainer or engine rank. */
struct rank {
    const struct tdm_rank_context *context; /* borrowed */
    unsigned char *weights;                 /* The region with the weights. */
    struct tdm_slice slice;                 /* The whole tensor. */
    unsigned char loaded;                   /* Nonzero if the tensor was loaded since begin(). */
};

static tdm_status rank_open(const struct tdm_rank_context *context, void **state_out)
{
    struct rank *rank = calloc(1, sizeof(*rank));
    int64_t mib = 0;

    if (rank == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a rank");
    }
    rank->context = context;
    *state_out = rank;
    TDM_TRY(tdm_config_int(context->config, "model.mib", 1, &mib));
    tensor.shape[0] = (uint64_t)mib << 20;
    return TDM_OK;
}

static tdm_status rank_start(void *state, void *const *addresses)
{
    struct rank *rank = state;

    rank->weights = addresses[0];
    rank->slice = (struct tdm_slice){
        .tensor = 0, .flat = 1, .extent = {tensor.shape[0]}, .address = rank->weights};
    return TDM_OK;
}

/* ---- the trainer ------------------------------------------------------------------------ */

static tdm_status trainer_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                  uint32_t *count_out)
{
    (void)state;
    specs[0] = (struct tdm_region_spec){"params", tensor.shape[0], TDM_REGION_KEEP};
    *count_out = 1;
    return TDM_OK;
}

static tdm_status trainer_layout(void *state, const struct tdm_tensor_info **tensors_out,
                                 uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                                 uint32_t *slices_count_out)
{
    const struct rank *rank = state;

    *tensors_out = &tensor;
    *tensors_count_out = 1;
    *slices_out = &rank->slice;
    *slices_count_out = 1;
    return TDM_OK;
}

static tdm_status trainer_step(void *state, const struct tdm_batch *batch,
                               struct tdm_metrics *metrics)
{
    struct rank *rank = state;

    memset(rank->weights, batch->supervised ? 0 : (int)batch->step, tensor.shape[0]);
    metrics->count = 0;
    return TDM_OK;
}

static tdm_status trainer_keep(void *state, const char *directory)
{
    (void)state;
    (void)directory;
    return TDM_OK;
}

static const struct tdm_trainer_ops trainer_ops = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                                   .open = rank_open,
                                                   .regions = trainer_regions,
                                                   .start = rank_start,
                                                   .layout = trainer_layout,
                                                   .step = trainer_step,
                                                   .save = trainer_keep,
                                                   .load = trainer_keep,
                                                   .close = free};

/* ---- the engine ------------------------------------------------------------------------- */

static tdm_status engine_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                 uint32_t *count_out)
{
    (void)state;
    specs[0] = (struct tdm_region_spec){"weights", tensor.shape[0], TDM_REGION_DROP};
    *count_out = 1;
    return TDM_OK;
}

static tdm_status engine_layout(void *state, const struct tdm_tensor_info *infos,
                                uint32_t infos_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out)
{
    const struct rank *rank = state;

    (void)infos;
    *slices_out = &rank->slice;
    *slices_count_out = infos_count;
    return TDM_OK;
}

static void engine_begin(void *state)
{
    ((struct rank *)state)->loaded = 0;
}

static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *views,
                              uint32_t views_count)
{
    for (uint32_t i = 0; i < views_count; i++) {
        memcpy(weights, views[i].data, tdm_tensor_bytes(&views[i].info));
        ((struct rank *)state)->loaded = 1;
    }
    return TDM_OK;
}

static tdm_status engine_complete(void *state)
{
    return ((struct rank *)state)->loaded ? TDM_OK : tdm_fail(TDM_E_STATE, "nothing was loaded");
}

static tdm_status engine_flush_cache(void *state)
{
    (void)state;
    return TDM_OK;
}

/* The completion is the step of which all weights are. */
static tdm_status engine_generate(void *state, const struct tdm_prompt *prompts,
                                  uint32_t prompts_count, const struct tdm_sampling *sampling,
                                  struct tdm_completion *completions)
{
    const struct rank *rank = state;

    (void)prompts;
    for (uint64_t i = 0; i < tensor.shape[0]; i += PAGE_BYTES) {
        if (rank->weights[i] != rank->weights[0]) {
            return tdm_fail(TDM_E_STATE, "byte %llu is of step %d, the first one of step %d",
                            (unsigned long long)i, rank->weights[i], rank->weights[0]);
        }
    }
    for (uint32_t i = 0; i < prompts_count && sampling->tokens_max > 0; i++) {
        completions[i].tokens_count = 1;
        completions[i].tokens[0] = rank->weights[0];
    }
    return TDM_OK;
}

static const struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                 .open = rank_open,
                                                 .regions = engine_regions,
                                                 .start = rank_start,
                                                 .layout = engine_layout,
                                                 .begin = engine_begin,
                                                 .load = engine_load,
                                                 .complete = engine_complete,
                                                 .flush_cache = engine_flush_cache,
                                                 .generate = engine_generate,
                                                 .close = free};

static float reward(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)token_rewards;
    return (float)completion->tokens_count;
}

TDM_JOB_LIBRARY(.name = "large", .trainer = &trainer_ops, .engine = &engine_ops, .reward = reward,
                .devices = "host");
