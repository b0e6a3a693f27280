/* plan.c - `tandem plan`: the budget of a job, before anything runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "colocate/job/library.h"
#include "runtime/error.h"

#include <stdlib.h>

static struct tdm__option options[] = {{"--json", false, NULL}, {NULL, false, NULL}};

/* Large, hence on the heap. */
struct work {
    struct tdm__job_spec spec;
    struct tdm__job_library library;
    struct tdm__plan_input input;
    struct tdm__plan plan;
};

/* The table is printed also where the job does not fit, so that one sees why. */
static tdm_status plan_job(struct work *work, bool json)
{
    tdm_status verdict;

    TDM_TRY(tdm__job_plan_input(&work->spec, &work->library, &work->input));
    verdict = tdm__plan_make(&work->input, &work->plan);
    if (verdict != TDM_OK && verdict != TDM_E_BUDGET) {
        return verdict;
    }
    if (json) {
        TDM_TRY(tdm__plan_print_json(&work->plan, verdict == TDM_OK, stdout));
    } else {
        tdm__plan_print(&work->plan, &work->input, verdict == TDM_OK, stdout);
    }
    (void)fflush(stdout);
    return verdict;
}

static tdm_status plan_file(struct work *work, const struct tdm__words *words)
{
    tdm_status status;

    TDM_TRY(tdm__job_file_read(words->rest[0], words->rest + 1, words->rest_count - 1,
                               &work->spec));
    status = tdm__job_library_open(work->spec.library, &work->library);
    if (status == TDM_OK) {
        status = plan_job(work, tdm__option_value(words, "--json") != NULL);
        tdm__job_library_close(&work->library);
    }
    tdm__job_spec_fini(&work->spec);
    return status;
}

static int run(const struct tdm__words *words)
{
    struct work *work = calloc(1, sizeof(*work));
    tdm_status status =
        work == NULL ? tdm__fail(TDM_E_NOMEM, "the plan") : plan_file(work, words);

    free(work);
    return status == TDM_OK ? TDM__EXIT_DONE : tdm__command_failed(status);
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
    .rest_min = 1,
    .rest_max = TDM__WORDS_MAX,
    .run = run};
