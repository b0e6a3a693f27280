/* weights_library.c - a job library with the tensors of Qwen3-0.6B, which can be updated but not
 * trained. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* Trainers have rows of each tensor, as with FSDP. Engine ranks have heads, rows or columns, as
 * with tensor parallelism, and whole norms. Every element is computed from its position, so that
 * an engine can check whether it has the right weights. */
enum {
    HIDDEN = 1024,
    QUERY_ROWS = 2048,
    KEY_ROWS = 1024,
    MLP_ROWS = 3072,
    HEAD = 128,
    LAYERS_MAX = 28,
    LAYER_TENSORS = 11,
    TENSORS_MAX = LAYERS_MAX * LAYER_TENSORS + 2,
    NAME_BYTES = 64,
    ALIGNMENT = 256
};

/* How a tensor is divided over the ranks of an engine. */
enum split { WHOLE, ROWS, COLUMNS };

/* A tensor of a layer. */
struct shape {
    /* Name within the layer. */
    const char *name;
    /* Number of rows. */
    uint64_t rows;
    /* Number of columns; 0 for a vector. */
    uint64_t columns;
    /* How the ranks of an engine divide it. */
    enum split split;
};

/* The tensors of a layer, in the order of an engine that fuses query, key and value, and gate
 * and up. */
static const struct shape layer[LAYER_TENSORS] = {
    {"input_layernorm", HIDDEN, 0, WHOLE},
    {"self_attn.q_proj", QUERY_ROWS, HIDDEN, ROWS},
    {"self_attn.k_proj", KEY_ROWS, HIDDEN, ROWS},
    {"self_attn.v_proj", KEY_ROWS, HIDDEN, ROWS},
    {"self_attn.o_proj", HIDDEN, QUERY_ROWS, COLUMNS},
    {"self_attn.q_norm", HEAD, 0, WHOLE},
    {"self_attn.k_norm", HEAD, 0, WHOLE},
    {"post_attention_layernorm", HIDDEN, 0, WHOLE},
    {"mlp.gate_proj", MLP_ROWS, HIDDEN, ROWS},
    {"mlp.up_proj", MLP_ROWS, HIDDEN, ROWS},
    {"mlp.down_proj", HIDDEN, MLP_ROWS, COLUMNS},
};

/* The model of one rank. */
struct model {
    /* This rank. */
    uint32_t rank;
    /* Number of trainer ranks, or of ranks of the engine. */
    uint32_t ranks_count;
    /* Number of tensors of the model. */
    uint32_t tensors_count;
    /* Name, type and shape of each tensor. */
    struct tdm_tensor_info tensors[TENSORS_MAX];
    /* How each tensor is divided over the ranks of an engine. */
    enum split splits[TENSORS_MAX];
    /* This rank's slice of each tensor; addresses are offsets until the memory is known. */
    struct tdm_slice slices[TENSORS_MAX];
    /* Offset of each slice in the weights, in bytes. */
    uint64_t offsets[TENSORS_MAX];
    /* Size of the region "weights" in bytes. */
    uint64_t weights_bytes;
    /* Borrowed region "weights"; NULL until it is known. */
    char *weights;
    /* Names of the tensors. */
    char names[TENSORS_MAX][NAME_BYTES];
};

/* ---- the tensors ------------------------------------------------------------------------ */

/* Appends a tensor to the model. */
static void add_tensor(struct model *model, const char *prefix, const struct shape *shape)
{
    uint32_t i = model->tensors_count++;

    (void)snprintf(model->names[i], NAME_BYTES, "model.%s%s.weight", prefix, shape->name);
    model->splits[i] = shape->split;
    model->tensors[i] = (struct tdm_tensor_info){.name = model->names[i],
                                                 .dtype = TDM_BF16,
                                                 .dims_count = shape->columns == 0 ? 1 : 2,
                                                 .shape = {shape->rows, shape->columns}};
}

/* Appends all tensors of the model that the job file describes. */
static tdm_status add_tensors(struct model *model, const struct tdm_rank_context *context)
{
    const struct shape norm = {"norm", HIDDEN, 0, WHOLE};
    struct shape embedding = {"embed_tokens", 0, HIDDEN, ROWS};
    int64_t layers;
    int64_t vocabulary;

    TDM_TRY(tdm_config_int(context->config, "model.layers", 4, &layers));
    TDM_TRY(tdm_config_int(context->config, "model.vocabulary", 32768, &vocabulary));
    if (layers < 0 || layers > LAYERS_MAX || vocabulary < 4 || vocabulary > 1 << 20 ||
        vocabulary % 4 != 0) {
        return tdm_fail(TDM_E_INVAL, "%lld layers, a vocabulary of %lld", (long long)layers,
                        (long long)vocabulary);
    }
    embedding.rows = (uint64_t)vocabulary;
    add_tensor(model, "", &embedding);
    for (int64_t i = 0; i < layers; i++) {
        char prefix[24];

        (void)snprintf(prefix, sizeof(prefix), "layers.%lld.", (long long)i);
        for (uint32_t k = 0; k < LAYER_TENSORS; k++) {
            add_tensor(model, prefix, &layer[k]);
        }
    }
    add_tensor(model, "", &norm);
    return TDM_OK;
}

