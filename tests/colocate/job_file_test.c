/* job_file_test.c - a job file says everything right, or is refused by line and field. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/job_file.h"

#include "runtime/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static struct tdm__job_spec spec;

#define GOOD                                                                                       \
    "job: {name: arith, library: libarith.so}\n"                                                   \
    "data: {train: data/train.jsonl, unseen: /abs/unseen.jsonl}\n"

static tdm_status make(const char *text, const char *directory)
{
    tdm_config *config = NULL;
    tdm_status status;

    assert_int_equal(tdm_config_parse(text, strlen(text), "job.yaml", &config), TDM_OK);
    status = tdm__job_spec_from_config(config, directory, &spec);
    if (status != TDM_OK) {
        tdm_config_destroy(config);
    }
    return status;
}

static void refuses(const char *text, const char *detail)
{
    tdm_status status = make(text, "");

    if (status == TDM_OK || strcmp(tdm_error_detail(), detail) != 0) {
        fail_msg("%s: wanted \"%s\", got %s: %s", text, detail, tdm_strerror(status),
                 tdm_error_detail());
    }
}

static void missing_settings_have_the_defaults(void **state)
{
    (void)state;
    assert_int_equal(make(GOOD, "jobs"), TDM_OK);
    assert_string_equal(spec.name, "arith");
    assert_string_equal(spec.update_model, "policy");
    assert_string_equal(spec.library, "jobs/libarith.so");
    assert_string_equal(spec.train, "jobs/data/train.jsonl");
    assert_string_equal(spec.unseen, "/abs/unseen.jsonl");
    assert_string_equal(spec.out, "");
    assert_int_equal(spec.num_gpus, 4);
    assert_int_equal(spec.gpu_bytes, 268435456);
    assert_string_equal(spec.device, "host");
    assert_int_equal(spec.trainer_num_ranks, 4);
    assert_true(spec.trainer_num_gpus_per_actor == 0.4);
    assert_int_equal(spec.trainer_stall_timeout_ms, 15000);
    assert_int_equal(spec.num_engines, 2);
    assert_int_equal(spec.rollout_num_gpus_per_engine, 2);
    assert_true(spec.engine_num_gpus_per_actor == 0.2);
    assert_int_equal(spec.global_batch_size, 64 * 16);
    assert_true(spec.temperature == 1.0);
    assert_int_equal(spec.num_rollout, 260);
    /* All engines may be lost, because trainers have the weights. */
    assert_int_equal(spec.num_engines_min, 0);
    assert_int_equal(spec.warmup_steps, 15);
    assert_int_equal(spec.update_weight_buffer_size, 65536);
    assert_true(spec.update_enabled);
    assert_false(spec.shuffle_rewards);
    assert_string_equal(spec.prompt_key, "prompt");
    tdm__job_spec_fini(&spec);
}

