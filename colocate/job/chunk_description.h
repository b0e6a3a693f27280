/* chunk_description.h - describes what a trainer rank has written of a chunk. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CHUNK_DESCRIPTION_H
#define TDM_COLOCATE_JOB_CHUNK_DESCRIPTION_H

#include "colocate/job/trainer.h"

/* A chunk of an update that the trainer ranks have written. */
struct tdm__written_chunk {
    const struct tdm__id *update; /* Borrowed ID of the update. */
    uint64_t epoch;               /* Epoch of the update. */
    uint32_t index;               /* Index of the chunk. */
};

/* Puts into trainer->for_others what this rank has written of the chunk for engines of other gather
 * groups, before the ranks agree on the chunk. */
tdm_status tdm__chunk_describe_for_others(struct trainer *trainer,
                                          const struct tdm__written_chunk *written);
/* Puts into trainer->for_gather what this rank gives to the gather of the chunk, after the ranks
 * have agreed on it: its own announcements for engines of its gather group, and those of ranks of
 * other groups. There are none if no engine of the group takes part in the update, and after a
 * failure. */
tdm_status tdm__chunk_describe_for_group(struct trainer *trainer,
                                         const struct tdm__written_chunk *written);

#endif
