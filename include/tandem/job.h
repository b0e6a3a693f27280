/* job.h - what a job library supplies: a trainer, an engine, and a reward function. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_JOB_H
#define TANDEM_JOB_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/collective.h>
#include <tandem/config.h>
#include <tandem/region.h>
#include <tandem/tensor.h>
#include <tandem/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A job library fills two tables of functions and names a reward function.  Tandem does the
 * rest: launch, placement, ranks, pausing and resuming memory, weight updates, progress,
 * checkpoints, traces.
 *
 * Each table describes one rank: one actor, one process, one GPU.  Its functions run on the
 * actor's thread, one at a time.  A function that fails returns a status and records a detail
 * with tdm_fail().  No function may hang: collective operations in it have the group's
 * deadline.
 *
 * The calls of a rank are: open, regions, start, (layout), then step or generate and others,
 * and close. Between calls Tandem pauses and resumes the rank's regions.  A function is called
 * only while the regions that it needs are resident, as said below.
 *
 * On a CUDA GPU a function may return while kernels that it queued still run, in any stream of the
 * GPU's primary context, which is the one of PyTorch and of the CUDA runtime.  Tandem waits for all
 * of them, like cuCtxSynchronize, before it reads what a function computed and before it pauses a
 * region or exchanges the weights that are served.  No stream may be captured into a CUDA graph
 * when a function returns.  Tandem's calls leave the thread's current CUDA device as it was. */

/* A tensor of a rank whose layout the job file names (`trainer.layout` or `engine.layout`), as
 * that layout calls and slices it, contiguous in the region "weights".  Several tensors of the
 * model that are fused, or those of many experts, are one tensor here. */
struct tdm_rank_tensor {
    struct tdm_tensor_info info; /* Name, dtype and shape of the tensor. */
    /* Offset in bytes of the tensor in the region "weights"; a multiple of 256. */
    uint64_t offset_bytes;
};

/* What a rank gets when it opens.  Everything is borrowed while the rank lives. */
struct tdm_rank_context {
    /* Settings of the whole job file, with the overrides of the command line. */
    const tdm_config *config;
    uint32_t rank;        /* Rank of this process in its group, from 0. */
    uint32_t ranks_count; /* Number of ranks in this rank's group. */
    uint32_t engine;      /* Index of the engine to which the rank belongs; 0 for trainers. */
    uint64_t seed;        /* The job's seed, the same on every rank. */
    /* Collective group of all trainer ranks, or of the tensor-parallel ranks of the engine.  NULL
     * if the caller is `tandem plan`. */
    tdm_collective_group *group;
    /* The rank's tensors if the job file names the layout, else NULL.  The library's layout()
     * is then not called: its region "weights", which is a KEEP region on a trainer, begins
     * with these tensors, and updates move them. */
    const struct tdm_rank_tensor *tensors;
    uint32_t tensors_count; /* Number of entries in `tensors`. */
    uint64_t tensors_bytes; /* Bytes of the region "weights" that the tensors need. */
    /* Folder on this node with the modules of a library in Python, if they were copied from the
     * driver's node; NULL if they are found by their names alone.  Always NULL for libraries in C.
     */
    const char *module_folder;
};

/* A region that a rank declares before it has memory. */
struct tdm_region_spec {
    /* Name of the region, chosen by the library; the weights of an engine are "weights". */
    const char *tag;
    size_t size_bytes; /* Size of the region in bytes. */
    /* What happens to the contents when the region is paused.  TDM_REGION_OUTSIDE_KEEP and _DROP:
     * the library allocates the memory itself, in resume(), and frees it in pause(); then
     * size_bytes is what it declares to use, and the region has no address.  The memory counts in
     * the plan of the job, is granted before resume(), and is compared with what the device reports
     * afterwards (outside_memory.h). */
    enum tdm_region_policy policy;
};

enum { TDM_RANK_REGIONS_MAX = 8 };

/* The largest number of bytes that a trainer rank may attach to a bucket. */
enum { TDM_ATTACHED_BYTES_MAX = 4 << 20 };

