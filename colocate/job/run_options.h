/* run_options.h - the options of one run of a job, which are not in the job file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RUN_OPTIONS_H
#define TDM_COLOCATE_JOB_RUN_OPTIONS_H

#include "colocate/job/progress.h"

#include <signal.h>
#include <stdbool.h>

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
    /* Whether files of an earlier run in `out` are removed first; otherwise they are refused,
     * unless `resume` is set. */
    bool overwrite;
    /* Format of the progress output. */
    enum tdm__progress_mode progress;
    /* Borrowed count of Ctrl-C signals, polled by the job. 1: finish the step, save and return.
     * 2: return now. NULL: never interrupted. */
    const volatile sig_atomic_t *interrupts;
};

#endif
