/* job.h - runs a job from its first step to its last. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_H
#define TDM_COLOCATE_JOB_JOB_H

#include "colocate/job/job_file.h"
#include "colocate/job/progress.h"

#include <signal.h>

/* Options of one run that are not in the job file. The caller owns them; they must outlive
 * tdm__job_run(). */
struct tdm__job_run_options {
    /* Program name and version for the first line of output, for example "tandem 0.1.0". */
    const char *program;
    /* Directory of checkpoint and trace; created if it does not exist. NULL in benchmarks, which
     * write nothing. */
    const char *out;
    /* Output directory of an earlier run to continue; NULL to begin a new job. */
    const char *resume;
    /* Format of the progress output. */
    enum tdm__progress_mode progress;
    /* Borrowed count of Ctrl-C signals, polled by the job. 1: finish the step, save and return.
     * 2: return now. NULL: never interrupted. */
    const volatile sig_atomic_t *interrupts;
};

/* Runs the job and blocks until it ends. TDM_OK: all steps are done, or the job was interrupted
 * once and has saved a checkpoint. TDM_E_CANCELED: the job was interrupted twice. */
tdm_status tdm__job_run(const struct tdm__job_spec *spec,
                        const struct tdm__job_run_options *options);

#endif
