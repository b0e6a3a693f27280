/* options.h - options of the communicators that move data of GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_GPU_OPTIONS_H
#define TDM_COLOCATE_COMM_GPU_OPTIONS_H

#include "colocate/comm/comm.h"

/* Options of a communicator for data in host memory and on GPUs. */
struct tdm__comm_gpu_options {
    /* Communicator of the same ranks, owned by the new communicator from TDM_OK on. The ranks
     * synchronise on it before each operation, so that a missing rank is named. */
    struct tdm__comm *control_comm;
    int64_t timeout_ms; /* Milliseconds after which an operation fails. */
    /* Bytes of staging memory per rank for data that the communicator cannot move directly; larger
     * data is moved in chunks. */
    size_t slot_bytes;
    const char *gpu_uuid; /* UUID of the rank's GPU; borrowed for the call. */
};

#endif
