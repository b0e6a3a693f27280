/* network.h - runs a model over rows of tokens: forward passes, and backward passes for
 * gradients. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_NETWORK_H
#define COLOCATED_RL_NETWORK_H

#include "examples/colocated_rl/model.h"
#include "examples/colocated_rl/ops.h"

#include <tandem/collective.h>

/* The arrays that a layer computes for the rows of a pass. Each is an array of rows × width. */
enum layer_value {
    LAYER_INPUT,     /* The input of the layer, which is the output of the layer before it. */
    ATTENTION_INPUT, /* The input of the attention block: LAYER_INPUT after the norm. */
    QUERY_KEY_VALUE, /* Queries, keys and values as the projections leave them. */
    QUERY,           /* Queries after norm and rotation. */
    /* Logarithm of the sum of the exponentials of the attention scores, one number per head. */
    LOG_SUM,
    ATTENDED,    /* The output of the attention, before the output projection. */
    MIDDLE,      /* LAYER_INPUT plus the result of the attention block. */
    MLP_INPUT,   /* The input of the MLP block: MIDDLE after the norm. */
    GATE_UP,     /* The gate and up projections of a row, one after the other. */
    MLP_PRODUCT, /* The element-wise product silu(gate) · up. */
    LAYER_VALUES /* Number of arrays per layer. */
};

/* A model with the memory of one pass. All pointers except `angles` point into memory of the
 * machine, which the caller has allocated. One thread uses a network at a time. */
struct network {
    struct machine *machine;   /* The machine that computes (borrowed). */
    const struct model *model; /* The model that is computed (borrowed). */
    /* Sums the partial results of a model that is split over ranks (borrowed); NULL if the model is
     * not split. */
    tdm_collective_group *group;
    const float *weights; /* The weights, model->elements floats. */
    size_t rows_max;      /* Capacity of a pass, in rows. */
    size_t slots_max;     /* Capacity of the key-value cache, in tokens. */
    /* 1: the arrays of every layer are kept for a backward pass; 0: all layers share one set of
     * arrays. */
    int keeps_layers;

    float *values; /* The arrays of the layers, network_values_floats() floats. */
    /* Offset of each array in the memory of a layer, in floats. */
    size_t value_offsets[LAYER_VALUES];
    /* Floats from the arrays of a layer to those of the next; 0 unless keeps_layers. */
    size_t layer_stride;
    float *output; /* Output of the last layer, rows × hidden. */
    float *hidden; /* Output after the final norm, rows × hidden; the input of network_head(). */

    /* Cosines and sines as [position][head_dim], filled up to the highest position of the latest
     * pass. */
    float *rotations;
    float *scores;    /* Scratch memory for attention scores, max_position_embeddings floats. */
    struct row *rows; /* The rows of the latest pass, copied to the machine. */

    /* The key-value cache, network_cache_floats() floats: keys, then values, each
     * [layer][slot][head]. */
    float *cache;

    float *angles; /* Cosines and sines of all positions in host memory (owned). */
};

/* Returns the size of the `values` memory of a network, in floats. */
size_t network_values_floats(const struct model *model, size_t rows_max, int keeps_layers);
/* Returns the size of the key-value cache for slots_max tokens, in floats. */
size_t network_cache_floats(const struct model *model, size_t slots_max);

/* Computes offsets and rotation tables. The caller has set model, group, rows_max, slots_max and
 * keeps_layers. TDM_E_NOMEM if there is no memory for the tables. */
tdm_status network_init(struct network *network);
void network_fini(struct network *network);
/* Sets the machine and the memory that passes use. `values` has network_values_floats() and `cache`
 * has network_cache_floats() floats of that machine's memory. */
void network_bind_memory(struct network *network, struct machine *machine, float *values,
                         float *cache);

/* Computes `hidden` of rows[0 … count), which are in host memory. The caller guarantees count <=
 * rows_max and tokens and slots in range. The context of a row lies in the cache or among the same
 * rows. Fails only if the group or the machine fails. */
tdm_status network_forward(struct network *network, const struct row *rows, size_t count);

/* Computes logits[count × vocab_size] from hidden[count × hidden_size]. */
void network_head(const struct network *network, const float *hidden, size_t count, float *logits);

/* Adds the gradients of a loss to gradients[model->elements], given the gradient of the loss with
 * respect to the logits of the `count` rows of the last forward pass. That pass must have kept its
 * layers, must not have been split, and its row i must have been in slot i. `scratch` has
 * network_backward_floats() floats. */
void network_backward(const struct network *network, size_t count, const float *logit_gradients,
                      float *gradients, float *scratch);
/* Returns the size of the scratch memory of network_backward(), in floats. */
size_t network_backward_floats(const struct model *model, size_t rows_max);

/* ---- shared by forward.c and backward.c ------------------------------------------------- */

/* Returns the array `value` of a layer. */
static inline float *network_value(const struct network *network, uint32_t layer,
                                   enum layer_value value)
{
    return network->values + layer * network->layer_stride + network->value_offsets[value];
}

/* Returns the norm over hidden values whose weights start at offset `weights` of the model. */
static inline struct rms_norm network_hidden_norm(const struct network *network, size_t weights)
{
    const struct model_shape *shape = &network->model->shape;

    return (struct rms_norm){network->weights + weights, shape->hidden_size, shape->rms_norm_eps};
}

/* Returns the norm over one attention head whose weights start at offset `weights` of the model. */
static inline struct rms_norm network_head_norm(const struct network *network, size_t weights)
{
    const struct model_shape *shape = &network->model->shape;

    return (struct rms_norm){network->weights + weights, shape->head_dim, shape->rms_norm_eps};
}

/* Returns the array that a layer writes its output to: the input of the next layer or, for the last
 * layer, `output`. */
static inline float *network_layer_output(const struct network *network, uint32_t layer)
{
    return layer + 1 < network->model->shape.num_hidden_layers
               ? network_value(network, layer + 1, LAYER_INPUT)
               : network->output;
}

/* Returns the floats of the queries of one row. */
static inline size_t query_width(const struct model_shape *shape)
{
    return (size_t)shape->num_attention_heads * shape->head_dim;
}

/* Returns the floats of the keys of one row, which is also the width of its values. */
static inline size_t key_width(const struct model_shape *shape)
{
    return (size_t)shape->num_key_value_heads * shape->head_dim;
}

/* Returns the keys of a layer in the cache. */
static inline float *network_keys(const struct network *network, uint32_t layer)
{
    return network->cache + layer * network->slots_max * key_width(&network->model->shape);
}

/* Returns the values of a layer in the cache. */
static inline float *network_cached_values(const struct network *network, uint32_t layer)
{
    return network_keys(network, network->model->shape.num_hidden_layers + layer);
}

/* Describes the attention of `count` rows in a layer for the machine's attend operation. */
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
