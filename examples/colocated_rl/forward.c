/* forward.c - the forward pass of a model over rows of tokens. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"

#include <math.h>
#include <stdlib.h>

/* Stores the floats per row of each array of a layer. */
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

/* Returns the floats per row of all arrays of a layer. */
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

/* Returns the floats that the rows of a pass take in the workspace. */
static size_t row_floats(size_t rows_max)
{
    return (rows_max * sizeof(struct row) + sizeof(float) - 1) / sizeof(float);
}

/* Returns the floats of the rotation table of all positions. */
static size_t rotation_floats(const struct model_shape *shape)
{
    return (size_t)shape->max_position_embeddings * shape->head_dim;
}

size_t network_values_floats(const struct model *model, size_t rows_max, int keeps_layers)
{
    const struct model_shape *shape = &model->shape;
    size_t layers = keeps_layers ? shape->num_hidden_layers : 1;

    return rows_max * (layers * layer_width(shape) + 2 * (size_t)shape->hidden_size) +
           row_floats(rows_max) + rotation_floats(shape) + shape->max_position_embeddings;
}

size_t network_cache_floats(const struct model *model, size_t slots_max)
{
    return 2 * (size_t)model->shape.num_hidden_layers * slots_max * key_width(&model->shape);
}

void network_bind_memory(struct network *network, struct machine *machine, float *values,
                         float *cache)
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
    network->machine = machine;
    network->values = values;
    network->output = values + layers * offset;
    network->hidden = network->output + network->rows_max * shape->hidden_size;
    network->rotations = network->hidden + network->rows_max * shape->hidden_size;
    network->scores = network->rotations + rotation_floats(shape);
    network->rows = (void *)(network->scores + shape->max_position_embeddings);
    network->cache = cache;
}

/* Computes the rotation table in single precision throughout, as transformers does. */
static void fill_rotations(struct network *network)
{
    const struct model_shape *shape = &network->model->shape;
    size_t half = shape->head_dim / 2;

    for (size_t position = 0; position < shape->max_position_embeddings; position++) {
        for (size_t i = 0; i < half; i++) {
            float exponent = (float)(2 * i) / (float)shape->head_dim;
            float angle = (float)position * (1.0F / powf(shape->rope_theta, exponent));

            network->angles[position * shape->head_dim + i] = cosf(angle);
            network->angles[position * shape->head_dim + half + i] = sinf(angle);
        }
    }
}

tdm_status network_init(struct network *network)
{
    const struct model_shape *shape = &network->model->shape;

    network->angles = calloc(rotation_floats(shape), sizeof(float));
    if (network->angles == NULL) {
        network_fini(network);
        return tdm_fail(TDM_E_NOMEM, "rotations of %u positions", shape->max_position_embeddings);
    }
    fill_rotations(network);
    return TDM_OK;
}

void network_fini(struct network *network)
{
    free(network->angles);
    *network = (struct network){0};
}

/* Copies the rows, and the rotations of the positions that they need, to the machine. */
static tdm_status write_rows(const struct network *network, const struct row *rows, size_t count)
{
    const struct ops *ops = network->machine->ops;
    size_t positions = 0;

    for (size_t i = 0; i < count; i++) {
        size_t context = row_context(&rows[i]);

        positions = context > positions ? context : positions;
    }
    TDM_TRY(ops->write(network->machine, network->rotations, network->angles,
                       positions * network->model->shape.head_dim * sizeof(float)));
    return ops->write(network->machine, network->rows, rows, count * sizeof(*rows));
}

/* Looks up the embeddings of the rows as input of the first layer. */
static void embed(const struct network *network, size_t count)
{
    const struct embedding work = {
        .table = network->weights + model_embedding(network->model),
        .values = network_value(network, 0, LAYER_INPUT),
        .rows = network->rows,
        .width = network->model->shape.hidden_size,
        .count = count,
    };

    network->machine->ops->embed(network->machine, &work);
}

/* Norms the hidden values of the rows with the norm at offset `norm`. */
static void norm_rows(const struct network *network, float *y, const float *x, size_t norm,
                      size_t count)
{
    const struct rms_norm hidden_norm = network_hidden_norm(network, norm);
    const struct norm work = {
        .norm = hidden_norm,
        .y = y,
        .x = x,
        .y_pitch = hidden_norm.width,
        .x_pitch = hidden_norm.width,
        .heads = 1,
        .count = count,
    };

    network->machine->ops->norm(network->machine, &work);
}

/* Computes y = x · wᵀ with the weights at offset `weight`; widths are those of input and output. */
static void project(const struct network *network, float *y, const float *x, size_t weight,
                    size_t count, const size_t widths[2])
{
    const struct product work = {
        .to = y,
        .a = x,
        .b = network->weights + weight,
        .rows = count,
        .inputs = widths[0],
        .outputs = widths[1],
    };

    network->machine->ops->linear(network->machine, &work);
}

/* Norms and rotates the heads of all rows. With by_slot the results lie in the rows of their
 * slots. */
