/* python_library_test.c - what an interpreter says about a job library in Python is checked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/python_library.h"

#include "colocate/job/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Folder with a shell script "interpreter", which keeps the request and replies what it is told. */
static char folder[] = "/tmp/tandem-python-XXXXXX";
static struct tdm__job_spec spec;

static void write_text(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static void read_text(const char *name, char text[4096])
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, 4095, file)] = '\0';
    assert_int_equal(fclose(file), 0);
}

static int make_spec(void **state)
{
    char text[512];
    tdm_config *config = NULL;

    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(text, sizeof(text),
                   "job: {library: 'python:letters', python: %s/interpreter, seed: 7}\n"
                   "cluster: {num_gpus: 1}\ntrainer: {num_ranks: 1}\n"
                   "engine: {num_engines: 1, rollout_num_gpus_per_engine: 1}\n"
                   "data: {train: a, unseen: b}\n",
                   folder);
    return tdm_config_parse(text, strlen(text), "job.yaml", &config) == TDM_OK &&
                   tdm__job_spec_from_config(config, folder, &spec) == TDM_OK
               ? 0
               : -1;
}

static int drop_spec(void **state)
{
    static const char *const names[] = {"interpreter", "request", "path", "words"};
    char path[128];

    (void)state;
    tdm__job_spec_fini(&spec);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

/* Makes the interpreter reply a text. */
static void reply(const char *text)
{
    char script[2048];

    (void)snprintf(
        script, sizeof(script),
        "#!/bin/sh\ncd %s; cat <&3 >request; echo \"$PYTHONPATH\" >path; echo \"$*\" >words\n"
        "cat >&4 <<'END'\n%s\nEND\n",
        folder, text);
    write_text("interpreter", script);
}

static void regions_are_those_that_the_interpreter_replies(void **state)
{
    struct tdm__memory_budget_input input;
    struct tdm__job_library library;
    char folder_first[128];
    char text[4096];

    (void)state;
    reply("{\"name\": \"letters\", \"devices\": \"host\", \"ranks\": ["
          "[{\"tag\": \"rows\", \"size_bytes\": 3000000000, \"keep\": true}],"
          "[{\"tag\": \"weights\", \"size_bytes\": 1, \"keep\": true},"
          " {\"tag\": \"cache\", \"size_bytes\": 5, \"keep\": false}]]}");
    assert_int_equal(setenv("PYTHONPATH", "/some/where", 1), 0);
    assert_int_equal(tdm__job_library_open_for_job(&spec, &library), TDM_OK);
    assert_string_equal(library.jobs->name, "letters");
    assert_true(tdm__job_library_has_reward_actor(&library));
    assert_int_equal(tdm__job_library_check_device(&library, "cuda"), TDM_E_UNSUPPORTED);
    assert_int_equal(tdm__job_memory_budget_input(&spec, &library, &input), TDM_OK);
    assert_int_equal(input.ranks[0].regions[0].size_bytes, 3000000000);
    assert_int_equal(input.ranks[0].regions[0].policy, TDM_REGION_KEEP);
    assert_int_equal(input.ranks[1].regions_count, 2);
    assert_string_equal(input.ranks[1].regions[1].tag, "cache");
    assert_int_equal(input.ranks[1].regions[1].policy, TDM_REGION_DROP);
    tdm__job_library_close(&library);

    read_text("words", text);
    assert_string_equal(text, "-m tandem._job_plan\n");
    read_text("path", text);
    (void)snprintf(folder_first, sizeof(folder_first), "%s:/some/where\n", folder);
    assert_string_equal(text, folder_first);
    read_text("request", text);
    assert_non_null(strstr(text, "{\"seed\":7,\"config\":{"));
    assert_non_null(strstr(text, "\"ranks\":[{\"kind\":\"trainer\",\"rank\":0,\"ranks_count\":1,"
                                 "\"engine\":0,\"tensors_bytes\":0},{\"kind\":\"engine\""));
}

static void more_regions_than_allowed_are_refused(void **state)
{
    struct tdm__memory_budget_rank rank = {.name = "trainer/0"};
    struct tdm__python_library *library;

    (void)state;
    reply("{\"ranks\": [[1, 2, 3, 4, 5, 6, 7, 8, 9], [{\"tag\": 5}]]}");
    assert_int_equal(tdm__python_library_ask(&spec, &library), TDM_OK);
    assert_int_equal(tdm__python_library_regions(library, 0, &rank), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(), "trainer/0 declares 9 regions, the limit is 8");
    assert_int_equal(tdm__python_library_regions(library, 1, &rank), TDM_E_TYPE);
    tdm__python_library_destroy(library);
}

static void exception_of_the_module_is_the_error(void **state)
{
    struct tdm__python_library *library;

    (void)state;
    reply("{\"error\": \"ModuleNotFoundError: No module named 'letters'\"}");
    assert_int_equal(tdm__python_library_ask(&spec, &library), TDM_E_METHOD);
    assert_non_null(
        strstr(tdm_error_detail(), "job.yaml:1: python:letters: ModuleNotFoundError: "));
}

static void interpreter_that_fails_is_named(void **state)
{
    struct tdm__python_library *library;

    (void)state;
    write_text("interpreter", "#!/bin/sh\nexit 3\n");
    assert_int_equal(tdm__python_library_ask(&spec, &library), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "/interpreter -m tandem._job_plan` has ended with "
                                               "exit code 3; set job.python"));
    write_text("interpreter", "#!/bin/sh\necho nonsense: [ >&4\n");
    assert_int_equal(tdm__python_library_ask(&spec, &library), TDM_E_PROTOCOL);
}

