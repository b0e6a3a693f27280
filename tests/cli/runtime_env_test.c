/* runtime_env_test.c - the runtime environment of a submitted job is read, or refused by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/runtime_env.h"
#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_status read_json(const char *json, struct cli_runtime_env *env)
{
    return cli_runtime_env_read(
        &(struct cli_runtime_env_options){.json = json, .submission_id = "job-1"}, env);
}

static void wrong_environments_are_refused_with_their_reason(void **state)
{
    static const struct {
        const char *json;
        tdm_status status;
        const char *said;
    } wrong[] = {
        {"{", TDM_E_INVAL, "reading --runtime-env-json failed: not valid JSON: line 1"},
        {"[]", TDM_E_INVAL, "the JSON is not an object"},
        {"7", TDM_E_INVAL, "--runtime-env-json"},
        {"{\"pip\": []}", TDM_E_UNSUPPORTED, "the key \"pip\""},
        {"{\"env_vars\": {}, \"env_vars\": {}}", TDM_E_INVAL, "duplicate"},
        {"{\"env_vars\": []}", TDM_E_INVAL, "env_vars is not an object"},
        {"{\"env_vars\": {\"A\": 1}}", TDM_E_INVAL, "\"A\" needs a text as its value"},
        {"{\"env_vars\": {\"A=B\": \"1\"}}", TDM_E_INVAL, "\"A=B\" needs"},
        {"{\"env_vars\": {\"\": \"1\"}}", TDM_E_INVAL, "\"\" needs"},
        {"{\"working_dir\": 1}", TDM_E_INVAL, "working_dir is not a text"},
        {"{\"working_dir\": \"s3://a/b\"}", TDM_E_UNSUPPORTED, "does not fetch"},
        {"{\"working_dir\": \"no/such/folder\"}", TDM_E_NOT_FOUND,
         "no/such/folder is not a folder"},
        {"{\"working_dir\": \"/dev/null\"}", TDM_E_NOT_FOUND, "/dev/null is not a folder"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cli_runtime_env env;

        assert_int_equal(read_json(wrong[i].json, &env), wrong[i].status);
        if (strstr(tdm_error_detail(), wrong[i].said) == NULL) {
            fail_msg("%s: %s", wrong[i].json, tdm_error_detail());
        }
        tdm__environment_clear(&env.environment);
    }
}

/* Returns the value of a variable of the environment, or NULL. */
static const char *value_of(const struct cli_runtime_env *env, const char *name)
{
    size_t length = strlen(name);

    for (uint32_t i = 0; i < env->environment.count; i++) {
        const char *setting = env->environment.settings[i];

        if (strncmp(setting, name, length) == 0 && setting[length] == '=') {
            return setting + length + 1;
        }
    }
    return NULL;
}

static void environments_are_read(void **state)
{
    static const char *const empty[] = {NULL, "{}", "{\"env_vars\": null, \"working_dir\": null}",
                                        "{\"working_dir\": \"\"}",
                                        "{\"config\": {}, \"py_executable\": \"python3\"}"};
    struct cli_runtime_env env;

    (void)state;
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        assert_int_equal(read_json(empty[i], &env), TDM_OK);
        assert_string_equal(env.working_directory, "");
        assert_int_equal(env.environment.count, 1);
        assert_non_null(strstr(value_of(&env, CLI_JOB_CONFIG_VARIABLE), "\"job-1\""));
        tdm__environment_clear(&env.environment);
    }
    assert_int_equal(
        read_json("{\"env_vars\": {\"A\": \"1\", \"B\": \"x=y\"}, \"working_dir\": \"/no/such\"}",
                  &env),
        TDM_OK);
    assert_string_equal(value_of(&env, "A"), "1");
    assert_string_equal(value_of(&env, "B"), "x=y");
    assert_string_equal(env.working_directory, "/no/such"); /* The node checks it. */
    tdm__environment_clear(&env.environment);
    assert_int_equal(cli_runtime_env_read(
                         &(struct cli_runtime_env_options){.json = "{\"working_dir\": \"/dev\"}",
                                                           .working_directory = "/",
                                                           .submission_id = "job-1"},
                         &env),
                     TDM_OK);
    assert_string_equal(env.working_directory, "/");
    assert_non_null(strstr(value_of(&env, CLI_JOB_CONFIG_VARIABLE), "\"working_dir\":\"/\""));
    tdm__environment_clear(&env.environment);
}

static void submission_id_must_be_text(void **state)
{
    struct cli_runtime_env env;

    (void)state;
    assert_int_equal(
        cli_runtime_env_read(&(struct cli_runtime_env_options){.submission_id = "\xff"}, &env),
        TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "is not UTF-8"));
    tdm__environment_clear(&env.environment);
}

/* Reads a runtime environment from a YAML file with this text. */
static tdm_status read_yaml(const char *text, const char *json, struct cli_runtime_env *env)
{
    char path[] = "/tmp/runtime-env-XXXXXX";
    int fd = mkstemp(path);
    tdm_status status;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
    status = cli_runtime_env_read(
        &(struct cli_runtime_env_options){.file = path, .json = json, .submission_id = "job-1"},
        env);
    (void)unlink(path);
    return status;
}

static void files_are_read(void **state)
{
    struct cli_runtime_env env;

    (void)state;
    assert_int_equal(read_yaml("env_vars:\n  A: \"1\"\nexcludes: []\n", NULL, &env), TDM_OK);
    assert_string_equal(value_of(&env, "A"), "1");
    tdm__environment_clear(&env.environment);
    assert_int_not_equal(read_yaml("a: [\n", NULL, &env), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "/tmp/runtime-env-"));
    tdm__environment_clear(&env.environment);
    assert_int_not_equal(read_yaml("- 1\n", NULL, &env), TDM_OK);
    tdm__environment_clear(&env.environment);
    assert_int_equal(read_yaml("{}\n", "{}", &env), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "exclude each other"));
    tdm__environment_clear(&env.environment);
    assert_int_not_equal(
        cli_runtime_env_read(
            &(struct cli_runtime_env_options){.file = "/nowhere.yaml", .submission_id = "job-1"},
            &env),
        TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "/nowhere.yaml"));
    tdm__environment_clear(&env.environment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_environments_are_refused_with_their_reason),
        cmocka_unit_test(environments_are_read),
        cmocka_unit_test(submission_id_must_be_text),
        cmocka_unit_test(files_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
