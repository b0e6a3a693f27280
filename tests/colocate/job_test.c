/* job_test.c - whole jobs of the smallest library: what is served, and how they fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/job.h"

#include "actors/worker.h"
#include "colocate/job/checkpoint.h"
#include "tests/colocate/tiny_job.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/redis_fixture.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LIBRARY TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so"

static char directory[64]; /* Directory of the data and of the job's output. */
/* Handle of the library, kept open so that its counters survive a job. */
static void *library;
static struct tiny_answers *answers;

static const char job_file[] =
    "job: {name: tiny, seed: 5, library: " LIBRARY ", save_interval: 2, max_restarts: 0}\n"
    "cluster: {num_gpus: 2, gpu_bytes: 32 MiB, cpus: 4}\n"
    "trainer: {num_ranks: 2, step_timeout_ms: 10000}\n"
    "engine: {num_engines: 1, rollout_num_gpus_per_engine: 2}\n"
    "rollout: {num_rollout: 3, rollout_batch_size: 4, n_samples_per_prompt: 2,\n"
    "          rollout_max_response_len: 4, warmup_steps: 1, warmup_batch_size: 2}\n"
    "update: {update_weight_buffer_size: 4 KiB, timeout_ms: 10000}\n";

/* Runs the job with these overrides into `out` below the directory. */
static tdm_status run(const char *out, const char *resume, const char *const *overrides,
                      uint32_t overrides_count)
{
    static struct tdm__job_spec spec;
    char paths[3][160];
    struct tdm__job_run_options options = {.program = "job_test", .progress = TDM__PROGRESS_PLAIN};
    tdm_config *config;
    tdm_status status;
    bool finished;

    (void)snprintf(paths[0], sizeof(paths[0]), "data.train=%s/data", directory);
    (void)snprintf(paths[1], sizeof(paths[1]), "data.unseen=%s/data", directory);
    (void)snprintf(paths[2], sizeof(paths[2]), "%s/%s", directory, out);
    assert_int_equal(tdm_config_parse(job_file, sizeof(job_file) - 1, "tiny.yaml", &config),
                     TDM_OK);
    assert_int_equal(tdm_config_override(config, paths[0]), TDM_OK);
    assert_int_equal(tdm_config_override(config, paths[1]), TDM_OK);
    for (uint32_t i = 0; i < overrides_count; i++) {
        assert_int_equal(tdm_config_override(config, overrides[i]), TDM_OK);
    }
    assert_int_equal(tdm__job_spec_from_config(config, "", &spec), TDM_OK);
    options.out = paths[2];
    options.resume = resume;
    options.overwrite = true; /* Several tests use the same directory. */
    answers->count = 0;
    status = tdm__job_run(&spec, &options, &finished);
    if (status != TDM_OK) {
        print_message("%s\n", tdm_error_detail());
    }
    tdm__job_spec_fini(&spec);
    return status;
}

static void read_line(const char *path, char line[128])
{
    char whole[160];
    FILE *file;

    (void)snprintf(whole, sizeof(whole), "%s/%s", directory, path);
    file = fopen(whole, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, 128, file));
    (void)fclose(file);
}

