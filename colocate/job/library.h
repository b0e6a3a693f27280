/* library.h - a job library: opened, and its tables checked. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_LIBRARY_H
#define TDM_COLOCATE_JOB_LIBRARY_H

#include "colocate/job/job_file.h"
#include "colocate/job/memory_budget.h"

#include <tandem/job.h>

struct tdm__job_library {
    void *handle;                       /* owned, of dlopen */
    const struct tdm_job_library *jobs; /* in the library */
};

/* Opens the shared library at `path` and checks that its tables are whole.  A name without a
 * slash that is no file here is also looked for beside the running program.  TDM_E_NOT_FOUND,
 * TDM_E_PROTOCOL. */
tdm_status tdm__job_library_open(const char *path, struct tdm__job_library *library_out);
/* TDM_E_UNSUPPORTED names the devices that the library's models can be on. */
tdm_status tdm__job_library_check_device(const struct tdm__job_library *library,
                                         const char *device);
void tdm__job_library_close(struct tdm__job_library *library);

/* Opens every rank without a group, asks for its regions and closes it again.  The tags are
 * copied into `input`; its ranks lie as the job lays them: trainer r on GPU r, engine e's rank
 * t on GPU e × rollout_num_gpus_per_engine + t. */
tdm_status tdm__job_memory_budget_input(const struct tdm__job_spec *spec,
                                        const struct tdm__job_library *library,
                                        struct tdm__memory_budget_input *input_out);

#endif
