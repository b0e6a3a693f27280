/* nccl.h - the communicator "nccl" over NVIDIA's NCCL: opening and suspending. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_NCCL_H
#define TDM_COLOCATE_COMM_NCCL_NCCL_H

#include "colocate/comm/comm.h"

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

#endif
