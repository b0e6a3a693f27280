/* weight_connect.h - tells engines and trainers what the other side keeps, before the first update.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_WEIGHT_CONNECT_H
#define TDM_COLOCATE_JOB_WEIGHT_CONNECT_H

#include "colocate/job/worker_group.h"

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
 * engines have GPUs of their own, or if engines of one gather group have different layouts. Called
 * once, after all ranks have started. */
tdm_status tdm__weight_connect(struct tdm__worker_group *workers, const tdm_value *manifest,
                               struct tdm__weight_cost *cost_out);

/* Sends the same to an engine that was restarted. TDM_E_STATE if its layout differs from that of
 * the lost engine. */
tdm_status tdm__weight_connect_engine(struct tdm__worker_group *workers, uint32_t engine);

#endif
