/* job.h - what a user of jobs writes: a trainer and an engine as two tables, and a reward. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_JOB_H
#define TANDEM_JOB_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/config.h>
#include <tandem/group.h>
#include <tandem/region.h>
#include <tandem/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A job library fills two tables; Tandem owns everything around them: launch, placement, ranks,
 * offload, weight updates, progress, checkpoints, traces.  Each table is one *rank*: one actor,
 * one process, one GPU.  Functions are called on the actor's thread, one at a time; each may
 * fail (tdm_fail) and none may hang: collective calls inside have the group's deadline.
 *
 * Life of a rank:  open → regions → start → (layout) → { step | generate | … }* → close.
 * Between calls Tandem pauses and resumes the regions; a function is only called while the
 * regions it needs are resident (said at each). */

/* A tensor of a rank whose layout the job file names (`trainer.layout`, `engine.layout`): as
 * that layout calls and cuts it, contiguous in the region "weights".  One that is several
 * tensors of the model (fused, or of many experts) is one here. */
struct tdm_rank_tensor {
    struct tdm_tensor_info info;
    uint64_t offset_bytes; /* in "weights"; a multiple of 256 */
};

/* What a rank is told when it opens.  Everything is borrowed for the rank's life. */
struct tdm_rank_context {
    const tdm_config *config; /* the whole job file, overrides applied */
    uint32_t rank;            /* in its group */
    uint32_t ranks_count;
    uint32_t engine;  /* index of the engine; 0 for trainers */
    uint64_t seed;    /* the job's seed, the same on every rank */
    tdm_group *group; /* trainers: all trainer ranks; engines: the engine's TP ranks */
    /* Where the job file names the layout; else NULL.  The library's layout() is then not
     * asked: its region "weights" (KEEP on a trainer) begins with these, and updates move them.
     */
    const struct tdm_rank_tensor *tensors;
    uint32_t tensors_count;
    uint64_t tensors_bytes; /* of "weights" that they need */
};

/* Memory that a rank declares, before it has any. */
struct tdm_region_spec {
    const char *tag; /* trainers: any; engines: "weights", "kv_cache", or any other */
    size_t size_bytes;
    enum tdm_region_policy policy;
};

enum { TDM_RANK_REGIONS_MAX = 8 };

/* ---- what flows ------------------------------------------------------------------------- */

struct tdm_sampling {
    double temperature;  /* 0: greedy */
    uint32_t tokens_max; /* of an answer, the end token included */
};

/* One prompt to be answered.  `seed` decides the randomness of its answer alone, so the answer
 * does not depend on what else is in the batch or on which engine runs it. */
struct tdm_prompt {
    const char *text;
    uint64_t seed;
};

/* One answer, written into by generate(); the arrays have room for tokens_max entries. */
struct tdm_completion {
    int32_t *tokens; /* the answer, end token included if it came */
    float *logprobs; /* of each token, at the sampling temperature */
    uint32_t tokens_count;
    char *text; /* the answer decoded, NUL-terminated, without the end token */
    size_t text_bytes_max;
    int finished; /* 1: ended by the end token, 0: cut at tokens_max */
};

/* One answer with its reward, as the trainer gets it. */
struct tdm_sample {
    uint32_t group; /* samples of one prompt share it; a group never spans ranks */
    const char *prompt;
    const char *answer;    /* the right answer, from the data */
    const int32_t *tokens; /* NULL in supervised batches: the trainer encodes `answer` itself */
    const float *logprobs; /* the engine's, NULL in supervised batches */
    const float *token_rewards; /* per token, from the reward function; NULL if supervised */
    float reward;               /* of the whole answer */
    uint32_t tokens_count;
    uint64_t weight_version; /* that made the tokens */
};

struct tdm_batch {
    int supervised; /* 1: learn the answers as they stand (warm-up); 0: reinforcement */
    uint32_t step;  /* 1 … steps_count, of this kind */
    uint32_t steps_count;
    const struct tdm_sample *samples; /* this rank's share */
    uint32_t samples_count;
};

/* Named numbers for progress, trace and logs; rank 0's are shown. */
struct tdm_metric {
    char name[32]; /* "loss", "grad_norm", "logprob_diff_max", … */
    double value;
};
enum { TDM_METRICS_MAX = 16 };
struct tdm_metrics {
    uint32_t count;
    struct tdm_metric entries[TDM_METRICS_MAX];
};

/* ---- the trainer ------------------------------------------------------------------------ */

struct tdm_trainer_ops {
    size_t size_bytes; /* sizeof(struct tdm_trainer_ops) */

