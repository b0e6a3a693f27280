/* update.c - weights go from trainers to an engine, against memcpy of the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's own functions over real actors: two trainer ranks with flat halves of every
 * tensor, one engine of two ranks with half of the rows of each.  What is timed is all of an
 * update, from its first word to the store until the trainers have given their buckets back.
 * The peer is two processes that copy what the two engine ranks have to write. */
#include "actors/worker.h"
#include "colocate/job/controller.h"
#include "copiers.h"
#include "measure.h"

#include <string.h>
#include <tandem/tandem.h>

enum { TIMEOUT_MS = 30000, WARM_UPDATES = 2, WRITERS = 2 };

#define MODEL_BYTES ((uint64_t)64 << 20)

/* 64 tensors of 1 MiB; nothing of the data is ever read. */
static const char job_file[] =
    "job: {name: update, library: " TDM_BENCH_BUILD_DIR "/update_library.so}\n"
    "cluster: {num_gpus: 2, gpu_bytes: 512 MiB, cpus: 4}\n"
    "trainer: {num_ranks: 2, step_timeout_ms: 30000}\n"
    "engine: {num_engines: 1, rollout_num_gpus_per_engine: 2}\n"
    "model: {tensors: 64, tensor_bytes: 1048576}\n"
    "update: {update_weight_buffer_size: 8 MiB, verify: full}\n"
    "data: {train: none, unseen: none}\n";

/* What a job's first turn does, up to where engines have memory for their weights only. */
static void start(struct tdm__controller *controller)
{
    TDM_CHECK(tdm__crew_start(&controller->crew, controller->runtime, controller->spec, NULL));
    TDM_CHECK(tdm__controller_resume_trainer(controller));
    TDM_CHECK(tdm__controller_pause_trainer(controller));
    TDM_CHECK(tdm__controller_resume_weights(controller));
}

/* The seconds it took. */
static double update_once(struct tdm__controller *controller)
{
    double begun = bench_seconds();

    TDM_CHECK(tdm__controller_update(controller));
    controller->phase.committed_version = controller->update.version;
    TDM_CHECK(tdm__controller_flush(controller));
    return bench_seconds() - begun;
}

/* Each engine rank looks at all of its weights. */
static void check_weights(struct tdm__controller *controller)
{
    struct tdm__crew *crew = &controller->crew;
    tdm_writer *writer;

    TDM_CHECK(tdm_writer_create(&writer));
    TDM_CHECK(tdm_pack(writer, "fu((su))", 0.0, (uint64_t)1, "", (uint64_t)0));
    TDM_CHECK(tdm__crew_call(crew, crew->engines, crew->engines_count, "generate",
                             tdm_writer_bytes(writer), TIMEOUT_MS));
    tdm_writer_destroy(writer);
}

static void measure_updates(struct tdm__controller *controller,
                            const struct bench_copiers *copiers)
{
    static struct bench_measure update = {.name = "update_64mib",
                                          .unit = "GiB/s",
                                          .against = "memcpy, two warmed processes",
                                          .better = BENCH_MORE_IS_BETTER,
                                          .at_least = 0.35};
    const double gib = (double)MODEL_BYTES / (1u << 30);

    for (int i = 0; i < WARM_UPDATES; i++) {
        (void)update_once(controller);
        check_weights(controller);
    }
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        double copied = bench_ours_first(i) ? 0 : bench_copiers_run(copiers);
        double updated = update_once(controller);

        if (bench_ours_first(i)) {
            copied = bench_copiers_run(copiers);
        }
        check_weights(controller);
        bench_round(&update, gib / updated, gib / copied);
    }
    bench_report(&update);
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {BENCH_COPIER_ROLE};
    static const struct tdm__job_run_options run = {.program = "update"};
    static struct tdm__job_spec spec;
    static struct tdm__controller controller = {.spec = &spec, .options = &run};
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct bench_copiers copiers;
    tdm_config *config;

    tdm__worker_run_if_one(); /* never returns where this program is an actor */
    bench_peer_run(argc, argv, roles, 1);
    bench_init(argc, argv);
    TDM_CHECK(tdm_config_parse(job_file, sizeof(job_file) - 1, "update.yaml", &config));
    TDM_CHECK(tdm__job_spec_make(config, "", &spec));
    options.cpus = (uint32_t)spec.cpus;
    options.gpus = spec.num_gpus;
    options.gpu_bytes = spec.gpu_bytes;
    TDM_CHECK(tdm_runtime_start(&options, &controller.runtime));
    start(&controller);
    bench_copiers_start(&copiers, WRITERS, MODEL_BYTES / WRITERS);

    measure_updates(&controller, &copiers);

    bench_copiers_stop(&copiers);
    tdm__crew_fini(&controller.crew);
    tdm_runtime_stop(controller.runtime);
    tdm__job_spec_fini(&spec);
    return bench_status();
}
