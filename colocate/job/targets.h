/* targets.h - where trainers may write for an engine rank, as calls carry it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TARGETS_H
#define TDM_COLOCATE_JOB_TARGETS_H

#include "colocate/weights/mover.h"
#include "colocate/weights/place.h"

#include <tandem/actor.h>

/* Answers with (gpu, [key …], journal) of a resident region's blocks, and of what is in them;
 * NULL: nothing that counts. */
tdm_status tdm__target_reply(tdm_call *call, const struct tdm__place *place,
                             const tdm_region *region, const struct tdm__journal *journal);
/* Answers with (bytes on the same GPU, over links, copies of an engine rank, buckets, bytes of
 * a bucket). */
tdm_status tdm__cost_reply(tdm_call *call, const struct tdm__route *route);
/* Answers with what all trainer ranks have written, when every window is: (hash of the
 * contents: high, low; [journal of an engine rank that has it all …]). */
tdm_status tdm__sent_reply(tdm_call *call, struct tdm__mover *mover,
                           uint32_t engine_ranks_count);
/* Nil stands for an engine rank that is absent.  TDM_E_PROTOCOL. */
tdm_status tdm__target_read(const tdm_value *value, struct tdm__target *target_out);

#endif