/* A bucket of a weight update, to which a trainer rank may attach bytes. */
struct tdm_update_bucket {
    uint32_t index;         /* Index of the bucket in the update, from 0. */
    uint32_t buckets_count; /* Number of buckets of the whole update. */
    /* Views of the whole tensors in the bucket, as this rank has written them; on a GPU they lie on
     * the GPU.  NULL if engines have a layout, so that the bucket has slices.  The views are
     * borrowed for the call, and their memory stays until the engine has answered. */
    const struct tdm_tensor_view *tensors;
    uint32_t tensors_count; /* Number of entries in `tensors`. */
    /* Rank in its engine of the engine rank for which the bytes are.  It is the number of this rank
     * in its gather group, unless an engine has more ranks than the trainer. */
    uint32_t engine_rank;
};

/* ---- what flows ------------------------------------------------------------------------- */

/* How engines choose the tokens of an answer. */
struct tdm_sampling {
    /* Temperature of the probabilities; 0: the most probable token is chosen. */
    double temperature;
    uint32_t tokens_max; /* Largest number of tokens of an answer, including the end token. */
};

/* A prompt to be answered. */
struct tdm_prompt {
    const char *text; /* Text of the prompt, NUL-terminated. */
    /* Seed of the randomness of this answer alone, so that the answer depends neither on the other
     * prompts of the call nor on the engine. */
    uint64_t seed;
};

/* An answer, which generate() writes.  The arrays have room for tokens_max entries. */
struct tdm_completion {
    int32_t *tokens;       /* Tokens of the answer, including the end token if there is one. */
    float *logprobs;       /* Log probability of each token, at the sampling temperature. */
    uint32_t tokens_count; /* Number of tokens of the answer. */
    char *text;            /* Decoded answer, NUL-terminated, without the end token. */
    size_t text_bytes_max; /* Size in bytes of the memory at `text`. */
    int finished; /* 1: the answer has its end token; 0: it was cut at tokens_max tokens. */
};

/* An answer with its reward, as the trainer gets it. */
struct tdm_sample {
    uint32_t group;     /* Number of the prompt; all samples of a prompt are on one rank. */
    const char *prompt; /* Text of the prompt that was answered. */
    const char *answer; /* The right answer to the prompt, from the data set. */
    /* Tokens of the engine's answer; NULL in supervised batches, where the trainer encodes `answer`
     * itself. */
    const int32_t *tokens;
    /* Log probability of each token, as the engine computed it; NULL in supervised batches. */
    const float *logprobs;
    const float *token_rewards; /* Reward of each token; NULL in supervised batches. */
    float reward;            /* Reward of the whole answer, as the reward function returned it. */
    uint32_t tokens_count;   /* Number of tokens of the answer. */
    uint64_t weight_version; /* Version of the weights with which the engine made the tokens. */
};

/* The samples of one training step that one rank gets. */
struct tdm_batch {
    int supervised; /* 1: learn the right answers (warm-up); 0: reinforcement. */
    /* Number of the training step, from 1 to steps_count, counted separately for each kind of
     * batch. */
    uint32_t step;
    uint32_t steps_count;             /* Number of training steps of this kind in the job. */
    const struct tdm_sample *samples; /* Samples of the batch that this rank learns from. */
    uint32_t samples_count;           /* Number of entries in `samples`. */
};

/* Named numbers for the progress line, trace and logs.  Those of rank 0 are shown. */
struct tdm_metric {
    char name[32]; /* Name of the metric, for example "loss" or "grad_norm". */
    double value;  /* Value of the metric in this step. */
};
enum { TDM_METRICS_MAX = 16 };
/* The metrics of one step. */
struct tdm_metrics {
    uint32_t count; /* Number of used entries in `entries`. */
    /* Metrics of the step; the first `count` are used. */
    struct tdm_metric entries[TDM_METRICS_MAX];
};

/* ---- the trainer ------------------------------------------------------------------------ */

struct tdm_trainer_ops {
    size_t size_bytes; /* Size of this struct in bytes: sizeof(struct tdm_trainer_ops). */

