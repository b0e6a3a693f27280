/* segment.h - the shared memory of a host communicator: barriers, slots, and why the group ended.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_HOST_SEGMENT_H
#define TDM_COLOCATE_COMM_HOST_SEGMENT_H

#include "colocate/comm/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* A memfd with one header and two slots per rank. The daemon creates it and keeps the header
 * mapped, to tell the other ranks when a rank dies.
 *
 * A barrier is a count: the k-th barrier is complete when ranks_count x k arrivals are counted.
 * The count and the flag "aborted" are one atomic word, so that all ranks agree on whether a
 * barrier completed or was aborted. The count does not change after the flag is set. */
struct tdm__comm_segment;

/* Options of a new segment. */
struct tdm__comm_segment_options {
    uint32_t ranks_count; /* Number of ranks of the group. */
    size_t slot_bytes;    /* Bytes of a slot, rounded up to 4 KiB. */
};

/* Creates a segment and returns its descriptor, which the caller must close. Fails with
 * TDM_E_LIMIT for more than TDM_COLLECTIVE_RANKS_MAX ranks. */
tdm_status tdm__comm_segment_create(const struct tdm__comm_segment_options *options, int *fd_out);

/* Maps a segment after checking its header, which comes from another process. With `header_only`
 * the slots are not mapped. The descriptor stays the caller's. */
tdm_status tdm__comm_segment_map(int fd, bool header_only, struct tdm__comm_segment **segment_out);
/* Unmaps a segment. NULL is allowed. */
void tdm__comm_segment_unmap(struct tdm__comm_segment *segment);

/* Returns the number of ranks of the group. */
uint32_t tdm__comm_segment_ranks_count(const struct tdm__comm_segment *segment);
/* Returns the size of a slot. */
size_t tdm__comm_segment_slot_bytes(const struct tdm__comm_segment *segment);
/* Returns the even (parity 0) or the odd (parity 1) slot of a rank. */
void *tdm__comm_segment_slot(const struct tdm__comm_segment *segment, uint32_t rank,
                             uint32_t parity);

/* Arrives at the next barrier as `rank` and blocks until all ranks have arrived. What any rank
 * wrote into its slot before is visible afterwards.
 *
 * Fails with TDM_E_ABORTED if the group has ended, TDM_E_TIMEOUT at the deadline, and TDM_E_INVAL
 * if another rank is in another operation. The last two end the group. The error names the ranks.
 */
tdm_status tdm__comm_segment_barrier(struct tdm__comm_segment *segment, uint32_t rank,
                                     const struct tdm__collective_op *call, int64_t deadline_ms);

/* Why a group has ended. */
enum tdm__comm_end_reason {
    TDM__COMM_RANK_DIED = 1, /* The process of a rank died. */
    TDM__COMM_RANK_LEFT,     /* A rank left while another rank waited for it. */
    TDM__COMM_RANK_ABORTED,  /* A rank called abort. */
    /* A rank was in another operation than the others, or in the same with another size, root or
     * element type. */
    TDM__COMM_RANK_MISMATCHED
};

/* Ends the group for all ranks because of `rank`. The first reason stays. Any process that has
 * the segment mapped may call it. */
void tdm__comm_segment_abort(struct tdm__comm_segment *segment, uint32_t rank,
                             enum tdm__comm_end_reason end);
/* Returns TDM_OK while the group lives, or the reason why it has ended. */
tdm_status tdm__comm_segment_check(const struct tdm__comm_segment *segment);
/* Marks `rank` as gone. The group ends only if another rank waits for this rank now or later. */
void tdm__comm_segment_leave(struct tdm__comm_segment *segment, uint32_t rank);
/* Returns true if every rank has left. */
bool tdm__comm_segment_all_left(const struct tdm__comm_segment *segment);

#endif
