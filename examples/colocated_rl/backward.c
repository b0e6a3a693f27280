/* backward.c - the way back through a model: the gradients of its weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"

#include <math.h>
#include <string.h>

/* The gradients of one layer's values; overwritten layer by layer. */
struct flow {
    const struct network *network;
    const struct row *rows;
    size_t count;
    float *gradients; /* of the weights: added to */
    float *stream;    /* rows × hidden: of the residual stream, from the end to the start */
    float *normed;    /* rows × hidden: of a block's normed input */
    float *wide;      /* rows × (query_key_value or gate_up) */
    float *inner;     /* rows × (attended or mlp_product) */
    float *query;     /* rows × query width */
    float *keys;      /* slots × key width */
    float *values;    /* slots × key width */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t wide_width(const struct model_shape *shape)
{
    return larger(query_width(shape) + 2 * key_width(shape),
                  2 * (size_t)shape->intermediate_size);
}

static size_t inner_width(const struct model_shape *shape)
{
    return larger(query_width(shape), shape->intermediate_size);
}

size_t network_backward_floats(const struct model *model, size_t rows_max)
{
    const struct model_shape *shape = &model->shape;

    return rows_max * (2 * (size_t)shape->hidden_size + wide_width(shape) + inner_width(shape) +
                       query_width(shape) + 2 * key_width(shape));
}

static void place(struct flow *flow, float *scratch)
{
    const struct model_shape *shape = &flow->network->model->shape;
    size_t rows = flow->network->rows_max;

    flow->stream = scratch;
    flow->normed = flow->stream + rows * shape->hidden_size;
    flow->wide = flow->normed + rows * shape->hidden_size;
    flow->inner = flow->wide + rows * wide_width(shape);
    flow->query = flow->inner + rows * inner_width(shape);
    flow->keys = flow->query + rows * query_width(shape);
    flow->values = flow->keys + rows * key_width(shape);
}

/* Through a norm at the start of a block: from `normed` to the stream, which it joins. */
static void norm_rows_backward(const struct flow *flow, const float *input, size_t norm)
{
    const struct rms_norm hidden_norm = network_hidden_norm(flow->network, norm);
    size_t width = hidden_norm.width;

    for (size_t i = 0; i < flow->count; i++) {
        float *gradient = flow->normed + i * width;

        rms_norm_backward(&hidden_norm, gradient, flow->gradients + norm, gradient,
                          input + i * width);
        add(flow->stream + i * width, gradient, width);
    }
}

/* Through a projection: the gradient of its weights, and of its input. */
static void project_backward(const struct flow *flow, size_t weight, float *dx, const float *dy,
                             const float *x, const size_t widths[2])
{
    linear_backward_weight(flow->gradients + weight, dy, x, flow->count, widths[0], widths[1]);
    linear_backward_input(dx, dy, flow->network->weights + weight, flow->count, widths[0],
                          widths[1]);
}

static void mlp_backward(const struct flow *flow, uint32_t layer)
{
    const struct network *network = flow->network;
    const struct model *model = network->model;
    const float *gate_up = network_value(network, layer, GATE_UP);
    size_t hidden = model->shape.hidden_size;
    size_t width = model->shape.intermediate_size;

    project_backward(flow, model_layer(model, layer, DOWN_PROJ), flow->inner, flow->stream,
                     network_value(network, layer, MLP_PRODUCT),
                     (const size_t[2]){width, hidden});
    for (size_t i = 0; i < flow->count; i++) {
        const float *gate = gate_up + i * 2 * width;
        float *dgate = flow->wide + i * 2 * width;

        swiglu_backward(dgate, dgate + width, flow->inner + i * width, gate, gate + width,
                        width);
    }
    project_backward(flow, model_layer(model, layer, GATE_PROJ), flow->normed, flow->wide,
                     network_value(network, layer, MLP_INPUT),
                     (const size_t[2]){hidden, 2 * width});
    norm_rows_backward(flow, network_value(network, layer, MIDDLE),
                       model_layer(model, layer, MLP_NORM));
}

/* One head of one row: `at` is where the head lies in queries and attended, `key_head` where
 * its key-value head lies in a slot. */
static void attend_head_backward(const struct flow *flow, uint32_t layer, const struct row *row,
                                 size_t at, size_t key_head, float log_sum)
{
    const struct network *network = flow->network;
    const float *query = network_value(network, layer, QUERY) + at;
    const float *out = network_value(network, layer, ATTENDED) + at;
    const float *gradient = flow->inner + at;
    size_t width = network->model->shape.head_dim;
    size_t stride = key_width(&network->model->shape);
    size_t context = row_context(row);
    float scale = 1.0F / sqrtf((float)width);
    float through = dot(gradient, out, width); /* what the softmax takes away from each score */

    memset(flow->query + at, 0, width * sizeof(float));
    for (size_t i = 0; i < context; i++) {
        size_t slot = row_slot(row, i) * stride + key_head;
        const float *key = network_keys(network, layer) + slot;
        const float *value = network_cached_values(network, layer) + slot;
        float share = expf(scale * dot(query, key, width) - log_sum);
        float score = scale * share * (dot(gradient, value, width) - through);

        add_scaled(flow->query + at, score, key, width);
        add_scaled(flow->keys + slot, score, query, width);
        add_scaled(flow->values + slot, share, gradient, width);
    }
}

static void attend_backward(const struct flow *flow, uint32_t layer)
{
    const struct model_shape *shape = &flow->network->model->shape;
    const float *log_sums = network_value(flow->network, layer, LOG_SUM);
    size_t heads = shape->num_attention_heads;
    size_t shared = heads / shape->num_key_value_heads;

    memset(flow->keys, 0, flow->count * key_width(shape) * sizeof(float));
    memset(flow->values, 0, flow->count * key_width(shape) * sizeof(float));
    for (size_t i = 0; i < flow->count; i++) {
        for (size_t head = 0; head < heads; head++) {
            attend_head_backward(flow, layer, &flow->rows[i],
                                 (i * heads + head) * shape->head_dim,
                                 head / shared * shape->head_dim, log_sums[i * heads + head]);
        }
    }
}

/* Turns neighbouring heads of one row back: `turned` is the gradient after norm and rotation,
 * `to` that of what was projected.  `turned` is spoiled. */
static void turn_heads_backward(const struct flow *flow, size_t norm, float *to, float *turned,
                                const float *projected, const size_t heads_and_position[2])
{
    const struct network *network = flow->network;
    const struct rms_norm head_norm = network_head_norm(network, norm);
    size_t width = head_norm.width;
    const float *cosine = network->cosines + heads_and_position[1] * (width / 2);
    const float *sine = network->sines + heads_and_position[1] * (width / 2);

    for (size_t at = 0; at < heads_and_position[0] * width; at += width) {
        rotate_back(turned + at, cosine, sine, width);
        rms_norm_backward(&head_norm, to + at, flow->gradients + norm, turned + at,
                          projected + at);
    }
}

static void place_heads_backward(const struct flow *flow, uint32_t layer)
{
    const struct network *network = flow->network;
    const struct model_shape *shape = &network->model->shape;
    const float *projected = network_value(network, layer, QUERY_KEY_VALUE);
    size_t query_norm = model_layer(network->model, layer, QUERY_NORM);
    size_t key_norm = model_layer(network->model, layer, KEY_NORM);
    size_t q = query_width(shape);
    size_t k = key_width(shape);

    for (size_t i = 0; i < flow->count; i++) {
        size_t position = row_context(&flow->rows[i]) - 1;
        const float *row = projected + i * (q + 2 * k);
        float *to = flow->wide + i * (q + 2 * k);

        turn_heads_backward(flow, query_norm, to, flow->query + i * q, row,
                            (const size_t[2]){shape->num_attention_heads, position});
        turn_heads_backward(flow, key_norm, to + q, flow->keys + i * k, row + q,
                            (const size_t[2]){shape->num_key_value_heads, position});
        memcpy(to + q + k, flow->values + i * k, k * sizeof(float));
    }
}

static void attention_backward(const struct flow *flow, uint32_t layer)
{
    const struct network *network = flow->network;
    const struct model *model = network->model;
    size_t hidden = model->shape.hidden_size;
    size_t q = query_width(&model->shape);

    project_backward(flow, model_layer(model, layer, OUTPUT_PROJ), flow->inner, flow->stream,
                     network_value(network, layer, ATTENDED), (const size_t[2]){q, hidden});
    attend_backward(flow, layer);
    place_heads_backward(flow, layer);
    project_backward(flow, model_layer(model, layer, QUERY_PROJ), flow->normed, flow->wide,
                     network_value(network, layer, ATTENTION_INPUT),
                     (const size_t[2]){hidden, q + 2 * key_width(&model->shape)});
    norm_rows_backward(flow, network_value(network, layer, LAYER_INPUT),
                       model_layer(model, layer, INPUT_NORM));
}

static void embed_backward(const struct flow *flow)
{
    size_t width = flow->network->model->shape.hidden_size;
    float *table = flow->gradients + model_embedding(flow->network->model);

    for (size_t i = 0; i < flow->count; i++) {
        add(table + (size_t)flow->rows[i].token * width, flow->stream + i * width, width);
    }
}

void network_backward(const struct network *network, const struct row *rows, size_t count,
                      const float *logit_gradients, float *gradients, float *scratch)
{
    const struct model *model = network->model;
    struct flow flow = {
        .network = network, .rows = rows, .count = count, .gradients = gradients};

    place(&flow, scratch);
    project_backward(&flow, model_head(model), flow.normed, logit_gradients, network->hidden,
                     (const size_t[2]){model->shape.hidden_size, model->shape.vocab_size});
    memset(flow.stream, 0, count * model->shape.hidden_size * sizeof(float));
    norm_rows_backward(&flow, network->output, model_final_norm(model));
    for (uint32_t layer = model->shape.num_hidden_layers; layer-- > 0;) {
        mlp_backward(&flow, layer);
        attention_backward(&flow, layer);
    }
    embed_backward(&flow);
}