static void actors_run_the_interpreter_with_the_folder_of_the_job(void **state)
{
    struct tdm_actor_options options = {.environment = {"A=1"}};
    struct tdm__python_actor actor;
    struct tdm__job_spec shared = {.library = "x.so"};
    char folder_first[128];

    (void)state;
    assert_int_equal(setenv("PYTHONPATH", "", 1), 0);
    assert_int_equal(tdm__python_actor_init(&actor, &shared, &options), TDM_OK);
    assert_null(options.program);
    assert_int_equal(tdm__python_actor_init(&actor, &spec, &options), TDM_OK);
    assert_string_equal(options.program, "/usr/bin/env");
    assert_string_equal(options.program_arguments[0], spec.python);
    assert_string_equal(options.program_arguments[2], "tandem._worker");
    assert_null(options.program_arguments[3]);
    (void)snprintf(folder_first, sizeof(folder_first), "PYTHONPATH=%s", folder);
    assert_string_equal(options.environment[1], folder_first);
    /* The package comes behind the folder of the job. */
    (void)snprintf(spec.python_folders, sizeof(spec.python_folders), "/p/shim:/p");
    options.environment[1] = NULL;
    assert_int_equal(tdm__python_actor_init(&actor, &spec, &options), TDM_OK);
    (void)snprintf(folder_first, sizeof(folder_first), "PYTHONPATH=%s:/p/shim:/p", folder);
    assert_string_equal(options.environment[1], folder_first);
    spec.python_folders[0] = '\0';
}

static void library_is_the_one_that_the_process_registers(void **state)
{
    static const struct tdm_job_library empty = {.size_bytes = sizeof(empty)};
    static const struct tdm_job_library other = {.size_bytes = sizeof(other)};
    struct tdm__job_library library;

    (void)state;
    assert_int_equal(tdm__job_library_open("python:letters", &library), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(),
                        "python:letters: this program runs no job libraries in Python");
    assert_int_equal(tdm_job_library_register(NULL), TDM_E_INVAL);
    assert_int_equal(tdm_job_library_register(&empty), TDM_OK);
    assert_int_equal(tdm_job_library_register(&empty), TDM_OK);
    assert_int_equal(tdm_job_library_register(&other), TDM_E_EXISTS);
    assert_int_equal(tdm__job_library_open("python:letters", &library), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "no trainer table"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_those_that_the_interpreter_replies),
        cmocka_unit_test(more_regions_than_allowed_are_refused),
        cmocka_unit_test(exception_of_the_module_is_the_error),
        cmocka_unit_test(interpreter_that_fails_is_named),
        cmocka_unit_test(actors_run_the_interpreter_with_the_folder_of_the_job),
        cmocka_unit_test(library_is_the_one_that_the_process_registers),
    };

    return cmocka_run_group_tests(tests, make_spec, drop_spec);
}
