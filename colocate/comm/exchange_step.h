/* exchange_step.h - one step of an exchange whose parts go through staging memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_EXCHANGE_STEP_H
#define TDM_COLOCATE_COMM_EXCHANGE_STEP_H

#include "colocate/comm/comm.h"

/* One step of an exchange through staging memory, as the calling rank sees it. The memory has space
 * for `part_bytes` bytes for each rank in both directions, and a step moves at most that number of
 * bytes of each part. The numbers of bytes for the calling rank itself are 0. */
struct tdm__exchange_step {
    size_t offsets[TDM_COLLECTIVE_RANKS_MAX];       /* Offset of each rank's part in the memory. */
    size_t send_bytes[TDM_COLLECTIVE_RANKS_MAX];    /* Bytes for each rank in this step. */
    size_t receive_bytes[TDM_COLLECTIVE_RANKS_MAX]; /* Bytes of each rank in this step. */
    /* The largest number of bytes that one rank gives to another in this step. */
    size_t part_bytes_max;
};

/* Computes the step of the exchange that comes after the first `done` bytes of each part. */
void tdm__exchange_step_init(struct tdm__exchange_step *step, const struct tdm__comm *comm,
                             const struct tdm__comm_exchange *exchange, size_t done,
                             size_t part_bytes);
/* Returns the step as an exchange between the staging memories `in` and `out`. It borrows the step.
 */
struct tdm__comm_exchange tdm__exchange_step_staged(const struct tdm__exchange_step *step,
                                                    const void *in, void *out);

#endif
