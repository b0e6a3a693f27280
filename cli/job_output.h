/* job_output.h - prints the output of a submitted job, until the job ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_JOB_OUTPUT_H
#define TDM_CLI_JOB_OUTPUT_H

#include "cli/job_client.h"

/* Makes Ctrl-C end cli_job_output_print() with TDM_E_CANCELED instead of this process. */
void cli_job_output_catch_interrupt(void);

/* Prints the output of a job on stdout, and stores the job's state. With `follow` it continues
 * until the job has ended and everything is printed; otherwise it prints what there is. Blocks as
 * long as that takes; a job never waits for its reader. Returns TDM_E_CANCELED after Ctrl-C if
 * cli_job_output_catch_interrupt() was called, TDM_E_IO if stdout cannot be written, and the
 * failure if the daemon does not reply. */
tdm_status cli_job_output_print(struct cli_job_client *client, const char *submission_id,
                                bool follow, struct cli_job_end *end_out);

#endif
