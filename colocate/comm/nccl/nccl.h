/* nccl.h - the communicator "nccl" over NVIDIA's NCCL: the types that its files share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_NCCL_H
#define TDM_COLOCATE_COMM_NCCL_NCCL_H

#include "colocate/comm/comm.h"
#include "colocate/comm/nccl/nccl_api.h"
#include "colocate/device/cuda/driver.h"

#include <stdbool.h>

/* The functions of NCCL, by their names. One static instance per process. */
struct tdm__nccl_library {
/* NOLINTBEGIN(bugprone-macro-parentheses) a declaration cannot have them */
#define X(name, arguments) int(*name) arguments;
    NCCL_CALLS(X)
    NCCL_OPTIONAL_CALLS(X) /* NULL if this version of NCCL does not have the function. */
#undef X
#define X(name, arguments) const char *(*name)arguments;
    NCCL_TEXT_CALLS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* Opens libnccl.so.2, or what the environment's TANDEM_NCCL_LIBRARY says instead (another path
 * of the library); once per process, any thread.  TDM_E_UNSUPPORTED, and why. */
tdm_status tdm__nccl_library(const struct tdm__nccl_library **library_out);

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
    /* Owned ncclComm_t; NULL if it is not created yet, suspended or aborted. */
    void *comm;
    /* True if ncclCommSuspend suspended `comm`, which is then kept. */
    bool suspended_by_nccl;
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

/* Starts an operation: sets its deadline and blocks until all ranks are in the same operation. */
tdm_status tdm__nccl_op_begin(struct tdm__nccl *nccl, enum tdm__collective_op_kind kind,
                              size_t size_bytes, uint32_t root_or_dtype);
/* Waits until an NCCL call that returned `result` is no longer in progress. On failure the group
 * ends. */
tdm_status tdm__nccl_await_result(struct tdm__nccl *nccl, int result, const char *call);
/* Waits until the stream has completed all its work. On failure the group ends. */
tdm_status tdm__nccl_await_stream(struct tdm__nccl *nccl, const char *call);
/* Ends the group for all ranks because of this rank, and returns `status` with its error detail. */
tdm_status tdm__nccl_abort_group(struct tdm__nccl *nccl, tdm_status status);

/* Functions of struct tdm__comm_ops that move data; defined in data.c. */
tdm_status tdm__nccl_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                enum tdm__comm_dtype dtype, enum tdm_reduction reduction);
tdm_status tdm__nccl_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                void *out);
tdm_status tdm__nccl_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                    float *out);
tdm_status tdm__nccl_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                               uint32_t root);
tdm_status tdm__nccl_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                            void *out, uint32_t root);

#endif
