/* runtime_env.c - reads the runtime environment of a submitted job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/runtime_env.h"

#include "colocate/job/config_tree.h"
#include "runtime/error.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Largest size in bytes of a file with a runtime environment. */
enum { FILE_BYTES_MAX = 1 << 20 };

/* Parses JSON, and stores the object in `*root_out`; the caller releases it. `source` is what the
 * error names. */
static tdm_status parse_json(const char *text, const char *source, json_t **root_out)
{
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);

    if (root == NULL) {
        return tdm__fail(TDM_E_INVAL, "reading %s failed: not valid JSON: line %d, column %d: %s",
                         source, error.line, error.column, error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return tdm__fail(TDM_E_INVAL,
                         "reading %s failed: the JSON is not an object. Give an object, such as "
                         "{\"env_vars\": {...}}",
                         source);
    }
    *root_out = root;
    return TDM_OK;
}

/* Reads a YAML file, and stores its object in `*root_out`; the caller releases it. */
static tdm_status parse_file(const char *path, json_t **root_out)
{
    struct tdm__config_node *tree;
    size_t size_bytes;
    char *text;
    tdm_status status;

    TDM_TRY(tdm__file_read(path, FILE_BYTES_MAX, &text, &size_bytes));
    status = tdm__config_tree_parse(text, size_bytes, path, &tree);
    free(text);
    TDM_TRY(status);
    status = tdm__config_tree_json(tree, &text);
    tdm__config_node_destroy(tree);
    TDM_TRY(status);
    status = parse_json(text, path, root_out);
    free(text);
    return status;
}

