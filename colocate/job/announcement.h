/* announcement.h - tells an engine, through its gather group, what trainer ranks have written. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ANNOUNCEMENT_H
#define TDM_COLOCATE_JOB_ANNOUNCEMENT_H

#include "colocate/job/trainer.h"

/* Every mode of updates announces its buckets and chunks in this way. Each trainer rank describes
 * what it has written for an engine rank with tensor handles (colocate/weights/tensor_handles.h),
 * and the library's attach() may give bytes for the engine rank of its own number. Both are an
 * announcement (rank_announcement.h). An engine's gather group gathers the announcements to its
 * first rank, the source rank, which makes one call "stage" to the engine's first rank. That rank
 * gives each rank of the engine what concerns it, and its reply means that all have staged theirs.
 * What a rank has written for an engine of another gather group reaches a rank of that group when
 * all ranks agree on the chunk (trainer_agreement.h). */

/* What came of an announcement. */
struct tdm__announced {
    /* Owned reference to the engine's pending reply; NULL if this rank has not called it. */
    tdm_ref *reply;
    bool is_told; /* True if the engine is told of the bucket, by this rank or by another one. */
};

/* Announces one bucket or chunk to the engine of this rank's gather group. All ranks of the group
 * call it together, also those whose list is empty. `announced_out` is set also after a failure.
 * Does nothing if the engine is absent. A failure leaves the group usable unless a collective
 * failed. */
tdm_status tdm__announcement_send(struct trainer *trainer, uint32_t bucket,
                                  const struct tdm__announcement_list *list,
                                  struct tdm__announced *announced_out);
/* Waits until the engine has staged what was announced, and releases the reference; NULL is
 * allowed. */
tdm_status tdm__announcement_await(const struct trainer *trainer, tdm_ref *announced);

/* Encodes the arguments of "stage": what each of `ranks_count` ranks has given to the gather, and
 * nothing else. */
tdm_status tdm__announcement_encode(const struct tdm__gathered *gathered, uint32_t ranks_count,
                                    tdm_writer *writer);

#endif
