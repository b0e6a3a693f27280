/* weights_job.h - a job that only updates weights, for the benchmarks of updates. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_WEIGHTS_JOB_H
#define TDM_BENCH_WEIGHTS_JOB_H

#include "colocate/job/controller.h"
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* Of the shape of Qwen3-0.6B. */
struct bench_model {
    uint32_t layers;
    uint32_t vocabulary;
};

struct bench_job_options {
    const char *name;
    struct bench_model model;
    uint32_t engines; /* of two ranks each; there are as many trainer ranks */
    const char *mode;
    const char *verify;
    uint32_t bucket_mib; /* 0: 64 */
    const char *address; /* of a node; the engines are on another one.  NULL: one node, its own */
};

struct bench_job {
    struct tdm__job_run_options run;
    struct tdm__job_spec spec;
    struct tdm__controller controller;
};

/* All of it where TANDEM_BENCH_MODEL is "full", else four layers. */
static inline struct bench_model bench_model_wanted(void)
{
    const char *size = getenv("TANDEM_BENCH_MODEL");
    bool full = size != NULL && strcmp(size, "full") == 0;

    return full ? (struct bench_model){28, 151936} : (struct bench_model){4, 32768};
}

/* bfloat16; the norms do not matter. */
static inline uint64_t bench_model_bytes(const struct bench_model *model)
{
    return 2 * ((uint64_t)model->vocabulary * 1024 + (uint64_t)model->layers * 15728640);
}

/* An engine rank's weights, their shadow, and a bucket, which may be as large as a tensor. */
static inline unsigned long long bench_gpu_mib(const struct bench_model *model)
{
    return bench_model_bytes(model) * 3 / 4 / (1 << 20) * 2 + 128;
}

static inline void bench_job_spec(const struct bench_job_options *options,
                                  struct tdm__job_spec *spec_out)
{
    /* Nothing of the data is ever read. */
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

/* Its actors are there, and have taken no memory yet. */
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
    TDM_CHECK(tdm__worker_group_start(&job->controller.workers, job->controller.runtime, &job->spec,
                                      NULL));
}

static inline void bench_job_close(struct bench_job *job)
{
    tdm__worker_group_fini(&job->controller.workers);
    tdm_runtime_stop(job->controller.runtime);
    tdm__job_spec_fini(&job->spec);
}

/* From where a step's training would end to the update. */
static inline void bench_job_train(struct bench_job *job)
{
    TDM_CHECK(tdm__controller_resume_trainer(&job->controller));
    TDM_CHECK(tdm__controller_pause_trainer(&job->controller));
    TDM_CHECK(tdm__controller_resume_weights(&job->controller));
}

#endif
