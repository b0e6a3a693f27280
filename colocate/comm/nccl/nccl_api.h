/* nccl_api.h - the part of NCCL's interface that Tandem uses, so that NCCL is not needed to
 * build. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_NCCL_API_H
#define TDM_COLOCATE_COMM_NCCL_NCCL_API_H

#include <stddef.h>

/* Results of NCCL calls (ncclResult_t) that Tandem uses. Names, values and layouts in this header
 * are NCCL's binary interface from version 2.18 on. */
enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};

enum {
    NCCL_UINT8 = 1,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_SUM = 0,
    NCCL_MAX = 2,
    NCCL_UNIQUE_ID_BYTES = 128,
    NCCL_SUSPEND_MEMORY = 1,
};

/* Identifies a group that is being created (ncclUniqueId). */
struct nccl_unique_id {
    char bytes[NCCL_UNIQUE_ID_BYTES];
};

/* The first fields of ncclConfig_t, as in version 2.14. NCCL reads as many as `size` covers and
 * uses its defaults for the fields of later versions. */
struct nccl_config {
    size_t size;      /* Size of this struct. */
    unsigned magic;   /* NCCL_CONFIG_MAGIC. */
    unsigned version; /* NCCL_CONFIG_VERSION. */
    /* 0: calls return NCCL_IN_PROGRESS instead of blocking. */
    int blocking;
    int padding; /* Unused. */
};

/* Value that marks an initialised ncclConfig_t. */
#define NCCL_CONFIG_MAGIC 0xcafebeefu
/* Version 2.14, whose fields struct nccl_config has. */
#define NCCL_CONFIG_VERSION 21400u

/* Communicators and streams are pointers; every call returns an ncclResult_t. */
/* clang-format off */
#define NCCL_CALLS(X)                                                                          \
    X(ncclGetVersion, (int *version))                                                          \
    X(ncclGetUniqueId, (struct nccl_unique_id *id))                                            \
    X(ncclCommInitRankConfig, (void **comm, int ranks, struct nccl_unique_id id, int rank,     \
                               struct nccl_config *config))                                    \
    X(ncclCommGetAsyncError, (void *comm, int *result))                                        \
    X(ncclCommFinalize, (void *comm))                                                          \
    X(ncclCommDestroy, (void *comm))                                                           \
    X(ncclCommAbort, (void *comm))                                                             \
    X(ncclGroupStart, (void))                                                                  \
    X(ncclGroupEnd, (void))                                                                    \
    X(ncclSend, (const void *data, size_t count, int type, int peer, void *comm,               \
                 void *stream))                                                                \
    X(ncclRecv, (void *data, size_t count, int type, int peer, void *comm, void *stream))      \
    X(ncclBroadcast, (const void *in, void *out, size_t count, int type, int root, void *comm, \
                      void *stream))                                                           \
    X(ncclAllGather, (const void *in, void *out, size_t count, int type, void *comm,           \
                      void *stream))                                                           \
    X(ncclAllReduce, (const void *in, void *out, size_t count, int type, int reduction,        \
                      void *comm, void *stream))                                               \
    X(ncclReduceScatter, (const void *in, void *out, size_t count, int type, int reduction,    \
                          void *comm, void *stream))

/* Functions that only newer versions have. */
#define NCCL_OPTIONAL_CALLS(X)                                                                 \
    X(ncclCommSuspend, (void *comm, int what))                                                 \
    X(ncclCommResume, (void *comm))

/* Functions that return text. */
#define NCCL_TEXT_CALLS(X)                                                                     \
    X(ncclGetErrorString, (int result))                                                        \
    X(ncclGetLastError, (void *comm))
/* clang-format on */

#endif
