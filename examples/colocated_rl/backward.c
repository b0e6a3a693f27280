/* backward.c - the backward pass of a model, which computes the gradients of its weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"

/* The memory of one backward pass. All arrays but `gradients` lie in the scratch memory of the
 * caller and are overwritten layer by layer. */
struct flow {
    const struct network *network; /* The network after its forward pass. */
    size_t count;                  /* Number of rows of the pass. */
    float *gradients;              /* Gradients of the weights, which are added to. */
    float *stream;                 /* Gradient of the residual stream, rows × hidden. */
    float *normed;                 /* Gradient of a block's normed input, rows × hidden. */
    float *wide;   /* Gradient of query_key_value or of gate_up, rows × the wider of the two. */
    float *inner;  /* Gradient of attended or of mlp_product, rows × the wider of the two. */
    float *query;  /* Gradient of the queries, rows × query width. */
    float *keys;   /* Gradient of the keys, slots × key width. */
    float *values; /* Gradient of the values, slots × key width. */
    float *norms;  /* Scratch memory of norm_back, norm_floats() floats. */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the floats per row of flow.wide. */
static size_t wide_width(const struct model_shape *shape)
{
    return larger(query_width(shape) + 2 * key_width(shape), 2 * (size_t)shape->intermediate_size);
}

/* Returns the floats per row of flow.inner. */
static size_t inner_width(const struct model_shape *shape)
{
    return larger(query_width(shape), shape->intermediate_size);
}

/* Returns the largest scratch memory that a norm_back of the model needs, in floats. */
static size_t norm_floats(const struct model_shape *shape, size_t rows_max)
{
    return larger(norm_scratch_floats(rows_max, shape->hidden_size),
                  norm_scratch_floats(rows_max * shape->num_attention_heads, shape->head_dim));
}

size_t network_backward_floats(const struct model *model, size_t rows_max)
{
    const struct model_shape *shape = &model->shape;

    return rows_max * (2 * (size_t)shape->hidden_size + wide_width(shape) + inner_width(shape) +
                       query_width(shape) + 2 * key_width(shape)) +
           norm_floats(shape, rows_max);
}

/* Divides the scratch memory among the arrays. */
static void flow_divide_scratch(struct flow *flow, float *scratch)
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
    flow->norms = flow->values + rows * key_width(shape);
}

/* Backward through the norm at the start of a block: from `normed` to the residual stream, which it
 * is added to. */
static void norm_rows_back(const struct flow *flow, const float *input, size_t norm)
{
    struct machine *machine = flow->network->machine;
    const struct rms_norm hidden_norm = network_hidden_norm(flow->network, norm);
    const struct norm_back work = {
        .norm = hidden_norm,
        .dx = flow->normed,
        .dweights = flow->gradients + norm,
        .dy = flow->normed,
        .x = input,
        .scratch = flow->norms,
        .dx_pitch = hidden_norm.width,
        .x_pitch = hidden_norm.width,
        .heads = 1,
        .count = flow->count,
    };
    const struct sum joined = {flow->stream, flow->normed, flow->count * hidden_norm.width};

    machine->ops->norm_back(machine, &work);
    machine->ops->add(machine, &joined);
}

/* Backward through a projection: adds the gradient of its weights and overwrites dx, the gradient
 * of its input. `widths` are the widths of input and output. */
static void project_back(const struct flow *flow, size_t weight, float *dx, const float *dy,
                         const float *x, const size_t widths[2])
{
    struct machine *machine = flow->network->machine;
    struct product work = {
        .to = flow->gradients + weight,
        .a = dy,
        .b = x,
        .rows = flow->count,
        .inputs = widths[0],
        .outputs = widths[1],
    };

    machine->ops->linear_back_weight(machine, &work);
    work.to = dx;
    work.b = flow->network->weights + weight;
    machine->ops->linear_back_input(machine, &work);
}

/* Backward through the MLP block of a layer. */
static void mlp_back(const struct flow *flow, uint32_t layer)
{
    const struct network *network = flow->network;
    const struct model *model = network->model;
    size_t hidden = model->shape.hidden_size;
    size_t width = model->shape.intermediate_size;
    const struct swiglu_back swiglu = {
        .dgate_up = flow->wide,
        .dy = flow->inner,
        .gate_up = network_value(network, layer, GATE_UP),
        .width = width,
        .count = flow->count,
    };

    project_back(flow, model_layer(model, layer, DOWN_PROJ), flow->inner, flow->stream,
                 network_value(network, layer, MLP_PRODUCT), (const size_t[2]){width, hidden});
    network->machine->ops->swiglu_back(network->machine, &swiglu);
    project_back(flow, model_layer(model, layer, GATE_PROJ), flow->normed, flow->wide,
                 network_value(network, layer, MLP_INPUT), (const size_t[2]){hidden, 2 * width});
    norm_rows_back(flow, network_value(network, layer, MIDDLE),
                   model_layer(model, layer, MLP_NORM));
}

