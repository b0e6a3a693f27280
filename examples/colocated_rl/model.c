/* model.c - the Qwen3 architecture: sizes, tensors, their offsets, and how ranks split them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The dimension of a tensor that is split over tensor-parallel ranks. */
enum split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS };

/* Name and split dimension of each tensor of a layer. */
static const struct {
    const char *name;
    enum split split;
} layer_tensors[LAYER_TENSORS] = {
    [INPUT_NORM] = {"input_layernorm", SPLIT_NONE},
    [QUERY_PROJ] = {"self_attn.q_proj", SPLIT_ROWS},
    [KEY_PROJ] = {"self_attn.k_proj", SPLIT_ROWS},
    [VALUE_PROJ] = {"self_attn.v_proj", SPLIT_ROWS},
    [OUTPUT_PROJ] = {"self_attn.o_proj", SPLIT_COLUMNS},
    [QUERY_NORM] = {"self_attn.q_norm", SPLIT_NONE},
    [KEY_NORM] = {"self_attn.k_norm", SPLIT_NONE},
    [MLP_NORM] = {"post_attention_layernorm", SPLIT_NONE},
    [GATE_PROJ] = {"mlp.gate_proj", SPLIT_ROWS},
    [UP_PROJ] = {"mlp.up_proj", SPLIT_ROWS},
    [DOWN_PROJ] = {"mlp.down_proj", SPLIT_COLUMNS},
};

/* Limits of sizes and counts in a configuration. */
enum { SIZE_MAX_ALLOWED = 1 << 18, COUNT_MAX_ALLOWED = 1 << 12 };

tdm_status model_shape_check(const struct model_shape *shape)
{
    const struct {
        const char *name;
        uint32_t value, most; /* Limit, small enough that no product of sizes overflows. */
    } sizes[] = {
        {"vocab_size", shape->vocab_size, SIZE_MAX_ALLOWED},
        {"hidden_size", shape->hidden_size, SIZE_MAX_ALLOWED},
        {"num_hidden_layers", shape->num_hidden_layers, COUNT_MAX_ALLOWED},
        {"num_attention_heads", shape->num_attention_heads, COUNT_MAX_ALLOWED},
        {"num_key_value_heads", shape->num_key_value_heads, COUNT_MAX_ALLOWED},
        {"head_dim", shape->head_dim, COUNT_MAX_ALLOWED},
        {"num_attention_heads × head_dim", shape->num_attention_heads * shape->head_dim,
         SIZE_MAX_ALLOWED},
        {"intermediate_size", shape->intermediate_size, SIZE_MAX_ALLOWED},
        {"max_position_embeddings", shape->max_position_embeddings, SIZE_MAX_ALLOWED},
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i].value == 0 || sizes[i].value > sizes[i].most) {
            return tdm_fail(TDM_E_INVAL, "model.%s is %" PRIu32 ", wanted 1 to %" PRIu32,
                            sizes[i].name, sizes[i].value, sizes[i].most);
        }
    }
    if (shape->num_attention_heads % shape->num_key_value_heads != 0) {
        return tdm_fail(TDM_E_INVAL,
                        "model.num_attention_heads is %" PRIu32
                        ", not a multiple of num_key_value_heads %" PRIu32,
                        shape->num_attention_heads, shape->num_key_value_heads);
    }
    if (shape->head_dim % 2 != 0) {
        return tdm_fail(TDM_E_INVAL, "model.head_dim is %" PRIu32 ", wanted an even number",
                        shape->head_dim);
    }
    return TDM_OK;
}

/* Returns the number of tensors of the model. */
static uint32_t tensors_of(const struct model_shape *shape)
{
    return shape->num_hidden_layers * LAYER_TENSORS + (shape->tie_word_embeddings ? 2 : 3);
}

/* Stores the rows and columns of a layer's tensor. A vector has 0 columns. */
static void layer_tensor_dims(const struct model_shape *shape, enum layer_tensor tensor,
                              uint32_t dims[2])
{
    uint32_t query_width = shape->num_attention_heads * shape->head_dim;
    uint32_t key_width = shape->num_key_value_heads * shape->head_dim;

    dims[1] = shape->hidden_size;
    switch (tensor) {
    case INPUT_NORM:
    case MLP_NORM:
        dims[0] = shape->hidden_size;
        dims[1] = 0;
        break;
    case QUERY_NORM:
    case KEY_NORM:
        dims[0] = shape->head_dim;
        dims[1] = 0;
        break;
    case QUERY_PROJ:
        dims[0] = query_width;
        break;
    case KEY_PROJ:
    case VALUE_PROJ:
        dims[0] = key_width;
        break;
    case OUTPUT_PROJ:
        dims[0] = shape->hidden_size;
        dims[1] = query_width;
        break;
    case GATE_PROJ:
    case UP_PROJ:
        dims[0] = shape->intermediate_size;
        break;
    case DOWN_PROJ:
        dims[0] = shape->hidden_size;
        dims[1] = shape->intermediate_size;
        break;
    case LAYER_TENSORS:
        break;
    }
}

