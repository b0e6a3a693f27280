/* python_library.h - job libraries that are Python modules: what they declare, and their actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_PYTHON_LIBRARY_H
#define TDM_COLOCATE_JOB_PYTHON_LIBRARY_H

#include "colocate/job/job_file.h"
#include "colocate/job/memory_budget.h"

#include <tandem/actor.h>
#include <tandem/job.h>

/* Bytes of the setting PYTHONPATH with its name. */
enum { TDM__PYTHON_PATH_BYTES = 8 * TDM__PATH_BYTES };

/* What a Python module declares as a job library, as its interpreter has said. Owned by the open
 * job library. */
struct tdm__python_library {
    /* Owned tree of the interpreter's reply; the texts of `table` are borrowed from it. */
    tdm_config *reply;
    /* The main table with name and devices only: its functions are in other processes. */
    struct tdm_job_library table;
};

/* Returns whether the setting job.library names a Python module. */
bool tdm__python_library_is(const char *library);

/* Starts the interpreter, which imports the module and writes what it declares for each rank of
 * the job. Blocks until it has ended, at most two minutes. TDM_E_METHOD has the text of a Python
 * exception; TDM_E_NOT_FOUND, TDM_E_IO or TDM_E_TIMEOUT says what became of the interpreter. The
 * caller destroys the result. */
tdm_status tdm__python_library_ask(const struct tdm__job_spec *spec,
                                   struct tdm__python_library **library_out);
/* Frees the declarations. NULL is allowed. */
void tdm__python_library_destroy(struct tdm__python_library *library);

/* Copies the regions that the module declares for rank number `index`: first all trainer ranks,
 * then the ranks of each engine. TDM_E_PROTOCOL says what is wrong with them. */
tdm_status tdm__python_library_regions(const struct tdm__python_library *library, uint32_t index,
                                       struct tdm__memory_budget_rank *rank);

/* Texts to which the options of an actor of a Python library refer. */
struct tdm__python_actor {
    /* Setting of PYTHONPATH: the job file's folder and what this process has. */
    char path[TDM__PYTHON_PATH_BYTES];
    /* Arguments of env(1), which looks the interpreter up. */
    const char *arguments[4];
};

/* Sets program, arguments and environment of an actor that runs the library of the job, if that is
 * a Python module; else does nothing. The options refer to `spec` and `actor` afterwards. The first
 * free place of options->environment is used. */
tdm_status tdm__python_actor_init(struct tdm__python_actor *actor, const struct tdm__job_spec *spec,
                                  struct tdm_actor_options *options);

#endif
