/* model.h - the Qwen3 architecture: sizes, tensors, where each lies, how ranks split them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_MODEL_H
#define COLOCATED_RL_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* What a Hugging Face config.json says, with its words. */
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

/* Refuses sizes that make no Qwen3 model (TDM_E_INVAL). */
tdm_status model_shape_check(const struct model_shape *shape);

/* The tensors of one layer, in the order in which they lie: query, key and value together, gate
 * and up together, so that each bundle is one matrix. */
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

/* A model's tensors as one list of floats.  A tensor-parallel rank's model is a whole model of
 * its own with fewer heads and a narrower MLP, whose parts sum to the real one's. */
struct model {
    struct model_shape shape; /* of this rank's part */
    uint32_t ranks_count;     /* that the tensors are split over; 1: not split */
    uint32_t tensors_count;
    struct tdm_tensor_info *tensors; /* owned; names owned too; shapes of this rank's part */
    size_t *offsets;                 /* owned; in floats, one a tensor */
    size_t elements;                 /* floats in all */
};

/* Rank's part of a model split over `ranks_count` (1: the whole).  TDM_E_INVAL if heads or MLP
 * do not divide. */
tdm_status model_init(struct model *model, const struct model_shape *shape, uint32_t ranks_count);
void model_fini(struct model *model);

/* Where a tensor starts in the list of floats. */
size_t model_embedding(const struct model *model);
size_t model_layer(const struct model *model, uint32_t layer, enum layer_tensor tensor);
size_t model_final_norm(const struct model *model);
size_t model_head(const struct model *model); /* the embedding where they are tied */

/* Index of the tensor of that name; tensors_count if there is none. */
uint32_t model_find(const struct model *model, const char *name);

/* The shape of tensor `index` in the whole model. */
void model_whole_tensor(const struct model *model, uint32_t index,
                        struct tdm_tensor_info *info_out);

/* Rank's part of a whole tensor: where it lies in that, without an address. */
struct tdm_slice model_slice(const struct model *model, uint32_t index, uint32_t rank);

/* Copies rank's part of a whole tensor, of any strides, to `part`; F32 and BF16 are read.
 * TDM_E_INVAL for another dtype or shape, named. */
tdm_status model_cut(const struct model *model, uint32_t index, uint32_t rank,
                     const struct tdm_tensor_view *whole, float *part);

#endif
