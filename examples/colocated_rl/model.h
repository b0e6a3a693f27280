/* model.h - the Qwen3 architecture: sizes, tensors, their offsets, and how ranks split them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_MODEL_H
#define COLOCATED_RL_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* The sizes of a model, named as in a Hugging Face config.json. */
struct model_shape {
    uint32_t vocab_size;
    uint32_t hidden_size;
    uint32_t num_hidden_layers;
    uint32_t num_attention_heads;
    uint32_t num_key_value_heads;
    uint32_t head_dim;
    uint32_t intermediate_size;
    uint32_t max_position_embeddings;
    int tie_word_embeddings;
    float rope_theta;
    float rms_norm_eps;
};

/* Returns TDM_E_INVAL, with the reason, for sizes that make no Qwen3 model. */
tdm_status model_shape_check(const struct model_shape *shape);

/* The tensors of one layer, in the order in which they lie in memory. Query, key and value are
 * adjacent, and so are gate and up, so that each of the two bundles is one matrix. */
enum layer_tensor {
    INPUT_NORM,
    QUERY_PROJ,
    KEY_PROJ,
    VALUE_PROJ,
    OUTPUT_PROJ,
    QUERY_NORM,
    KEY_NORM,
    MLP_NORM,
    GATE_PROJ,
    UP_PROJ,
    DOWN_PROJ,
    LAYER_TENSORS
};

/* A model's tensors as one array of floats. A tensor-parallel rank has a complete model with fewer
 * heads and a narrower MLP; the results of all ranks sum to those of the whole model. */
struct model {
    struct model_shape shape; /* Sizes of this rank's model. */
    uint32_t ranks_count;     /* Number of ranks that the tensors are split over; 1: not split. */
    uint32_t tensors_count;   /* Number of tensors. */
    /* Names and shapes of this rank's tensors (array and names owned). */
    struct tdm_tensor_info *tensors;
    size_t *offsets; /* Offset of each tensor in the array, in floats (owned). */
    size_t elements; /* Floats of the array. */
};

/* Describes a rank's part of a model that is split over `ranks_count` ranks (1: the whole model).
 * TDM_E_INVAL if the heads or the MLP cannot be divided evenly. */
tdm_status model_init(struct model *model, const struct model_shape *shape, uint32_t ranks_count);
void model_fini(struct model *model);

/* These four return the offset of a tensor in the array of floats. */
size_t model_embedding(const struct model *model);
size_t model_layer(const struct model *model, uint32_t layer, enum layer_tensor tensor);
size_t model_final_norm(const struct model *model);
/* Returns the offset of the output head, which is the embedding if the two are tied. */
size_t model_head(const struct model *model);

/* Returns the index of the tensor with that name, or tensors_count if no tensor has it. */
uint32_t model_find(const struct model *model, const char *name);

/* Stores name, dtype and shape of tensor `index` in the whole model. */
void model_whole_tensor(const struct model *model, uint32_t index,
                        struct tdm_tensor_info *info_out);

/* Returns which part of a whole tensor belongs to a rank, without an address. */
struct tdm_slice model_slice(const struct model *model, uint32_t index, uint32_t rank);

/* Copies a rank's part of a whole tensor, of any strides, to `part`. Accepts F32 and BF16.
 * TDM_E_INVAL names any other dtype, or a wrong shape. */
tdm_status model_cut(const struct model *model, uint32_t index, uint32_t rank,
                     const struct tdm_tensor_view *whole, float *part);

#endif
