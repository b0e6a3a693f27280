/* weight_update.h - a new version of the weights, from the trainers to every engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_WEIGHT_UPDATE_H
#define TDM_COLOCATE_JOB_WEIGHT_UPDATE_H

#include "colocate/job/worker_group.h"
#include "colocate/weights/commit_core.h"

/* The controller is the source of docs/protocols/commit.md: it begins an update, lets the
 * trainers stage it, collects the votes, decides.  What happens is the store's word, not its
 * own. */
struct tdm__weight_update {
    struct tdm__id id;
    uint64_t epoch;
    uint64_t version;
    bool decided; /* the outcome is known; otherwise nobody may serve or drop anything */
    bool committed;
    uint32_t engines_lost; /* by it */
    uint64_t bytes;        /* of the model */
};

/* What an update costs, known before the first; all zero where weights go by name. */
struct tdm__weight_cost {
    uint64_t same_gpu_bytes;
    uint64_t other_gpu_bytes;
    uint64_t copies_max; /* of an engine rank */
    uint64_t buckets_count;
    uint64_t bucket_bytes;
    uint64_t measured_bytes; /* read once more: trainer ranks share FP8 blocks of them */
};

/* Tells engines the trainers' tensors, and trainers where engines keep them; with that every
 * trainer rank compiles the same route.  Engines without a layout get whole tensors, as does
 * everybody with update.mode "names". */
tdm_status tdm__weight_update_connect(struct tdm__worker_group *workers, const tdm_value *manifest,
                                      struct tdm__weight_cost *cost_out);

/* Tells an engine that came back the same; TDM_E_STATE if it is not as the one before. */
tdm_status tdm__weight_update_connect_engine(struct tdm__worker_group *workers, uint32_t engine);

/* Steps 1 to 4.  Engines hold their weights and nothing else; trainers are paused.  The weights
 * come from the trainers' buckets, or where `file` is not NULL from those safetensors.  TDM_OK
 * with `committed`, or the failure for which it was aborted; the old version is then served on.
 * Engines that died or fell silent are out of the workers by then; the next goes without them.
 * `base` is the committed version, `floor` what versions must exceed. */
tdm_status tdm__weight_update_run(struct tdm__worker_group *workers, const char *file,
                                  uint64_t base, uint64_t floor,
                                  struct tdm__weight_update *update_out);
/* Step 5, on every engine rank; or, after an abort, drops what was staged.  An engine that is
 * lost meanwhile is named dead, and the others go on.  Then the trainers give their buckets
 * back: while an engine maps one, its memory cannot go. */
tdm_status tdm__weight_update_finish(struct tdm__worker_group *workers,
                                     const struct tdm__weight_update *update);

#endif
