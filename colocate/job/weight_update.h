/* weight_update.h - sends a new version of the weights from the trainers to every engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_WEIGHT_UPDATE_H
#define TDM_COLOCATE_JOB_WEIGHT_UPDATE_H

#include "colocate/job/worker_group.h"
#include "colocate/weights/commit_core.h"

/* One weight update. The controller is the source in docs/protocols/commit.md: it begins the
 * update, makes the trainers stage it, collects the votes and proposes the outcome. The outcome
 * that the store has recorded is the valid one. */
struct tdm__weight_update {
    /* Unique ID of the update. */
    struct tdm__id id;
    /* Epoch that the store gave to this update; it increases with every update. */
    uint64_t epoch;
    /* Version number that the weights get if the update is committed. */
    uint64_t version;
    /* True if the outcome is known. Otherwise no rank may serve or drop the staged weights. */
    bool decided;
    /* True if the update was committed; false if it was aborted or is undecided. */
    bool committed;
    /* Number of engines that were lost during the update. */
    uint32_t engines_lost;
    /* Bytes of the model. */
    uint64_t bytes;
};

/* Carries out steps 1 to 4 of the protocol, and blocks until the outcome is known. Engines must
 * have only their weights resident, trainers must be paused. The weights come from the trainers,
 * or from the safetensors `file` if it is not NULL. `base` is the committed version; the new
 * version is greater than `floor`. Returns TDM_OK if the update was committed. Otherwise returns
 * why it was aborted; the engines keep the old version, and engines that died are removed from
 * `workers`. */
tdm_status tdm__weight_update_run(struct tdm__worker_group *workers, const char *file,
                                  uint64_t base, uint64_t floor,
                                  struct tdm__weight_update *update_out);
/* Carries out step 5: every engine rank switches to the committed version, or drops what was
 * staged. Engines that are lost meanwhile are recorded as dead. Finally the trainers free their
 * buckets, which is only possible once no engine maps them. */
tdm_status tdm__weight_update_finish(struct tdm__worker_group *workers,
                                     const struct tdm__weight_update *update);

#endif
