/* announcement.h - tells engines, through their gather group, what trainer ranks have written. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ANNOUNCEMENT_H
#define TDM_COLOCATE_JOB_ANNOUNCEMENT_H

#include "colocate/job/trainer.h"

/* Every mode of updates announces its buckets and chunks in this way. Each trainer rank describes
 * what it has written for an engine rank with tensor handles (colocate/weights/tensor_handles.h),
 * and the library's attach() may give bytes for an engine rank that it serves. Both are an
 * announcement (rank_announcement.h). A gather group gathers the announcements to its first rank,
 * the source rank, which makes one call "stage" to the first rank of each of the group's engines.
 * That rank gives each rank of the engine what concerns it, and its reply means that all have
 * staged theirs. What a rank has written for engines of another gather group reaches a rank of that
 * group when all ranks agree on the chunk (trainer_agreement.h). */

/* Announces one bucket or chunk to the engines of this rank's gather group. All ranks of the group
 * call it together, also those whose list is empty. `is_told_out` says whether the engines are told
 * of the bucket, by this rank or by another one; it is set also after a failure. Does nothing if no
 * engine takes part in the update. A failure to call one engine does not keep the others from being
 * called. A failure leaves the group usable unless a collective failed. */
tdm_status tdm__announcement_send(struct trainer *trainer, uint32_t bucket,
                                  const struct tdm__announcement_list *list, bool *is_told_out);
/* Returns whether this engine is told of the bucket that was announced last, if any engine is. */
bool tdm__announcement_is_told(const struct trainer *trainer,
                               const struct tdm__served_engine *engine);
/* Waits until all engines that this rank has called have staged what was announced. Returns the
 * first failure. */
tdm_status tdm__announcement_await(struct trainer *trainer);

/* Encodes the arguments of "stage": what each of `ranks_count` ranks has given to the gather, and
 * nothing else. */
tdm_status tdm__announcement_encode(const struct tdm__gathered *gathered, uint32_t ranks_count,
                                    tdm_writer *writer);

#endif
