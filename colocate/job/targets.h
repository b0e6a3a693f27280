/* targets.h - where trainers may write for an engine rank, as calls carry it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TARGETS_H
#define TDM_COLOCATE_JOB_TARGETS_H

#include "colocate/weights/mover.h"
#include "colocate/weights/place.h"

#include <tandem/actor.h>

/* Answers with (gpu, [key …]) of a resident region's blocks. */
tdm_status tdm__target_reply(tdm_call *call, const struct tdm__place *place,
                             const tdm_region *region);
/* Nil stands for an engine rank that is absent.  TDM_E_PROTOCOL. */
tdm_status tdm__target_read(const tdm_value *value, struct tdm__target *target_out);

#endif
