/* network.h - runs a model over rows of tokens: forwards, and backwards for its gradients. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_NETWORK_H
#define COLOCATED_RL_NETWORK_H

#include "examples/colocated_rl/model.h"
#include "examples/colocated_rl/ops.h"

#include <tandem/collective.h>

/* What a layer computes for its rows, each an array rows × width. */
enum layer_value {
    LAYER_INPUT,
    ATTENTION_INPUT, /* the input normed */
    QUERY_KEY_VALUE, /* as projected */
    QUERY,           /* normed and rotated */
    LOG_SUM,         /* of the exponents of the attention scores, a number per head */
    ATTENDED,
    MIDDLE, /* the input plus attention */
    MLP_INPUT,
    GATE_UP,
    MLP_PRODUCT,
    LAYER_VALUES
};

/* The memory of a pass.  All pointers are into memory of the machine's that the caller placed.
 */
struct network {
    struct machine *machine; /* borrowed */
    const struct model *model;
    tdm_collective_group *group; /* sums the parts of a split model; NULL: not split */
    const float *weights;        /* model->elements */
    size_t rows_max;
    size_t slots_max;
    int keeps_layers; /* 1: every layer's values are kept for the way back */

    float *values; /* network_values_floats() */
    size_t value_offsets[LAYER_VALUES];
    size_t layer_stride; /* 0 unless keeps_layers */
    float *output;       /* rows × hidden: what the last layer leaves */
    float *hidden;       /* rows × hidden: normed, ready for the head */

    float *rotations; /* [position][head_dim], as far as the latest pass needed them */
    float *scores;    /* max_position_embeddings */
    struct row *rows; /* of the latest pass */

    float *cache; /* network_cache_floats(): keys, then values, each [layer][slot][head] */

    float *angles; /* owned, the host's: all rotations */
};

size_t network_values_floats(const struct model *model, size_t rows_max, int keeps_layers);
size_t network_cache_floats(const struct model *model, size_t slots_max);

/* Needs model, group, rows_max, slots_max and keeps_layers set; makes the tables. */
tdm_status network_init(struct network *network);
void network_fini(struct network *network);
/* Tells where the values and the cache lie, and on which machine. */
void network_bind_memory(struct network *network, struct machine *machine, float *values,
                         float *cache);

/* Computes `hidden` of rows[0 … count), count <= rows_max; the rows are the host's.  Their
 * tokens and slots are in range; a row's context lies in the cache or among the same rows.
 * Fails only as the group and the machine do. */
tdm_status network_forward(struct network *network, const struct row *rows, size_t count);

/* logits[count × vocab_size] of hidden[count × hidden_size]. */
void network_head(const struct network *network, const float *hidden, size_t count, float *logits);

/* Adds to gradients[model->elements] the gradients of a loss whose gradient for the logits of
 * the `count` rows of the last forward pass is given.  That pass kept its layers and was not
 * split, and row i was in slot i.  `scratch` has network_backward_floats(). */
void network_backward(const struct network *network, size_t count, const float *logit_gradients,
                      float *gradients, float *scratch);
size_t network_backward_floats(const struct model *model, size_t rows_max);

/* ---- shared by forward.c and backward.c ------------------------------------------------- */

static inline float *network_value(const struct network *network, uint32_t layer,
                                   enum layer_value value)
{
    return network->values + layer * network->layer_stride + network->value_offsets[value];
}

/* The norm whose weights start at `weights`, over hidden values or over a head. */
static inline struct rms_norm network_hidden_norm(const struct network *network, size_t weights)
{
    const struct model_shape *shape = &network->model->shape;

    return (struct rms_norm){network->weights + weights, shape->hidden_size, shape->rms_norm_eps};
}

static inline struct rms_norm network_head_norm(const struct network *network, size_t weights)
{
    const struct model_shape *shape = &network->model->shape;

    return (struct rms_norm){network->weights + weights, shape->head_dim, shape->rms_norm_eps};
}

static inline float *network_layer_output(const struct network *network, uint32_t layer)
{
    return layer + 1 < network->model->shape.num_hidden_layers
               ? network_value(network, layer + 1, LAYER_INPUT)
               : network->output;
}

static inline size_t query_width(const struct model_shape *shape)
{
    return (size_t)shape->num_attention_heads * shape->head_dim;
}

static inline size_t key_width(const struct model_shape *shape)
{
    return (size_t)shape->num_key_value_heads * shape->head_dim;
}

static inline float *network_keys(const struct network *network, uint32_t layer)
{
    return network->cache + layer * network->slots_max * key_width(&network->model->shape);
}

static inline float *network_cached_values(const struct network *network, uint32_t layer)
{
    return network_keys(network, network->model->shape.num_hidden_layers + layer);
}

static inline struct attention network_attention(const struct network *network, uint32_t layer,
                                                 size_t count)
{
    const struct model_shape *shape = &network->model->shape;

    return (struct attention){
        .queries = network_value(network, layer, QUERY),
        .keys = network_keys(network, layer),
        .values = network_cached_values(network, layer),
        .attended = network_value(network, layer, ATTENDED),
        .log_sums = network_value(network, layer, LOG_SUM),
        .scores = network->scores,
        .rows = network->rows,
        .heads = shape->num_attention_heads,
        .key_heads = shape->num_key_value_heads,
        .width = shape->head_dim,
        .count = count,
    };
}

#endif