static void rotate_heads(const struct network *network, struct norm *work, int by_slot)
{
    const struct ops *ops = network->machine->ops;
    const struct rotation rotation = {
        .values = work->y,
        .rotations = network->rotations,
        .rows = network->rows,
        .by_slot = by_slot,
        .pitch = work->y_pitch,
        .heads = work->heads,
        .width = work->norm.width,
        .count = work->count,
    };

    work->rows = by_slot ? network->rows : NULL;
    ops->norm(network->machine, work);
    ops->rotate(network->machine, &rotation);
}

/* Splits the common projection: queries for this pass, keys and values for the cache. */
static void split_heads(const struct network *network, uint32_t layer, size_t count)
{
    const struct model_shape *shape = &network->model->shape;
    const float *projected = network_value(network, layer, QUERY_KEY_VALUE);
    size_t q = query_width(shape);
    size_t k = key_width(shape);
    struct norm queries = {
        .norm = network_head_norm(network, model_layer(network->model, layer, QUERY_NORM)),
        .y = network_value(network, layer, QUERY),
        .x = projected,
        .y_pitch = q,
        .x_pitch = q + 2 * k,
        .heads = shape->num_attention_heads,
        .count = count,
    };
    struct norm keys = {
        .norm = network_head_norm(network, model_layer(network->model, layer, KEY_NORM)),
        .y = network_keys(network, layer),
        .x = projected + q,
        .y_pitch = k,
        .x_pitch = q + 2 * k,
        .heads = shape->num_key_value_heads,
        .count = count,
    };
    const struct transfer values = {
        .to = network_cached_values(network, layer),
        .from = projected + q + k,
        .rows = network->rows,
        .to_pitch = k,
        .from_pitch = q + 2 * k,
        .width = k,
        .count = count,
    };

    rotate_heads(network, &queries, 0);
    rotate_heads(network, &keys, 1);
    network->machine->ops->transfer(network->machine, &values);
}

/* Sums this rank's partial result over the ranks, then adds the input of the block (residual
 * connection). */
static tdm_status add_residual(const struct network *network, float *part, const float *around,
                               size_t count)
{
    const struct ops *ops = network->machine->ops;
    const struct sum sum = {part, around, count * network->model->shape.hidden_size};

    if (network->group != NULL) {
        TDM_TRY(ops->all_reduce(network->machine, network->group, part, sum.count));
    }
    ops->add(network->machine, &sum);
    return TDM_OK;
}

/* Computes the attention block of a layer. */
static tdm_status attention_block(const struct network *network, uint32_t layer, size_t count)
{
    const struct model *model = network->model;
    const struct attention attention = network_attention(network, layer, count);
    const float *input = network_value(network, layer, LAYER_INPUT);
    float *normed = network_value(network, layer, ATTENTION_INPUT);
    float *middle = network_value(network, layer, MIDDLE);
    size_t hidden = model->shape.hidden_size;
    size_t q = query_width(&model->shape);
    size_t bundle = q + 2 * key_width(&model->shape);

    norm_rows(network, normed, input, model_layer(model, layer, INPUT_NORM), count);
    project(network, network_value(network, layer, QUERY_KEY_VALUE), normed,
            model_layer(model, layer, QUERY_PROJ), count, (const size_t[2]){hidden, bundle});
    split_heads(network, layer, count);
    network->machine->ops->attend(network->machine, &attention);
    project(network, middle, attention.attended, model_layer(model, layer, OUTPUT_PROJ), count,
            (const size_t[2]){q, hidden});
    return add_residual(network, middle, input, count);
}

/* Computes the MLP block of a layer. */
static tdm_status mlp_block(const struct network *network, uint32_t layer, size_t count)
{
    const struct model *model = network->model;
    const float *middle = network_value(network, layer, MIDDLE);
    float *normed = network_value(network, layer, MLP_INPUT);
    float *gate_up = network_value(network, layer, GATE_UP);
    float *output = network_layer_output(network, layer);
    size_t hidden = model->shape.hidden_size;
    size_t width = model->shape.intermediate_size;
    const struct swiglu swiglu = {
        .y = network_value(network, layer, MLP_PRODUCT),
        .gate_up = gate_up,
        .width = width,
        .count = count,
    };

    norm_rows(network, normed, middle, model_layer(model, layer, MLP_NORM), count);
    project(network, gate_up, normed, model_layer(model, layer, GATE_PROJ), count,
            (const size_t[2]){hidden, 2 * width});
    network->machine->ops->swiglu(network->machine, &swiglu);
    project(network, output, swiglu.y, model_layer(model, layer, DOWN_PROJ), count,
            (const size_t[2]){width, hidden});
    return add_residual(network, output, middle, count);
}

tdm_status network_forward(struct network *network, const struct row *rows, size_t count)
{
    TDM_TRY(write_rows(network, rows, count));
    embed(network, count);
    for (uint32_t layer = 0; layer < network->model->shape.num_hidden_layers; layer++) {
        TDM_TRY(attention_block(network, layer, count));
        TDM_TRY(mlp_block(network, layer, count));
    }
    norm_rows(network, network->hidden, network->output, model_final_norm(network->model), count);
    return TDM_OK;
}

void network_head(const struct network *network, const float *hidden, size_t count, float *logits)
{
    const struct model_shape *shape = &network->model->shape;

    project(network, logits, hidden, model_head(network->model), count,
            (const size_t[2]){shape->hidden_size, shape->vocab_size});
}
