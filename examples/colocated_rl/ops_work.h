/* ops_work.h - the arguments of each operation of ops.h, for C and for CUDA kernels. */
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

/* Matrices are row-major. A `pitch` is the number of floats from a row to the next; an array
 * without a pitch is dense. `count` is the number of rows unless stated otherwise. All pointers are
 * borrowed and point into memory of the machine that does the work. */

/* A row is one token to be computed. Its key and value are stored in `slot` of the key-value cache.
 * It attends to the slots of its prefix (a prompt that all its answers share) and to those of its
 * own sequence from `first` up to itself. The same pass thus serves training (all tokens at once, a
 * prompt once for its group), the prefill of prompts, and decoding (one row per sequence). */
struct row {
    int32_t token;         /* ID of the token in the vocabulary. */
    uint32_t slot;         /* Slot of the cache that receives the row's key and value. */
    uint32_t first;        /* First slot of the row's own sequence. */
    uint32_t prefix_first; /* First slot of the prefix; unused if prefix_count is 0. */
    uint32_t prefix_count; /* Number of slots of the prefix; 0 if there is no prefix. */
};

/* Returns the number of slots that the row attends to. Its position in the text is one less. */
OPS_INLINE size_t row_context(const struct row *row)
{
    return row->prefix_count + (row->slot - row->first) + 1;
}

/* Returns the slot of entry `index` of the row's context, 0 <= index < row_context(). */
OPS_INLINE size_t row_slot(const struct row *row, size_t index)
{
    return index < row->prefix_count ? row->prefix_first + index
                                     : row->first + (index - row->prefix_count);
}

/* A token to be predicted, and the row that predicts it. */
struct target {
    uint32_t row;    /* Index of the row in the pass. */
    int32_t token;   /* ID of the token that should follow the row's token. */
    uint32_t sample; /* Index of the sample in the batch. */
    uint32_t at;     /* Position of the token in the answer. */
};

/* A matrix product to = a · b, in one of the three forms that ops.h describes. */
struct product {
    float *to; /* The result. */
    const float *a;
    const float *b;
    size_t rows;    /* Number of rows (tokens). */
    size_t inputs;  /* Input width of the projection, in floats. */
    size_t outputs; /* Output width of the projection, in floats. */
};

/* Adds `from` to `to`, element by element. */
struct sum {
    float *to; /* += from */
    const float *from;
    size_t count; /* Number of floats. */
};

/* Sets floats to 0. */
struct filling {
    float *to;    /* The floats to set. */
    size_t count; /* Number of floats. */
};

/* Multiplies values by a factor, in place. */
struct scaling {
    float *values;
    size_t count; /* Number of floats. */
    float factor;
};

/* Copies rows. Row i of `from` goes to row i of `to` or, if `rows` is given, to the row of the slot
 * of rows[i]. */
struct transfer {
    float *to;
    const float *from;
    const struct row *rows; /* Gives the slots; NULL: rows stay in order. */
    size_t to_pitch;
    size_t from_pitch;
    size_t width; /* Floats to copy per row. */
    size_t count;
};

/* Copies the embedding of each row's token. */
struct embedding {
    const float *table; /* The embedding table as [token][width]. */
    float *values;      /* The result as [row][width]. */
    const struct row *rows;
    size_t width;
    size_t count; /* Floats per token. */
};

/* The gradient of an embedding. */
struct embedding_back {
    float *dtable;        /* The gradient of the table, which is added to. */
    const float *dvalues; /* The gradients of the rows' embeddings. */
    const struct row *rows;
    size_t width; /* Floats per token. */
    size_t count;
};

/* An RMS norm over one vector: y = weights · x / sqrt(mean(x²) + epsilon). */
struct rms_norm {
    const float *weights; /* One weight per element. */
    size_t width;         /* Floats of the vector. */
    float epsilon;
};

/* Norms `heads` adjacent vectors in each of `count` rows. */
struct norm {
    struct rms_norm norm;
    float *y; /* The result. */
    const float *x;
    /* If given, the result of row i goes to the row of the slot of rows[i]; NULL: rows stay in
     * order. */
    const struct row *rows;
    size_t y_pitch;
    size_t x_pitch;
    size_t heads; /* Vectors per row. */
    size_t count;
};

/* The gradients of a norm of `heads` adjacent vectors in each of `count` rows. */
struct norm_back {
    struct rms_norm norm;
    float *dx;       /* The gradient of x, which is overwritten; may be the same memory as dy. */
    float *dweights; /* The gradient of the norm's weights, which is added to. */
    const float *dy; /* The gradient of the result; its pitch is heads × width. */
    const float *x;  /* The input of the forward norm. */
    float *scratch;  /* Scratch memory, norm_scratch_floats() floats. */
    size_t dx_pitch;
    size_t x_pitch;
    size_t heads; /* Vectors per row. */
    size_t count;
};

