/* job_limits.h - how many GPUs, engines and ranks a job may have. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_JOB_LIMITS_H
#define TDM_COLOCATE_JOB_JOB_LIMITS_H

#include <tandem/collective.h>

enum {
    /* Most GPUs of a job. The trainer ranks, of which each has a GPU, are one collective group. */
    TDM__JOB_GPUS_MAX = TDM_COLLECTIVE_RANKS_MAX,
    /* Most engines of a job, also of one to which engines are added while it runs. */
    TDM__JOB_ENGINES_MAX = TDM__JOB_GPUS_MAX,
    /* Most ranks of all engines together. */
    TDM__JOB_ENGINE_RANKS_MAX = TDM__JOB_GPUS_MAX,
    /* Most ranks of trainers and engines: engine ranks may share the GPUs of all trainer ranks. */
    TDM__JOB_RANKS_MAX = TDM__JOB_GPUS_MAX + TDM__JOB_ENGINE_RANKS_MAX
};

#endif
