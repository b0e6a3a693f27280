/* runtime_env.h - reads the runtime environment of a submitted job. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_RUNTIME_ENV_H
#define TDM_CLI_RUNTIME_ENV_H

#include "runtime/file.h"
#include "runtime/process/environment.h"

/* Environment variable by which Ray and Tandem pass the runtime environment and the submission id
 * of a job to the programs of that job, as JSON. */
#define CLI_JOB_CONFIG_VARIABLE "RAY_JOB_CONFIG_JSON_ENV_VAR"

/* What the user wants to be true for the processes of a job. Texts are borrowed. */
struct cli_runtime_env_options {
    const char *json; /* Runtime environment as JSON; NULL if it is not given in this way. */
    const char *file; /* Path of a YAML file with the runtime environment; NULL for none. */
    /* Working directory of the job, which replaces that of the runtime environment; NULL for none.
     */
    const char *working_directory;
    const char *submission_id; /* Submission id of the job. */
};

/* The runtime environment of a job, as the daemon needs it. */
struct cli_runtime_env {
    /* Variables of the job, CLI_JOB_CONFIG_VARIABLE included; owned. */
    struct tdm__environment environment;
    /* Absolute path of the working directory; "" for the one in which the daemon was started. */
    char working_directory[TDM__PATH_BYTES];
};

/* Reads the runtime environment of a job. The keys env_vars, working_dir and py_executable take
 * effect; keys that change no result are ignored with a line on stderr. Returns TDM_E_UNSUPPORTED,
 * with the key's name, for every other key, and TDM_E_INVAL for a malformed text. The caller clears
 * env_out->environment, also after a failure. */
tdm_status cli_runtime_env_read(const struct cli_runtime_env_options *options,
                                struct cli_runtime_env *env_out);

#endif
