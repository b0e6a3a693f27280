/* memory_budget.h - what lies on each GPU and in host memory, in each phase and on each edge. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_MEMORY_BUDGET_H
#define TDM_COLOCATE_JOB_MEMORY_BUDGET_H

#include "colocate/memory/broker.h"

#include <stdbool.h>
#include <stdio.h>
#include <tandem/job.h>

/* The phases and the edges between them, in the order of a step. */
enum tdm__budget_phase {
    TDM__BUDGET_ROLLOUT,           /* engines: everything */
    TDM__BUDGET_ROLLOUT_TO_TRAIN,  /* engines pause fully, then trainers resume: never both */
    TDM__BUDGET_TRAIN,             /* trainers: everything */
    TDM__BUDGET_TRAIN_TO_UPDATE,   /* trainers pause fully, then engines resume their weights */
    TDM__BUDGET_UPDATE,            /* engine weights, their shadow, a staging bucket a trainer */
    TDM__BUDGET_UPDATE_TO_ROLLOUT, /* shadow and bucket are freed, then the rest resumes */
    TDM__BUDGET_PHASES_COUNT
};

enum { TDM__JOB_RANKS_MAX = 128, TDM__JOB_GPUS_MAX = 64 };

/* One rank and the memory that it declared. */
struct tdm__memory_budget_rank {
    char name[32]; /* "trainer/2", "engine/0/1" */
    bool is_engine;
    uint32_t gpu;
    struct tdm_region_spec regions[TDM_RANK_REGIONS_MAX];
    uint32_t regions_count;
    char tags[TDM_RANK_REGIONS_MAX][TDM_REGION_TAG_BYTES_MAX]; /* room for copies of the tags */
};

struct tdm__memory_budget_input {
    uint32_t gpus_count;
    uint64_t gpu_bytes;    /* of each */
    uint64_t bucket_bytes; /* update_weight_buffer_size */
    bool update_enabled;   /* without it, no shadow and no bucket */
    bool is_far;           /* engines have GPUs of their own: nobody pauses */
    uint64_t host_bytes;   /* available for host copies; 0: not checked */
    struct tdm__memory_budget_rank ranks[TDM__JOB_RANKS_MAX];
    uint32_t ranks_count;
};

/* Bytes at the worst instant of a moment, whole blocks. */
struct tdm__memory_budget_usage {
    uint64_t trainer_bytes;
    uint64_t engine_bytes;
    uint64_t peak_bytes; /* of both together; on an edge less than their sum */
};

struct tdm__memory_budget {
    uint32_t gpus_count;
    uint64_t gpu_bytes;
    struct tdm__memory_budget_usage gpus[TDM__BUDGET_PHASES_COUNT][TDM__JOB_GPUS_MAX];
    uint64_t host_bytes[TDM__BUDGET_PHASES_COUNT]; /* copies of paused KEEP regions */
    /* The least room: where and how much. */
    enum tdm__budget_phase tightest_phase;
    uint32_t tightest_gpu;
    uint64_t tightest_free_bytes;
};

const char *tdm__budget_phase_name(enum tdm__budget_phase phase);

/* Pure.  The plan is filled even where it does not fit: TDM_E_BUDGET names phase, GPU, bytes on
 * both sides and what to change.  TDM_E_INVAL for ranks that make no sense. */
tdm_status tdm__memory_budget_compute(const struct tdm__memory_budget_input *input,
                                      struct tdm__memory_budget *plan_out);

/* A table a GPU, and the verdict where it fits. */
void tdm__memory_budget_print(const struct tdm__memory_budget *plan,
                              const struct tdm__memory_budget_input *input, bool fits,
                              FILE *stream);
/* The same as one line of JSON. */
tdm_status tdm__memory_budget_print_json(const struct tdm__memory_budget *plan, bool fits,
                                         FILE *stream);

#endif