/* Computes this rank's slice of each tensor. Slices are contiguous in memory. */
static void compute_slices(struct model *model, int trains)
{
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm_tensor_info *tensor = &model->tensors[i];
        enum split split = trains ? ROWS : model->splits[i];
        struct tdm_slice *slice = &model->slices[i];
        uint64_t bytes = 2;

        *slice = (struct tdm_slice){.tensor = i};
        for (uint32_t dim = 0; dim < tensor->dims_count; dim++) {
            int is_cut = (split == ROWS && dim == 0) || (split == COLUMNS && dim == 1);

            slice->extent[dim] = tensor->shape[dim] / (is_cut ? model->ranks_count : 1);
            slice->offset[dim] = is_cut ? model->rank * slice->extent[dim] : 0;
            bytes *= slice->extent[dim];
        }
        model->offsets[i] = model->weights_bytes;
        model->weights_bytes =
            (model->weights_bytes + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

/* Creates the model of a rank. */
static tdm_status open_model(const struct tdm_rank_context *context, int trains, void **state_out)
{
    struct model *model = calloc(1, sizeof(*model));
    tdm_status status;

    if (model == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a model");
    }
    model->rank = context->rank;
    model->ranks_count = context->ranks_count;
    status = add_tensors(model, context);
    if (status != TDM_OK) {
        free(model);
        return status;
    }
    compute_slices(model, trains);
    *state_out = model;
    return TDM_OK;
}

/* Declares the region "weights". */
static tdm_status model_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                uint32_t *count_out)
{
    const struct model *model = state;

    specs[0] = (struct tdm_region_spec){"weights", model->weights_bytes, TDM_REGION_KEEP};
    *count_out = 1;
    return TDM_OK;
}

/* Sets the address of the weights. */
static void set_weights_address(struct model *model, void *address)
{
    model->weights = address;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        model->slices[i].address = model->weights + model->offsets[i];
    }
}

/* Returns the value of an element of a tensor. */
static uint16_t element(uint32_t tensor, uint64_t index)
{
    return (uint16_t)(tensor * UINT64_C(257) + index * 40503 + (index >> 16));
}

/* Returns the number of columns of a tensor; 1 for a vector. */
static uint64_t columns_of(const struct tdm_tensor_info *tensor)
{
    return tensor->dims_count == 2 ? tensor->shape[1] : 1;
}

/* Calls `row` for each row of this rank's slice, with the index of the row's first element in
 * the tensor. */
static tdm_status each_row(struct model *model, uint32_t tensor,
                           tdm_status (*row)(uint32_t tensor, uint64_t first, uint16_t *values,
                                             uint64_t count))
{
    const struct tdm_tensor_info *info = &model->tensors[tensor];
    const struct tdm_slice *slice = &model->slices[tensor];
    uint64_t columns = info->dims_count == 2 ? slice->extent[1] : 1;
    uint16_t *values = (uint16_t *)(void *)(model->weights + model->offsets[tensor]);

    for (uint64_t i = 0; i < slice->extent[0]; i++) {
        uint64_t first = (slice->offset[0] + i) * columns_of(info) + slice->offset[1];

        TDM_TRY(row(tensor, first, values + i * columns, columns));
    }
    return TDM_OK;
}

/* Writes the expected values of a row. */
static tdm_status write_row(uint32_t tensor, uint64_t first, uint16_t *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        values[i] = element(tensor, first + i);
    }
    return TDM_OK;
}

/* Fails if a row does not have the expected values. */
static tdm_status check_row(uint32_t tensor, uint64_t first, uint16_t *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (values[i] != element(tensor, first + i)) {
            return tdm_fail(TDM_E_STATE, "element %llu of tensor %u has not come",
                            (unsigned long long)(first + i), tensor);
        }
    }
    return TDM_OK;
}

/* ---- the trainer ------------------------------------------------------------------------ */

/* Opens a trainer rank. */
static tdm_status trainer_open(const struct tdm_rank_context *context, void **state_out)
{
    return open_model(context, 1, state_out);
}

/* Writes the values of this rank's slices into its weights. */
static tdm_status trainer_start(void *state, void *const *addresses)
{
    struct model *model = state;

    set_weights_address(model, addresses[0]);
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        TDM_TRY(each_row(model, i, write_row));
    }
    return TDM_OK;
}