static int32_t highest_step_answered(void)
{
    int32_t highest = -1;

    for (uint32_t i = 0; i < answers->count; i++) {
        highest = answers->all[i].step > highest ? answers->all[i].step : highest;
    }
    return highest;
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

/* The trainer itself refuses answers of other weights than its own, so a job that ends well has
 * served every version to every step. */
static void assert_every_step_is_answered(const char *mode, const char *more)
{
    const char *const settings[] = {mode, more};
    struct tdm__checkpoint_state saved;
    char line[128];
    char out[128];

    assert_int_equal(run("whole", NULL, settings, more == NULL ? 1 : 2), TDM_OK);
    read_line("whole/checkpoint/rank-0", line);
    assert_string_equal(line, "3: 1 2 3");
    read_line("whole/checkpoint/rank-1", line);
    assert_string_equal(line, "3: 1 2 3");
    /* Evaluation before, three steps, evaluation after. */
    assert_int_equal(answers->count, 4 + 3 * 8 + 4);
    for (uint32_t i = 0; i < answers->count; i++) {
        assert_int_equal(answers->all[i].step, i < 12 ? 0 : i < 20 ? 1 : i < 28 ? 2 : 3);
    }
    (void)snprintf(out, sizeof(out), "%s/whole/checkpoint", directory);
    assert_int_equal(tdm__checkpoint_read_state(out, &saved), TDM_OK);
    assert_int_equal(saved.step, 3);
    assert_true(saved.score_before == 0); /* The expected answers are those of step 3. */
}

static void every_step_is_answered_by_the_weights_before_it(void **state)
{
    (void)state;
    assert_every_step_is_answered("update.mode=names", NULL);
    assert_every_step_is_answered("update.mode=copy", NULL);
    assert_every_step_is_answered("update.mode=donate", NULL);
    assert_every_step_is_answered("update.mode=bucket", NULL);
}

static void engines_may_keep_weights_in_another_dtype(void **state)
{
    (void)state;
    assert_every_step_is_answered("update.mode=copy", "engine.halve=1");
    assert_every_step_is_answered("update.mode=donate", "engine.halve=1");
    assert_every_step_is_answered("update.mode=bucket", "engine.halve=1");
}

/* The library's models are the processor's, which the fake library lets touch what is on a GPU; all
 * that moves there is moved by the device. */
static void weights_on_gpus_are_updated_as_on_the_host(void **state)
{
    (void)state;
    assert_every_step_is_answered("cluster.device=cuda", "update.mode=names");
    assert_every_step_is_answered("cluster.device=cuda", "update.mode=copy");
    assert_every_step_is_answered("cluster.device=cuda", "update.mode=donate");
    assert_every_step_is_answered("cluster.device=cuda", "update.mode=bucket");
}

static void resumed_job_goes_on_with_higher_versions(void **state)
{
    const char *const longer[] = {"rollout.num_rollout=4"};
    char line[128];
    char out[128];

    (void)state;
    (void)snprintf(out, sizeof(out), "%s/whole", directory);
    assert_int_equal(run("longer", out, longer, 1), TDM_OK);
    read_line("longer/checkpoint/rank-0", line);
    assert_string_equal(line, "4: 0 0 0 5");
    assert_int_equal(answers->all[0].step, 3);
}

/* Prompts, their order and their seeds depend on the job alone, not on the engines that complete
 * them. */
static void answers_do_not_depend_on_the_engines(void **state)
{
    const char *const split[] = {"engine.num_engines=2", "engine.rollout_num_gpus_per_engine=1"};
    static struct tiny_answers one_engine;

    (void)state;
    assert_int_equal(run("one", NULL, NULL, 0), TDM_OK);
    one_engine = *answers;
    assert_int_equal(run("two", NULL, split, 2), TDM_OK);
    assert_int_equal(answers->count, one_engine.count);
    assert_memory_equal(answers->all, one_engine.all, answers->count * sizeof(answers->all[0]));
}

static void failing_step_ends_the_job_with_its_text(void **state)
{
    const char *const fails[] = {"trainer.fail_at_step=2"};

    (void)state;
    assert_int_equal(run("failed", NULL, fails, 1), TDM_E_INVAL);
    assert_told("will not learn step 2");
    assert_told("TRAIN, step 2");
    assert_int_equal(highest_step_answered(), 1);
}

/* Checks that the checkpoint of step 2 is as it was saved, and that the next job starts from it. */
static void assert_saved_after_step_2(void)
{
    struct tdm__checkpoint_choice choice;
    struct tdm__checkpoint_state saved;
    char line[128];
    char out[128];

    (void)snprintf(out, sizeof(out), "%s/spoiled", directory);
    read_line("spoiled/checkpoint/rank-0", line);
    assert_string_equal(line, "2: 1 2");
    assert_int_equal(tdm__checkpoint_find(out, &choice), TDM_OK);
    assert_string_equal(choice.refused, "");
    (void)snprintf(out, sizeof(out), "%s/spoiled/checkpoint", directory);
    assert_string_equal(choice.directory, out);
    assert_int_equal(tdm__checkpoint_read_state(out, &saved), TDM_OK);
    assert_int_equal(saved.step, 2);
}

/* Step 3 gives a metric that is not a number. */
static void metric_that_is_not_finite_leaves_the_last_checkpoint(void **state)
{
    const char *const spoiled[] = {"trainer.nan_at_step=3"};

    (void)state;
    assert_int_equal(run("spoiled", NULL, spoiled, 1), TDM_E_TYPE);
    assert_told("TRAIN, step 3");
    assert_told("the metric kl is ");
    assert_told("trainer rank 1, which learned from 4 samples of the prompts \"p");
    assert_saved_after_step_2();
}

/* The answers of step 3, which the weights of step 2 give, have rewards that are not numbers. */
static void reward_that_is_not_finite_leaves_the_last_checkpoint(void **state)
{
    tdm_status status;

    (void)state;
    answers->nan_of_step = 2;
    status = run("spoiled", NULL, NULL, 0);
    answers->nan_of_step = 0;
    assert_int_equal(status, TDM_E_TYPE);
    assert_told("step 3");
    assert_told("the reward of sample ");
    assert_told(" of the prompt \"p");
    assert_saved_after_step_2();
}

/* Tried twice, given up, and the version before it is served on by both ranks; the step after
 * is as good as any. */
static void weights_refused_by_one_rank_are_served_by_no_engine(void **state)
{
    const char *const refuses[] = {"engine.refuse_step=2", "trainer.allow_stale=1",
                                   "update.mode=names"};
    char line[128];

    (void)state;
    assert_int_equal(run("refused", NULL, refuses, 3), TDM_OK);
    read_line("refused/checkpoint/rank-0", line);
    assert_string_equal(line, "3: 1 2 2");
    for (uint32_t i = 0; i < answers->count; i++) {
        assert_int_not_equal(answers->all[i].step, 2);
    }
    assert_int_equal(highest_step_answered(), 3);
}

/* Returns how often a rank of the library's log of served versions has completed prompts with the
 * weights of a step. */
static uint32_t count_served(const char *log, const char *rank, int64_t step)
{
    FILE *file = fopen(log, "r");
    char wanted[64];
    char line[128];
    uint32_t count = 0;

    assert_non_null(file);
    (void)snprintf(wanted, sizeof(wanted), " %s %lld\n", rank, (long long)step);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, wanted) != NULL ? 1 : 0;
    }
    (void)fclose(file);
    return count;
}

