/* larger_engine_test.c - a job whose engines have more ranks than the trainer: each trainer rank
 * sends several ranks of an engine their parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/worker.h"
#include "colocate/job/controller.h"
#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TEXT_BYTES = 1024, RANKS_MAX = 4, ATTACHED_BYTES = 100 };

/* How many ranks a job has. */
struct shape {
    uint32_t trainers;
    uint32_t engines;
    uint32_t ranks_per_engine;
    const char *mode; /* update.mode */
};

/* One trainer rank serves all ranks, each serves as many, or the first serves one more. */
static const struct shape shapes[] = {
    {1, 1, 3, "copy"}, {2, 1, 4, "copy"}, {2, 1, 4, "bucket"}, {2, 1, 3, "copy"}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static char folder[] = "/tmp/larger-XXXXXX";
static char attached_path[64];

static struct tdm__job_spec spec;
static struct tdm__controller controller;

/* Reads the job file of a shape into `spec`. Trainer ranks attach bytes to each bucket. */
static void spec_of(const struct shape *shape)
{
    static const char file[] =
        "job: {name: larger, library: " TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so}\n"
        "cluster: {num_gpus: %u, gpu_bytes: 32 MiB, cpus: 16}\n"
        "trainer: {num_ranks: %u, step_timeout_ms: 60000, attach_bytes: %d}\n"
        "engine: {num_engines: %u, rollout_num_gpus_per_engine: %u, colocate: false,"
        " attached_log: %s}\n"
        "update: {update_weight_buffer_size: 8 KiB, mode: %s, timeout_ms: 60000}\n"
        "data: {train: none, unseen: none}\n";
    char text[TEXT_BYTES];
    tdm_config *config;

    (void)snprintf(text, sizeof(text), file,
                   shape->trainers + shape->engines * shape->ranks_per_engine, shape->trainers,
                   (int)ATTACHED_BYTES, shape->engines, shape->ranks_per_engine, attached_path,
                   shape->mode);
    TRY(tdm_config_parse(text, strlen(text), "job.yaml", &config));
    if (tdm__job_spec_from_config(config, "", &spec) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
}

/* Starts the job. */
static void open_job(const struct shape *shape)
{
    static const struct tdm__job_run_options run = {.program = "test"};
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;

    print_message("%u trainer ranks, %u engines of %u ranks, %s\n", shape->trainers, shape->engines,
                  shape->ranks_per_engine, shape->mode);
    (void)unlink(attached_path);
    spec_of(shape);
    options.cpus = 16;
    options.gpus = spec.num_gpus;
    options.gpu_bytes = spec.gpu_bytes;
    TRY(tdm_runtime_start(&options, &runtime));
    controller = (struct tdm__controller){.spec = &spec, .options = &run, .runtime = runtime};
    if (tdm__worker_group_start(&controller.workers, controller.runtime, &spec,
                                &(struct tdm__worker_group_options){.names_ms = 0}) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    TRY(tdm__controller_resume_trainer(&controller));
    TRY(tdm__controller_pause_trainer(&controller));
    TRY(tdm__controller_resume_weights(&controller));
}

static void close_job(void)
{
    tdm__worker_group_fini(&controller.workers);
    tdm_runtime_stop(controller.runtime);
    tdm__job_spec_fini(&spec);
}

static void update_commits(void)
{
    if (tdm__controller_update(&controller) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    controller.phase.committed_version = controller.update.version;
    TRY(tdm__controller_flush(&controller));
}

/* Counts the buckets that a trainer rank has sent to each rank of engine 0. */
static void count_sent(uint32_t trainer, uint32_t sent[RANKS_MAX])
{
    const tdm_value *value;
    struct tdm__span span;
    tdm_ref *ref;

    memset(sent, 0, RANKS_MAX * sizeof(sent[0]));
    TRY(tdm_actor_call(controller.workers.trainers[trainer], "trace", &ref, ""));
    TRY(tdm_get_value(ref, 60000, &value));
    for (uint32_t i = 0; tdm__span_read(value, i, &span) != 0; i++) {
        unsigned bucket;
        unsigned rank;

        if (sscanf(span.name, "send bucket %u", &bucket) == 1) {
            assert_int_equal(sscanf(span.to, "engine/0/%u", &rank), 1);
            assert_in_range(rank, 0, RANKS_MAX - 1);
            sent[rank]++;
        }
    }
    tdm_ref_release(ref);
}

/* Checks that the trainer ranks have sent the same number of buckets to each engine rank that they
 * serve, and none to the others. */
static void check_sent(const struct shape *shape)
{
    for (uint32_t trainer = 0; trainer < shape->trainers; trainer++) {
        uint32_t sent[RANKS_MAX];

        count_sent(trainer, sent);
        for (uint32_t rank = 0; rank < shape->ranks_per_engine; rank++) {
            bool serves = rank * shape->trainers / shape->ranks_per_engine == trainer;

            assert_true(serves == (sent[rank] > 1));
        }
    }
}

/* Reads the log of the engines: counts for each rank the buckets whose bytes it has got itself. */
static void count_attached(uint32_t counts[RANKS_MAX], uint32_t *buckets_count_out)
{
    FILE *file = fopen(attached_path, "r");
    unsigned rank;
    unsigned bucket;
    size_t size_bytes;
    char found[16];

    memset(counts, 0, RANKS_MAX * sizeof(counts[0]));
    assert_non_null(file);
    while (fscanf(file, "%15s %u %u %u %zu", found, &rank, &bucket, buckets_count_out,
                  &size_bytes) == 5) {
        assert_in_range(rank, 0, RANKS_MAX - 1);
        assert_int_equal(size_bytes, ATTACHED_BYTES);
        counts[rank] += strcmp(found, "attached") == 0 ? 1 : 0;
    }
    (void)fclose(file);
}

/* Each trainer rank writes a part of each image, and the engine compares the checksum of each part.
 */
static void test_each_engine_rank_gets_its_part_and_its_attached_bytes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        uint32_t counts[RANKS_MAX];
        uint32_t buckets_count = 0;

        open_job(&shapes[i]);
        update_commits();
        count_attached(counts, &buckets_count);
        assert_true(buckets_count > 1);
        for (uint32_t rank = 0; rank < shapes[i].ranks_per_engine; rank++) {
            assert_int_equal(counts[rank], buckets_count);
        }
        check_sent(&shapes[i]);
        update_commits();
        close_job();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_engine_rank_gets_its_part_and_its_attached_bytes),
    };
    int failed;

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(attached_path, sizeof(attached_path), "%s/attached", folder);
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(attached_path);
    (void)rmdir(folder);
    return failed;
}
