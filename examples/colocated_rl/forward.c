/* forward.c - runs a model over rows of tokens. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void value_widths(const struct model_shape *shape, size_t widths[LAYER_VALUES])
{
    widths[LAYER_INPUT] = shape->hidden_size;
    widths[ATTENTION_INPUT] = shape->hidden_size;
    widths[QUERY_KEY_VALUE] = query_width(shape) + 2 * key_width(shape);
    widths[QUERY] = query_width(shape);
    widths[LOG_SUM] = shape->num_attention_heads;
    widths[ATTENDED] = query_width(shape);
    widths[MIDDLE] = shape->hidden_size;
    widths[MLP_INPUT] = shape->hidden_size;
    widths[GATE_UP] = 2 * (size_t)shape->intermediate_size;
    widths[MLP_PRODUCT] = shape->intermediate_size;
}

static size_t layer_width(const struct model_shape *shape)
{
    size_t widths[LAYER_VALUES];
    size_t sum = 0;

    value_widths(shape, widths);
    for (size_t i = 0; i < LAYER_VALUES; i++) {
        sum += widths[i];
    }
    return sum;
}

size_t network_values_floats(const struct model *model, size_t rows_max, int keeps_layers)
{
    size_t layers = keeps_layers ? model->shape.num_hidden_layers : 1;

    return rows_max *
           (layers * layer_width(&model->shape) + 2 * (size_t)model->shape.hidden_size);
}

size_t network_cache_floats(const struct model *model, size_t slots_max)
{
    return 2 * (size_t)model->shape.num_hidden_layers * slots_max * key_width(&model->shape);
}

void network_place(struct network *network, float *values, float *cache)
{
    const struct model_shape *shape = &network->model->shape;
    size_t widths[LAYER_VALUES];
    size_t offset = 0;
    size_t layers = network->keeps_layers ? shape->num_hidden_layers : 1;

    value_widths(shape, widths);
    for (size_t i = 0; i < LAYER_VALUES; i++) {
        network->value_offsets[i] = offset;
        offset += network->rows_max * widths[i];
    }
    network->layer_stride = network->keeps_layers ? offset : 0;
    network->values = values;
    network->output = values + layers * offset;
    network->hidden = network->output + network->rows_max * shape->hidden_size;
    network->cache = cache;
}

/* In single precision throughout, as transformers computes them. */
static void fill_rotations(struct network *network)
{
    const struct model_shape *shape = &network->model->shape;
    size_t half = shape->head_dim / 2;

    for (size_t position = 0; position < shape->max_position_embeddings; position++) {
        for (size_t i = 0; i < half; i++) {
            float exponent = (float)(2 * i) / (float)shape->head_dim;
            float angle = (float)position * (1.0F / powf(shape->rope_theta, exponent));

            network->cosines[position * half + i] = cosf(angle);
            network->sines[position * half + i] = sinf(angle);
        }
    }
}

tdm_status network_init(struct network *network)
{
    const struct model_shape *shape = &network->model->shape;
    size_t angles = (size_t)shape->max_position_embeddings * (shape->head_dim / 2);

    network->cosines = calloc(angles, sizeof(float));
    network->sines = calloc(angles, sizeof(float));
    network->scores = calloc(shape->max_position_embeddings, sizeof(float));
    if (network->cosines == NULL || network->sines == NULL || network->scores == NULL) {
        network_fini(network);
        return tdm_fail(TDM_E_NOMEM, "rotations of %u positions",
                        shape->max_position_embeddings);
    }
    fill_rotations(network);
    return TDM_OK;
}

void network_fini(struct network *network)
{
    free(network->cosines);
    free(network->sines);
    free(network->scores);
    *network = (struct network){0};
}

static void embed(const struct network *network, const struct row *rows, size_t count)
{
    size_t width = network->model->shape.hidden_size;
    const float *table = network->weights + model_embedding(network->model);
    float *input = network_value(network, 0, LAYER_INPUT);

    for (size_t i = 0; i < count; i++) {
        memcpy(input + i * width, table + (size_t)rows[i].token * width, width * sizeof(float));
    }
}

static void norm_rows(const struct network *network, float *y, const float *x, size_t norm,
                      size_t count)
{
    const struct rms_norm hidden_norm = network_hidden_norm(network, norm);

    for (size_t i = 0; i < count; i++) {
        rms_norm(&hidden_norm, y + i * hidden_norm.width, x + i * hidden_norm.width);
    }
}

/* Norms and rotates `heads` neighbouring heads of one row. */
static void turn_heads(const struct network *network, float *to, const float *from, size_t norm,
                       size_t heads, size_t position)
{
    const struct rms_norm head_norm = network_head_norm(network, norm);
    size_t width = head_norm.width;
    const float *cosine = network->cosines + position * (width / 2);
    const float *sine = network->sines + position * (width / 2);

    for (size_t head = 0; head < heads; head++) {
        rms_norm(&head_norm, to + head * width, from + head * width);
        rotate(to + head * width, cosine, sine, width);
    }
}

/* Takes what was projected apart: queries for this pass, keys and values for the cache. */
static void place_heads(const struct network *network, uint32_t layer, const struct row *rows,
                        size_t count)
{
    const struct model_shape *shape = &network->model->shape;
    size_t query_norm = model_layer(network->model, layer, QUERY_NORM);
    size_t key_norm = model_layer(network->model, layer, KEY_NORM);
    const float *projected = network_value(network, layer, QUERY_KEY_VALUE);
    float *queries = network_value(network, layer, QUERY);
    size_t q = query_width(shape);
    size_t k = key_width(shape);

    for (size_t i = 0; i < count; i++) {
        const float *row = projected + i * (q + 2 * k);
        size_t position = row_context(&rows[i]) - 1;

        turn_heads(network, queries + i * q, row, query_norm, shape->num_attention_heads,
                   position);
        turn_heads(network, network_keys(network, layer) + rows[i].slot * k, row + q, key_norm,
                   shape->num_key_value_heads, position);
        memcpy(network_cached_values(network, layer) + rows[i].slot * k, row + q + k,
               k * sizeof(float));
    }
}

