/* ops.h - the arithmetic of a transformer, forwards and backwards, on one of two machines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_OPS_H
#define COLOCATED_RL_OPS_H

#include "examples/colocated_rl/ops_work.h"

#include <tandem/collective.h>

/* What computes: the processor, or a GPU by CUDA.  The model's code gives it operations on
 * memory that only the machine itself touches; what the code wants to know it reads.
 *
 * Operations are done in the order in which they are given, at the latest when read() or
 * finish() returns, which also tell of the first that failed; later ones may then be left out.
 * A backward operation adds to a gradient of weights and overwrites one of values. */
struct machine {
    const struct ops *ops;
};

struct ops {
    const char *name;     /* "host", "cuda" */
    int computes_on_host; /* 1: the processor can touch the machine's memory */

    void (*close)(struct machine *machine);

    /* Between memory of the host's and the machine's; either way done on return. */
    tdm_status (*write)(struct machine *machine, void *to, const void *from, size_t size_bytes);
    tdm_status (*read)(struct machine *machine, void *to, const void *from, size_t size_bytes);
    tdm_status (*finish)(struct machine *machine);

    /* The group's calls on the machine's memory. */
    tdm_status (*all_reduce)(struct machine *machine, tdm_collective_group *group, float *data,
                             size_t count);
    tdm_status (*all_gather)(struct machine *machine, tdm_collective_group *group, const float *in,
                             size_t count, float *out);
    tdm_status (*reduce_scatter)(struct machine *machine, tdm_collective_group *group,
                                 const float *in, size_t count, float *out);

    void (*transfer)(struct machine *machine, const struct transfer *work);
    void (*zero)(struct machine *machine, const struct filling *work);
    void (*add)(struct machine *machine, const struct sum *work);
    void (*scale)(struct machine *machine, const struct scaling *work);
    /* Their sum. */
    tdm_status (*squares)(struct machine *machine, const float *values, size_t count,
                          double *sum_out);

    /* to[rows × outputs] = a[rows × inputs] · bᵀ, with b[outputs × inputs] as Hugging Face has
     * it; then the gradient of a: to[rows × inputs] = a[rows × outputs] · b; then that of b:
     * to[outputs × inputs] += a[rows × outputs]ᵀ · b[rows × inputs]. */
    void (*linear)(struct machine *machine, const struct product *work);
    void (*linear_back_input)(struct machine *machine, const struct product *work);
    void (*linear_back_weight)(struct machine *machine, const struct product *work);

    void (*embed)(struct machine *machine, const struct embedding *work);
    void (*embed_back)(struct machine *machine, const struct embedding_back *work);
    void (*norm)(struct machine *machine, const struct norm *work);
    void (*norm_back)(struct machine *machine, const struct norm_back *work);
    void (*rotate)(struct machine *machine, const struct rotation *work);
    void (*attend)(struct machine *machine, const struct attention *work);
    void (*attend_back)(struct machine *machine, const struct attention_back *work);
    void (*swiglu)(struct machine *machine, const struct swiglu *work);
    void (*swiglu_back)(struct machine *machine, const struct swiglu_back *work);
    void (*log_softmax)(struct machine *machine, const struct log_softmax *work);
    void (*choose)(struct machine *machine, const struct choice *work);
    void (*spread)(struct machine *machine, const struct spreading *work);
    void (*adam)(struct machine *machine, const struct adam *work);
};

/* "host" or "cuda", for regions on this process's first GPU.  TDM_E_UNSUPPORTED says what CUDA
 * lacks here. */
tdm_status machine_open(const char *name, struct machine **machine_out);
void machine_close(struct machine *machine); /* NULL is allowed */

tdm_status machine_open_cuda(struct machine **machine_out);
/* There is one and it has no state. */
struct machine *machine_host(void);

/* Of a norm_back over `vectors` vectors of `width`. */
size_t norm_scratch_floats(size_t vectors, size_t width);

#endif
