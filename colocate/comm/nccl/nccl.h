/* nccl.h - the communicator over NCCL: the parts of it, shared among its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_NCCL_H
#define TDM_COLOCATE_COMM_NCCL_NCCL_H

#include "colocate/comm/comm.h"
#include "colocate/comm/nccl/nccl_api.h"
#include "colocate/device/cuda/driver.h"

#include <stdbool.h>

struct tdm__nccl_library {
/* NOLINTBEGIN(bugprone-macro-parentheses) a declaration cannot have them */
#define X(name, arguments) int(*name) arguments;
    NCCL_CALLS(X)
    NCCL_OPTIONAL_CALLS(X) /* NULL where this version has none */
#undef X
#define X(name, arguments) const char *(*name)arguments;
    NCCL_TEXT_CALLS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* Opens libnccl.so.2, or what the environment's TANDEM_NCCL_LIBRARY says instead (another path
 * of the library); once per process, any thread.  TDM_E_UNSUPPORTED, and why. */
tdm_status tdm__nccl_library(const struct tdm__nccl_library **library_out);

/* Ranks meet on another communicator first, in the same call with the same sizes or not at all;
 * only then NCCL is called, and its stream is asked again and again, never waited for, so that
 * a rank that dies on the way ends the call (ncclCommAbort) and is named. */
struct tdm__nccl {
    struct tdm__comm base;
    const struct tdm__nccl_library *library;
    const struct tdm__cuda_driver *driver;
    struct tdm__comm *control_comm; /* owned */
    void *comm;                     /* NULL: not made yet, suspended or aborted */
    bool suspended_by_nccl;         /* by NCCL itself: comm is kept */
    int device;
    void *context;
    void *stream;
    size_t slot_bytes;
    /* Host data goes by way of these, a chunk of a slot at a time. */
    uint64_t staged_in;  /* on the GPU: one slot */
    uint64_t staged_out; /* a slot for each rank */
    char *host_in;       /* pinned, the same sizes */
    char *host_out;
    int64_t timeout_ms;
    int64_t deadline_ms; /* of the call in progress */
};

/* Begins a call: the deadline starts, and all ranks are met. */
tdm_status tdm__nccl_op_begin(struct tdm__nccl *nccl, enum tdm__collective_op_kind kind,
                              size_t size_bytes, uint32_t root_or_dtype);
/* What came of an NCCL call, once it is no longer in progress; on failure the group ends. */
tdm_status tdm__nccl_await_result(struct tdm__nccl *nccl, int result, const char *call);
/* All that the stream has been given is done. */
tdm_status tdm__nccl_await_stream(struct tdm__nccl *nccl, const char *call);
/* Ends the group for everyone because of this rank, and passes `status` on. */
tdm_status tdm__nccl_abort_group(struct tdm__nccl *nccl, tdm_status status);

/* data.c: the entries of the table that move data. */
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
