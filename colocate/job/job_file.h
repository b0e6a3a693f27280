/* job_file.h - reads a job file into a struct and checks every setting. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_FILE_H
#define TDM_COLOCATE_JOB_JOB_FILE_H

#include "colocate/job/job_limits.h"
#include "runtime/file.h"

#include <stdbool.h>
#include <tandem/config.h>

/* Size of a text setting with its NUL, and the longest model name in bytes. */
enum { TDM__JOB_TEXT_BYTES = 64, TDM__JOB_MODEL_BYTES_MAX = 32 };
/* Size of the list of folders of the Python package with its NUL. */
enum { TDM__PYTHON_FOLDERS_BYTES = 3 * TDM__PATH_BYTES };

/* Name of the model in a job that trains one model; its versions and actors are named after it. */
#define TDM__JOB_MODEL "policy"
/* Begin of the setting job.library if the library is a Python module. */
#define TDM__PYTHON_PREFIX "python:"

/* The settings that Tandem itself reads from a job file; docs/job-file.md describes each.
 * Settings of the job library stay in `config`, below "trainer", "engine" and "model". Relative
 * paths are resolved against the folder of the file, except `out`, which is relative to the
 * current directory. Owned by the caller and read-only after it was filled. */
struct tdm__job_spec {
    /* Owned tree of the whole file with the overrides of the command line applied. */
    tdm_config *config;

    /* Name of the job in output and records (job.name). */
    char name[TDM__JOB_TEXT_BYTES];
    /* Seed of all random numbers of the job (job.seed). */
    uint64_t seed;
    /* Path of the job library, or "python:" and the name of a module (job.library). */
    char library[TDM__PATH_BYTES];
    /* Interpreter of a library that is a Python module: a path, or a name to be looked up in PATH
     * (job.python). */
    char python[TDM__PATH_BYTES];
    /* Files and folders in the folder of the job file that other nodes get beside the module of a
     * library in Python, separated by blanks (job.files). */
    char files[TDM__PATH_BYTES];
    /* Folder of the job file; "" for the current one. */
    char folder[TDM__PATH_BYTES];
    /* Folders of Tandem's Python package, separated by colons; "" if PYTHONPATH has them. No
     * setting: the program that runs the job fills it in. */
    char python_folders[TDM__PYTHON_FOLDERS_BYTES];
    /* Output directory; empty if it is not set (job.out). */
    char out[TDM__PATH_BYTES];
    /* Number of steps between checkpoints; 0 to save only at the end (job.save_interval). */
    uint32_t save_interval;
    /* How often the job starts its ranks again after a failure (job.max_restarts). */
    uint32_t max_restarts;
    /* Longest time in milliseconds from the creation of ranks until all of them are constructed
     * (job.start_timeout_ms). */
    uint32_t start_timeout_ms;

    /* Number of GPUs that the job uses (cluster.num_gpus). */
    uint32_t num_gpus;
    /* Memory of each GPU in bytes (cluster.gpu_bytes). */
    uint64_t gpu_bytes;
    /* Device kind: "host" for virtual GPUs in host memory, or "cuda" (cluster.device). */
    char device[TDM__JOB_TEXT_BYTES];
    /* CPUs of a private node; 0 for all of the machine (cluster.cpus). */
    double cpus;

    /* Number of trainer ranks (trainer.num_ranks). */
    uint32_t trainer_num_ranks;
    /* Share of a GPU that each trainer rank reserves, 0 to 1 (trainer.num_gpus_per_actor). */
    double trainer_num_gpus_per_actor;
    /* Longest time in milliseconds for a call to the trainers (trainer.step_timeout_ms). */
    uint32_t step_timeout_ms;
    /* Milliseconds after which a trainer rank that does not reply makes the job fail
     * (trainer.stall_timeout_ms). */
    uint32_t trainer_stall_timeout_ms;

    /* Number of engines (engine.num_engines). */
    uint32_t num_engines;
    /* Number of ranks of each engine, one on each of its GPUs
     * (engine.rollout_num_gpus_per_engine). */
    uint32_t rollout_num_gpus_per_engine;
    /* Share of a GPU that each engine rank reserves, 0 to 1 (engine.num_gpus_per_actor). */
    double engine_num_gpus_per_actor;
    /* Longest time in milliseconds for one call to generate (engine.generate_timeout_ms). */
    uint32_t generate_timeout_ms;
    /* True if engines share the GPUs of the trainers; false if they have GPUs of their own on
     * any node (engine.colocate). */
    bool engine_colocate;

    /* Path of the model's config.json for named layouts; empty if it is not set (model.config). */
    char model_config[TDM__PATH_BYTES];

