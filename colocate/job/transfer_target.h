/* transfer_target.h - where trainers may write for an engine rank, as calls carry it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRANSFER_TARGET_H
#define TDM_COLOCATE_JOB_TRANSFER_TARGET_H

#include "colocate/weights/location.h"
#include "colocate/weights/weight_writer.h"

#include <tandem/actor.h>

/* Answers with (gpu, [key …], resume_log) of a resident region's blocks, and of what is in them;
 * NULL: nothing that counts. */
tdm_status tdm__transfer_target_reply(tdm_call *call, const struct tdm__location *location,
                                      const tdm_region *region,
                                      const struct tdm__resume_log *resume_log);
/* Answers with (bytes on the same GPU, over links, copies of an engine rank, buckets, bytes of
 * a bucket). */
tdm_status tdm__transfer_cost_reply(tdm_call *call, const struct tdm__transfer_plan *transfer_plan);
/* Answers with what all trainer ranks have written, when every chunk is: (hash of the
 * contents: high, low; [resume_log of an engine rank that has it all …]). */
tdm_status tdm__transfer_result_reply(tdm_call *call, struct tdm__weight_writer *weight_writer,
                                      uint32_t engine_ranks_count);
/* Nil stands for an engine rank that is absent.  TDM_E_PROTOCOL. */
tdm_status tdm__transfer_target_read(const tdm_value *value,
                                     struct tdm__transfer_target *target_out);

#endif
