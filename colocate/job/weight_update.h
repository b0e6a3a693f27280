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

/* What every update costs, computed before the first one. */
struct tdm__weight_cost {
    /* Bytes that are copied between ranks on the same GPU. */
    uint64_t same_gpu_bytes;
    /* Bytes that are copied to engine ranks on other GPUs. */
    uint64_t other_gpu_bytes;
    /* Bytes that cross between nodes, each once. They are written to the engine ranks from the
     * trainer ranks that receive them, and are in the numbers above, too. */
    uint64_t other_node_bytes;
    /* Most copies that one engine rank needs. */
    uint64_t copies_max;
    /* Number of buckets that each trainer rank fills. */
    uint64_t buckets_count;
    /* Size in bytes of the largest bucket. */
    uint64_t bucket_bytes;
    /* Bytes that are read twice, because trainer ranks share FP8 blocks whose scale must be
     * computed first. */
    uint64_t measured_bytes;
};

/* Sends the list of the trainers' tensors to the engines and the engines' layouts to the
 * trainers. Every trainer rank then computes the same transfer plan. If an engine has no layout,
 * or update.mode is "names", whole tensors are sent to all engines; TDM_E_UNSUPPORTED if the
 * engines have GPUs of their own. Called once, after all ranks have started. */
tdm_status tdm__weight_update_connect(struct tdm__worker_group *workers, const tdm_value *manifest,
                                      struct tdm__weight_cost *cost_out);

/* Sends the same to an engine that was restarted. TDM_E_STATE if its layout differs from that of
 * the lost engine. */
tdm_status tdm__weight_update_connect_engine(struct tdm__worker_group *workers, uint32_t engine);

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