static void test_bare_paths_are_relative_to_the_folder_of_the_job_file(void **state)
{
    char folder[] = "/tmp/tandem-job-file-XXXXXX";
    int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_true(before >= 0);
    assert_int_equal(chdir(folder), 0);
    file = fopen("job.yaml", "w");
    assert_non_null(file);
    assert_true(fputs(GOOD, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(tdm__job_file_read("job.yaml", NULL, 0, &spec), TDM_OK);
    /* A name without a slash would make dlopen() search the system's folders. */
    assert_string_equal(spec.library, "./libarith.so");
    tdm__job_spec_fini(&spec);
    assert_int_equal(unlink("job.yaml"), 0);
    assert_int_equal(fchdir(before), 0);
    assert_int_equal(close(before), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void python_library_is_no_path(void **state)
{
    (void)state;
    assert_int_equal(make("job: {library: 'python:a.b'}\ndata: {train: a, unseen: b}\n", "jobs"),
                     TDM_OK);
    assert_string_equal(spec.library, "python:a.b");
    assert_string_equal(spec.python, "python3");
    assert_int_equal(spec.reward_timeout_ms, 10000);
    assert_int_equal(spec.rewards_timeout_ms, 60000);
    assert_int_equal(spec.reward_failures_max, 0);
    tdm__job_spec_fini(&spec);
    assert_int_equal(make("job: {library: 'python:a', python: venv/bin/python}\n"
                          "data: {train: a, unseen: b}\n",
                          "jobs"),
                     TDM_OK);
    assert_string_equal(spec.python, "jobs/venv/bin/python");
    assert_string_equal(spec.folder, "jobs");
    tdm__job_spec_fini(&spec);
}

static void test_files_beside_a_module_are_names_and_not_for_libraries_in_c(void **state)
{
    (void)state;
    assert_int_equal(make("job: {library: 'python:a', files: 'b.py data'}\n"
                          "data: {train: a, unseen: b}\n",
                          "jobs"),
                     TDM_OK);
    assert_string_equal(spec.files, "b.py data");
    tdm__job_spec_fini(&spec);
    refuses("job: {library: x.so, files: y.so}\ndata: {train: a, unseen: b}\n",
            "job.yaml:1: job.files is for libraries in Python, but job.library is x.so: "
            "remove job.files");
}

static void values_are_read_with_their_units(void **state)
{
    (void)state;
    assert_int_equal(make(GOOD "cluster: {gpu_bytes: 512 MiB}\n"
                               "update: {update_weight_buffer_size: 128KiB, enabled: false}\n"
                               "trainer: {lr: 1e-3, whatever: [1]}\nmodel: {x: y}\n"
                               "rollout:\n"
                               "  rollout_batch_size: 8\n  n_samples_per_prompt: 4\n"
                               "  global_batch_size: 32\nengine: {}\n",
                          ""),
                     TDM_OK);
    assert_int_equal(spec.gpu_bytes, 512U << 20);
    assert_int_equal(spec.update_weight_buffer_size, 131072);
    assert_false(spec.update_enabled);
    assert_int_equal(spec.global_batch_size, 32);
    assert_string_equal(spec.train, "data/train.jsonl");
    tdm__job_spec_fini(&spec);
}

/* GPUs without a trainer rank have engine ranks only. */
static void colocated_engines_may_have_more_ranks_than_the_trainer(void **state)
{
    (void)state;
    assert_int_equal(make(GOOD "trainer: {num_ranks: 2}\nengine: {num_engines: 4}\n"
                               "cluster: {num_gpus: 8}\n",
                          ""),
                     TDM_OK);
    assert_int_equal(spec.trainer_num_ranks, 2);
    assert_true(spec.engine_colocate);
    tdm__job_spec_fini(&spec);
    refuses(GOOD "trainer: {num_ranks: 2}\ncluster: {num_gpus: 2}\n",
            "job.yaml:4: cluster.num_gpus is 2, but 2 trainer ranks and 4 engine ranks share 4 "
            "GPUs. Set cluster.num_gpus to 4, or change the ranks");
}

/* Trainer ranks need no engine of their own, and engines with GPUs of their own no trainer rank. */
static void engine_ranks_may_have_another_number_than_trainer_ranks(void **state)
{
    (void)state;
    assert_int_equal(make(GOOD "engine: {num_engines: 1}\n", ""), TDM_OK);
    assert_int_equal(spec.num_engines, 1);
    tdm__job_spec_fini(&spec);
    assert_int_equal(make(GOOD "trainer: {num_ranks: 8}\n"
                               "engine: {colocate: false, num_engines: 5, "
                               "rollout_num_gpus_per_engine: 3}\n"
                               "cluster: {num_gpus: 23}\n",
                          ""),
                     TDM_OK);
    assert_int_equal(spec.trainer_num_ranks, 8);
    assert_int_equal(spec.num_engines, 5);
    assert_int_equal(tdm__engines_limit(&spec), TDM__JOB_ENGINE_RANKS_MAX / 3);
    spec.rollout_num_gpus_per_engine = 1;
    assert_int_equal(tdm__engines_limit(&spec), TDM__JOB_ENGINES_MAX);
    tdm__job_spec_fini(&spec);
    assert_int_equal(make(GOOD "trainer: {num_ranks: 2}\n"
                               "engine: {colocate: false, num_engines: 3, "
                               "rollout_num_gpus_per_engine: 4}\n"
                               "cluster: {num_gpus: 14}\n",
                          ""),
                     TDM_OK);
    assert_int_equal(spec.rollout_num_gpus_per_engine, 4);
    tdm__job_spec_fini(&spec);
}

static void jobs_may_have_as_many_gpus_as_a_group_has_ranks(void **state)
{
    (void)state;
    assert_int_equal(make(GOOD "cluster: {num_gpus: 256}\ntrainer: {num_ranks: 256}\n"
                               "engine: {num_engines: 256, rollout_num_gpus_per_engine: 1}\n"
                               "rollout: {rollout_batch_size: 256, warmup_batch_size: 256,\n"
                               "          num_engines_min: 256}\n",
                          ""),
                     TDM_OK);
    assert_int_equal(spec.num_gpus, TDM__JOB_GPUS_MAX);
    assert_int_equal(spec.trainer_num_ranks, TDM__JOB_GPUS_MAX);
    assert_int_equal(spec.num_engines, TDM__JOB_ENGINES_MAX);
    tdm__job_spec_fini(&spec);
    assert_int_equal(make(GOOD "cluster: {num_gpus: 256}\ntrainer: {num_ranks: 16}\n"
                               "engine: {colocate: false, num_engines: 15,\n"
                               "         rollout_num_gpus_per_engine: 16}\n",
                          ""),
                     TDM_OK);
    assert_int_equal(tdm__engines_limit(&spec), 16);
    tdm__job_spec_fini(&spec);
    refuses(GOOD "cluster: {num_gpus: 257}\n",
            "job.yaml:3: cluster.num_gpus is 257, expected 1 to 256");
    refuses(GOOD "trainer: {num_ranks: 257}\n",
            "job.yaml:3: trainer.num_ranks is 257, expected 1 to 256");
    refuses(GOOD "engine: {num_engines: 257}\n",
            "job.yaml:3: engine.num_engines is 257, expected 1 to 256");
    refuses(GOOD "engine: {rollout_num_gpus_per_engine: 257}\n",
            "job.yaml:3: engine.rollout_num_gpus_per_engine is 257, expected 1 to 256");
    refuses(GOOD "rollout: {num_engines_min: 257}\n",
            "job.yaml:3: rollout.num_engines_min is 257, expected 0 to 256");
}

static void wrong_values_are_refused_by_line_and_field(void **state)
{
    (void)state;
    refuses("job: {library: x}\n", "job.yaml:1: data.train is missing");
    refuses(GOOD "cluster:\n  num_gpus: 0\n",
            "job.yaml:4: cluster.num_gpus is 0, expected 1 to 256");
    refuses(GOOD "cluster:\n  num_gpus: four\n",
            "job.yaml:4: cluster.num_gpus must be a whole number, got \"four\"");
    refuses(GOOD "cluster: {gpu_bytes: 1 GB}\n",
            "job.yaml:3: cluster.gpu_bytes must be a size, as in \"64 KiB\", got \"1 GB\"");
    refuses(GOOD "cluster: {gpu_bytes: 1 KiB}\n",
            "job.yaml:3: cluster.gpu_bytes is 1 KiB, expected 2 MiB to 4 TiB");
    refuses(GOOD "cluster: {gpu_bytes: 5 TiB}\n",
            "job.yaml:3: cluster.gpu_bytes is 5 TiB, expected 2 MiB to 4 TiB");
    refuses(GOOD "cluster: {gpu_bytes: 1000}\n",
            "job.yaml:3: cluster.gpu_bytes is 1000 B, expected 2 MiB to 4 TiB");
    refuses("job: {library: l, seed: -1}\ndata: {train: a, unseen: b}\n",
            "job.yaml:1: job.seed is -1, expected 0 to 9000000000000000000");
    refuses(GOOD "cluster: {device: tpu}\n",
            "job.yaml:3: cluster.device is \"tpu\", expected host or cuda");
    refuses(GOOD "rollout: {temperature: -1}\n",
            "job.yaml:3: rollout.temperature is -1, expected 0 to 1000");
    refuses("job: {name: ../x, library: l}\ndata: {train: a, unseen: b}\n",
            "job.yaml:1: job.name \"../x\" must have only letters, digits, '-' and '_'");
    refuses(GOOD "update: {model: a/b}\n",
            "job.yaml:3: update.model \"a/b\" must have only letters, digits, '-' and '_'");
    refuses(GOOD "update: {model: abcdefghijklmnopqrstuvwxyz_1234567}\n",
            "job.yaml:3: update.model has 34 bytes, the limit is 32");
    refuses(GOOD "trainer: [1]\n", "job.yaml:3: trainer must be a map of settings");
    refuses(GOOD "trainer: fast\n", "job.yaml:3: trainer must be a map of settings");
}

static void numbers_that_disagree_are_refused_with_both(void **state)
{
    (void)state;
    refuses(GOOD "engine:\n  num_engines: 1\n  rollout_num_gpus_per_engine: 3\n",
            "job.yaml:5: engine.rollout_num_gpus_per_engine is 3, but 4 trainer GPUs do not "
            "divide into engines of 3");
    refuses(
        GOOD "engine: {num_engines: 3}\n",
        "job.yaml:3: engine.num_engines is 3: with 2 GPUs each that is 6, but the trainer "
        "has 4 ranks, and neither of 3 and 4 is a multiple of the other. Change one of them, or "
        "set engine.colocate: false");
    refuses(GOOD "rollout: {num_engines_min: 3}\n",
            "job.yaml:3: rollout.num_engines_min is 3, but engine.num_engines is 2");
    refuses(GOOD "cluster: {num_gpus: 8}\n",
            "job.yaml:3: cluster.num_gpus is 8, but 4 trainer ranks and 4 engine ranks share 4 "
            "GPUs. Set cluster.num_gpus to 4, or change the ranks");
    refuses(GOOD "engine: {num_gpus_per_actor: 0.7}\n",
            "job.yaml:3: trainer.num_gpus_per_actor 0.4 and engine.num_gpus_per_actor 0.7 are "
            "1.1 of a GPU; lower one of them");
    refuses(GOOD "engine: {colocate: false}\n",
            "job.yaml:3: engine.colocate is false: 4 trainer ranks and 4 engine ranks need a GPU "
            "each, but cluster.num_gpus is 4");
    refuses(GOOD "engine: {colocate: false, num_engines: 5}\ncluster: {num_gpus: 8}\n",
            "job.yaml:3: engine.colocate is false: 4 trainer ranks and 10 engine ranks need a GPU "
            "each, but cluster.num_gpus is 8");
    refuses(GOOD "engine: {colocate: false}\ncluster: {num_gpus: 8}\nupdate: {mode: names}\n",
            "job.yaml:5: update.mode is names, but engine.colocate is false: whole tensors go "
            "to no "
            "other GPU; use copy");
    refuses(GOOD "rollout: {global_batch_size: 100}\n",
            "job.yaml:3: rollout.global_batch_size is 100, but rollout_batch_size 64 times "
            "n_samples_per_prompt 16 is 1024");
    refuses(GOOD "rollout: {rollout_batch_size: 66}\n",
            "job.yaml:3: rollout.rollout_batch_size is 66, but 66 prompts do not divide over 4 "
            "trainer ranks");
}

static void unknown_settings_are_refused_with_the_nearest(void **state)
{
    (void)state;
    refuses(GOOD "rollout:\n  rollout_batchsize: 8\n",
            "job.yaml:4: unknown setting rollout.rollout_batchsize; did you mean "
            "rollout.rollout_batch_size?");
    refuses(GOOD "roolout: {}\n", "job.yaml:3: unknown section \"roolout\"; did you mean rollout?");
    refuses(GOOD "cluster: {zzzzzzzzzzzzzzzzz: 8}\n",
            "job.yaml:3: unknown setting cluster.zzzzzzzzzzzzzzzzz");
}

static void librarys_setting_may_not_look_like_one_that_is_missing(void **state)
{
    char text[1024] = "";
    int log_fd;

    (void)state;
    refuses(GOOD "trainer: {num_rank: 2}\n",
            "job.yaml:3: unknown setting trainer.num_rank; did you mean trainer.num_ranks?");
    log_fd = memfd_create("log", 0);
    tdm__log_add_output(log_fd);
    assert_int_equal(make(GOOD "trainer: {num_rank: 2, num_ranks: 4, lr: 1}\n", "/tmp"), TDM_OK);
    assert_true(pread(log_fd, text, sizeof(text) - 1, 0) > 0);
    assert_non_null(strstr(text, "job.yaml:3: trainer.num_rank is no setting of Tandem; did you "
                                 "mean trainer.num_ranks?"));
    assert_null(strstr(text, "lr"));
    tdm__job_spec_fini(&spec);
}

static void file_is_read_with_overrides_beside_it(void **state)
{
    static const char *const overrides[] = {"job.seed=7", "data.train=other.jsonl"};
    static const char *const wrong[] = {"job.sed=7"};
    char path[] = "/tmp/tandem-job-XXXXXX";
    FILE *stream = fdopen(mkstemp(path), "w");

    (void)state;
    assert_non_null(stream);
    (void)fputs(GOOD, stream);
    (void)fclose(stream);
    assert_int_equal(tdm__job_file_read(path, overrides, 2, &spec), TDM_OK);
    assert_int_equal(spec.seed, 7);
    assert_string_equal(spec.train, "/tmp/other.jsonl");
    tdm__job_spec_fini(&spec);
    assert_int_equal(tdm__job_file_read(path, wrong, 1, &spec), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(),
                        "command line: unknown setting job.sed; did you mean job.seed?");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tdm__job_file_read(path, NULL, 0, &spec), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_settings_have_the_defaults),
        cmocka_unit_test(test_bare_paths_are_relative_to_the_folder_of_the_job_file),
        cmocka_unit_test(python_library_is_no_path),
        cmocka_unit_test(values_are_read_with_their_units),
        cmocka_unit_test(engine_ranks_may_have_another_number_than_trainer_ranks),
        cmocka_unit_test(colocated_engines_may_have_more_ranks_than_the_trainer),
        cmocka_unit_test(jobs_may_have_as_many_gpus_as_a_group_has_ranks),
        cmocka_unit_test(wrong_values_are_refused_by_line_and_field),
        cmocka_unit_test(test_files_beside_a_module_are_names_and_not_for_libraries_in_c),
        cmocka_unit_test(numbers_that_disagree_are_refused_with_both),
        cmocka_unit_test(unknown_settings_are_refused_with_the_nearest),
        cmocka_unit_test(librarys_setting_may_not_look_like_one_that_is_missing),
        cmocka_unit_test(file_is_read_with_overrides_beside_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