/* Appends a tensor with its name, shape and offset. TDM_E_NOMEM if there is no memory for the
 * name. */
static tdm_status append_tensor(struct model *model, const uint32_t dims[2], const char *name)
{
    struct tdm_tensor_info *info = &model->tensors[model->tensors_count];

    info->name = strdup(name);
    if (info->name == NULL) {
        return tdm_fail(TDM_E_NOMEM, "the name of tensor %s", name);
    }
    info->dtype = TDM_F32;
    info->dims_count = dims[1] == 0 ? 1 : 2;
    info->shape[0] = dims[0];
    info->shape[1] = dims[1];
    model->offsets[model->tensors_count++] = model->elements;
    model->elements += (size_t)dims[0] * (dims[1] == 0 ? 1 : dims[1]);
    return TDM_OK;
}

static tdm_status append_layer(struct model *model, uint32_t layer)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX];
    uint32_t dims[2];

    for (uint32_t i = 0; i < LAYER_TENSORS; i++) {
        layer_tensor_dims(&model->shape, (enum layer_tensor)i, dims);
        (void)snprintf(name, sizeof(name), "model.layers.%" PRIu32 ".%s.weight", layer,
                       layer_tensors[i].name);
        TDM_TRY(append_tensor(model, dims, name));
    }
    return TDM_OK;
}

static tdm_status append_all_tensors(struct model *model)
{
    const struct model_shape *shape = &model->shape;
    const uint32_t table[2] = {shape->vocab_size, shape->hidden_size};
    const uint32_t norm[2] = {shape->hidden_size, 0};

    TDM_TRY(append_tensor(model, table, "model.embed_tokens.weight"));
    for (uint32_t layer = 0; layer < shape->num_hidden_layers; layer++) {
        TDM_TRY(append_layer(model, layer));
    }
    TDM_TRY(append_tensor(model, norm, "model.norm.weight"));
    return shape->tie_word_embeddings ? TDM_OK : append_tensor(model, table, "lm_head.weight");
}

tdm_status model_init(struct model *model, const struct model_shape *shape, uint32_t ranks_count)
{
    tdm_status status;

    TDM_TRY(model_shape_check(shape));
    if (shape->num_key_value_heads % ranks_count != 0 ||
        shape->intermediate_size % ranks_count != 0) {
        return tdm_fail(TDM_E_INVAL,
                        "%" PRIu32 " key-value heads and an MLP of %" PRIu32
                        " do not divide over %" PRIu32 " ranks",
                        shape->num_key_value_heads, shape->intermediate_size, ranks_count);
    }
    *model = (struct model){.shape = *shape, .ranks_count = ranks_count};
    model->shape.num_attention_heads /= ranks_count;
    model->shape.num_key_value_heads /= ranks_count;
    model->shape.intermediate_size /= ranks_count;
    model->tensors = calloc(tensors_of(shape), sizeof(*model->tensors));
    model->offsets = calloc(tensors_of(shape), sizeof(*model->offsets));
    status = model->tensors == NULL || model->offsets == NULL
                 ? tdm_fail(TDM_E_NOMEM, "%" PRIu32 " tensors", tensors_of(shape))
                 : append_all_tensors(model);
    if (status != TDM_OK) {
        model_fini(model);
    }
    return status;
}

void model_fini(struct model *model)
{
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        free((void *)(uintptr_t)model->tensors[i].name);
    }
    free(model->tensors);
    free(model->offsets);
    *model = (struct model){0};
}

size_t model_embedding(const struct model *model)
{
    return model->offsets[0];
}

size_t model_layer(const struct model *model, uint32_t layer, enum layer_tensor tensor)
{
    return model->offsets[1 + layer * LAYER_TENSORS + (uint32_t)tensor];
}

size_t model_final_norm(const struct model *model)
{
    return model->offsets[1 + model->shape.num_hidden_layers * LAYER_TENSORS];
}

size_t model_head(const struct model *model)
{
    return model->shape.tie_word_embeddings ? model_embedding(model)
                                            : model->offsets[model->tensors_count - 1];
}

