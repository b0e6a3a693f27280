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

/* What one rank gives to each rank and gets from each in an exchange. The arrays have one element
 * for each rank of the group; the element of the rank itself is not used. Each rank gets from
 * another as many bytes as that one gives to it. All pointers are borrowed for the call. */
struct tdm__comm_exchange {
    const void *in;                /* Memory with the bytes that this rank gives; never NULL. */
    void *out;                     /* Memory for the bytes that it gets, apart from `in`. */
    const size_t *send_offsets;    /* Offset in `in` of what each rank gets from this one. */
    const size_t *send_bytes;      /* Number of bytes that each rank gets from this one. */
    const size_t *receive_offsets; /* Offset in `out` of what each rank gives to this one. */
    const size_t *receive_bytes;   /* Number of bytes that each rank gives to this one. */
    /* The largest number of bytes that one rank gives to another; the same on all ranks. */
    size_t part_bytes_max;
};

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
    /* Gives each rank the bytes that every other rank has for it alone. */
    tdm_status (*exchange)(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange);

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

/* Returns how many of the next `part_bytes` bytes of a part of an exchange remain after its first
 * `done` bytes. */
static inline size_t tdm__comm_part_left(size_t size_bytes, size_t done, size_t part_bytes)
{
    size_t left = size_bytes > done ? size_bytes - done : 0;

    return left < part_bytes ? left : part_bytes;
}

/* Blocks until all ranks of the group have called it. */
static inline tdm_status tdm__comm_barrier(struct tdm__comm *comm)
{
    static const struct tdm__collective_op barrier = {.kind = TDM__COLLECTIVE_BARRIER};

    return comm->ops->synchronize(comm, &barrier);
}

#endif
