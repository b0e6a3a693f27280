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
 * in tandem/collective.h. One thread uses a communicator. All functions are mandatory. */
struct tdm__comm_ops {
    /* Name of the implementation: "host", "tcp" or "nccl". */
    const char *name;

    /* Leaves the group and frees the communicator. Never blocks. */
    void (*destroy)(struct tdm__comm *comm);
    /* Ends the group for all ranks. Their current and later calls fail with TDM_E_ABORTED, naming
     * this rank. */
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
};

/* First member of every communicator. */
struct tdm__comm {
    const struct tdm__comm_ops *ops; /* Functions of the implementation. */
    uint32_t rank;                   /* Rank of this process in the group. */
    uint32_t ranks_count;            /* Number of ranks of the group. */
};

/* Blocks until all ranks of the group have called it. */
tdm_status tdm__comm_barrier(struct tdm__comm *comm);

/* Opens a communicator between processes of one node over the shared segment behind `fd`
 * (colocate/comm/host/segment.h). The descriptor stays the caller's. `timeout_ms` limits each
 * operation. */
tdm_status tdm__comm_host_open(int fd, uint32_t rank, int64_t timeout_ms,
                               struct tdm__comm **comm_out);

/* The TCP connections between the ranks of a group (colocate/comm/tcp/mesh.h). */
struct tdm__mesh;
/* Opens a communicator between nodes over a connected mesh, which it owns from TDM_OK on. Larger
 * data is sent in chunks of `chunk_bytes`. */
tdm_status tdm__comm_tcp_open(struct tdm__mesh *mesh, uint32_t rank, uint32_t ranks_count,
                              size_t chunk_bytes, struct tdm__comm **comm_out);

/* Options of a communicator over NCCL, which is loaded at run time. */
struct tdm__comm_nccl_options {
    /* Communicator of the same ranks, owned by the new communicator from TDM_OK on. The ranks
     * synchronise on it before each NCCL call, so that a missing rank is named instead of
     * blocking the others. */
    struct tdm__comm *control_comm;
    int64_t timeout_ms; /* Milliseconds after which an operation fails. */
    /* Bytes of staging memory per rank for data in host memory; larger data is moved in chunks. */
    size_t slot_bytes;
    const char *gpu_uuid; /* UUID of the rank's GPU; borrowed for the call. */
};
/* Opens a communicator over NCCL for data in host memory or on the rank's GPU. Fails with
 * TDM_E_UNSUPPORTED without NCCL or a driver. Sums of data on the GPU are computed in NCCL's
 * order, sums of host data in rank order. */
tdm_status tdm__comm_nccl_open(const struct tdm__comm_nccl_options *options,
                               struct tdm__comm **comm_out);
/* Releases NCCL's memory on the GPU. All ranks call it together. Until the resume only destroy,
 * abort and resume are allowed. */
tdm_status tdm__comm_nccl_suspend(struct tdm__comm *comm);
/* Allocates NCCL's memory again after a suspend. All ranks call it together. */
tdm_status tdm__comm_nccl_resume(struct tdm__comm *comm);

/* Creates a public group around a communicator, which the group owns from TDM_OK on. */
tdm_status tdm__collective_wrap(struct tdm__comm *comm, tdm_collective_group **group_out);
/* Returns the communicator of a group, which the group owns. */
struct tdm__comm *tdm__collective_comm(tdm_collective_group *group);

#endif