/* Engine 1 refuses the first bucket of the third update, and that of its repetition, because a byte
 * of its description has changed. Engine 0 then has that bucket, and no version, and copies the
 * version of engine 1. */
static void torn_engine_joins_a_whole_one_after_an_aborted_update(void **state)
{
    enum { DESCRIBED = 6 }; /* Of the 7 buckets of an update, trainer rank 1 writes into 6. */
    char log[128];
    char served[160];
    char failpoint[320];
    const char *const settings[] = {"engine.num_engines=2", "engine.rollout_num_gpus_per_engine=1",
                                    "update.mode=bucket", "trainer.allow_stale=1", served};
    char line[128];

    (void)state;
    (void)snprintf(log, sizeof(log), "%s/served", directory);
    (void)snprintf(served, sizeof(served), "engine.served_log=%s", log);
    (void)snprintf(failpoint, sizeof(failpoint),
                   "trainer/1 trainer.described %d change %s/changed-1;"
                   "trainer/1 trainer.described %d change %s/changed-2",
                   2 * DESCRIBED + 1, directory, 2 * DESCRIBED + 2, directory);
    assert_int_equal(setenv("TANDEM_FAILPOINT", failpoint, 1), 0);
    assert_int_equal(run("torn", NULL, settings, 5), TDM_OK);
    assert_int_equal(unsetenv("TANDEM_FAILPOINT"), 0);
    read_line("changed-1", line);
    read_line("changed-2", line);
    read_line("torn/checkpoint/rank-0", line);
    assert_string_equal(line, "3: 1 2 2");
    for (int64_t step = 0; step <= 3; step++) {
        uint32_t count = count_served(log, "engine/0/0", step);

        assert_true(step == 2 ? count == 0 : count > 0);
        assert_int_equal(count, count_served(log, "engine/1/0", step));
    }
    assert_true(count_served(log, "engine/0/0", 1) > count_served(log, "engine/0/0", 3));
}

