/* run.c - `tandem run`: runs a job from its first step to its last. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/python.h"
#include "cli/version.h"
#include "colocate/job/job.h"
#include "colocate/job/python_library.h"
#include "runtime/error.h"
#include "runtime/id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tdm__option options[] = {{"--json", false, NULL},      {"--plain", false, NULL},
                                       {"--resume", true, NULL},     {"--out", true, NULL},
                                       {"--overwrite", false, NULL}, {NULL, false, NULL}};

/* Number of Ctrl-C and SIGTERM received. The job checks it between waits. The third signal ends the
 * program by its default action; the child processes end with it. */
static volatile sig_atomic_t interrupts;
/* The last of these signals; 0 before the first. */
static volatile sig_atomic_t interrupt_signal;

/* Signal handler for SIGINT and SIGTERM: counts the signals. */
static void count_interrupt(int signal_number)
{
    interrupts = interrupts + 1;
    interrupt_signal = signal_number;
    if (interrupts >= 2) {
        (void)signal(signal_number, SIG_DFL);
    }
}

/* Installs the handler for SIGINT and SIGTERM. */
static tdm_status catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = count_interrupt};

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0) {
        return tdm__fail(TDM_E_IO, "starting the job failed: sigaction");
    }
    return TDM_OK;
}

/* Chooses how the job's progress is shown, by the options and the kind of terminal. */
static enum tdm__progress_mode choose_progress(const struct tdm__parsed_arguments *args)
{
    const char *no_color = secure_getenv("NO_COLOR");
    const char *terminal = secure_getenv("TERM");

    if (tdm__option_value(args, "--json") != NULL) {
        return TDM__PROGRESS_JSON;
    }
    if (tdm__option_value(args, "--plain") != NULL || isatty(STDOUT_FILENO) == 0 ||
        (no_color != NULL && no_color[0] != '\0') ||
        (terminal != NULL && strcmp(terminal, "dumb") == 0)) {
        return TDM__PROGRESS_PLAIN;
    }
    return TDM__PROGRESS_LIVE;
}

/* Chooses the job's output directory: --out, else job.out of the job file, else the directory to
 * resume, else a new out/<name>-<4 hex digits>. */
static tdm_status choose_out(const struct tdm__parsed_arguments *args,
                             const struct tdm__job_spec *spec, char out[TDM__PATH_BYTES])
{
    const char *asked = tdm__option_value(args, "--out");
    char text[TDM__ID_TEXT_BYTES];
    struct tdm__id id;

    asked = asked == NULL && spec->out[0] != '\0' ? spec->out : asked;
    asked = asked == NULL ? tdm__option_value(args, "--resume") : asked;
    if (asked != NULL && strlen(asked) >= TDM__PATH_BYTES) {
        return tdm__fail(TDM_E_LIMIT,
                         "starting the job failed: the output directory's path has %zu bytes, at "
                         "most %d. Choose a shorter --out",
                         strlen(asked), TDM__PATH_BYTES - 1);
    }
    if (asked != NULL) {
        (void)snprintf(out, TDM__PATH_BYTES, "%s", asked);
        return TDM_OK;
    }
    TDM_TRY(tdm__id_generate(&id));
    (void)snprintf(out, TDM__PATH_BYTES, "out/%s-%.4s", spec->name, tdm__id_text(&id, text));
    return TDM_OK;
}

/* Reads the job file and runs the job. Stores whether all its steps are done. */
static tdm_status run_file(struct tdm__job_spec *spec, const struct tdm__parsed_arguments *args,
                           bool *finished_out)
{
    struct tdm__job_run_options run_options = {.program = "tandem " TDM__VERSION,
                                               .resume = tdm__option_value(args, "--resume"),
                                               .overwrite =
                                                   tdm__option_value(args, "--overwrite") != NULL,
                                               .progress = choose_progress(args),
                                               .interrupts = &interrupts};
    char out[TDM__PATH_BYTES];
    tdm_status status;

    *finished_out = false;
    if (run_options.resume != NULL && run_options.overwrite) {
        return tdm__fail(TDM_E_INVAL, "starting the job failed: --resume and --overwrite exclude "
                                      "each other. Give one of them");
    }
    TDM_TRY(
        tdm__job_file_read(args->operands[0], args->operands + 1, args->operands_count - 1, spec));
    status = choose_out(args, spec, out);
    if (status == TDM_OK && tdm__python_library_is(spec->library)) {
        status = tdm__python_folders_find(spec->python_folders);
    }
    if (status == TDM_OK) {
        status = catch_interrupts();
    }
    if (status == TDM_OK) {
        run_options.out = out;
        status = tdm__job_run(spec, &run_options, finished_out);
    }
    tdm__job_spec_fini(spec);
    return status;
}

/* Runs `tandem run` and returns the exit code. A job that a signal has ended early exits with 128
 * plus the signal's number, as shells report it, whether it has saved or not. */
static int run_main(const struct tdm__parsed_arguments *args)
{
    struct tdm__job_spec *spec = calloc(1, sizeof(*spec));
    bool finished = false;
    tdm_status status = spec == NULL
                            ? tdm__fail(TDM_E_NOMEM, "reading the job file failed: out of memory")
                            : run_file(spec, args, &finished);
    int exit_code = status == TDM_OK ? TDM__EXIT_SUCCESS : tdm__command_failed(status);

    free(spec);
    return interrupts > 0 && !finished && (status == TDM_OK || status == TDM_E_CANCELED)
               ? 128 + interrupt_signal
               : exit_code;
}

const struct tdm__command tdm__command_run = {
    .name = "run",
    .summary = "run a colocated RL job",
    .help = "usage: tandem run FILE [key=value ...] [--json | --plain] [--out DIR]\n"
            "                  [--resume DIR | --overwrite]\n\n"
            "Runs the job that FILE describes: trainer and engines on the same GPUs, in turn.\n\n"
            "  key=value     sets a value over what the file says (trainer.lr=2e-3)\n"
            "  --json        progress as one JSON object a line\n"
            "  --plain       progress as one plain line a step, as in a pipe or with NO_COLOR\n"
            "  --out DIR     checkpoint and trace go here (default: out/<name>-<id>)\n"
            "  --resume DIR  goes on from the last saved step in DIR\n"
            "  --overwrite   removes what an earlier job has left in the folder\n\n"
            "Ctrl-C once: finish the step, save, leave.  Twice: leave now.  The exit code is\n"
            "then 130, or 143 after SIGTERM.\n",
    .options = options,
    .operands_min = 1,
    .operands_max = TDM__ARGUMENTS_MAX,
    .run = run_main};
