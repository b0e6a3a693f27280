/* job_scale.h - `tandem job scale`: asks a running job for another number of engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_JOB_SCALE_H
#define TDM_CLI_JOB_SCALE_H

#include "cli/command.h"

/* Options of `tandem job scale`; the last one has no name. */
extern struct tdm__option cli_job_scale_options[];

/* Runs `tandem job scale [JOB] engines=N` and returns the exit code. Blocks until all engines of
 * the job serve, or for as long as --timeout says. */
int cli_job_scale_run(const struct tdm__parsed_arguments *args);

#endif
