/* weights_job.h - a job that only updates weights, shared by the benchmarks of updates. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_WEIGHTS_JOB_H
#define TDM_BENCH_WEIGHTS_JOB_H

#include "colocate/job/controller.h"
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* Size of the model, which has the shape of Qwen3-0.6B. */
struct bench_model {
    /* Number of transformer layers. */
    uint32_t layers;
    /* Number of words of the embedding. */
    uint32_t vocabulary;
};

/* How a job is set up. All pointers are borrowed. */
struct bench_job_options {
    /* Name of the benchmark, also that of the job. */
    const char *name;
    /* Size of the model. */
    struct bench_model model;
    /* Number of engines of two ranks each; there are as many trainer ranks as engine ranks. */
    uint32_t engines;
    /* Value of update.mode: "donate", "copy", "bucket" or "names". */
    const char *mode;
    /* Value of update.verify: "full", "sample" or "none". */
    const char *verify;
    /* Size of a bucket in MiB; 0 for 64. */
    uint32_t bucket_mib;
    /* Address of a node of a cluster whose other node has the engines; NULL to start a private
     * node. */
    const char *address;
};

/* A running job. The benchmark owns it; the controller borrows the other two fields. */
struct bench_job {
    /* Options of the run; no output directory. */
    struct tdm__job_run_options run;
    /* Settings of the job. */
    struct tdm__job_spec spec;
    /* The controller, whose functions the benchmark calls directly. */
    struct tdm__controller controller;
};

/* Returns the size of the model: all layers if TANDEM_BENCH_MODEL is "full", else four. */
static inline struct bench_model bench_model_wanted(void)
{
    const char *size = getenv("TANDEM_BENCH_MODEL");
    bool full = size != NULL && strcmp(size, "full") == 0;

    return full ? (struct bench_model){28, 151936} : (struct bench_model){4, 32768};
}

/* Returns the bytes of the model in bfloat16, without the norms, which are negligible. */
static inline uint64_t bench_model_bytes(const struct bench_model *model)
{
    return 2 * ((uint64_t)model->vocabulary * 1024 + (uint64_t)model->layers * 15728640);
}

/* Returns the GPU memory in MiB that a rank needs: weights, shadow copy, and a bucket, which may
 * be as large as a tensor. */
static inline unsigned long long bench_gpu_mib(const struct bench_model *model)
{
    return bench_model_bytes(model) * 3 / 4 / (1 << 20) * 2 + 128;
}

/* Fills the settings of the job. */
static inline void bench_job_spec(const struct bench_job_options *options,
                                  struct tdm__job_spec *spec_out)
{
    /* The data files are never read. */
    static const char job_file[] =
        "job: {name: %s, library: " TDM_BENCH_BUILD_DIR "/weights_library.so}\n"
        "cluster: {num_gpus: %u, gpu_bytes: %llu MiB, cpus: 8}\n"
        "trainer: {num_ranks: %u, step_timeout_ms: 60000}\n"
        "engine: {num_engines: %u, rollout_num_gpus_per_engine: 2, colocate: %s}\n"
        "model: {layers: %u, vocabulary: %u}\n"
        "update: {update_weight_buffer_size: %u MiB, mode: %s, verify: %s, timeout_ms: 60000}\n"
        "data: {train: none, unseen: none}\n";
    bool far = options->address != NULL;
    uint32_t ranks = options->engines * 2;
    char text[1024];
    tdm_config *config;

    (void)snprintf(text, sizeof(text), job_file, options->name, far ? 2 * ranks : ranks,
                   bench_gpu_mib(&options->model), ranks, options->engines, far ? "false" : "true",
                   options->model.layers, options->model.vocabulary,
                   options->bucket_mib == 0 ? 64 : options->bucket_mib, options->mode,
                   options->verify);
    TDM_CHECK(tdm_config_parse(text, strlen(text), options->name, &config));
    TDM_CHECK(tdm__job_spec_from_config(config, "", spec_out));
}

/* Starts the runtime and creates the actors, which have no memory yet. */
static inline void bench_job_open(struct bench_job *job, const struct bench_job_options *options)
{
    struct tdm_runtime_options node = TDM_RUNTIME_OPTIONS_INIT;

    *job = (struct bench_job){.run = {.program = options->name}};
    bench_job_spec(options, &job->spec);
    job->controller.spec = &job->spec;
    job->controller.options = &job->run;
    if (options->address != NULL) {
        node.address = options->address;
    } else {
        node.cpus = (uint32_t)job->spec.cpus;
        node.gpus = job->spec.num_gpus;
        node.gpu_bytes = job->spec.gpu_bytes;
    }
    TDM_CHECK(tdm_runtime_start(&node, &job->controller.runtime));
    TDM_CHECK(tdm__worker_group_start(
        &job->controller.workers, job->controller.runtime, &job->spec,
        &(struct tdm__worker_group_options){.names_ms = TDM__WORKER_NAMES_MS}));
}

/* Releases the actors and stops the runtime. */
static inline void bench_job_close(struct bench_job *job)
{
    tdm__worker_group_fini(&job->controller.workers);
    tdm_runtime_stop(job->controller.runtime);
    tdm__job_spec_fini(&job->spec);
}

/* Brings the job from the end of a training step to the beginning of the update.
 * The training itself is omitted. */
static inline void bench_job_train(struct bench_job *job)
{
    TDM_CHECK(tdm__controller_resume_trainer(&job->controller));
    TDM_CHECK(tdm__controller_pause_trainer(&job->controller));
    TDM_CHECK(tdm__controller_resume_weights(&job->controller));
}

#endif
