/* job.h - the controller: runs a job from its first step to its last. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_H
#define TDM_COLOCATE_JOB_JOB_H

#include "colocate/job/job_file.h"
#include "colocate/job/progress.h"

#include <signal.h>

struct tdm__job_run_options {
    const char *program; /* what runs it, for the first line: "tandem 0.1.0" */
    const char *out;     /* directory of checkpoint and trace; made if missing */
    const char *resume;  /* directory of an earlier run to go on with; NULL: begin */
    enum tdm__progress_mode progress;
    /* Ctrl-C, counted: 1: finish the step, save, leave; 2: leave now.  Borrowed, polled. */
    const volatile sig_atomic_t *interrupts;
};

/* Blocks until the job has ended.  TDM_OK: it ran to its end, or was asked to leave after a
 * step and saved.  TDM_E_CANCELED: asked to leave now. */
tdm_status tdm__job_run(const struct tdm__job_spec *spec,
                        const struct tdm__job_run_options *options);

#endif
