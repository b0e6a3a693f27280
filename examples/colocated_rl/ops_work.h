/* ops_work.h - what an operation is told; for the processor, C, and for GPUs, CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_OPS_WORK_H
#define COLOCATED_RL_OPS_WORK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define OPS_INLINE static __device__ inline
#else
#define OPS_INLINE static inline
#endif

/* Matrices are row-major.  A `pitch` is the floats from a row to the next; without one, rows
 * follow each other.  All pointers are into memory of the machine that does the work. */

/* A row is one token to be computed.  Its key and value go to `slot` of the cache, and it looks
 * at the slots of its prefix (a prompt, shared by all its answers) and at those of its own
 * sequence from `first` up to itself.  So the same pass serves training (all tokens at once,
 * a prompt once for its group), the prefill of prompts, and decoding (a row a sequence). */
struct row {
    int32_t token;
    uint32_t slot;
    uint32_t first;
    uint32_t prefix_first;
    uint32_t prefix_count;
};

OPS_INLINE size_t row_context(const struct row *row)
{
    return row->prefix_count + (row->slot - row->first) + 1;
}

/* The slot of entry `index` of what the row looks at. */
OPS_INLINE size_t row_slot(const struct row *row, size_t index)
{
    return index < row->prefix_count ? row->prefix_first + index
                                     : row->first + (index - row->prefix_count);
}

/* A token to be predicted, and the row that predicts it. */
struct target {
    uint32_t row;
    int32_t token;
    uint32_t sample; /* in the batch */
    uint32_t at;     /* the token's place in the answer */
};

/* to = a · b, of one of the three forms in ops.h. */
struct product {
    float *to;
    const float *a;
    const float *b;
    size_t rows;
    size_t inputs;
    size_t outputs;
};

struct sum {
    float *to; /* += from */
    const float *from;
    size_t count;
};

struct filling {
    float *to;
    size_t count;
};

struct scaling {
    float *values;
    size_t count;
    float factor;
};

/* Each row of `from` to the row of `to` of its place or, with `rows`, of its row's slot. */
struct transfer {
    float *to;
    const float *from;
    const struct row *rows; /* NULL: in order */
    size_t to_pitch;
    size_t from_pitch;
    size_t width;
    size_t count;
};

/* The row of the table for each row's token. */
struct embedding {
    const float *table;
    float *values;
    const struct row *rows;
    size_t width;
    size_t count;
};

struct embedding_back {
    float *dtable; /* added to */
    const float *dvalues;
    const struct row *rows;
    size_t width;
    size_t count;
};

/* Over one vector of `width`: y = weights · x / sqrt(mean(x²) + epsilon). */
struct rms_norm {
    const float *weights;
    size_t width;
    float epsilon;
};

/* `heads` vectors that follow each other in each of `count` rows. */
struct norm {
    struct rms_norm norm;
    float *y;
    const float *x;
    const struct row *rows; /* y is by their slots; NULL: in order */
    size_t y_pitch;
    size_t x_pitch;
    size_t heads;
    size_t count;
};

struct norm_back {
    struct rms_norm norm;
    float *dx;       /* overwritten; may be dy */
    float *dweights; /* added to */
    const float *dy; /* pitch: heads × width */
    const float *x;
    float *scratch; /* norm_scratch_floats() */
    size_t dx_pitch;
    size_t x_pitch;
    size_t heads;
    size_t count;
};

/* Vectors whose gradients one thread of a GPU sums; the sums are then summed in order. */
enum { NORM_VECTORS = 64 };

OPS_INLINE size_t norm_parts(const struct norm_back *work)
{
    return (work->count * work->heads + NORM_VECTORS - 1) / NORM_VECTORS;
}

/* Rotates each head of a row: element i with element i + width/2, by the angle of the row's
 * position.  rotations[position][0 … width/2) are the cosines, the other half the sines. */
struct rotation {
    float *values;
    const float *rotations;
    const struct row *rows;
    int by_slot; /* 1: a row's heads lie in its slot, 0: in its place */
    int back;    /* 1: the inverse rotation, which is the gradient */
    size_t pitch;
    size_t heads;
    size_t width;
    size_t count;
};

/* Each head of each row looks at its context in the cache. */
struct attention {
    const float *queries; /* [row][head][width] */
    const float *keys;    /* [slot][key head][width], like values */
    const float *values;
    float *attended; /* as queries */
    float *log_sums; /* [row][head]: of the exponents of the scores */
    float *scores;   /* as many as positions: for machines that do one head at a time */
    const struct row *rows;
    size_t heads;
    size_t key_heads; /* divide the heads */
    size_t width;
    size_t count;
};

/* Row i was in slot i.  All gradients are overwritten but `gradient`, which is of `attended`.
 */
struct attention_back {
    struct attention forward;
    const float *gradient;
    float *dqueries;
    float *dkeys;
    float *dvalues;
};

/* y = silu(gate) · up, each row of gate_up being a gate and an up. */
struct swiglu {
    float *y;
    const float *gate_up;
    size_t width;
    size_t count;
};

struct swiglu_back {
    float *dgate_up;
    const float *dy;
    const float *gate_up;
    size_t width;
    size_t count;
};

/* x = log(softmax(scale · x)) in place, each row. */
struct log_softmax {
    float *x;
    float scale;
    size_t width;
    size_t count;
};

/* Of log-probabilities [row][token], those of the targets. */
struct choice {
    float *chosen; /* a number a target */
    const float *logprobs;
    const struct target *targets;
    size_t width;
    size_t targets_count;
};

/* Gradients for the logits of all rows, overwritten: what goes to a target's token is taken
 * from all tokens of its row, by their probabilities. */
struct spreading {
    float *gradients; /* [row][token] */
    const float *logprobs;
    const struct target *targets;
    const float *slopes; /* a number a target: the loss's, for its log-probability */
    size_t width;
    size_t targets_count;
    size_t count;
};

/* One step of Adam. */
struct adam {
    float *parameters;
    float *mean;
    float *square;
    const float *gradients;
    size_t count;
    float beta1;
    float beta2;
    float scale;  /* of the gradients */
    float stride; /* of the step */
    float widen;  /* of the deviation */
    float eps;
};

#endif
