/* trainer.h - the state of a trainer rank, shared by the files trainer_*.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAINER_H
#define TDM_COLOCATE_JOB_TRAINER_H

#include "colocate/comm/gather.h"
#include "colocate/job/announcement_list.h"
#include "colocate/job/image_places.h"
#include "colocate/job/rank.h"
#include "colocate/job/scale_mailbox.h"
#include "colocate/job/served_engines.h"
#include "colocate/weights/weight_writer.h"
#include "colocate/weights/whole_tensors.h"

/* What trainer ranks tell each other when they agree (trainer_agreement.h). A zeroed struct is
 * valid and has no memory. */
struct tdm__trainer_agreement {
    /* For each chunk of the plan the number of bytes that each rank tells the others with its
     * status; 0 if no rank writes for an engine of another gather group. Owned. */
    size_t *chunk_bytes;
    char *own;             /* What this rank tells in the next agreement. Owned. */
    char *all;             /* What all ranks have told in the last one. Owned. */
    size_t part_bytes_max; /* Size in bytes of `own`, and of each rank's part in `all`. */
    size_t told_bytes;     /* Size in bytes of each rank's part of the last agreement. */
};

/* A trainer rank. The actor "tandem.trainer" owns it; all methods run on the actor's one method
 * thread. */
struct trainer {
    /* What trainers and engines have in common; must be the first member. */
    struct tdm__rank rank;
    /* Borrowed trainer functions of the job library. */
    const struct tdm_trainer_ops *ops;
    /* Owned list of the model's tensors; NULL before the method "start". */
    struct tdm__manifest *manifest;
    /* Owned array with the slices that each trainer rank has. The slices of this rank are
     * borrowed from the library or the named layout. */
    struct tdm__layout *layouts;
    /* Owned array with the node and GPU of each trainer rank. */
    struct tdm__location *locations;
    /* Where the images of the transfer plan are; none before the method "connect". */
    struct tdm__image_places image_places;
    /* Owned array with the slices that the engine ranks need, one element for each image of the
     * transfer plan. NULL if whole tensors are sent by name, and before the method "connect". */
    struct tdm__layout *engine_layouts;
    /* Owned description of the whole tensors that are sent by name; NULL if the engine ranks have
     * layouts, and before the method "connect". */
    struct tdm__whole_tensors *whole_tensors;
    /* Owned plan of all copies from trainer ranks to engine ranks; NULL before the method
     * "connect". */
    struct tdm__transfer_plan *transfer_plan;
    /* Owned writer that executes the plan for this rank; NULL before the method "connect". */
    struct tdm__weight_writer *weight_writer;
    /* Owned collective group of the trainer ranks that serve the same engines, through which their
     * descriptions of each bucket travel (announcement.h). NULL if there are more trainer ranks
     * than images, and this rank serves none: it only writes for the others. */
    tdm_collective_group *gather;
    /* Owned collective group of all trainer ranks that moves data of GPUs, through which they
     * exchange what crosses between nodes; NULL until a plan needs it. */
    tdm_collective_group *exchange;
    /* The engines that the gather group serves (gather_groups.h). */
    struct tdm__served_engines engines;
    /* Announcements of the last bucket that the gather group has gathered. */
    struct tdm__gathered gathered;
    /* What this rank tells all others in an update; without memory before the method "connect". */
    struct tdm__trainer_agreement agreement;
    /* This rank's announcements of a chunk for engines of other gather groups. */
    struct tdm__announcement_list for_others;
    /* What this rank gives to the gather of a chunk. */
    struct tdm__announcement_list for_gather;
    /* The last request for another number of engines. Only that of rank 0 is used. */
    struct tdm__scale_mailbox scale_mailbox;
};

#endif