/* Returns whether a key of a runtime environment changes no result of a job on Tandem. */
static bool key_is_ignored(const char *key)
{
    /* The working directory is used in place, so nothing of it is excluded. */
    static const char *const ignored[] = {"excludes", "config", "eager_install"};

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        if (strcmp(key, ignored[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Refuses keys that Tandem does not set up. */
static tdm_status check_keys(const json_t *root)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (strcmp(key, "env_vars") == 0 || strcmp(key, "working_dir") == 0 ||
            strcmp(key, "py_executable") == 0) {
            continue;
        }
        if (!key_is_ignored(key)) {
            return tdm__fail(
                TDM_E_UNSUPPORTED,
                "reading the runtime environment failed: Tandem does not support the key \"%s\". "
                "Remove it, and install what it names on the nodes",
                key);
        }
        (void)fprintf(
            stderr, "tandem: warning: the key \"%s\" of the runtime environment is ignored\n", key);
    }
    return TDM_OK;
}

/* Adds the variables of "env_vars" to the environment. */
static tdm_status read_variables(const json_t *root, struct tdm__environment *environment)
{
    json_t *variables = json_object_get(root, "env_vars");
    const char *name;
    json_t *value;

    if (variables == NULL || json_is_null(variables)) {
        return TDM_OK;
    }
    if (!json_is_object(variables)) {
        return tdm__fail(TDM_E_INVAL, "reading the runtime environment failed: env_vars is not an "
                                      "object. Give an object, such as {\"NAME\": \"value\"}");
    }
    json_object_foreach(variables, name, value)
    {
        char *setting = NULL;
        tdm_status status;

        if (!json_is_string(value) || name[0] == '\0' || strchr(name, '=') != NULL) {
            return tdm__fail(
                TDM_E_INVAL,
                "reading the runtime environment failed: in env_vars, \"%s\" needs a text as its "
                "value and a name without \"=\". Put the value in quotes",
                name);
        }
        if (asprintf(&setting, "%s=%s", name, json_string_value(value)) < 0) {
            return tdm__fail(TDM_E_NOMEM, "reading the runtime environment failed: out of memory");
        }
        status = tdm__environment_set(environment, setting);
        free(setting);
        TDM_TRY(status);
    }
    return TDM_OK;
}

/* Finds the working directory of the job, and writes its absolute path; "" if absent. */
static tdm_status find_working_directory(const struct cli_runtime_env_options *options,
                                         const json_t *root, char path[TDM__PATH_BYTES])
{
    const json_t *value = json_object_get(root, "working_dir");
    const char *directory = options->working_directory;
    struct stat about;
    char *absolute;

    path[0] = '\0';
    if (directory == NULL && value != NULL && !json_is_null(value)) {
        directory = json_string_value(value);
        if (directory == NULL) {
            return tdm__fail(TDM_E_INVAL, "reading the runtime environment failed: working_dir is "
                                          "not a text. Give a path in quotes");
        }
    }
    if (directory == NULL || directory[0] == '\0') {
        return TDM_OK;
    }
    if (strstr(directory, "://") != NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "submitting the job failed: Tandem does not fetch the working directory "
                         "%s. Name a folder of the "
                         "node",
                         directory);
    }
    absolute = realpath(directory, NULL);
    if (absolute == NULL && directory[0] == '/') {
        absolute = strdup(directory); /* The folder may exist on the node, which checks that. */
    } else if (absolute == NULL || stat(absolute, &about) < 0 || !S_ISDIR(about.st_mode)) {
        free(absolute);
        return tdm__fail(TDM_E_NOT_FOUND,
                         "submitting the job failed: the working directory %s is not a folder. "
                         "Name an existing folder",
                         directory);
    }
    if (absolute == NULL || strlen(absolute) >= TDM__PATH_BYTES) {
        free(absolute);
        return tdm__fail(TDM_E_LIMIT,
                         "submitting the job failed: the path of the working directory has more "
                         "than %d bytes. Use a shorter one",
                         TDM__PATH_BYTES - 1);
    }
    (void)snprintf(path, TDM__PATH_BYTES, "%s", absolute);
    free(absolute);
    return TDM_OK;
}

/* Adds the variable by which the job's programs and their actors learn the runtime environment.
 * `root` is changed. */
static tdm_status add_config_variable(const char *submission_id, json_t *root,
                                      struct cli_runtime_env *env)
{
    json_t *config;
    char *text = NULL;
    char *setting = NULL;
    tdm_status status;

    if (env->working_directory[0] != '\0') {
        (void)json_object_set_new(root, "working_dir", json_string(env->working_directory));
    }
    config = json_pack("{s:O, s:{s:s, s:s}}", "runtime_env", root, "metadata", "job_submission_id",
                       submission_id, "job_name", submission_id);
    text = config == NULL ? NULL : json_dumps(config, JSON_COMPACT);
    json_decref(config);
    if (text == NULL || asprintf(&setting, CLI_JOB_CONFIG_VARIABLE "=%s", text) < 0) {
        free(text);
        return tdm__fail(
            TDM_E_INVAL,
            "submitting the job failed: the submission id \"%s\" is not UTF-8. Choose another id",
            submission_id);
    }
    status = tdm__environment_set(&env->environment, setting);
    free(setting);
    free(text);
    return status;
}

/* Fills the result from the parsed runtime environment. */
static tdm_status env_fill(const struct cli_runtime_env_options *options, json_t *root,
                           struct cli_runtime_env *env)
{
    TDM_TRY(check_keys(root));
    TDM_TRY(read_variables(root, &env->environment));
    TDM_TRY(find_working_directory(options, root, env->working_directory));
    return add_config_variable(options->submission_id, root, env);
}

tdm_status cli_runtime_env_read(const struct cli_runtime_env_options *options,
                                struct cli_runtime_env *env_out)
{
    json_t *root = NULL;
    tdm_status status;

    *env_out = (struct cli_runtime_env){.working_directory = ""};
    if (options->json != NULL && options->file != NULL) {
        return tdm__fail(TDM_E_INVAL, "submitting the job failed: --runtime-env and "
                                      "--runtime-env-json exclude each other. Give one of them");
    }
    if (options->file != NULL) {
        TDM_TRY(parse_file(options->file, &root));
    } else {
        TDM_TRY(
            parse_json(options->json == NULL ? "{}" : options->json, "--runtime-env-json", &root));
    }
    status = env_fill(options, root, env_out);
    json_decref(root);
    return status;
}
