/* trainer_agreement.h - the collective operation in which all trainer ranks agree on an update. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAINER_AGREEMENT_H
#define TDM_COLOCATE_JOB_TRAINER_AGREEMENT_H

#include "colocate/job/trainer.h"

/* All trainer ranks agree at each step of an update whether all go on. What one rank has to tell
 * the ranks of other gather groups travels with its status, so that each step has one collective
 * operation of all ranks. If no rank has anything to tell at this step, which all ranks know from
 * the transfer plan, the operation is an all-reduce of one number; otherwise an all-gather. */

/* Reserves the memory for everything that ranks tell each other in an update with the trainer's
 * transfer plan and weight writer, so that no agreement fails for lack of memory. */
tdm_status tdm__trainer_agreement_reserve(struct trainer *trainer);
/* Frees that memory. */
void tdm__trainer_agreement_fini(struct tdm__trainer_agreement *agreement);

/* Makes all trainer ranks agree on the status of a step. If one rank failed, all ranks stop with an
 * error, and the collective group stays usable. No rank continues to write while an engine may
 * still read. Returns the rank's own error if it has one. */
tdm_status tdm__trainer_agree(struct trainer *trainer, tdm_status status);

/* Does the same, and tells each rank the claims (weight_writer.h) of all. The caller has written
 * its own to tdm__trainer_own_claim(). `claims_out` is borrowed until the next agreement. */
tdm_status tdm__trainer_agree_on_claims(struct trainer *trainer, tdm_status status,
                                        const uint64_t **claims_out);
/* Returns the memory for this rank's claim. */
uint64_t *tdm__trainer_own_claim(struct trainer *trainer);

/* Agrees on a written chunk, and tells all ranks `own`, this rank's announcements for engine ranks
 * of other gather groups. */
tdm_status tdm__trainer_agree_on_chunk(struct trainer *trainer, tdm_status status, uint32_t chunk,
                                       const struct tdm__announcement_list *own);
/* Appends to `list` what this rank announces for ranks of other gather groups, after they have
 * agreed on the chunk: the announcements for this group's engine by the ranks that have this rank's
 * number in their own groups. */
tdm_status tdm__trainer_receive_announcements(struct trainer *trainer, uint32_t chunk,
                                              struct tdm__announcement_list *list);
/* Returns true if some rank writes a part of the chunk for an engine of another gather group. */
bool tdm__trainer_chunk_crosses_groups(const struct trainer *trainer, uint32_t chunk);

#endif
