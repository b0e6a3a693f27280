/* logprob_check_test.c - engines whose log-probabilities are not the trainer's are removed, and no
 * others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/logprob_check.h"

#include "actors/worker.h"
#include "colocate/job/job.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/redis_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIBRARY TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so"

static char directory[64]; /* Directory of the data and of the job's output. */

/* Two engines of one rank. A log-probability of the library changes by 6.4e-5 with one wrong byte,
 * by 1e-4 or more with the bytes of an earlier step, and by 1e-4 to 1e-3 in bfloat16. */
static const char job_file[] =
    "job: {name: tiny, seed: 5, library: " LIBRARY ", save_interval: 2, max_restarts: 0}\n"
    "cluster: {num_gpus: 2, gpu_bytes: 32 MiB, cpus: 4}\n"
    "trainer: {num_ranks: 2, step_timeout_ms: 10000}\n"
    "engine: {num_engines: 2, rollout_num_gpus_per_engine: 1}\n"
    "rollout: {num_rollout: 3, rollout_batch_size: 4, n_samples_per_prompt: 2,\n"
    "          rollout_max_response_len: 4, warmup_steps: 1, warmup_batch_size: 2}\n"
    "update: {update_weight_buffer_size: 4 KiB, timeout_ms: 10000, logprob_tolerance: 1e-5}\n";

/* Runs the job with these overrides. The result is in the directory "out". */
static tdm_status run(const char *const *overrides, uint32_t overrides_count)
{
    static struct tdm__job_spec spec;
    char paths[3][160];
    struct tdm__job_run_options options = {.program = "logprob_check_test",
                                           .progress = TDM__PROGRESS_PLAIN};
    tdm_config *config;
    tdm_status status;
    bool finished;

    (void)snprintf(paths[0], sizeof(paths[0]), "data.train=%s/data", directory);
    (void)snprintf(paths[1], sizeof(paths[1]), "data.unseen=%s/data", directory);
    (void)snprintf(paths[2], sizeof(paths[2]), "%s/out", directory);
    assert_int_equal(tdm_config_parse(job_file, sizeof(job_file) - 1, "tiny.yaml", &config),
                     TDM_OK);
    assert_int_equal(tdm_config_override(config, paths[0]), TDM_OK);
    assert_int_equal(tdm_config_override(config, paths[1]), TDM_OK);
    for (uint32_t i = 0; i < overrides_count; i++) {
        assert_int_equal(tdm_config_override(config, overrides[i]), TDM_OK);
    }
    assert_int_equal(tdm__job_spec_from_config(config, "", &spec), TDM_OK);
    options.out = paths[2];
    options.overwrite = true;
    status = tdm__job_run(&spec, &options, &finished);
    if (status != TDM_OK) {
        print_message("%s\n", tdm_error_detail());
    }
    tdm__job_spec_fini(&spec);
    return status;
}

