/* job.h - the commands `tandem job` and `ray job`. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_JOB_H
#define TDM_CLI_JOB_H

/* Which program the user has called; the two differ in their exit codes and in where they print. */
enum cli_job_style {
    /* `tandem job submit` exits with the status of the command, and prints what is not the job's
     * output on stderr. */
    CLI_JOB_TANDEM,
    /* `ray job submit` exits with 1 if the command has failed, and prints everything on stdout. */
    CLI_JOB_RAY
};

/* Runs `tandem job` or `ray job` with the words behind "job", and returns the exit code. */
int cli_job_run(enum cli_job_style style, int words_count, char **words);

#endif
