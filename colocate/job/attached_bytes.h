/* attached_bytes.h - hands an engine's library what trainer ranks have attached to a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ATTACHED_BYTES_H
#define TDM_COLOCATE_JOB_ATTACHED_BYTES_H

#include "colocate/job/announcement_list.h"
#include "colocate/weights/tensor_handles.h"

#include <tandem/job.h>

/* Gives the library on this rank what the trainer rank that serves it has attached to the bucket of
 * `header`: calls ops->attached(). Does nothing without bytes, or for a library that has only
 * gathered(). TDM_E_UNSUPPORTED, with the number of bytes: the library reads none. */
tdm_status tdm__attached_bytes_give(const struct tdm_engine_ops *ops, void *state,
                                    const struct tdm__tensor_handles_header *header,
                                    struct tdm_bytes attached);

/* Gives the library on rank 0 what all trainer ranks of the gather group have attached: calls
 * ops->gathered() if that is set and there are any bytes. lists[i] has the announcements for rank i
 * of the engine, whose image is `first` + i; all of them are checked first. */
tdm_status tdm__attached_bytes_give_all(const struct tdm_engine_ops *ops, void *state,
                                        uint32_t first, const struct tdm__gather_groups *groups,
                                        const struct tdm__announcement_list *lists);

#endif
