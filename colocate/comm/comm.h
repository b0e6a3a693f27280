/* comm.h - a communicator: ranks that exchange data in step. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_COMM_H
#define TDM_COLOCATE_COMM_COMM_H

#include "colocate/comm/collective_op.h"

#include <stddef.h>
#include <stdint.h>
#include <tandem/collective.h>

struct tdm__comm;

enum tdm__comm_dtype { TDM__COMM_FLOAT32, TDM__COMM_FLOAT64 };

/* The entries promise what tandem/collective.h says of the calls of the same names.  One thread.
 * All are mandatory. */
struct tdm__comm_ops {
    const char *name;

    void (*destroy)(struct tdm__comm *comm); /* leaves; never blocks */
    /* Ends the group for all ranks; their calls, in flight and later, fail with TDM_E_ABORTED
     * naming this rank. */
    void (*abort)(struct tdm__comm *comm);

    /* TDM_OK while the group lives, else why it has ended; never blocks.  For whoever waits for
     * other ranks in another way than by a call on the group. */
    tdm_status (*check)(struct tdm__comm *comm);

    /* All ranks come, in the same call; nothing is moved. */
    tdm_status (*synchronize)(struct tdm__comm *comm, const struct tdm__collective_op *call);
    tdm_status (*all_reduce)(struct tdm__comm *comm, void *data, size_t count,
                             enum tdm__comm_dtype dtype, enum tdm_reduction reduction);
    tdm_status (*all_gather)(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                             void *out);
    tdm_status (*reduce_scatter)(struct tdm__comm *comm, const float *in, size_t count, float *out);
    tdm_status (*broadcast)(struct tdm__comm *comm, void *data, size_t size_bytes, uint32_t root);
    tdm_status (*gather)(struct tdm__comm *comm, const void *in, size_t bytes_per_rank, void *out,
                         uint32_t root);
};

/* First member of every filling. */
struct tdm__comm {
    const struct tdm__comm_ops *ops;
    uint32_t rank;
    uint32_t ranks_count;
};

tdm_status tdm__comm_barrier(struct tdm__comm *comm);

/* Over the shared segment behind `fd` (colocate/comm/host/segment.h), which stays the caller's.
 */
tdm_status tdm__comm_host_open(int fd, uint32_t rank, int64_t timeout_ms,
                               struct tdm__comm **comm_out);

/* Between nodes, over a mesh whose ranks are connected (colocate/comm/tcp/mesh.h), which it
 * owns from TDM_OK on.  Larger data goes in chunks of so many bytes. */
struct tdm__mesh;
tdm_status tdm__comm_tcp_open(struct tdm__mesh *mesh, uint32_t rank, uint32_t ranks_count,
                              size_t chunk_bytes, struct tdm__comm **comm_out);

/* Over NCCL, loaded at run time.  Data may lie in host memory or on the rank's GPU. */
struct tdm__comm_nccl_options {
    /* Of the same ranks, wherever they are; owned from TDM_OK on.  They synchronize there before
     * each call, so that one that does not come is named instead of hanging the others. */
    struct tdm__comm *control_comm;
    int64_t timeout_ms;
    size_t slot_bytes; /* staging per rank for data of the host; larger data goes in chunks */
    const char *gpu_uuid;
    /* Not NULL: the group is a part of this one, and shares what NCCL can share.  Every rank of
     * the parent opens a part at the same time; parts differ in their color. */
    struct tdm__comm *parent;
    int color;
};
/* TDM_E_UNSUPPORTED where there is no NCCL or no driver.  Sums of data on the GPU are taken in
 * NCCL's order, of data in host memory in rank order. */
tdm_status tdm__comm_nccl_open(const struct tdm__comm_nccl_options *options,
                               struct tdm__comm **comm_out);
/* All ranks in step: gives NCCL's memory on the GPU back, and takes it again.  In between only
 * destroy, abort and resume are allowed. */
tdm_status tdm__comm_nccl_suspend(struct tdm__comm *comm);
tdm_status tdm__comm_nccl_resume(struct tdm__comm *comm);

/* A public group around a communicator, which it owns from TDM_OK on. */
tdm_status tdm__collective_wrap(struct tdm__comm *comm, tdm_collective_group **group_out);
struct tdm__comm *tdm__collective_comm(tdm_collective_group *group);

#endif
