/* job.h - runs a job from its first step to its last. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_H
#define TDM_COLOCATE_JOB_JOB_H

#include "colocate/job/job_file.h"
#include "colocate/job/run_options.h"

/* Runs the job and blocks until it ends. TDM_OK: all steps are done, or the job was interrupted
 * once and has saved a checkpoint; `*finished_out` is true only if all steps are done.
 * TDM_E_CANCELED: the job was interrupted twice, or before there was anything to save. */
tdm_status tdm__job_run(const struct tdm__job_spec *spec,
                        const struct tdm__job_run_options *options, bool *finished_out);

#endif
