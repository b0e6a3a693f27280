/* ops.cu - the operations of a transformer on a GPU, except for its matrix products. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/ops_work.h"

/* Each thread computes results of its own in an order that does not depend on the shape of the
 * grid, so that the same input gives the same bits.
 *
 * This is C that a C++ compiler accepts as well, so that tests run it on the host
 * (tests/fake/kernel_shim.h). */
#ifndef KERNEL
#define KERNEL extern "C" __global__
#endif

/* Loops over the items of this thread, of `count` items in all. */
#define EACH(index, count)                                                                     \
    for (size_t index = (size_t)blockIdx.x * blockDim.x + threadIdx.x; index < (count);        \
         index += (size_t)gridDim.x * blockDim.x)

static __device__ float dot(const float *a, const float *b, size_t count)
{
    float sum = 0.0F;

    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* ---- copying and adding ----------------------------------------------------------------- */

KERNEL void colocated_rl_transfer(struct transfer work)
{
    EACH(at, work.count * work.width)
    {
        size_t i = at / work.width;
        size_t column = at % work.width;
        size_t place = work.rows != NULL ? work.rows[i].slot : i;

        work.to[place * work.to_pitch + column] = work.from[i * work.from_pitch + column];
    }
}

KERNEL void colocated_rl_zero(struct filling work)
{
    EACH(i, work.count)
    {
        work.to[i] = 0.0F;
    }
}

KERNEL void colocated_rl_add(struct sum work)
{
    EACH(i, work.count)
    {
        work.to[i] += work.from[i];
    }
}

KERNEL void colocated_rl_scale(struct scaling work)
{
    EACH(i, work.count)
    {
        work.values[i] *= work.factor;
    }
}

/* ---- embedding -------------------------------------------------------------------------- */

KERNEL void colocated_rl_embed(struct embedding work)
{
    EACH(at, work.count * work.width)
    {
        size_t token = (size_t)work.rows[at / work.width].token;

        work.values[at] = work.table[token * work.width + at % work.width];
    }
}

/* One thread per column, so that rows of the same token do not conflict. */
KERNEL void colocated_rl_embed_back(struct embedding_back work)
{
    EACH(column, work.width)
    {
        for (size_t i = 0; i < work.count; i++) {
            size_t token = (size_t)work.rows[i].token;

            work.dtable[token * work.width + column] += work.dvalues[i * work.width + column];
        }
    }
}

/* ---- norms ------------------------------------------------------------------------------ */

static __device__ float inverse_rms(const struct rms_norm *norm, const float *x)
{
    return 1.0F / sqrtf(dot(x, x, norm->width) / (float)norm->width + norm->epsilon);
}

/* Returns the offset of vector `at` among the heads of all rows. */
static __device__ size_t vector_at(size_t at, size_t heads, size_t pitch, size_t width)
{
    return at / heads * pitch + at % heads * width;
}

KERNEL void colocated_rl_norm(struct norm work)
{
    EACH(at, work.count * work.heads)
    {
        size_t width = work.norm.width;
        size_t row = at / work.heads;
        size_t place = work.rows != NULL ? work.rows[row].slot : row;
        const float *x = work.x + vector_at(at, work.heads, work.x_pitch, width);
        float *y = work.y + place * work.y_pitch + at % work.heads * width;
        float inverse = inverse_rms(&work.norm, x);

        for (size_t i = 0; i < width; i++) {
            y[i] = work.norm.weights[i] * (x[i] * inverse);
        }
    }
}

/* The backward pass of a norm in four kernels: first the inverse of each vector, at the start of
 * scratch; then sums of the weights' gradients over NORM_VECTORS vectors each, after the inverses;
 * then the sum of these sums; at last the gradients of the values, because these may overwrite
 * dy. */
KERNEL void colocated_rl_norm_inverses(struct norm_back work)
{
    EACH(at, work.count * work.heads)
    {
        work.scratch[at] = inverse_rms(
            &work.norm, work.x + vector_at(at, work.heads, work.x_pitch, work.norm.width));
    }
}

KERNEL void colocated_rl_norm_parts(struct norm_back work)
{
    size_t width = work.norm.width;
    size_t vectors = work.count * work.heads;

    EACH(at, norm_parts(&work) * width)
    {
        size_t first = at / width * NORM_VECTORS;
        size_t end = first + NORM_VECTORS < vectors ? first + NORM_VECTORS : vectors;
        size_t column = at % width;
        float sum = 0.0F;

        for (size_t i = first; i < end; i++) {
            size_t place = vector_at(i, work.heads, work.x_pitch, width) + column;

            sum += work.dy[i * width + column] * work.x[place] * work.scratch[i];
        }
        work.scratch[vectors + at] = sum;
    }
}

KERNEL void colocated_rl_norm_weights(struct norm_back work)
{
    size_t width = work.norm.width;
    size_t vectors = work.count * work.heads;

    EACH(column, width)
    {
        float sum = 0.0F;

        for (size_t i = 0; i < norm_parts(&work); i++) {
            sum += work.scratch[vectors + i * width + column];
        }
        work.dweights[column] += sum;
    }
}

KERNEL void colocated_rl_norm_values(struct norm_back work)
{
    EACH(at, work.count * work.heads)
    {
        size_t width = work.norm.width;
        const float *weights = work.norm.weights;
        const float *x = work.x + vector_at(at, work.heads, work.x_pitch, width);
        const float *dy = work.dy + at * width;
        float *dx = work.dx + vector_at(at, work.heads, work.dx_pitch, width);
        float inverse = work.scratch[at];
        float along = 0.0F; /* Component of the gradient along x, which the norm removes. */

        for (size_t i = 0; i < width; i++) {
            along += weights[i] * dy[i] * x[i];
        }
        along *= inverse * inverse / (float)width;
        for (size_t i = 0; i < width; i++) {
            dx[i] = inverse * (weights[i] * dy[i] - along * x[i]);
        }
    }
}

/* ---- rotations -------------------------------------------------------------------------- */

KERNEL void colocated_rl_rotate(struct rotation work)
{
    size_t half = work.width / 2;

    EACH(at, work.count * work.heads * half)
    {
        size_t vector = at / half;
        size_t i = at % half;
        const struct row *row = &work.rows[vector / work.heads];
        size_t place = work.by_slot ? row->slot : vector / work.heads;
        float *head = work.values + place * work.pitch + vector % work.heads * work.width;
        const float *turn = work.rotations + (row_context(row) - 1) * work.width;
        float sine = work.back ? -turn[half + i] : turn[half + i];
        float low = head[i];
        float high = head[i + half];

        head[i] = low * turn[i] - high * sine;
        head[i + half] = high * turn[i] + low * sine;
    }
}

/* ---- attention -------------------------------------------------------------------------- */

static __device__ size_t key_head(const struct attention *work, size_t head)
{
    return head * work->key_heads / work->heads;
}

/* One thread per head of a row. Scores are computed again where they are needed, not stored. */
KERNEL void colocated_rl_attend(struct attention work)
{
    float scale = 1.0F / sqrtf((float)work.width);
    size_t stride = work.key_heads * work.width;

    EACH(at, work.count * work.heads)
    {
        const struct row *row = &work.rows[at / work.heads];
        const float *query = work.queries + at * work.width;
        const float *keys = work.keys + key_head(&work, at % work.heads) * work.width;
        const float *values = work.values + key_head(&work, at % work.heads) * work.width;
        float *out = work.attended + at * work.width;
        size_t context = row_context(row);
        float largest = -INFINITY;
        float sum = 0.0F;

        for (size_t i = 0; i < context; i++) {
            largest = fmaxf(largest,
                            scale * dot(query, keys + row_slot(row, i) * stride, work.width));
        }
        for (size_t i = 0; i < work.width; i++) {
            out[i] = 0.0F;
        }
        for (size_t i = 0; i < context; i++) {
            size_t slot = row_slot(row, i) * stride;
            float share = expf(scale * dot(query, keys + slot, work.width) - largest);

            sum += share;
            for (size_t k = 0; k < work.width; k++) {
                out[k] += share * values[slot + k];
            }
        }
        for (size_t i = 0; i < work.width; i++) {
            out[i] /= sum;
        }
        work.log_sums[at] = largest + logf(sum);
    }
}

/* How a head of a row depends on one key and value. */
struct pull {
    float share; /* Weight of the value in the row's result. */
    float score; /* Gradient of the score. */
};

/* Returns how head `at` of all rows depends on the key and value at `slot` (an offset in
 * floats). */
static __device__ struct pull pull_of(const struct attention_back *work, size_t at, size_t slot)
{
    const struct attention *forward = &work->forward;
    size_t width = forward->width;
    const float *gradient = work->gradient + at * width;
    float scale = 1.0F / sqrtf((float)width);
    /* The part of the gradient that the softmax subtracts from each score. */
    float through = dot(gradient, forward->attended + at * width, width);
    struct pull pull;

    pull.share = expf(scale * dot(forward->queries + at * width, forward->keys + slot, width) -
                      forward->log_sums[at]);
    pull.score =
        scale * pull.share * (dot(gradient, forward->values + slot, width) - through);
    return pull;
}

KERNEL void colocated_rl_attend_back_queries(struct attention_back work)
{
    size_t heads = work.forward.heads;
    size_t width = work.forward.width;

    EACH(at, work.forward.count * heads)
    {
        const struct row *row = &work.forward.rows[at / heads];
        float *dquery = work.dqueries + at * width;

        for (size_t k = 0; k < width; k++) {
            dquery[k] = 0.0F;
        }
        for (size_t i = 0; i < row_context(row); i++) {
            size_t slot = (row_slot(row, i) * work.forward.key_heads +
                           key_head(&work.forward, at % heads)) *
                          width;
            struct pull pull = pull_of(&work, at, slot);

            for (size_t k = 0; k < width; k++) {
                dquery[k] += pull.score * work.forward.keys[slot + k];
            }
        }
    }
}

/* Returns 1 if the row attends to the slot. */
static __device__ int row_sees(const struct row *row, size_t slot)
{
    return slot - row->prefix_first < row->prefix_count ||
           (slot >= row->first && slot <= row->slot);
}

/* One thread per key head of a slot, which sums over all rows that attend to the slot. */
KERNEL void colocated_rl_attend_back_slots(struct attention_back work)
{
    size_t heads = work.forward.heads;
    size_t key_heads = work.forward.key_heads;
    size_t shared = heads / key_heads; /* Number of adjacent heads that share one key head. */
    size_t width = work.forward.width;

    EACH(at, work.forward.count * key_heads)
    {
        float *dkey = work.dkeys + at * width;
        float *dvalue = work.dvalues + at * width;

        for (size_t k = 0; k < width; k++) {
            dkey[k] = dvalue[k] = 0.0F;
        }
        for (size_t i = 0; i < work.forward.count * shared; i++) {
            size_t row = i / shared;
            size_t head = row * heads + at % key_heads * shared + i % shared;
            struct pull pull;

            if (!row_sees(&work.forward.rows[row], at / key_heads)) {
                continue;
            }
            pull = pull_of(&work, head, at * width);
            for (size_t k = 0; k < width; k++) {
                dkey[k] += pull.score * work.forward.queries[head * width + k];
                dvalue[k] += pull.share * work.gradient[head * width + k];
            }
        }
    }
}

/* ---- element-wise operations ------------------------------------------------------------ */

static __device__ float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

KERNEL void colocated_rl_swiglu(struct swiglu work)
{
    EACH(at, work.count * work.width)
    {
        const float *gate = work.gate_up + at / work.width * 2 * work.width + at % work.width;

        work.y[at] = *gate * sigmoid(*gate) * gate[work.width];
    }
}

KERNEL void colocated_rl_swiglu_back(struct swiglu_back work)
{
    EACH(at, work.count * work.width)
    {
        size_t place = at / work.width * 2 * work.width + at % work.width;
        float gate = work.gate_up[place];
        float up = work.gate_up[place + work.width];
        float open = sigmoid(gate);

        work.dgate_up[place] = work.dy[at] * up * open * (1.0F + gate * (1.0F - open));
        work.dgate_up[place + work.width] = work.dy[at] * gate * open;
    }
}

KERNEL void colocated_rl_log_softmax(struct log_softmax work)
{
    EACH(row, work.count)
    {
        float *x = work.x + row * work.width;
        float largest = x[0];
        double sum = 0.0;
        float shift;

        for (size_t i = 1; i < work.width; i++) {
            largest = fmaxf(largest, x[i]);
        }
        for (size_t i = 0; i < work.width; i++) {
            sum += (double)expf(work.scale * (x[i] - largest));
        }
        shift = (float)log(sum);
        for (size_t i = 0; i < work.width; i++) {
            x[i] = work.scale * (x[i] - largest) - shift;
        }
    }
}

/* ---- learning --------------------------------------------------------------------------- */

KERNEL void colocated_rl_choose(struct choice work)
{
    EACH(i, work.targets_count)
    {
        const struct target *target = &work.targets[i];

        work.chosen[i] = work.logprobs[target->row * work.width + (size_t)target->token];
    }
}

/* One thread per token of the vocabulary, for all targets, so that targets of one row do not
 * conflict. */
KERNEL void colocated_rl_spread(struct spreading work)
{
    EACH(token, work.width)
    {
        for (size_t row = 0; row < work.count; row++) {
            work.gradients[row * work.width + token] = 0.0F;
        }
        for (size_t i = 0; i < work.targets_count; i++) {
            const struct target *target = &work.targets[i];
            size_t at = target->row * work.width + token;
            float slope = work.slopes[i];

            work.gradients[at] -= slope * expf(work.logprobs[at]);
            if ((size_t)target->token == token) {
                work.gradients[at] += slope;
            }
        }
    }
}

KERNEL void colocated_rl_adam(struct adam work)
{
    EACH(i, work.count)
    {
        float gradient = work.scale * work.gradients[i];
        float mean = work.beta1 * work.mean[i] + (1.0F - work.beta1) * gradient;
        float square =
            work.beta2 * work.square[i] + (1.0F - work.beta2) * gradient * gradient;

        work.mean[i] = mean;
        work.square[i] = square;
        work.parameters[i] -= work.stride * mean / (sqrtf(square) * work.widen + work.eps);
    }
}
