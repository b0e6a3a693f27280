/* ops.h - the operations of a transformer, forward and backward, on the host or on a GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_OPS_H
#define COLOCATED_RL_OPS_H

#include "examples/colocated_rl/ops_work.h"

#include <tandem/collective.h>

/* A machine is what computes: the processor, or a GPU through CUDA. The model's code submits
 * operations on memory that only the machine accesses. It copies results that it needs with read().
 *
 * Operations run in the order in which they are submitted. All of them have run when read() or
 * finish() returns. These two also return the error of the first operation that failed; operations
 * after a failed one may be skipped. A backward operation adds to a gradient of weights and
 * overwrites a gradient of values.
 *
 * A machine is used by one thread at a time. */
struct machine {
    const struct ops *ops; /* The operations of this kind of machine (static). */
};

/* The operations of one kind of machine. The work structs are described in ops_work.h. */
struct ops {
    const char *name;     /* Name of the kind: "host" or "cuda". */
    int computes_on_host; /* 1: the processor can access the machine's memory directly. */

    void (*close)(struct machine *machine); /* Releases the machine. */

    /* The function write() copies from host memory to the machine's, read() from the machine's to
     * host memory. The copy is complete on return. */
    tdm_status (*write)(struct machine *machine, void *to, const void *from, size_t size_bytes);
    tdm_status (*read)(struct machine *machine, void *to, const void *from, size_t size_bytes);
    /* Waits for all submitted operations and returns the error of the first that failed. */
    tdm_status (*finish)(struct machine *machine);

    /* These three do the group's collective calls on the machine's memory and wait for all
     * ranks. */
    tdm_status (*all_reduce)(struct machine *machine, tdm_collective_group *group, float *data,
                             size_t count);
    tdm_status (*all_gather)(struct machine *machine, tdm_collective_group *group, const float *in,
                             size_t count, float *out);
    tdm_status (*reduce_scatter)(struct machine *machine, tdm_collective_group *group,
                                 const float *in, size_t count, float *out);

    void (*transfer)(struct machine *machine, const struct transfer *work); /* Copies rows. */
    void (*zero)(struct machine *machine, const struct filling *work);      /* Sets floats to 0. */
    void (*add)(struct machine *machine, const struct sum *work); /* Adds one vector to another. */
    /* Multiplies a vector by a factor. */
    void (*scale)(struct machine *machine, const struct scaling *work);
    /* Waits, and stores the sum of the squares of values[0 … count). */
    tdm_status (*squares)(struct machine *machine, const float *values, size_t count,
                          double *sum_out);

    /* The product linear computes to[rows × outputs] = a[rows × inputs] · bᵀ, with b[outputs ×
     * inputs] as Hugging Face stores weights. linear_back_input computes the gradient of a: to[rows
     * × inputs] = a[rows × outputs] · b. linear_back_weight computes the gradient of b: to[outputs
     * × inputs]
     * += a[rows × outputs]ᵀ · b[rows × inputs]. */
    void (*linear)(struct machine *machine, const struct product *work);
    void (*linear_back_input)(struct machine *machine, const struct product *work);
    void (*linear_back_weight)(struct machine *machine, const struct product *work);

    /* Looks up the embedding of each row's token. */
    void (*embed)(struct machine *machine, const struct embedding *work);
    /* Adds the gradients of the rows to the embedding table's gradient. */
    void (*embed_back)(struct machine *machine, const struct embedding_back *work);
    /* Applies RMS norm to each head. */
    void (*norm)(struct machine *machine, const struct norm *work);
    /* Computes the gradients of an RMS norm for its input and its weights. */
    void (*norm_back)(struct machine *machine, const struct norm_back *work);
    /* Rotates the heads by their positions (rotary position embedding), or back. */
    void (*rotate)(struct machine *machine, const struct rotation *work);
    /* Computes attention over the cache. */
    void (*attend)(struct machine *machine, const struct attention *work);
    /* Computes the gradients of an attention. */
    void (*attend_back)(struct machine *machine, const struct attention_back *work);
    /* Computes silu(gate) · up. */
    void (*swiglu)(struct machine *machine, const struct swiglu *work);
    /* Computes the gradients of swiglu for gate and up. */
    void (*swiglu_back)(struct machine *machine, const struct swiglu_back *work);
    /* Replaces logits by log-probabilities. */
    void (*log_softmax)(struct machine *machine, const struct log_softmax *work);
    /* Copies the log-probabilities of the targets. */
    void (*choose)(struct machine *machine, const struct choice *work);
    /* Computes the gradients of the logits from those of the targets. */
    void (*spread)(struct machine *machine, const struct spreading *work);
    /* Updates parameters and moments by one step of Adam. */
    void (*adam)(struct machine *machine, const struct adam *work);
};

/* Opens the machine "host" or "cuda" for regions on this process's first GPU. The caller closes it
 * with machine_close(). TDM_E_UNSUPPORTED says what CUDA lacks here. */
tdm_status machine_open(const char *name, struct machine **machine_out);
/* Closes the machine. NULL is allowed. */
void machine_close(struct machine *machine);

/* Opens a machine on this process's first GPU. */
tdm_status machine_open_cuda(struct machine **machine_out);
/* Returns the host machine. There is one, and it has no state. */
struct machine *machine_host(void);

/* Returns the floats of scratch memory that norm_back needs for `vectors` vectors of `width`. */
size_t norm_scratch_floats(size_t vectors, size_t width);

#endif