/* Backward through the attention of a layer: from `inner` to `query`, `keys` and `values`. */
static void attend_back(const struct flow *flow, uint32_t layer)
{
    struct machine *machine = flow->network->machine;
    const struct attention_back work = {
        .forward = network_attention(flow->network, layer, flow->count),
        .gradient = flow->inner,
        .dqueries = flow->query,
        .dkeys = flow->keys,
        .dvalues = flow->values,
    };

    machine->ops->attend_back(machine, &work);
}

/* Backward through rotation and norm of adjacent heads. The caller fills dx, x and heads of `work`.
 * `turned` is the gradient after norm and rotation; it is overwritten. */
static void rotate_heads_back(const struct flow *flow, struct norm_back *work, size_t norm,
                              float *turned)
{
    const struct network *network = flow->network;
    const struct model_shape *shape = &network->model->shape;
    const struct rotation rotation = {
        .values = turned,
        .rotations = network->rotations,
        .rows = network->rows,
        .back = 1,
        .pitch = work->heads * shape->head_dim,
        .heads = work->heads,
        .width = shape->head_dim,
        .count = flow->count,
    };

    network->machine->ops->rotate(network->machine, &rotation);
    work->norm = network_head_norm(network, norm);
    work->dweights = flow->gradients + norm;
    work->dy = turned;
    work->scratch = flow->norms;
    work->dx_pitch = work->x_pitch = query_width(shape) + 2 * key_width(shape);
    work->count = flow->count;
    network->machine->ops->norm_back(network->machine, work);
}

/* Backward from the gradients of queries, keys and values to that of their common projection. */
static void split_heads_back(const struct flow *flow, uint32_t layer)
{
    const struct network *network = flow->network;
    const struct model_shape *shape = &network->model->shape;
    const float *projected = network_value(network, layer, QUERY_KEY_VALUE);
    size_t q = query_width(shape);
    size_t k = key_width(shape);
    struct norm_back queries = {
        .dx = flow->wide, .x = projected, .heads = shape->num_attention_heads};
    struct norm_back keys = {
        .dx = flow->wide + q, .x = projected + q, .heads = shape->num_key_value_heads};
    const struct transfer values = {
        .to = flow->wide + q + k,
        .from = flow->values,
        .to_pitch = q + 2 * k,
        .from_pitch = k,
        .width = k,
        .count = flow->count,
    };

    rotate_heads_back(flow, &queries, model_layer(network->model, layer, QUERY_NORM), flow->query);
    rotate_heads_back(flow, &keys, model_layer(network->model, layer, KEY_NORM), flow->keys);
    network->machine->ops->transfer(network->machine, &values);
}

/* Backward through the attention block of a layer. */
static void attention_block_back(const struct flow *flow, uint32_t layer)
{
    const struct network *network = flow->network;
    const struct model *model = network->model;
    size_t hidden = model->shape.hidden_size;
    size_t q = query_width(&model->shape);

    project_back(flow, model_layer(model, layer, OUTPUT_PROJ), flow->inner, flow->stream,
                 network_value(network, layer, ATTENDED), (const size_t[2]){q, hidden});
    attend_back(flow, layer);
    split_heads_back(flow, layer);
    project_back(flow, model_layer(model, layer, QUERY_PROJ), flow->normed, flow->wide,
                 network_value(network, layer, ATTENTION_INPUT),
                 (const size_t[2]){hidden, q + 2 * key_width(&model->shape)});
    norm_rows_back(flow, network_value(network, layer, LAYER_INPUT),
                   model_layer(model, layer, INPUT_NORM));
}

/* Backward through the embedding. */
static void embed_back(const struct flow *flow)
{
    struct machine *machine = flow->network->machine;
    const struct embedding_back work = {
        .dtable = flow->gradients + model_embedding(flow->network->model),
        .dvalues = flow->stream,
        .rows = flow->network->rows,
        .width = flow->network->model->shape.hidden_size,
        .count = flow->count,
    };

    machine->ops->embed_back(machine, &work);
}

void network_backward(const struct network *network, size_t count, const float *logit_gradients,
                      float *gradients, float *scratch)
{
    const struct model *model = network->model;
    struct machine *machine = network->machine;
    struct flow flow = {.network = network, .count = count, .gradients = gradients};

    flow_divide_scratch(&flow, scratch);
    project_back(&flow, model_head(model), flow.normed, logit_gradients, network->hidden,
                 (const size_t[2]){model->shape.hidden_size, model->shape.vocab_size});
    machine->ops->zero(machine,
                       &(const struct filling){flow.stream, count * model->shape.hidden_size});
    norm_rows_back(&flow, network->output, model_final_norm(model));
    for (uint32_t layer = model->shape.num_hidden_layers; layer-- > 0;) {
        mlp_back(&flow, layer);
        attention_block_back(&flow, layer);
    }
    embed_back(&flow);
}