static void trainer_that_wants_the_newest_weights_can_say_so(void **state)
{
    const char *const refuses[] = {"engine.refuse_step=2", "update.mode=names"};

    (void)state;
    assert_int_equal(run("stale", NULL, refuses, 2), TDM_E_INVAL);
    assert_told("an answer of step 1, the trainer is at 2");
}

static void engine_that_dies_in_every_rollout_is_given_up(void **state)
{
    const char *const deadly[] = {"engine.die_step=1"};

    (void)state;
    assert_int_equal(run("deadly", NULL, deadly, 1), TDM_E_ACTOR_DIED);
    assert_told("none comes back");
    assert_int_equal(highest_step_answered(), 0);
}

static void rank_that_cannot_open_is_named(void **state)
{
    const char *const fails[] = {"trainer.fail_on_rank=1"};

    (void)state;
    assert_int_equal(run("closed", NULL, fails, 1), TDM_E_ACTOR_DIED);
    assert_told("trainer/1");
    assert_told("rank 1 does not want to open");
}

static void ranks_that_start_too_slowly_name_the_setting(void **state)
{
    const char *const settings[] = {"job.start_timeout_ms=1", "trainer.open_seconds=10"};

    (void)state;
    assert_int_equal(run("slow", NULL, settings, 2), TDM_E_TIMEOUT);
    assert_told("the ranks did not start within 1 ms: raise job.start_timeout_ms");
    assert_told("actor trainer/0 is not ready");
}

static void ranks_that_list_other_tensors_do_not_start(void **state)
{
    const char *const renames[] = {"trainer.rename_on_rank=1"};

    (void)state;
    assert_int_equal(run("renamed", NULL, renames, 1), TDM_E_INVAL);
    assert_told("trainer ranks 0 and 1 list other tensors");
}

static int set_up(void **state)
{
    char path[128];
    FILE *file;

    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-job-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/data", directory);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 4; i++) {
        (void)fprintf(file, "{\"prompt\": \"p%d\", \"answer\": \"3\"}\n", i);
    }
    (void)fclose(file);
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    answers = dlsym(library, "tiny_answers");
    assert_non_null(answers);
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
    (void)dlclose(library);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_answered_by_the_weights_before_it),
        cmocka_unit_test(engines_may_keep_weights_in_another_dtype),
        cmocka_unit_test(weights_on_gpus_are_updated_as_on_the_host),
        cmocka_unit_test(resumed_job_goes_on_with_higher_versions),
        cmocka_unit_test(answers_do_not_depend_on_the_engines),
        cmocka_unit_test(failing_step_ends_the_job_with_its_text),
        cmocka_unit_test(metric_that_is_not_finite_leaves_the_last_checkpoint),
        cmocka_unit_test(reward_that_is_not_finite_leaves_the_last_checkpoint),
        cmocka_unit_test(weights_refused_by_one_rank_are_served_by_no_engine),
        cmocka_unit_test(torn_engine_joins_a_whole_one_after_an_aborted_update),
        cmocka_unit_test(trainer_that_wants_the_newest_weights_can_say_so),
        cmocka_unit_test(engine_that_dies_in_every_rollout_is_given_up),
        cmocka_unit_test(rank_that_cannot_open_is_named),
        cmocka_unit_test(ranks_that_start_too_slowly_name_the_setting),
        cmocka_unit_test(ranks_that_list_other_tensors_do_not_start),
    };

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
