/* two_models_test.c - two jobs of different models in one family, updated at the same time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/controller.h"
#include "colocate/weights/version_service.h"

#include <tandem/tandem.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 60000, TEXT_BYTES = 1024 };

/* Both are of the same library, tests/colocate/tiny_job_library.c, on a GPU each. */
static const char job_file[] =
    "job: {name: %s, library: " TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so}\n"
    "cluster: {num_gpus: 1, gpu_bytes: 32 MiB}\n"
    "trainer: {num_ranks: 1, num_gpus_per_actor: 0.25, step_timeout_ms: 60000}\n"
    "engine: {num_engines: 1, rollout_num_gpus_per_engine: 1, num_gpus_per_actor: 0.2}\n"
    "update: {%s, update_weight_buffer_size: 4 KiB, timeout_ms: 60000}\n"
    "data: {train: none, unseen: none}\n";

struct job {
    struct tdm__job_spec spec;
    struct tdm__controller controller;
    uint32_t updates_count; /* Number of updates to make. */
    tdm_status status;
    char detail[512]; /* Error detail of the job's failure. */
};

static tdm_runtime *runtime;
static struct job policy; /* The jobs are static, because each one is large. */
static struct job critic;

static void open_job(struct job *job, const char *name, const char *setting)
{
    static const struct tdm__job_run_options options = {.program = "test"};
    char text[TEXT_BYTES];
    tdm_config *config;

    memset(job, 0, sizeof(*job));
    (void)snprintf(text, sizeof(text), job_file, name, setting);
    TRY(tdm_config_parse(text, strlen(text), name, &config));
    TRY(tdm__job_spec_from_config(config, "", &job->spec));
    job->controller =
        (struct tdm__controller){.spec = &job->spec, .options = &options, .runtime = runtime};
    TRY(tdm__worker_group_start(&job->controller.workers, runtime, &job->spec,
                                &(struct tdm__worker_group_options){.names_ms = 0}));
    TRY(tdm__controller_resume_trainer(&job->controller));
    TRY(tdm__controller_pause_trainer(&job->controller));
    TRY(tdm__controller_resume_weights(&job->controller));
}

static void close_job(struct job *job)
{
    struct tdm__worker_group *workers = &job->controller.workers;

    TRY(tdm_actor_kill(workers->engines[0], WAIT_MS));
    TRY(tdm_actor_kill(workers->trainers[0], WAIT_MS));
    tdm__worker_group_fini(workers);
    tdm__job_spec_fini(&job->spec);
}

static tdm_status update_once(struct tdm__controller *controller)
{
    TDM_TRY(tdm__controller_update(controller));
    controller->phase.committed_version = controller->update.version;
    return tdm__controller_flush(controller);
}

static void *make_updates(void *arg)
{
    struct job *job = arg;

    for (uint32_t i = 0; i < job->updates_count && job->status == TDM_OK; i++) {
        job->status = update_once(&job->controller);
    }
    if (job->status != TDM_OK) {
        (void)snprintf(job->detail, sizeof(job->detail), "%s", tdm_error_detail());
    }
    return NULL;
}

static void assert_committed(struct job *job, const char *model, uint64_t version)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    struct tdm__version_reply answer;
    const tdm_value *value;
    tdm_ref *ref;

    if (job->status != TDM_OK) {
        fail_msg("%s: %s: %s", model, tdm_strerror(job->status), job->detail);
    }
    TRY(tdm__version_service_call(runtime, model, &read, WAIT_MS, &answer));
    assert_int_equal(answer.version, version);
    assert_int_equal(job->controller.update.version, version);
    /* It looks at every byte of its weights before it answers. */
    TRY(tdm__controller_resume_kv(&job->controller));
    TRY(tdm_actor_call(job->controller.workers.engines[0], "generate", &ref, "fu((su))", 0.0,
                       (uint64_t)2, "p", (uint64_t)1));
    TRY(tdm_get_value(ref, WAIT_MS, &value));
    assert_int_equal(tdm_value_uint(tdm_value_at(value, 0), 0), version);
    tdm_ref_release(ref);
}

static void assert_named(const char *name)
{
    tdm_actor *actor;

    TRY(tdm_actor_find(runtime, name, WAIT_MS, &actor));
    tdm_actor_destroy(actor);
}

static void two_jobs_update_their_models_at_the_same_time(void **state)
{
    pthread_t threads[2];

    (void)state;
    open_job(&policy, "policy", "mode: donate");
    open_job(&critic, "critic", "model: critic, mode: copy");
    assert_named("engine/0/0");
    assert_named("critic/engine/0/0");
    assert_named("critic/trainer/0");
    policy.updates_count = 12;
    critic.updates_count = 5;
    assert_int_equal(pthread_create(&threads[0], NULL, make_updates, &policy), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, make_updates, &critic), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_committed(&policy, "policy", 12);
    assert_committed(&critic, "critic", 5);
    close_job(&critic);
    policy.updates_count = 1; /* The other job must not affect this one. */
    (void)make_updates(&policy);
    assert_committed(&policy, "policy", 13);
    close_job(&policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_jobs_update_their_models_at_the_same_time),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.gpus = 2;
    options.gpu_bytes = 32 * MIB;
    options.cpus = 8;
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    TDM_CHECK(tdm_runtime_start(&options, &runtime));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