    /* Creates the state.  May use the group; there is no device memory yet. */
    tdm_status (*open)(const struct tdm_rank_context *context, void **state_out);
    /* Declares the memory: writes at most TDM_RANK_REGIONS_MAX regions and their number.  The
     * result may depend on the config only, because `tandem plan` also calls it, with a context
     * whose group is NULL. */
    tdm_status (*regions)(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out);
    /* Makes the trainer's first weights.  The regions are resident at `addresses`, in the order in
     * which they were declared; their contents are undefined. */
    tdm_status (*start)(void *state, void *const *addresses);
    /* Gives the model's tensors, the same list on every rank, and the slices that this rank
     * holds.  The slices of all ranks cover every element.  Several ranks may hold the same slice:
     * an update copies it from the rank that is nearest to the engine.  Slices that are not equal
     * have no element in common.  The slices are borrowed while the rank lives. Their addresses lie
     * in KEEP regions, so that updates can read them while the regions are paused. */
    tdm_status (*layout)(void *state, const struct tdm_tensor_info **tensors_out,
                         uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                         uint32_t *slices_count_out);
    /* May be NULL.  Gives bytes of the library's own form for an engine rank that this rank serves,
     * such as PyTorch's handles of the tensors in the bucket.  The bytes travel with Tandem's
     * record of the bucket through the gather group and the call to the engine, and only
     * tdm_engine_ops.attached() reads them.  Tandem calls the function on every rank for each
     * bucket that is sent and has a part for such an engine rank, after the bucket is written.  An
     * update that continues after an interruption sends the missing buckets only.  No region needs
     * to be resident during the call.  `*bytes_out` is empty before the call and may stay empty;
     * its memory is borrowed until the next call.  More than TDM_ATTACHED_BYTES_MAX bytes, or a
     * failure, abort the update. */
    tdm_status (*attach)(void *state, const struct tdm_update_bucket *bucket,
                         struct tdm_bytes *bytes_out);
    /* Learns from a batch and writes metrics.  All regions are resident.  Every rank is called
     * with the same step. */
    tdm_status (*step)(void *state, const struct tdm_batch *batch, struct tdm_metrics *metrics);
    /* Writes what load() needs to continue exactly here, and on rank 0 a checkpoint in Hugging
     * Face's format to `directory`/hf.  The directory exists.  Every rank is called; all
     * regions are resident. */
    tdm_status (*save)(void *state, const char *directory);
    /* Restores the rank's state from the files that save() wrote to `directory`. */
    tdm_status (*load)(void *state, const char *directory);
    void (*close)(void *state); /* Frees the state that open() created. */
    /* NULL, or both are set: allocates the outside memory with this tag, and frees it.  A rank
     * needs them if regions() declares such memory.  The first resume() comes before start(), the
     * later ones whenever Tandem resumes regions; pause() whenever it pauses them.  pause() returns
     * when the device has the memory back: also the memory of other processes, if they have it. One
     * tag at a time, so that each is compared with its declaration. */
    tdm_status (*resume)(void *state, const char *tag);
    tdm_status (*pause)(void *state, const char *tag);
    /* NULL, unless the job file sets update.logprob_tolerance: writes the log-probability of each
     * token of sample i to logprobs[i][0 ... tokens_count-1], at the sampling temperature, as this
     * trainer's present weights give it.  Learns nothing.  The samples are those of a rollout that
     * step() gets later, the first one of each prompt; every rank is called with as many.  All
     * regions are resident. */
    tdm_status (*logprobs)(void *state, const struct tdm_batch *batch, float *const *logprobs);
};

/* ---- the engine ------------------------------------------------------------------------- */

struct tdm_engine_ops {
    size_t size_bytes; /* Size of this struct in bytes: sizeof(struct tdm_engine_ops). */