    /* Number of prompts in each step (rollout.rollout_batch_size). */
    uint32_t rollout_batch_size;
    /* Number of completions of each prompt (rollout.n_samples_per_prompt). */
    uint32_t n_samples_per_prompt;
    /* Samples of each step, which is rollout_batch_size × n_samples_per_prompt
     * (rollout.global_batch_size). */
    uint32_t global_batch_size;
    /* Sampling temperature of rollouts (rollout.temperature). */
    double temperature;
    /* Longest prompt in tokens (rollout.rollout_max_prompt_len). */
    uint32_t rollout_max_prompt_len;
    /* Longest completion in tokens (rollout.rollout_max_response_len). */
    uint32_t rollout_max_response_len;
    /* Number of reinforcement-learning steps of the job (rollout.num_rollout). */
    uint32_t num_rollout;
    /* Number of supervised steps before the first rollout (rollout.warmup_steps). */
    uint32_t warmup_steps;
    /* Number of samples in each supervised step (rollout.warmup_batch_size). */
    uint32_t warmup_batch_size;
    /* Least number of live engines; with fewer the job fails (rollout.num_engines_min). */
    uint32_t num_engines_min;
    /* Longest time in milliseconds of one reward, which the library obeys
     * (rollout.reward_timeout_ms). */
    uint32_t reward_timeout_ms;
    /* Longest time in milliseconds for all rewards of a rollout (rollout.rewards_timeout_ms). */
    uint32_t rewards_timeout_ms;
    /* Most rewards of a rollout that may fail (rollout.reward_failures_max). */
    uint32_t reward_failures_max;
    /* Steps between evaluations; 0 to evaluate only before and after training
     * (rollout.eval_interval). */
    uint32_t eval_interval;

    /* Size in bytes of the staging bucket of each trainer rank
     * (update.update_weight_buffer_size). */
    uint64_t update_weight_buffer_size;
    /* Name under which the store keeps the weight versions of this job (update.model). */
    char update_model[TDM__JOB_TEXT_BYTES];
    /* Source of new weights: "tensors" to send weights from the trainers, "disk" to let engines
     * read a checkpoint (update.source). */
    char update_source[TDM__JOB_TEXT_BYTES];
    /* False if all updates after the first are skipped, which only tests do (update.enabled). */
    bool update_enabled;
    /* How weights reach the engines: "donate", "copy", "bucket" or "names" (update.mode). */
    char update_mode[TDM__JOB_TEXT_BYTES];
    /* Which checksums an engine verifies: "full", "sample" or "none" (update.verify). */
    char verify[TDM__JOB_TEXT_BYTES];
    /* Largest difference between an engine's and the trainer's log-probability of a sampled token;
     * 0 if they are not compared (update.logprob_tolerance). */
    double logprob_tolerance;
    /* The same for an engine that keeps a tensor in another dtype than the trainer; 0 if
     * `logprob_tolerance` is valid for it, too (update.logprob_tolerance_converted). */
    double logprob_tolerance_converted;
    /* Longest time in milliseconds for each call of an update (update.timeout_ms). */
    uint32_t update_timeout_ms;
    /* Milliseconds after which an engine rank that does not reply is killed
     * (update.stall_timeout_ms). */
    uint32_t update_stall_timeout_ms;

    /* Path of the rows to train on (data.train). */
    char train[TDM__PATH_BYTES];
    /* Path of the rows to evaluate on (data.unseen). */
    char unseen[TDM__PATH_BYTES];
    /* Key of the prompt in each row (data.prompt_key). */
    char prompt_key[TDM__JOB_TEXT_BYTES];
    /* Key of the expected answer in each row (data.answer_key). */
    char answer_key[TDM__JOB_TEXT_BYTES];
    /* True gives each sample the reward of another one; a control experiment of tests
     * (data.shuffle_rewards). */
    bool shuffle_rewards;
};

/* Reads the file at `path`, applies the "key=value" overrides in their order, and checks every
 * key and value. TDM_E_PROTOCOL, TDM_E_TYPE and TDM_E_INVAL name file, line and field. The spec
 * has tens of KiB and must not be on a small stack. Release it with tdm__job_spec_fini(). */
tdm_status tdm__job_file_read(const char *path, const char *const *overrides,
                              uint32_t overrides_count, struct tdm__job_spec *spec_out);
/* Fills the spec from a configuration that the caller has built. The spec takes ownership of
 * `config` only on TDM_OK. `directory` is the folder that relative paths start from; "" for the
 * current one. */
tdm_status tdm__job_spec_from_config(tdm_config *config, const char *directory,
                                     struct tdm__job_spec *spec_out);
/* Returns true if updates write over the weights that the engines serve (update.mode "bucket"), so
 * that the engines need no memory for a second copy. */
bool tdm__job_updates_overwrite(const struct tdm__job_spec *spec);
/* Returns how many engines with GPUs of their own a job of this spec may have: at most
 * TDM__JOB_ENGINES_MAX, and with at most TDM__JOB_ENGINE_RANKS_MAX ranks in all. */
uint32_t tdm__engines_limit(const struct tdm__job_spec *spec);
/* Frees the configuration of the spec. */
void tdm__job_spec_fini(struct tdm__job_spec *spec);

#endif
