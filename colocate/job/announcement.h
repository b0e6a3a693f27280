/* announcement.h - tells an engine, through its gather group, what trainer ranks have written. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ANNOUNCEMENT_H
#define TDM_COLOCATE_JOB_ANNOUNCEMENT_H

#include "colocate/job/trainer.h"

/* Every mode of updates announces its buckets and chunks in this way. Each rank of an engine's
 * gather group describes the block on its GPU that the engine rank of the same number reads: its
 * own bucket, or the engine rank's shadow. A description is a list of tensor handles
 * (colocate/weights/tensor_handles.h). The group gathers the descriptions to its first rank, the
 * source rank, which makes one call "stage" to the engine's first rank. That rank gives each rank
 * of the engine its part, and its reply means that all have staged theirs. Each rank's part is a
 * rank announcement (rank_announcement.h): the description, and the bytes that the library's
 * attach() has given for it. */

/* Announces one bucket or chunk. All ranks of the gather group call it together, also those whose
 * description is empty because the engine rank of their number has no part in the bucket; for the
 * others the library's attach() is asked for bytes. If it fails, or gives too many, this rank gives
 * nothing to the gather and returns the failure after it. On the source rank, `announced_out` is
 * the owned reference to the engine's pending reply, also after a failure; NULL if nothing was
 * announced. On other ranks it is always NULL. Does nothing if the engine is absent. A failure
 * leaves the group usable unless a collective failed. */
tdm_status tdm__announcement_send(struct trainer *trainer, const struct tdm_update_bucket *bucket,
                                  struct tdm_bytes description, tdm_ref **announced_out);
/* Waits until the engine has staged what was announced, and releases the reference; NULL is
 * allowed. */
tdm_status tdm__announcement_await(const struct trainer *trainer, tdm_ref *announced);

/* Encodes the arguments of "stage": the gathered announcement of each of `ranks_count` ranks, and
 * nothing else. */
tdm_status tdm__announcement_encode(const struct tdm__gathered *gathered, uint32_t ranks_count,
                                    tdm_writer *writer);

#endif