/* One head of one row looks at its context; returns the log of the sum of exponents. */
static float attend_head(const struct network *network, const struct row *row,
                         const float *query, const float *keys, const float *values, float *out)
{
    size_t width = network->model->shape.head_dim;
    size_t stride = key_width(&network->model->shape);
    size_t context = row_context(row);
    float scale = 1.0F / sqrtf((float)width);
    float *scores = network->scores;
    float largest = -INFINITY;
    float sum = 0.0F;

    for (size_t i = 0; i < context; i++) {
        scores[i] = scale * dot(query, keys + row_slot(row, i) * stride, width);
        largest = scores[i] > largest ? scores[i] : largest;
    }
    for (size_t i = 0; i < context; i++) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    memset(out, 0, width * sizeof(float));
    for (size_t i = 0; i < context; i++) {
        add_scaled(out, scores[i] / sum, values + row_slot(row, i) * stride, width);
    }
    return largest + logf(sum);
}

static void attend(const struct network *network, uint32_t layer, const struct row *rows,
                   size_t count)
{
    const struct model_shape *shape = &network->model->shape;
    const float *queries = network_value(network, layer, QUERY);
    float *log_sums = network_value(network, layer, LOG_SUM);
    float *attended = network_value(network, layer, ATTENDED);
    size_t heads = shape->num_attention_heads;
    size_t key_heads = shape->num_key_value_heads; /* each serves heads / key_heads of them */

    for (size_t i = 0; i < count; i++) {
        for (size_t head = 0; head < heads; head++) {
            size_t at = (i * heads + head) * shape->head_dim;
            size_t key_head = head * key_heads / heads * shape->head_dim;

            log_sums[i * heads + head] = attend_head(
                network, &rows[i], queries + at, network_keys(network, layer) + key_head,
                network_cached_values(network, layer) + key_head, attended + at);
        }
    }
}

/* Sums this rank's part with the others', then adds the way around the block. */
static tdm_status close_block(const struct network *network, float *part, const float *around,
                              size_t count)
{
    size_t floats = count * network->model->shape.hidden_size;

    if (network->group != NULL) {
        TDM_TRY(tdm_group_all_reduce(network->group, part, floats, TDM_SUM));
    }
    add(part, around, floats);
    return TDM_OK;
}

static tdm_status attention_block(const struct network *network, uint32_t layer,
                                  const struct row *rows, size_t count)
{
    const struct model *model = network->model;
    const float *input = network_value(network, layer, LAYER_INPUT);
    float *normed = network_value(network, layer, ATTENTION_INPUT);
    float *middle = network_value(network, layer, MIDDLE);
    size_t q = query_width(&model->shape);
    size_t bundle = q + 2 * key_width(&model->shape);

    norm_rows(network, normed, input, model_layer(model, layer, INPUT_NORM), count);
    linear(network_value(network, layer, QUERY_KEY_VALUE), normed,
           network->weights + model_layer(model, layer, QUERY_PROJ), count,
           model->shape.hidden_size, bundle);
    place_heads(network, layer, rows, count);
    attend(network, layer, rows, count);
    linear(middle, network_value(network, layer, ATTENDED),
           network->weights + model_layer(model, layer, OUTPUT_PROJ), count, q,
           model->shape.hidden_size);
    return close_block(network, middle, input, count);
}

static tdm_status mlp_block(const struct network *network, uint32_t layer, size_t count)
{
    const struct model *model = network->model;
    const float *middle = network_value(network, layer, MIDDLE);
    float *normed = network_value(network, layer, MLP_INPUT);
    float *gate_up = network_value(network, layer, GATE_UP);
    float *product = network_value(network, layer, MLP_PRODUCT);
    float *output = network_layer_output(network, layer);
    size_t width = model->shape.intermediate_size;

    norm_rows(network, normed, middle, model_layer(model, layer, MLP_NORM), count);
    linear(gate_up, normed, network->weights + model_layer(model, layer, GATE_PROJ), count,
           model->shape.hidden_size, 2 * width);
    for (size_t i = 0; i < count; i++) {
        const float *gate = gate_up + i * 2 * width;

        swiglu(product + i * width, gate, gate + width, width);
    }
    linear(output, product, network->weights + model_layer(model, layer, DOWN_PROJ), count,
           width, model->shape.hidden_size);
    return close_block(network, output, middle, count);
}

tdm_status network_forward(struct network *network, const struct row *rows, size_t count)
{
    embed(network, rows, count);
    for (uint32_t layer = 0; layer < network->model->shape.num_hidden_layers; layer++) {
        TDM_TRY(attention_block(network, layer, rows, count));
        TDM_TRY(mlp_block(network, layer, count));
    }
    norm_rows(network, network->hidden, network->output, model_final_norm(network->model),
              count);
    return TDM_OK;
}

void network_head(const struct network *network, const float *hidden, size_t count,
                  float *logits)
{
    linear(logits, hidden, network->weights + model_head(network->model), count,
           network->model->shape.hidden_size, network->model->shape.vocab_size);
}
