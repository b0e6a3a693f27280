/* memory_budget.h - computes how much GPU and host memory a job needs in each phase and
 * transition. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_MEMORY_BUDGET_H
#define TDM_COLOCATE_JOB_MEMORY_BUDGET_H

#include "colocate/broker/broker.h"
#include "colocate/job/job_limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <tandem/job.h>

/* The phases of a step and the transitions between them, in their order. */
enum tdm__budget_phase {
    /* Engines have all of their regions; trainers have none. */
    TDM__BUDGET_ROLLOUT,
    /* Engines pause completely before trainers resume, so that both never have memory together. */
    TDM__BUDGET_ROLLOUT_TO_TRAIN,
    /* Trainers have all of their regions; engines have none. */
    TDM__BUDGET_TRAIN,
    /* Trainers pause completely before engines resume their weights. */
    TDM__BUDGET_TRAIN_TO_UPDATE,
    /* Engines have their weights and, unless updates overwrite, the shadow copy; each trainer has a
     * staging bucket. */
    TDM__BUDGET_UPDATE,
    /* Shadow copies and buckets are freed before engines resume the rest of their regions. */
    TDM__BUDGET_UPDATE_TO_ROLLOUT,
    /* Number of values above. */
    TDM__BUDGET_PHASES_COUNT
};

/* One rank and the memory regions that its library declared. */
struct tdm__memory_budget_rank {
    /* Name for messages, for example "trainer/2" or "engine/0/1". */
    char name[32];
    /* True for an engine rank, false for a trainer rank. */
    bool is_engine;
    /* Index of the GPU that the rank uses, below `gpus_count` of the input. */
    uint32_t gpu;
    /* The declared regions; their tags point into `tags`. */
    struct tdm_region_spec regions[TDM_RANK_REGIONS_MAX];
    /* Number of regions. */
    uint32_t regions_count;
    /* Copies of the region tags. */
    char tags[TDM_RANK_REGIONS_MAX][TDM_REGION_TAG_BYTES_MAX];
};

/* What the budget is computed from. The caller owns it. */
struct tdm__memory_budget_input {
    /* Number of GPUs of the job. */
    uint32_t gpus_count;
    /* Memory of each GPU in bytes. */
    uint64_t gpu_bytes;
    /* Size in bytes of the staging bucket of each trainer rank, with what it exchanges with other
     * nodes (update.update_weight_buffer_size). */
    uint64_t bucket_bytes;
    /* False if the job sends no updates and needs neither shadow copies nor buckets. */
    bool update_enabled;
    /* True if updates write over the weights that engines serve, and need no shadow copies. */
    bool updates_overwrite;
    /* True if engines have GPUs of their own; then no rank ever pauses. */
    bool engines_are_remote;
    /* Host memory in bytes for copies of paused regions; 0 to skip this check. */
    uint64_t host_bytes;
    /* All trainer ranks, then all engine ranks. */
    struct tdm__memory_budget_rank ranks[TDM__JOB_RANKS_MAX];
    /* Number of ranks. */
    uint32_t ranks_count;
};

/* Peak memory of one GPU in one phase or transition, in bytes, rounded up to whole blocks. */
struct tdm__memory_budget_usage {
    /* Most bytes that trainer ranks have at one time. */
    uint64_t trainer_bytes;
    /* Most bytes that engine ranks have at one time. */
    uint64_t engine_bytes;
    /* Most bytes of both together; in a transition less than the sum of the two fields above. */
    uint64_t peak_bytes;
};

/* The computed budget of a job. The caller owns it. */
struct tdm__memory_budget {
    /* Number of GPUs. */
    uint32_t gpus_count;
    /* Memory of each GPU in bytes. */
    uint64_t gpu_bytes;
    /* Usage of each GPU in each phase and transition. */
    struct tdm__memory_budget_usage gpus[TDM__BUDGET_PHASES_COUNT][TDM__JOB_GPUS_MAX];
    /* Bytes of host memory for copies of paused KEEP regions, in each phase and transition. */
    uint64_t host_bytes[TDM__BUDGET_PHASES_COUNT];
    /* Phase or transition with the least free memory on any GPU. */
    enum tdm__budget_phase tightest_phase;
    /* Index of the GPU with the least free memory in that phase. */
    uint32_t tightest_gpu;
    /* Free bytes on that GPU in that phase; 0 if the job does not fit. */
    uint64_t tightest_free_bytes;
};

/* Returns the name for output, for example "TRAIN" or "edge TRAIN→UPDATE". */
const char *tdm__budget_phase_name(enum tdm__budget_phase phase);

/* Computes the budget from the input alone. The result is filled even if the job does not fit:
 * TDM_E_BUDGET then names phase, GPU, required and available bytes, and what to change.
 * TDM_E_INVAL if a rank or region is invalid. */
tdm_status tdm__memory_budget_compute(const struct tdm__memory_budget_input *input,
                                      struct tdm__memory_budget *plan_out);

/* Prints one table for each GPU and one for the host. If `fits` is true it also prints the
 * tightest phase. */
void tdm__memory_budget_print(const struct tdm__memory_budget *plan,
                              const struct tdm__memory_budget_input *input, bool fits,
                              FILE *stream);
/* Prints the same as one line of JSON. TDM_E_IO if the stream cannot be written. */
tdm_status tdm__memory_budget_print_json(const struct tdm__memory_budget *plan, bool fits,
                                         FILE *stream);

#endif
