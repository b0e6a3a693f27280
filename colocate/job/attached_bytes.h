/* attached_bytes.h - hands an engine's library what trainer ranks have attached to a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ATTACHED_BYTES_H
#define TDM_COLOCATE_JOB_ATTACHED_BYTES_H

#include "colocate/job/rank_announcement.h"
#include "runtime/messages/messages.h"

#include <tandem/job.h>

/* Gives the library on this rank what the trainer rank of its number has attached: calls
 * ops->attached(). Does nothing for a library that has only gathered(). TDM_E_UNSUPPORTED, with the
 * number of bytes: the library reads none. */
tdm_status tdm__attached_bytes_give(const struct tdm_engine_ops *ops, void *state,
                                    const struct tdm__rank_announcement *announcement);

/* Gives the library on rank 0 what all trainer ranks of the gather group have attached: calls
 * ops->gathered() if that is set and there are any bytes. `announcements` are packed ones (struct
 * tdm_bytes), one for each rank of the engine, empty for a rank without a part of the bucket. */
tdm_status tdm__attached_bytes_give_all(const struct tdm_engine_ops *ops, void *state,
                                        const struct tdm__message_list *announcements);

#endif
