/* ending.h - ends an ncclComm_t without waiting for other ranks for longer than a limit. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_ENDING_H
#define TDM_COLOCATE_COMM_NCCL_ENDING_H

#include "colocate/comm/nccl/library.h"
#include "colocate/device/cuda/driver.h"

#include <stdbool.h>

/* Milliseconds for which a rank waits until NCCL has ended its part of a group. Both ways to end
 * it wait for the other ranks of the node, which may be busy with something else. */
enum { TDM__NCCL_END_WAIT_MS = 2000 };

/* An ncclComm_t that ends, and what that needs. */
struct tdm__nccl_ending {
    const struct tdm__nccl_library *library; /* Functions of NCCL. */
    const struct tdm__cuda_driver *driver;   /* Functions of the CUDA driver. */
    void *context;                           /* Primary context of the GPU, which stays retained. */
    void *comm;                              /* The ncclComm_t. */
    /* Milliseconds for which NCCL may wait until the other ranks end their parts, too; then it
     * gives up. 0 to give up at once, for a group that has failed. */
    int64_t patience_ms;
};

/* Ends the ncclComm_t. May block for longer than its patience, in ncclCommDestroy and
 * ncclCommAbort, which wait for the other ranks of the node. Any thread may call it. */
void tdm__nccl_end(const struct tdm__nccl_ending *ending);

/* Does the same in the background, and waits at most `limit_ms` milliseconds for the end. Returns
 * true if the ncclComm_t has ended. */
bool tdm__nccl_end_in_background(const struct tdm__nccl_ending *ending, int64_t limit_ms);

#endif
