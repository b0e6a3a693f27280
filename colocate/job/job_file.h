/* job_file.h - a job file, typed and checked before anything runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_FILE_H
#define TDM_COLOCATE_JOB_JOB_FILE_H

#include "runtime/file.h"

#include <stdbool.h>
#include <tandem/config.h>

enum { TDM__JOB_TEXT_BYTES = 64, TDM__JOB_MODEL_BYTES_MAX = 32 };

/* The id of the one model that most jobs have. */
#define TDM__JOB_MODEL "policy"

/* Everything Tandem itself reads of a job file.  What a job library reads stays in `config`,
 * below "trainer", "engine" and "model".  Paths are resolved against the file's folder, except
 * `out`, which is the user's (empty: not said). */
struct tdm__job_spec {
    tdm_config *config; /* owned: the whole file, overrides applied */

    /* job */
    char name[TDM__JOB_TEXT_BYTES];
    uint64_t seed;
    char library[TDM__PATH_BYTES];
    char out[TDM__PATH_BYTES];
    uint32_t save_interval; /* steps; 0: at the end only */

    /* cluster */
    uint32_t num_gpus;
    uint64_t gpu_bytes;
    char device[TDM__JOB_TEXT_BYTES];
    double cpus; /* 0: what the machine has */

    /* trainer */
    uint32_t trainer_num_ranks;
    double trainer_num_gpus_per_actor;
    uint32_t step_timeout_ms;
    uint32_t trainer_stall_timeout_ms; /* a trainer rank silent for longer ends the job */

    /* engine */
    uint32_t num_engines;
    uint32_t rollout_num_gpus_per_engine;
    double engine_num_gpus_per_actor;
    uint32_t generate_timeout_ms;
    bool engine_colocate; /* on the trainers' GPUs; else on others, of any node */

    /* model */
    char model_config[TDM__PATH_BYTES]; /* its config.json, for named layouts; empty: not said */

    /* rollout */
    uint32_t rollout_batch_size;
    uint32_t n_samples_per_prompt;
    uint32_t global_batch_size; /* rollout_batch_size × n_samples_per_prompt */
    double temperature;
    uint32_t rollout_max_prompt_len; /* tokens */
    uint32_t rollout_max_response_len;
    uint32_t num_rollout;
    uint32_t warmup_steps;
    uint32_t warmup_batch_size;
    uint32_t num_engines_min; /* with fewer the job ends */
    uint32_t eval_interval;   /* steps; 0: before and after only */

    /* update */
    uint64_t update_weight_buffer_size;      /* bytes */
    char update_model[TDM__JOB_TEXT_BYTES];  /* the id its versions are kept under */
    char update_source[TDM__JOB_TEXT_BYTES]; /* "tensors", or "disk": by way of a checkpoint */
    bool update_enabled;
    char update_mode[TDM__JOB_TEXT_BYTES]; /* "donate", "copy" or "names" */
    char verify[TDM__JOB_TEXT_BYTES];      /* "full", "sample" or "none" */
    uint32_t update_timeout_ms;
    uint32_t update_stall_timeout_ms; /* an engine rank silent for longer is killed */

    /* data */
    char train[TDM__PATH_BYTES];
    char unseen[TDM__PATH_BYTES];
    char prompt_key[TDM__JOB_TEXT_BYTES];
    char answer_key[TDM__JOB_TEXT_BYTES];
    bool shuffle_rewards; /* a test's switch: rewards without meaning must teach nothing */
};

/* Reads `path`, applies "key=value" overrides in their order, checks every key and value.
 * TDM_E_PROTOCOL, TDM_E_TYPE or TDM_E_INVAL, always with file, line and field.  The spec is
 * large (tens of KiB): keep it off small stacks. */
tdm_status tdm__job_file_read(const char *path, const char *const *overrides,
                              uint32_t overrides_count, struct tdm__job_spec *spec_out);
/* The same from a config made elsewhere, which is taken on TDM_OK only; `directory` is where
 * relative paths begin ("" for here). */
tdm_status tdm__job_spec_from_config(tdm_config *config, const char *directory,
                                     struct tdm__job_spec *spec_out);
void tdm__job_spec_fini(struct tdm__job_spec *spec);

#endif
