/* transfer_target.h - encodes replies that say where trainers write an engine rank's weights and
 * what an update costs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRANSFER_TARGET_H
#define TDM_COLOCATE_JOB_TRANSFER_TARGET_H

#include "colocate/weights/location.h"
#include "colocate/weights/weight_writer.h"

#include <tandem/actor.h>

/* Replies with the GPU and the block keys of a resident region and with `resume_log`, which says
 * what valid data the region has. NULL if it has none. */
tdm_status tdm__transfer_target_reply(tdm_call *call, const struct tdm__location *location,
                                      const tdm_region *region,
                                      const struct tdm__resume_log *resume_log);
/* Replies with the cost of the transfer plan: bytes on the same GPU and across links, copies of
 * an engine rank, number and size of the buckets. */
tdm_status tdm__transfer_cost_reply(tdm_call *call, const struct tdm__transfer_plan *transfer_plan);
/* Replies with what all trainer ranks have written once every chunk is done: the hash of the
 * contents, and for each engine rank the resume log of a complete transfer. */
tdm_status tdm__transfer_result_reply(tdm_call *call, struct tdm__weight_writer *weight_writer,
                                      uint32_t engine_ranks_count);
/* Decodes the target of one engine rank. Nil means that the engine rank is absent.
 * TDM_E_PROTOCOL if the value is malformed. */
tdm_status tdm__transfer_target_read(const tdm_value *value,
                                     struct tdm__transfer_target *target_out);

#endif