/* Checks with which version of the weights the samples of each step were made. */
static void assert_versions(const char *expected)
{
    char path[160];
    char line[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/out/checkpoint/rank-0", directory);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    (void)fclose(file);
    assert_string_equal(line, expected);
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void right_engines_are_never_removed(void **state)
{
    const char *const modes[] = {"update.mode=donate", "update.mode=copy", "update.mode=bucket",
                                 "update.mode=names"};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const char *const settings[] = {modes[i], "rollout.num_engines_min=2"};

        assert_int_equal(run(settings, 2), TDM_OK);
        assert_versions("3: 1 2 3");
    }
}

/* The library's models are the processor's, which the fake library lets touch what is on a GPU; the
 * checksums are computed by the device. */
static void weights_on_gpus_are_compared_as_on_the_host(void **state)
{
    const char *const right[] = {"cluster.device=cuda", "rollout.num_engines_min=2"};
    const char *const corrupt[] = {"cluster.device=cuda", "rollout.num_engines_min=2",
                                   "engine.corrupt_step=1"};

    (void)state;
    assert_int_equal(run(right, 2), TDM_OK);
    assert_int_equal(run(corrupt, 3), TDM_E_ACTOR_DIED);
    assert_told("the first tensor that differs is bytes: its part of the region \"weights\"");
}

/* Engine 1 changes a byte of its weights of step 1. Its samples are dropped, and step 2 learns from
 * samples of the same weights under the next version. */
static void engine_with_a_corrupted_tensor_is_removed_and_the_step_repeated(void **state)
{
    const char *const corrupt[] = {"engine.corrupt_step=1", "update.mode=copy"};

    (void)state;
    assert_int_equal(run(corrupt, 2), TDM_OK);
    assert_versions("3: 1 3 4");
}

static void engines_with_gpus_of_their_own_are_compared_too(void **state)
{
    const char *const remote[] = {"engine.corrupt_step=1", "update.mode=copy", "cluster.num_gpus=4",
                                  "engine.colocate=false"};

    (void)state;
    assert_int_equal(run(remote, 4), TDM_OK);
    assert_versions("3: 1 3 4");
}

static void corrupted_tensor_is_named_with_both_numbers_and_the_version(void **state)
{
    const char *const corrupt[] = {"engine.corrupt_step=1", "rollout.num_engines_min=2"};

    (void)state;
    assert_int_equal(run(corrupt, 2), TDM_E_ACTOR_DIED);
    assert_told("1 engines are left, rollout.num_engines_min is 2");
    assert_told("of version 2 differ from the trainer's by up to 6.4");
    assert_told("e-05, update.logprob_tolerance is 1e-05");
    assert_told("the first tensor that differs is bytes: its part of the region \"weights\"");
}

/* The region has the right bytes, but the engine computes from a copy. */
static void stale_copy_of_a_tensor_is_named(void **state)
{
    const char *const stale[] = {"engine.stale_copy=1", "rollout.num_engines_min=2",
                                 "update.mode=copy"};
    const char *const by_names[] = {"engine.stale_copy=1", "rollout.num_engines_min=2",
                                    "update.mode=names"};

    (void)state;
    assert_int_equal(run(stale, 3), TDM_E_ACTOR_DIED);
    assert_told("the first tensor that differs is bytes: the copy from which the engine computes");
    assert_int_equal(run(by_names, 3), TDM_E_ACTOR_DIED);
    assert_told("of version 2 differ");
}

/* An engine in bfloat16 needs a tolerance of its own; with one for float32 the reason says that no
 * tensor differs, and the job ends when all restarts are used up. */
static void bfloat16_needs_its_own_tolerance(void **state)
{
    const char *const wide[] = {"engine.halve=1", "update.logprob_tolerance=0.01",
                                "rollout.num_engines_min=2"};
    const char *const own[] = {"engine.halve=1", "update.logprob_tolerance_converted=0.01",
                               "rollout.num_engines_min=2"};
    const char *const own_is_narrow[] = {"engine.halve=1", "update.logprob_tolerance=0.01",
                                         "update.logprob_tolerance_converted=1e-5",
                                         "rollout.num_engines_min=2"};
    const char *const not_converted[] = {"engine.corrupt_step=1", "rollout.num_engines_min=2",
                                         "update.logprob_tolerance_converted=0.01"};
    const char *const narrow[] = {"engine.halve=1", "rollout.num_rollout=2"};

    (void)state;
    assert_int_equal(run(wide, 3), TDM_OK);
    assert_versions("3: 1 2 3");
    assert_int_equal(run(own, 3), TDM_OK);
    assert_versions("3: 1 2 3");
    assert_int_equal(run(own_is_narrow, 4), TDM_E_ACTOR_DIED);
    assert_told("update.logprob_tolerance_converted is 1e-05");
    assert_int_equal(run(not_converted, 3), TDM_E_ACTOR_DIED);
    assert_told("update.logprob_tolerance is 1e-05");
    assert_int_equal(run(narrow, 2), TDM_E_CHECKSUM);
    assert_told("no engine computes as the trainer does");
    assert_told("no tensor differs: all 3 slices in the region \"weights\" are as the update wrote "
                "them");
    assert_told(
        "it keeps 1 of them in another dtype than the trainer, which needs a larger tolerance");
}

static int set_up(void **state)
{
    char path[128];
    FILE *file;

    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-logprob-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/data", directory);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 4; i++) {
        (void)fprintf(file, "{\"prompt\": \"p%d\", \"answer\": \"3\"}\n", i);
    }
    (void)fclose(file);
    (void)setenv("FAKE_CUDA_DEVICES", "2", 1);
    (void)setenv("FAKE_CUDA_TOUCH", "1", 1);
    cuda_gpu_choose((size_t)64 << 20);
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(directory);
    cuda_gpu_forget();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_engines_are_never_removed),
        cmocka_unit_test(weights_on_gpus_are_compared_as_on_the_host),
        cmocka_unit_test(engine_with_a_corrupted_tensor_is_removed_and_the_step_repeated),
        cmocka_unit_test(engines_with_gpus_of_their_own_are_compared_too),
        cmocka_unit_test(corrupted_tensor_is_named_with_both_numbers_and_the_version),
        cmocka_unit_test(stale_copy_of_a_tensor_is_named),
        cmocka_unit_test(bfloat16_needs_its_own_tolerance),
    };

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
