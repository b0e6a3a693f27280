/* comm.h - the interface to a communicator: a group of ranks that run collective operations. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_COMM_H
#define TDM_COLOCATE_COMM_COMM_H

#include "colocate/comm/collective_op.h"

#include <stddef.h>
#include <stdint.h>
#include <tandem/collective.h>

struct tdm__comm;

/* Element type of a reduction. */
enum tdm__comm_dtype { TDM__COMM_FLOAT32, TDM__COMM_FLOAT64 };

/* The functions of a communicator. The collective functions behave as those with the same names
 * in tandem/collective.h. One thread uses a communicator. All functions are mandatory, except pause
 * and resume, which are NULL if the communicator has no memory on a GPU. */
struct tdm__comm_ops {
    /* Name of the implementation: "host", "tcp", "nccl" or "staged". */
    const char *name;

    /* Leaves the group and frees the communicator. Never blocks, except "nccl", which waits for a
     * limited time (nccl/nccl.h). */
    void (*destroy)(struct tdm__comm *comm);
    /* Ends the group for all ranks. Their current and later calls fail with TDM_E_ABORTED, naming
     * this rank. Never blocks, except as destroy. */
    void (*abort)(struct tdm__comm *comm);

    /* Returns TDM_OK while the group lives, or the reason why it has ended. Never blocks. Callers
     * that wait for other ranks outside of a collective operation poll it. */
    tdm_status (*check)(struct tdm__comm *comm);

    /* Blocks until all ranks are in the same operation; moves no data. */
    tdm_status (*synchronize)(struct tdm__comm *comm, const struct tdm__collective_op *call);
    /* Combines `count` elements of every rank; each rank gets the result in `data`. */
    tdm_status (*all_reduce)(struct tdm__comm *comm, void *data, size_t count,
                             enum tdm__comm_dtype dtype, enum tdm_reduction reduction);
    /* Gives every rank the bytes of all ranks in rank order. */
    tdm_status (*all_gather)(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                             void *out);
    /* Adds `count` floats per rank of every rank's `in`; rank i gets the i-th part of the sum in
     * `out`. */
    tdm_status (*reduce_scatter)(struct tdm__comm *comm, const float *in, size_t count, float *out);
    /* Gives every rank the root's bytes. */
    tdm_status (*broadcast)(struct tdm__comm *comm, void *data, size_t size_bytes, uint32_t root);
    /* Gives the root the bytes of all ranks in rank order. `out` is not used on other ranks. */
    tdm_status (*gather)(struct tdm__comm *comm, const void *in, size_t bytes_per_rank, void *out,
                         uint32_t root);

    /* Frees memory on the GPU until the resume. Until then only resume, check, destroy and abort
     * are called. */
    tdm_status (*pause)(struct tdm__comm *comm);
    /* Allocates the memory on the GPU again after a pause. */
    tdm_status (*resume)(struct tdm__comm *comm);
};

/* First member of every communicator. */
struct tdm__comm {
    const struct tdm__comm_ops *ops; /* Functions of the implementation. */
    uint32_t rank;                   /* Rank of this process in the group. */
    uint32_t ranks_count;            /* Number of ranks of the group. */
};

/* Blocks until all ranks of the group have called it. */
static inline tdm_status tdm__comm_barrier(struct tdm__comm *comm)
{
    static const struct tdm__collective_op barrier = {.kind = TDM__COLLECTIVE_BARRIER};

    return comm->ops->synchronize(comm, &barrier);
}

#endif
