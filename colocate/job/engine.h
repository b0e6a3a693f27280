/* engine.h - the state of an engine rank, shared by engine_actor.c and engine_staging.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_H
#define TDM_COLOCATE_JOB_ENGINE_H

#include "colocate/job/rank.h"
#include "colocate/job/transfer_pair.h"
#include "colocate/weights/receiver.h"
#include "colocate/weights/served_weights.h"

#include <pthread.h>

/* An engine rank. The actor "tandem.engine" owns it. */
struct engine {
    /* What trainers and engines have in common; must be the first member. */
    struct tdm__rank rank;
    /* Borrowed engine functions of the job library. */
    const struct tdm_engine_ops *ops;
    /* Owned list of the trainers' tensors; NULL before the method "connect". */
    struct tdm__manifest *manifest;
    /* Owned receiver of updates with its shadow copy; NULL before the method "connect". */
    struct tdm__receiver *receiver;
    /* Owned checksums of the weights that are served; NULL unless the job compares
     * log-probabilities. */
    struct tdm__served_weights *served;
    /* Connection to the trainer rank that serves this rank if engines have GPUs of their own;
     * else without a group. */
    struct tdm__transfer_pair pair;
    /* Owned handles of the engine's other ranks, from index 1; NULL until they are needed. Only
     * rank 0 has them. */
    tdm_actor **peers;
    /* Weight version that is served; 0 if none. */
    uint64_t version;
    /* True after a vote until the outcome is known; nothing is served meanwhile. */
    bool voted;
    /* Hash of the weights that the latest vote was for. */
    struct tdm__hash vote;
    /* Hash of the weights of the version that is served. */
    struct tdm__hash hash;
    /* Held by methods that map, change or free the weights, and by "export_weights", which
     * reads them on another thread. If an export outlasts its caller's timeout, the weights
     * still stay until it is done. The method "generate" needs no lock: it only reads, on
     * the thread that also makes all changes. */
    pthread_mutex_t weights_lock;
};

/* Fails with TDM_E_STATE if the method "connect" has not been called. */
tdm_status tdm__engine_check_connected(const struct engine *engine);
/* Returns the image of the transfer plan that this rank gets (gather_groups.h). */
uint32_t tdm__engine_image(const struct engine *engine);

/* Holds `weights_lock` while a bucket or a file is staged over the served weights, so that no peer
 * gets an export of them meanwhile. Does nothing for an engine with a shadow copy. */
void tdm__engine_begin_overwriting(struct engine *engine);
/* Ends tdm__engine_begin_overwriting(). The rank serves no version if its weights may have been
 * overwritten. */
void tdm__engine_end_overwriting(struct engine *engine);

/* Method "stage" of rank 0: gets what the gather group has gathered about a bucket, gives each rank
 * of the engine what concerns it, and blocks until all have staged theirs. */
tdm_status tdm__engine_stage(tdm_call *call, void *self);
/* Method "stage_slices": stages what trainer ranks have announced to this rank. Called by rank 0 of
 * the engine. */
tdm_status tdm__engine_stage_slices(tdm_call *call, void *self);

#endif
