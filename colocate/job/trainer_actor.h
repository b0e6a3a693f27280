/* trainer_actor.h - a trainer rank: what its class keeps between calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAINER_ACTOR_H
#define TDM_COLOCATE_JOB_TRAINER_ACTOR_H

#include "colocate/job/rank.h"
#include "colocate/job/transfer_pair.h"
#include "colocate/weights/sender.h"
#include "colocate/weights/weight_writer.h"

struct trainer {
    struct tdm__rank rank;             /* first */
    const struct tdm_trainer_ops *ops; /* borrowed from the library */
    struct tdm__manifest *manifest;    /* owned, like the rest */
    struct tdm__layout *layouts;       /* of all ranks; this one's is borrowed from the library */
    struct tdm__sender *sender;
    /* Where engines know their layouts; else NULL, and the sender's whole tensors go by name.
     */
    struct tdm__layout *engine_layouts; /* one an engine rank: as many as trainer ranks */
    struct tdm__transfer_plan *transfer_plan;
    struct tdm__weight_writer *weight_writer;
    tdm_collective_group *gather; /* the ranks that serve one engine */
    struct tdm__transfer_pair
        pair; /* to the engine rank of the same number, where engines are far */
    /* Its first rank, only on the group's source; or, at the line's other end, this one's. */
    tdm_actor *engine;
    bool engine_absent; /* from the update under way */
    char *lists;        /* what the source gathers: a list of handles for each rank */
    size_t lists_bytes;
};

/* trainer_update.c: the methods of an update. */
tdm_method tdm__trainer_connect, tdm__trainer_acquire_bucket, tdm__trainer_release_bucket,
    tdm__trainer_detach_engine, tdm__trainer_open_pair, tdm__trainer_update,
    tdm__trainer_update_slices;
/* Forgets the engines' layouts and the way to them. */
void tdm__trainer_disconnect(struct trainer *trainer);

#endif
