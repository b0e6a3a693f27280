/* library.h - opens a job library and checks its tables of functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_LIBRARY_H
#define TDM_COLOCATE_JOB_LIBRARY_H

#include "colocate/job/job_file.h"
#include "colocate/job/memory_budget.h"

#include <tandem/job.h>

/* An open job library. The owner closes it with tdm__job_library_close(). */
struct tdm__job_library {
    /* Owned handle of dlopen(); NULL after the library was closed. */
    void *handle;
    /* Tables of functions inside the library; valid until it is closed. */
    const struct tdm_job_library *jobs;
};

/* Opens the shared library at `path` and checks that its tables are complete. If there is no
 * such file, a file of the same name in the folder of the running program is used.
 * TDM_E_NOT_FOUND or TDM_E_PROTOCOL. */
tdm_status tdm__job_library_open(const char *path, struct tdm__job_library *library_out);
/* Checks that the library supports `device`. TDM_E_UNSUPPORTED lists the devices that it
 * supports. */
tdm_status tdm__job_library_check_device(const struct tdm__job_library *library,
                                         const char *device);
/* Closes the handle. The code stays loaded until the process ends. */
void tdm__job_library_close(struct tdm__job_library *library);

/* Asks the library which memory regions each rank of the job needs and fills `input_out` with
 * them. Each rank is opened without a collective group and closed again. Region tags are copied.
 * Ranks are placed as in a job: trainer r on GPU r, rank t of engine e on GPU e ×
 * rollout_num_gpus_per_engine + t. Engines that are not colocated use the GPUs after those of
 * the trainers. */
tdm_status tdm__job_memory_budget_input(const struct tdm__job_spec *spec,
                                        const struct tdm__job_library *library,
                                        struct tdm__memory_budget_input *input_out);

#endif
