/* library.h - opens a job library and checks its tables of functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_LIBRARY_H
#define TDM_COLOCATE_JOB_LIBRARY_H

#include "colocate/job/job_file.h"
#include "colocate/job/memory_budget.h"
#include "colocate/job/python_library.h"

#include <tandem/job.h>

/* An open job library. The owner closes it with tdm__job_library_close(). */
struct tdm__job_library {
    /* Owned handle of dlopen(); NULL if the library is a Python module, and after it was closed. */
    void *handle;
    /* Tables of functions inside the library; valid until it is closed. The functions of a Python
     * module are NULL in the process that runs the job. */
    const struct tdm_job_library *jobs;
    /* Owned declarations of a Python module in the process that runs the job; else NULL. */
    struct tdm__python_library *python;
};

/* Writes the path of the shared library at `path` to `found`: if there is no such file, that of a
 * file of the same name in the folder of the running program. TDM_E_NOT_FOUND if neither exists. */
tdm_status tdm__job_library_find(const char *path, char found[TDM__PATH_BYTES]);
/* Opens the shared library that tdm__job_library_find() finds, and checks that its tables are
 * complete. A path that begins with TDM__PYTHON_PREFIX stands for the tables that this process has
 * registered. TDM_E_NOT_FOUND or TDM_E_PROTOCOL. */
tdm_status tdm__job_library_open(const char *path, struct tdm__job_library *library_out);
/* Opens the library of a job in the process that runs the job: the shared library, or the
 * declarations of a Python module, for which an interpreter is started. Other errors are those of
 * tdm__python_library_ask(). */
tdm_status tdm__job_library_open_for_job(const struct tdm__job_spec *spec,
                                         struct tdm__job_library *library_out);
/* Returns whether rewards are computed in an actor (rewards.h), not by the library's function. */
bool tdm__job_library_has_reward_actor(const struct tdm__job_library *library);
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
