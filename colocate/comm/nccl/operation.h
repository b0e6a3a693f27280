/* operation.h - an operation of the communicator "nccl": its start, its waits and its failures. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_OPERATION_H
#define TDM_COLOCATE_COMM_NCCL_OPERATION_H

#include "colocate/comm/comm.h"
#include "colocate/comm/nccl/ending.h"
#include "colocate/comm/nccl/library.h"
#include "colocate/device/cuda/driver.h"

#include <stdbool.h>

/* A communicator over NCCL. One thread uses it.
 *
 * The ranks first synchronise on the control communicator, which checks that all are in the same
 * operation. Only then NCCL is called. The CUDA stream is polled and never waited for, so that
 * the death of a rank ends the operation (ncclCommAbort) and is reported. */
struct tdm__nccl {
    struct tdm__comm base;
    const struct tdm__nccl_library *library; /* Functions of NCCL. */
    const struct tdm__cuda_driver *driver;   /* Functions of the CUDA driver. */
    struct tdm__comm *control_comm;          /* Owned communicator of the same ranks. */
    void *comm;        /* Owned ncclComm_t; NULL if it is not created yet, or aborted. */
    int device;        /* The driver's device number. */
    void *context;     /* Retained primary context of the GPU. */
    void *stream;      /* Owned stream of all operations. */
    size_t slot_bytes; /* Bytes of a rank's staging memory. */
    /* Owned device memory of one slot: this rank's host data; 0 if not allocated. */
    uint64_t staged_in;
    /* Owned device memory of one slot per rank; 0 if not allocated. */
    uint64_t staged_out;
    char *host_in;      /* Owned pinned memory of the size of staged_in. */
    char *host_out;     /* Owned pinned memory of the size of staged_out. */
    int64_t timeout_ms; /* Milliseconds after which an operation fails. */
    /* Deadline of the operation in progress, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
};

/* Makes the GPU's context current on the calling thread until the scope ends, so that the caller's
 * current device is what it was. Every function of the communicator that uses CUDA or NCCL does so
 * first. */
tdm_status tdm__nccl_enter(const struct tdm__nccl *nccl, struct tdm__cuda_scope *scope);
/* Starts an operation: sets its deadline and blocks until all ranks are in the same operation. */
tdm_status tdm__nccl_op_begin(struct tdm__nccl *nccl, const struct tdm__collective_op *call);
/* Waits until an NCCL call that returned `result` is no longer in progress. On failure the group
 * ends. */
tdm_status tdm__nccl_await_result(struct tdm__nccl *nccl, int result, const char *call);
/* Waits until the stream has completed all its work. On failure the group ends. */
tdm_status tdm__nccl_await_stream(struct tdm__nccl *nccl, const char *call);
/* Ends the group for all ranks because of this rank, and returns `status` with its error detail.
 * The other ranks are told first; then NCCL is aborted, for which this function waits at most
 * TDM__NCCL_END_WAIT_MS milliseconds. */
tdm_status tdm__nccl_abort_group(struct tdm__nccl *nccl, tdm_status status);
/* Returns what is needed to end the ncclComm_t, with the given patience. */
struct tdm__nccl_ending tdm__nccl_ending_of(const struct tdm__nccl *nccl, int64_t patience_ms);
/* Fails with NCCL's text for `result`, which the NCCL function `call` returned. */
tdm_status tdm__nccl_fail(const struct tdm__nccl *nccl, int result, const char *call);

#endif