uint32_t model_find(const struct model *model, const char *name)
{
    uint32_t index = 0;

    while (index < model->tensors_count && strcmp(model->tensors[index].name, name) != 0) {
        index++;
    }
    return index;
}

/* Returns the split dimension of tensor `index`. */
static enum split split_of(const struct model *model, uint32_t index)
{
    if (index == 0 || index > model->shape.num_hidden_layers * LAYER_TENSORS) {
        return SPLIT_NONE;
    }
    return layer_tensors[(index - 1) % LAYER_TENSORS].split;
}

void model_whole_tensor(const struct model *model, uint32_t index, struct tdm_tensor_info *info_out)
{
    *info_out = model->tensors[index];
    switch (split_of(model, index)) {
    case SPLIT_NONE:
        break;
    case SPLIT_ROWS:
        info_out->shape[0] *= model->ranks_count;
        break;
    case SPLIT_COLUMNS:
        info_out->shape[1] *= model->ranks_count;
        break;
    }
}

/* TDM_E_INVAL if dtype or shape of a view are not the wanted ones. */
static tdm_status check_view(const struct tdm_tensor_info *want, const struct tdm_tensor_info *got)
{
    uint64_t columns = want->dims_count == 2 ? want->shape[1] : 1;

    if (got->dtype != TDM_F32 && got->dtype != TDM_BF16) {
        return tdm_fail(TDM_E_INVAL, "tensor %s is %s, wanted F32 or BF16", want->name,
                        tdm_dtype_name(got->dtype));
    }
    if (got->dims_count != want->dims_count || got->shape[0] != want->shape[0] ||
        (want->dims_count == 2 && got->shape[1] != columns)) {
        return tdm_fail(TDM_E_INVAL,
                        "tensor %s has %" PRIu32 " dimensions, %" PRIu64 " × %" PRIu64
                        ", wanted %" PRIu32 ", %" PRIu64 " × %" PRIu64,
                        want->name, got->dims_count, got->shape[0],
                        got->dims_count == 2 ? got->shape[1] : 1, want->dims_count, want->shape[0],
                        columns);
    }
    return TDM_OK;
}

/* Returns element `index` of a view of F32 or BF16 as a float. */
static float read_element(const struct tdm_tensor_view *view, uint64_t index)
{
    uint32_t bits;
    float value;

    if (view->info.dtype == TDM_F32) {
        return ((const float *)view->data)[index];
    }
    bits = (uint32_t)((const uint16_t *)view->data)[index] << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Copies `count` elements from element `from` on; `stride` is the distance in elements. */
static void read_elements(const struct tdm_tensor_view *view, uint64_t from, uint64_t stride,
                          uint64_t count, float *to)
{
    if (view->info.dtype == TDM_F32 && stride == 1) {
        memcpy(to, (const float *)view->data + from, count * sizeof(float));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        to[i] = read_element(view, from + i * stride);
    }
}

tdm_status model_cut(const struct model *model, uint32_t index, uint32_t rank,
                     const struct tdm_tensor_view *whole, float *part)
{
    const struct tdm_tensor_info *mine = &model->tensors[index];
    enum split split = split_of(model, index);
    uint64_t columns = mine->dims_count == 2 ? mine->shape[1] : 1;
    uint64_t column_stride = mine->dims_count == 2 ? whole->stride[1] : 1;
    uint64_t first;
    struct tdm_tensor_info want;

    model_whole_tensor(model, index, &want);
    TDM_TRY(check_view(&want, &whole->info));
    first = split == SPLIT_ROWS      ? rank * mine->shape[0] * whole->stride[0]
            : split == SPLIT_COLUMNS ? rank * columns * column_stride
                                     : 0;
    for (uint64_t row = 0; row < mine->shape[0]; row++) {
        read_elements(whole, first + row * whole->stride[0], column_stride, columns,
                      part + row * columns);
    }
    return TDM_OK;
}

struct tdm_slice model_slice(const struct model *model, uint32_t index, uint32_t rank)
{
    const struct tdm_tensor_info *mine = &model->tensors[index];
    enum split split = split_of(model, index);
    struct tdm_slice slice = {.tensor = index};

    for (uint32_t i = 0; i < mine->dims_count; i++) {
        slice.extent[i] = mine->shape[i];
    }
    if (split != SPLIT_NONE) {
        uint32_t dim = split == SPLIT_ROWS ? 0 : 1;

        slice.offset[dim] = rank * mine->shape[dim];
    }
    return slice;
}
