/* plan.c - `tandem plan`: prints the memory budget of a job without running it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/python.h"
#include "colocate/job/library.h"
#include "runtime/error.h"

#include <stdlib.h>

static struct tdm__option options[] = {{"--json", false, NULL}, {NULL, false, NULL}};

/* State of `tandem plan`. The structure is large, so it is allocated on the heap. */
struct plan_command {
    struct tdm__job_spec spec;             /* Contents of the job file, once read. */
    struct tdm__job_library library;       /* Library with the job's actor classes. */
    struct tdm__memory_budget_input input; /* Input of the computation of the memory budget. */
    struct tdm__memory_budget plan;        /* Memory budget of the job, once computed. */
};

/* Computes the job's memory budget and prints it. Prints it even if the job does not fit, to show
 * why. */
static tdm_status plan_job(struct plan_command *work, bool json)
{
    tdm_status verdict;

    TDM_TRY(tdm__job_memory_budget_input(&work->spec, &work->library, &work->input));
    verdict = tdm__memory_budget_compute(&work->input, &work->plan);
    if (verdict != TDM_OK && verdict != TDM_E_BUDGET) {
        return verdict;
    }
    if (json) {
        TDM_TRY(tdm__memory_budget_print_json(&work->plan, verdict == TDM_OK, stdout));
    } else {
        tdm__memory_budget_print(&work->plan, &work->input, verdict == TDM_OK, stdout);
    }
    (void)fflush(stdout);
    return verdict;
}

/* Reads the job file and prints the job's memory budget. */
static tdm_status plan_file(struct plan_command *work, const struct tdm__parsed_arguments *args)
{
    tdm_status status;

    TDM_TRY(tdm__job_file_read(args->operands[0], args->operands + 1, args->operands_count - 1,
                               &work->spec));
    status = tdm__python_library_is(work->spec.library)
                 ? tdm__python_folders_find(work->spec.python_folders)
                 : TDM_OK;
    if (status == TDM_OK) {
        status = tdm__job_library_open_for_job(&work->spec, &work->library);
    }
    if (status == TDM_OK) {
        status = plan_job(work, tdm__option_value(args, "--json") != NULL);
        tdm__job_library_close(&work->library);
    }
    tdm__job_spec_fini(&work->spec);
    return status;
}

/* Runs `tandem plan` and returns the exit code. */
static int plan_main(const struct tdm__parsed_arguments *args)
{
    struct plan_command *work = calloc(1, sizeof(*work));
    tdm_status status = work == NULL
                            ? tdm__fail(TDM_E_NOMEM, "planning the job failed: out of memory")
                            : plan_file(work, args);

    free(work);
    return status == TDM_OK ? TDM__EXIT_SUCCESS : tdm__command_failed(status);
}

const struct tdm__command tdm__command_plan = {
    .name = "plan",
    .summary = "print what a job needs in each phase, and whether it fits",
    .help = "usage: tandem plan FILE [key=value ...] [--json]\n\n"
            "Prints the memory of each GPU in each phase of a job and on each edge between\n"
            "phases, without running anything.  Exit code 1 if it does not fit.\n\n"
            "  key=value  sets a value over what the file says (trainer.lr=2e-3)\n"
            "  --json     one JSON object\n",
    .options = options,
    .operands_min = 1,
    .operands_max = TDM__ARGUMENTS_MAX,
    .run = plan_main};