    /* Makes the state; may meet the group; no device memory yet. */
    tdm_status (*open)(const struct tdm_rank_context *context, void **state_out);
    /* Declares the memory.  Must depend on the config only: `tandem plan` calls it too, with
     * a context whose group is NULL. */
    tdm_status (*regions)(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out);
    /* The regions are resident at these addresses, zeroed or undefined: make the first weights.
     */
    tdm_status (*start)(void *state, void *const *addresses);
    /* The model's tensors (the same list on every rank) and the slices this rank holds.  The
     * slices of all ranks cover every element exactly once.  Borrowed for the rank's life; the
     * slices' addresses lie in KEEP regions, so that updates can read them while paused. */
    tdm_status (*layout)(void *state, const struct tdm_tensor_info **tensors_out,
                         uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                         uint32_t *slices_count_out);
    /* Learns from a batch.  All regions resident.  Every rank is called with the same step. */
    tdm_status (*step)(void *state, const struct tdm_batch *batch, struct tdm_metrics *metrics);
    /* Writes what load() needs to go on exactly here, and on rank 0 a checkpoint in Hugging
     * Face form under `directory`/hf.  Every rank is called; the directory exists.  Resident.
     */
    tdm_status (*save)(void *state, const char *directory);
    tdm_status (*load)(void *state, const char *directory);
    void (*close)(void *state);
};

/* ---- the engine ------------------------------------------------------------------------- */

struct tdm_engine_ops {
    size_t size_bytes; /* sizeof(struct tdm_engine_ops) */

    tdm_status (*open)(const struct tdm_rank_context *context, void **state_out);
    /* One of them has the tag "weights" and is what updates write and commits flip. */
    tdm_status (*regions)(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out);
    tdm_status (*start)(void *state, void *const *addresses);
    /* Copies what this rank needs out of the tensors into `weights`: an image of the "weights"
     * region, of its size, that is not the one being served.  On a GPU both are there, but for
     * the tensors of files, which are the host's.  A name it does not know, or a wrong shape or
     * dtype, is refused with TDM_E_INVAL naming it.  The views die with the call. */
    tdm_status (*load)(void *state, void *weights, const struct tdm_tensor_view *tensors,
                       uint32_t tensors_count);
    /* Are all tensors there that this rank needs?  Asked before it votes for a version; names
     * what is missing (TDM_E_STATE).  `loaded` was filled by load() since the last begin(). */
    tdm_status (*complete)(void *state);
    /* A new update begins: forget what load() counted. */
    void (*begin)(void *state);
    /* After a commit, before the next generate: whatever was computed from old weights is void.
     * "weights" resident, the rest maybe not. */
    tdm_status (*flush_cache)(void *state);
    /* Answers the prompts.  Every rank of the engine is called with the same arguments; only
     * rank 0's completions are read.  All regions resident. */
    tdm_status (*generate)(void *state, const struct tdm_prompt *prompts,
                           uint32_t prompts_count, const struct tdm_sampling *sampling,
                           struct tdm_completion *completions);
    void (*close)(void *state);
    /* May be NULL: updates then go through load().  Which parts of the trainers' tensors this
     * rank keeps, each contiguous at its address in the "weights" region (as start() got it),
     * in the tensor's order, and in its dtype or the slice's own.  Trainers may share an FP8
     * block: its scale is that of all of it.  Trainers then write them there themselves, or
     * into buckets of the same layout, and load() is asked for files only; what no part covers
     * is zero.  A tensor it does not know is refused with TDM_E_INVAL naming it.  Borrowed for
     * the rank's life. */
    tdm_status (*layout)(void *state, const struct tdm_tensor_info *tensors,
                         uint32_t tensors_count, const struct tdm_slice **slices_out,
                         uint32_t *slices_count_out);
};

/* Rewards one answer: fills token_rewards[0 … tokens_count) and returns the reward of the
 * whole, by convention 1 for exactly right.  Runs in the controller; pure. */
typedef float tdm_reward(const char *prompt, const char *answer,
                         const struct tdm_completion *completion, float *token_rewards);

struct tdm_job_library {
    size_t size_bytes;
    const char *name;
    const struct tdm_trainer_ops *trainer;
    const struct tdm_engine_ops *engine;
    tdm_reward *reward;
    const char *devices; /* where its models can be, as "host cuda"; NULL: "host" alone */
};

/* Exactly one per shared library:
 *     TDM_JOB_LIBRARY(.name = "arith", .trainer = &t, .engine = &e, .reward = r); */
#define TDM_JOB_LIBRARY(...)                                                                   \
    TDM_API const struct tdm_job_library tdm_job_library = {                                   \
        .size_bytes = sizeof(struct tdm_job_library), __VA_ARGS__}

extern TDM_API const struct tdm_job_library tdm_job_library;

#ifdef __cplusplus
}
#endif

#endif