    /* Creates the state. May use the group; there is no device memory yet. */
    tdm_status (*open)(const struct tdm_rank_context *context, void **state_out);
    /* Declares the memory, as tdm_trainer_ops.regions() does.  One region has the tag "weights":
     * updates write it. */
    tdm_status (*regions)(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out);
    /* Stores the addresses of the regions, which are resident and have undefined contents. */
    tdm_status (*start)(void *state, void *const *addresses);
    /* Copies what this rank needs of the tensors to `weights`, a second copy of the region
     * "weights" that is not being served.  On a GPU both are on the GPU, except for tensors of
     * files, which are in host memory.  TDM_E_INVAL names a tensor that is unknown or has a
     * wrong shape or dtype.  The views are borrowed for the call. */
    tdm_status (*load)(void *state, void *weights, const struct tdm_tensor_view *tensors,
                       uint32_t tensors_count);
    /* Returns TDM_OK if load() has got all tensors that this rank needs since the last begin(),
     * else TDM_E_STATE, and names what is missing.  Called before the rank votes for a version.
     */
    tdm_status (*complete)(void *state);
    /* An update begins: forget which tensors load() has got. */
    void (*begin)(void *state);
    /* May be NULL if no trainer attaches bytes.  Gets the bytes, 1 to TDM_ATTACHED_BYTES_MAX, that
     * tdm_trainer_ops.attach() of the trainer rank that serves this engine rank has given for the
     * bucket `bucket` of `buckets_count`; they are borrowed for the call.  Called after begin(),
     * before the bucket is loaded, or its slices are checked; only "weights" is resident.  The
     * trainer rank keeps the bucket's memory until all ranks of the engine have loaded the bucket.
     * A failure aborts the update. */
    tdm_status (*attached)(void *state, uint32_t bucket, uint32_t buckets_count,
                           struct tdm_bytes bytes);
    /* A new version is live: drop what was computed from the old weights.  Called before the
     * next generate(); of the regions only "weights" must be resident. */
    tdm_status (*flush_cache)(void *state);
    /* Answers the prompts.  Every rank of the engine is called with the same arguments; only
     * the completions of rank 0 are read.  All regions are resident. */
    tdm_status (*generate)(void *state, const struct tdm_prompt *prompts, uint32_t prompts_count,
                           const struct tdm_sampling *sampling, struct tdm_completion *completions);
    void (*close)(void *state); /* Frees the state that open() created. */
    /* May be NULL: updates then go through load().  Gives the parts of the trainers' tensors
     * that this rank keeps.  Each part is contiguous at its address in the region "weights", in
     * the tensor's order, and in its dtype or the slice's own.  Trainers may share an FP8
     * block; its scale is that of the whole block. Trainers then write the parts themselves, or
     * write buckets of the same layout.  load() is called for files only, and bytes that no
     * part covers are zero.  TDM_E_INVAL names a tensor that is unknown.  The slices are
     * borrowed while the rank lives. */
    tdm_status (*layout)(void *state, const struct tdm_tensor_info *tensors, uint32_t tensors_count,
                         const struct tdm_slice **slices_out, uint32_t *slices_count_out);
    /* NULL, or both are set: allocates the outside memory with this tag, and frees it.  A rank
     * needs them if regions() declares such memory.  The first resume() comes before start(), the
     * later ones whenever Tandem resumes regions; pause() whenever it pauses them.  pause() returns
     * when the device has the memory back: also the memory of other processes, if they have it. One
     * tag at a time, so that each is compared with its declaration. */
    tdm_status (*resume)(void *state, const char *tag);
    tdm_status (*pause)(void *state, const char *tag);
    /* May be NULL.  For an engine that computes from copies of tensors, such as a packed matrix, so
     * that an update of "weights" alone does not reach what it serves.  Copies what generate()
     * really reads of a slice that layout() gave to `data` in host memory, in the slice's order and
     * dtype, `size_bytes` bytes.  For an engine without a layout `slice` is NULL, and the whole
     * tensor is wanted.  `*name_out` is the tensor's name before the call.  It may be set to the
     * name that the copy has in the engine, such as "lm_head.weight" if that is tied to the tensor;
     * borrowed until the next call.  TDM_E_NOT_FOUND: there is no such copy.  Called if
     * update.logprob_tolerance is exceeded, to name the tensor that differs; all regions are
     * resident. */
    tdm_status (*served)(void *state, const struct tdm_tensor_info *tensor,
                         const struct tdm_slice *slice, void *data, size_t size_bytes,
                         const char **name_out);
    /* May be NULL.  Called on rank 0 of the engine only, before attached() and load() of the same
     * bucket (of the first bucket of an update also before begin()), if any trainer rank has
     * attached bytes: for a server whose one request needs what all
     * trainer ranks of the gather group have attached.  `attached` has `ranks_count` entries, one
     * for each engine rank, of size 0 where nothing is attached; they are borrowed for the call.
     * A table with gathered() and without attached() gets the bytes on rank 0 only.  A failure
     * aborts the update. */
    tdm_status (*gathered)(void *state, uint32_t bucket, uint32_t buckets_count,
                           const struct tdm_bytes *attached, uint32_t ranks_count);
};