/* Number of vectors whose weight gradients one GPU thread sums. A second kernel adds these partial
 * sums in order. */
enum { NORM_VECTORS = 64 };

/* Returns the number of partial sums that a GPU computes for the weights' gradient. */
OPS_INLINE size_t norm_parts(const struct norm_back *work)
{
    return (work->count * work->heads + NORM_VECTORS - 1) / NORM_VECTORS;
}

/* Rotates each head of a row: element i with element i + width/2, by the angle of the row's
 * position. rotations[position][0 … width/2) are the cosines, the other half the sines. */
struct rotation {
    float *values;          /* The heads, rotated in place. */
    const float *rotations; /* Cosines and sines as [position][width]. */
    const struct row *rows; /* The rows, whose context gives the position. */
    int by_slot;            /* 1: the heads of row i lie in the row of its slot; 0: in row i. */
    int back;               /* 1: rotates in the opposite direction, which gives the gradient. */
    size_t pitch;
    size_t heads; /* Heads per row. */
    size_t width; /* Floats of a head. */
    size_t count;
};

/* Attention of each head of each row over the row's context in the cache. */
struct attention {
    const float *queries; /* Queries as [row][head][width]. */
    const float *keys;    /* Keys as [slot][key head][width]. */
    const float *values;  /* Values as [slot][key head][width]. */
    float *attended;      /* The result as [row][head][width]. */
    /* Result per [row][head]: the logarithm of the sum of the exponentials of the scores. */
    float *log_sums;
    /* Scratch memory of one float per position, for machines that compute one head at a time. */
    float *scores;
    const struct row *rows;
    size_t heads;     /* Query heads per row. */
    size_t key_heads; /* Key heads per slot; they divide the query heads evenly. */
    size_t width;     /* Floats of a head. */
    size_t count;
};

/* The gradients of an attention in which row i was in slot i. All gradients but `gradient` are
 * overwritten. */
struct attention_back {
    struct attention forward; /* The attention of the forward pass. */
    const float *gradient;    /* The gradient of `attended`, which is the input. */
    float *dqueries;          /* The gradient of the queries. */
    float *dkeys;             /* The gradient of the keys. */
    float *dvalues;           /* The gradient of the values. */
};

/* Computes y = silu(gate) · up. A row of gate_up is `width` gates, then `width` ups. */
struct swiglu {
    float *y;
    const float *gate_up; /* The gates and ups as [row][2 × width]. */
    size_t width;
    size_t count;
};

/* The gradient of a swiglu. */
struct swiglu_back {
    float *dgate_up;      /* The gradient of gate_up, which is overwritten. */
    const float *dy;      /* The gradient of y. */
    const float *gate_up; /* The input of the forward operation. */
    size_t width;
    size_t count;
};

/* Computes x = log(softmax(scale · x)) in place, row by row. */
struct log_softmax {
    float *x;
    float scale;  /* The factor before the softmax: 1 / temperature. */
    size_t width; /* Floats per row: the size of the vocabulary. */
    size_t count;
};

/* Copies the log-probabilities of the targets. */
struct choice {
    float *chosen;         /* The result: one float per target. */
    const float *logprobs; /* Log-probabilities as [row][token]. */
    const struct target *targets;
    size_t width; /* Size of the vocabulary. */
    size_t targets_count;
};

/* Computes the gradients of the logits of all rows, which are overwritten. The gradient of each
 * target's log-probability is added to the target's token and subtracted from all tokens of its row
 * in proportion to their probabilities. */
struct spreading {
    float *gradients;      /* The result as [row][token]. */
    const float *logprobs; /* Log-probabilities as [row][token]. */
    const struct target *targets;
    /* One float per target: the gradient of the loss with respect to its log-probability. */
    const float *slopes;
    size_t width; /* Size of the vocabulary. */
    size_t targets_count;
    size_t count; /* Number of rows. */
};

/* One step of Adam over `count` parameters. */
struct adam {
    float *parameters;
    float *mean;   /* The first moment. */
    float *square; /* The second moment. */
    const float *gradients;
    size_t count; /* Number of parameters. */
    float beta1;
    float beta2;
    float scale; /* Factor for the gradients, for clipping. */
    /* Factor for the step: the learning rate with the bias correction of the first moment. */
    float stride;
    float widen; /* Factor for the deviation: the bias correction of the second moment. */
    float eps;
};

#endif
