/* plan.h - what lies on each GPU and in host memory, in each phase and on each edge. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_PLAN_H
#define TDM_COLOCATE_JOB_PLAN_H

#include "colocate/memory/broker.h"

#include <stdbool.h>
#include <stdio.h>
#include <tandem/job.h>

/* The phases and the edges between them, in the order of a step. */
enum tdm__plan_moment {
    TDM__PLAN_ROLLOUT,           /* engines: everything */
    TDM__PLAN_ROLLOUT_TO_TRAIN,  /* engines pause fully, then trainers resume: never both */
    TDM__PLAN_TRAIN,             /* trainers: everything */
    TDM__PLAN_TRAIN_TO_UPDATE,   /* trainers pause fully, then engines resume their weights */
    TDM__PLAN_UPDATE,            /* engine weights, their shadow, a staging bucket a trainer */
    TDM__PLAN_UPDATE_TO_ROLLOUT, /* shadow and bucket are freed, then the rest resumes */
    TDM__PLAN_MOMENTS
};

enum { TDM__PLAN_RANKS_MAX = 128, TDM__PLAN_GPUS_MAX = 64 };

/* One rank and the memory that it declared. */
struct tdm__plan_rank {
    char name[32]; /* "trainer/2", "engine/0/1" */
    bool is_engine;
    uint32_t gpu;
    struct tdm_region_spec regions[TDM_RANK_REGIONS_MAX];
    uint32_t regions_count;
    char tags[TDM_RANK_REGIONS_MAX][TDM_REGION_TAG_BYTES_MAX]; /* room for copies of the tags */
};

struct tdm__plan_input {
    uint32_t gpus_count;
    uint64_t gpu_bytes;    /* of each */
    uint64_t bucket_bytes; /* update_weight_buffer_size */
    bool update_enabled;   /* without it, no shadow and no bucket */
    bool is_far;           /* engines have GPUs of their own: nobody pauses */
    uint64_t host_bytes;   /* available for host copies; 0: not checked */
    struct tdm__plan_rank ranks[TDM__PLAN_RANKS_MAX];
    uint32_t ranks_count;
};

/* Bytes at the worst instant of a moment, whole blocks. */
struct tdm__plan_use {
    uint64_t trainer_bytes;
    uint64_t engine_bytes;
    uint64_t peak_bytes; /* of both together; on an edge less than their sum */
};

struct tdm__plan {
    uint32_t gpus_count;
    uint64_t gpu_bytes;
    struct tdm__plan_use gpus[TDM__PLAN_MOMENTS][TDM__PLAN_GPUS_MAX];
    uint64_t host_bytes[TDM__PLAN_MOMENTS]; /* copies of paused KEEP regions */
    /* The least room: where and how much. */
    enum tdm__plan_moment tightest;
    uint32_t tightest_gpu;
    uint64_t tightest_free_bytes;
};

const char *tdm__plan_moment_name(enum tdm__plan_moment moment);

/* Pure.  The plan is filled even where it does not fit: TDM_E_BUDGET names phase, GPU, bytes on
 * both sides and what to change.  TDM_E_INVAL for ranks that make no sense. */
tdm_status tdm__plan_make(const struct tdm__plan_input *input, struct tdm__plan *plan_out);

/* A table a GPU, and the verdict where it fits. */
void tdm__plan_print(const struct tdm__plan *plan, const struct tdm__plan_input *input,
                     bool fits, FILE *stream);
/* The same as one line of JSON. */
tdm_status tdm__plan_print_json(const struct tdm__plan *plan, bool fits, FILE *stream);

#endif