/* Rewards one answer: writes token_rewards[0 ... tokens_count-1] and returns the reward of the
 * whole answer, by convention 1 if it is exactly right.  It runs in the controller, on one
 * thread, and its result depends on the arguments only. */
typedef float tdm_reward(const char *prompt, const char *answer,
                         const struct tdm_completion *completion, float *token_rewards);

enum { TDM_REWARD_FAILURE_BYTES = 256 /* Size in bytes of tdm_reward_request.failure. */ };

/* An answer to be rewarded by tdm_reward_ops.score(), which writes the last three fields. */
struct tdm_reward_request {
    const char *prompt; /* Text of the prompt that was answered. */
    const char *answer; /* The right answer to the prompt, from the data set. */
    const struct tdm_completion *completion; /* The engine's answer. */
    /* Reward of each of the completion's tokens, 0 before the call. */
    float *token_rewards;
    float reward; /* Reward of the whole answer, by convention 1 if it is exactly right. */
    /* Why this answer has no reward, NUL-terminated.  "", as before the call: it has one. */
    char failure[TDM_REWARD_FAILURE_BYTES];
};

/* Rewards that take long or may fail: they are computed in an actor of their own.  Its functions
 * run on the actor's thread, one at a time. */
struct tdm_reward_ops {
    size_t size_bytes; /* Size of this struct in bytes: sizeof(struct tdm_reward_ops). */

    /* Creates the state.  The context is that of rank 0 of 1, without a group. */
    tdm_status (*open)(const struct tdm_rank_context *context, void **state_out);
    /* Rewards answers, in an order of its own choice.  An answer whose reward cannot be computed,
     * or not within `rollout.reward_timeout_ms`, gets a text in `failure`; its reward is then 0.
     * The job fails if there are more of these than `rollout.reward_failures_max` in one rollout,
     * if the function fails, or if it takes longer than `rollout.rewards_timeout_ms`. */
    tdm_status (*score)(void *state, struct tdm_reward_request *requests, uint32_t requests_count);
    void (*close)(void *state); /* Frees the state that open() created. */
};

struct tdm_job_library {
    size_t size_bytes;                     /* Size of this struct, which TDM_JOB_LIBRARY sets. */
    const char *name;                      /* Name of the library for messages. */
    const struct tdm_trainer_ops *trainer; /* Table of the functions that trainer ranks run. */
    const struct tdm_engine_ops *engine;   /* Table of the functions that engine ranks run. */
    /* Function that computes the reward of an answer; NULL if `rewards` is set. */
    tdm_reward *reward;
    /* Kinds of device on which the library's models run, such as "host cuda".  NULL: "host". */
    const char *devices;
    /* Table of functions that compute rewards in an actor, or NULL. */
    const struct tdm_reward_ops *rewards;
};

/* Names the tables of the library "python:NAME" of a job file in this process, which is a program
 * that runs job libraries written in Python.  The library finds NAME in the setting `job.library`.
 * `library` is borrowed for ever.  TDM_E_INVAL: it is NULL.  TDM_E_EXISTS: the process has another
 * one.  Never blocks; to be called before the runtime starts. */
TDM_API tdm_status tdm_job_library_register(const struct tdm_job_library *library);

/* Defines the job library; exactly once in a shared library:
 *     TDM_JOB_LIBRARY(.name = "arith", .trainer = &t, .engine = &e, .reward = r); */
#define TDM_JOB_LIBRARY(...)                                                                       \
    TDM_API const struct tdm_job_library tdm_job_library = {                                       \
        .size_bytes = sizeof(struct tdm_job_library), __VA_ARGS__}

extern TDM_API const struct tdm_job_library tdm_job_library;

#ifdef __cplusplus
}
#endif

#endif
