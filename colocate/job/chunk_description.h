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

/* Lists in trainer->for_others announcements of what this rank has written of the chunk for engines
 * of other gather groups. The caller then lets the ranks agree on the chunk, which carries the list
 * to all ranks. */
tdm_status tdm__chunk_describe_for_others(struct trainer *trainer,
                                          const struct tdm__written_chunk *written);
/* Lists in trainer->for_gather the announcements of the chunk that this rank gives to the gather of
 * its group. All of them are for engines of the group. They tell what this rank has written, and
 * what ranks of other groups have written and told when the ranks agreed on the chunk. The caller
 * calls it after that. The list is empty after a failure, and if no engine of the group takes part
 * in the update. */
tdm_status tdm__chunk_describe_for_group(struct trainer *trainer,
                                         const struct tdm__written_chunk *written);

#endif