/* Reports the tensors of the model and this rank's slices. */
static tdm_status trainer_layout(void *state, const struct tdm_tensor_info **tensors_out,
                                 uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                                 uint32_t *slices_count_out)
{
    const struct model *model = state;

    *tensors_out = model->tensors;
    *tensors_count_out = model->tensors_count;
    *slices_out = model->slices;
    *slices_count_out = model->tensors_count;
    return TDM_OK;
}

/* Training is not supported. */
static tdm_status trainer_step(void *state, const struct tdm_batch *batch,
                               struct tdm_metrics *metrics)
{
    (void)state;
    (void)batch;
    (void)metrics;
    return tdm_fail(TDM_E_UNSUPPORTED, "these tensors do not learn");
}

/* Saving and loading are not supported. */
static tdm_status trainer_keep(void *state, const char *directory)
{
    (void)state;
    return tdm_fail(TDM_E_UNSUPPORTED, "these tensors are not kept in %s", directory);
}

static const struct tdm_trainer_ops trainer_ops = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                                   .open = trainer_open,
                                                   .regions = model_regions,
                                                   .start = trainer_start,
                                                   .layout = trainer_layout,
                                                   .step = trainer_step,
                                                   .save = trainer_keep,
                                                   .load = trainer_keep,
                                                   .close = free};

/* ---- the engine ------------------------------------------------------------------------- */

/* Opens an engine rank. */
static tdm_status engine_open(const struct tdm_rank_context *context, void **state_out)
{
    return open_model(context, 0, state_out);
}

/* Sets the address of the weights. */
static tdm_status engine_start(void *state, void *const *addresses)
{
    set_weights_address(state, addresses[0]);
    return TDM_OK;
}

/* Checks that the trainers have the same tensors and reports this rank's slices. */
static tdm_status engine_layout(void *state, const struct tdm_tensor_info *tensors,
                                uint32_t tensors_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out)
{
    const struct model *model = state;

    if (tensors_count != model->tensors_count ||
        strcmp(tensors[0].name, model->tensors[0].name) != 0) {
        return tdm_fail(TDM_E_INVAL, "%u other tensors", tensors_count);
    }
    *slices_out = model->slices;
    *slices_count_out = model->tensors_count;
    return TDM_OK;
}

/* Finds a tensor by name. */
static tdm_status find_tensor(const struct model *model, const struct tdm_tensor_info *info,
                              uint32_t *tensor_out)
{
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        if (strcmp(info->name, model->names[i]) == 0) {
            *tensor_out = i;
            return TDM_OK;
        }
    }
    return tdm_fail(TDM_E_INVAL, "tensor %s is unknown", info->name);
}

/* Copies this rank's slices out of whole tensors. */
static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *views,
                              uint32_t views_count)
{
    const struct model *model = state;

    for (uint32_t i = 0; i < views_count; i++) {
        const struct tdm_slice *slice;
        uint64_t row_bytes;
        uint32_t tensor;

        TDM_TRY(find_tensor(model, &views[i].info, &tensor));
        slice = &model->slices[tensor];
        row_bytes = (views[i].info.dims_count == 2 ? slice->extent[1] : 1) * 2;
        for (uint64_t row = 0; row < slice->extent[0]; row++) {
            uint64_t first =
                (slice->offset[0] + row) * columns_of(&views[i].info) + slice->offset[1];

            memcpy((char *)weights + model->offsets[tensor] + row * row_bytes,
                   (const uint16_t *)views[i].data + first, row_bytes);
        }
    }
    return TDM_OK;
}

/* Begins an update: nothing to do. */
static void engine_begin(void *state)
{
    (void)state; /* Missing weights are found by generate(). */
}

/* Does nothing and succeeds. */
static tdm_status engine_ready(void *state)
{
    (void)state;
    return TDM_OK;
}

/* Generates no completions. Fails if the weights are not complete. */
static tdm_status engine_generate(void *state, const struct tdm_prompt *prompts,
                                  uint32_t prompts_count, const struct tdm_sampling *sampling,
                                  struct tdm_completion *completions)
{
    struct model *model = state;

    (void)prompts;
    (void)prompts_count;
    (void)sampling;
    (void)completions;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        TDM_TRY(each_row(model, i, check_row));
    }
    return TDM_OK;
}

static const struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                 .open = engine_open,
                                                 .regions = model_regions,
                                                 .start = engine_start,
                                                 .load = engine_load,
                                                 .complete = engine_ready,
                                                 .begin = engine_begin,
                                                 .flush_cache = engine_ready,
                                                 .generate = engine_generate,
                                                 .close = free,
                                                 .layout = engine_layout};

/* Reward function: always 0. */
static float reward(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    (void)token_rewards;
    return 0;
}

TDM_JOB_LIBRARY(.name = "weights", .trainer = &trainer_ops, .engine = &engine_ops,
                .reward = reward);
