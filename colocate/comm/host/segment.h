/* segment.h - the shared memory of a host communicator: who has come, who is lost, the slots.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_HOST_SEGMENT_H
#define TDM_COLOCATE_COMM_HOST_SEGMENT_H

#include "colocate/comm/collective_op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* A memfd: one header, then two slots per rank.  The daemon makes it and keeps the header
 * mapped, to tell the others when a rank dies.
 *
 * A barrier is a count: the k-th is complete when ranks_count × k arrivals are counted.  The
 * count and the "aborted" flag are one atomic word, so that complete or aborted is decided
 * once, for all ranks alike; after the flag the count stands still. */
struct tdm__comm_segment;

enum { TDM__COMM_RANKS_MAX = 64 };

struct tdm__comm_segment_options {
    uint32_t ranks_count;
    size_t slot_bytes; /* rounded up to 4 KiB */
};

/* A new segment's descriptor.  TDM_E_LIMIT for more than 64 ranks. */
tdm_status tdm__comm_segment_create(const struct tdm__comm_segment_options *options, int *fd_out);

/* Maps it; checks the header, which comes from outside.  `header_only` leaves the slots out.
 * The descriptor stays the caller's. */
tdm_status tdm__comm_segment_map(int fd, bool header_only, struct tdm__comm_segment **segment_out);
void tdm__comm_segment_unmap(struct tdm__comm_segment *segment); /* NULL is allowed */

uint32_t tdm__comm_segment_ranks_count(const struct tdm__comm_segment *segment);
size_t tdm__comm_segment_slot_bytes(const struct tdm__comm_segment *segment);
/* Rank `rank`'s slot, the even or the odd one. */
void *tdm__comm_segment_slot(const struct tdm__comm_segment *segment, uint32_t rank,
                             uint32_t parity);

/* Arrives as `rank` and waits for all others.  TDM_E_ABORTED, TDM_E_TIMEOUT (which aborts),
 * each naming ranks; TDM_E_INVAL if another rank is in another call (aborts too).  What any
 * rank wrote into its slot before is visible after. */
tdm_status tdm__comm_segment_barrier(struct tdm__comm_segment *segment, uint32_t rank,
                                     const struct tdm__collective_op *call, int64_t deadline_ms);

enum tdm__comm_end_reason {
    TDM__COMM_RANK_DIED = 1,
    TDM__COMM_RANK_LEFT,
    TDM__COMM_RANK_ABORTED,   /* called abort */
    TDM__COMM_RANK_MISMATCHED /* was in another call than the others */
};

/* Ends the group for everyone, naming `rank`; the first reason stays.  Any process. */
void tdm__comm_segment_abort(struct tdm__comm_segment *segment, uint32_t rank,
                             enum tdm__comm_end_reason end);
/* TDM_OK while the group lives; else why it has ended. */
tdm_status tdm__comm_segment_check(const struct tdm__comm_segment *segment);
/* Like abort, but only if some rank still waits for `rank`, or comes to wait later. */
void tdm__comm_segment_leave(struct tdm__comm_segment *segment, uint32_t rank);
/* Every rank has left. */
bool tdm__comm_segment_all_left(const struct tdm__comm_segment *segment);

#endif
