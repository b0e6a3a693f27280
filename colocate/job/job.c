/* job.c - runs a job from its first step to its last by driving the phase machine. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The function tdm__job_run() owns the controller. It reads the data, opens the library, checks the
 * memory budget, starts the cluster, and then loops: rollout, training, weight update, until all
 * steps are done or the user interrupts. The phase machine (colocate/phase.h) decides what follows.
 * phase_machine_advance() executes the action that it asks for and reports the result as the next
 * event. Only this thread uses the controller; callbacks about engines run on it, too. A failed
 * update is retried once if an engine was lost. A lost trainer, too few engines, or a lost node or
 * store end the run of the ranks: run_with_restarts() then ends all ranks, leaves the cluster,
 * joins or starts it again and resumes the last checkpoint, as often as restart_policy.h allows. A
 * second interrupt ends the job. */
#include "colocate/job/job.h"

#include "actors/process/runtime.h"
#include "colocate/job/banner.h"
#include "colocate/job/controller.h"
#include "colocate/job/engine_recovery.h"
#include "colocate/job/memory_budget.h"
#include "colocate/job/output_directory.h"
#include "colocate/job/rank_trace.h"
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Bytes of the file system for temporary files below which it counts as full. */
enum { FREE_BYTES_MIN = 256 * 1024 };
/* How often an aborted update is repeated before the job fails; longest time in milliseconds to end
 * the ranks before a restart, until a rank on a node that does not answer counts as lost, so
 * that its name is free, and until a node with GPUs has joined again. */
enum {
    UPDATE_RETRIES = 1,
    KILL_RANKS_MS = 10000,
    RESTART_NAMES_MS = 60000,
    RESTART_JOINING_MS = 300000
};

/* ---- before anything runs --------------------------------------------------------------- */

/* Fails with TDM_E_BUDGET if the regions of the ranks do not fit on the GPUs. */
static tdm_status check_budget(struct tdm__controller *controller)
{
    struct tdm__memory_budget_input *input = calloc(1, sizeof(*input));
    struct tdm__memory_budget *budget = calloc(1, sizeof(*budget));
    tdm_status status =
        input == NULL || budget == NULL ? tdm__fail(TDM_E_NOMEM, "a budget") : TDM_OK;

    if (status == TDM_OK) {
        status = tdm__job_memory_budget_input(controller->spec, &controller->library, input);
    }
    if (status == TDM_OK) {
        status = tdm__memory_budget_compute(input, budget);
    }
    free(input);
    free(budget);
    return status;
}

/* Opens <out>/trace.json and names its processes and threads. */
static tdm_status open_trace(struct tdm__controller *controller)
{
    char path[TDM__PATH_BYTES];
    char name[48];
    uint32_t ranks_per_engine = controller->spec->rollout_num_gpus_per_engine;

    if (snprintf(path, sizeof(path), "%s/trace.json", controller->options->out) >=
        (int)sizeof(path)) {
        return tdm__fail(TDM_E_LIMIT, "the path %.60s… is too long", controller->options->out);
    }
    TDM_TRY(tdm__trace_open(path, &controller->trace));
    tdm__trace_name_process(controller->trace, TDM__TRACE_JOB, "job");
    tdm__trace_name_thread(controller->trace, TDM__TRACE_JOB, 0, "phases");
    tdm__trace_name_process(controller->trace, TDM__TRACE_TRAINERS, "trainer");
    tdm__trace_name_process(controller->trace, TDM__TRACE_ENGINES, "engines");
    for (uint32_t i = 0; i < controller->spec->trainer_num_ranks; i++) {
        (void)snprintf(name, sizeof(name), "trainer/%u", i);
        tdm__trace_name_thread(controller->trace, TDM__TRACE_TRAINERS, i, name);
    }
    for (uint32_t i = 0; i < controller->spec->num_engines * ranks_per_engine; i++) {
        (void)snprintf(name, sizeof(name), "engine/%u/%u", i / ranks_per_engine,
                       i % ranks_per_engine);
        tdm__trace_name_thread(controller->trace, TDM__TRACE_ENGINES, i, name);
    }
    return TDM_OK;
}

/* Finds the newest complete checkpoint in an output directory, and takes over its step and its
 * version. New versions are greater than both the checkpoint's version and the last number on
 * disk. */
static tdm_status find_checkpoint(struct tdm__controller *controller, const char *out)
{
    struct tdm__checkpoint_choice choice;
    uint64_t noted;

    TDM_TRY(tdm__checkpoint_find(out, &choice));
    TDM_TRY(tdm__checkpoint_read_version(out, &noted));
    if (choice.state.version < noted) {
        choice.state.version = noted; /* Updates after the checkpoint used higher numbers. */
    }
    controller->resumed = choice;
    controller->step = choice.state.step;
    controller->score_before = choice.state.score_before;
    if (choice.state.run[0] != '\0') {
        memcpy(controller->run, choice.state.run, sizeof(controller->run));
    }
    if (controller->version_floor < choice.state.version) {
        controller->version_floor = choice.state.version;
    }
    return TDM_OK;
}

/* Returns whether the job joins a cluster, whose nodes may have GPUs for more engines than the job
 * file has. A private node has GPUs for those only. */
static bool is_in_cluster(void)
{
    const char *cluster = getenv("TANDEM_ADDRESS");

    return cluster != NULL && cluster[0] != '\0';
}

/* Gives the job the number of engines that the run had whose checkpoint it resumes, if engines were
 * added or ended while that one ran and the job file still has the number that it had then. */
static void keep_number_of_engines(struct tdm__controller *controller)
{
    const struct tdm__checkpoint_state *state = &controller->resumed.state;
    const struct tdm__job_spec *spec = controller->spec;

    if (state->engines == 0 || state->engines_of_file != controller->engines_of_file ||
        spec->engine_colocate || !is_in_cluster() || state->engines > tdm__engines_limit(spec) ||
        state->engines < spec->num_engines_min) {
        return;
    }
    controller->own_spec.num_engines = state->engines;
    tdm__progress_note(&controller->progress,
                       "resuming with %u engines, to which the job was scaled; engine.num_engines "
                       "is %u",
                       state->engines, state->engines_of_file);
}

/* Initializes the phase machine for ranks that start. */
static void init_phases(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;

    tdm__phase_init(&controller->phase, spec->num_engines, spec->num_engines_min, UPDATE_RETRIES);
    tdm__phase_set_base_version(&controller->phase, controller->version_floor);
    if (tdm__job_updates_overwrite(spec)) {
        tdm__phase_set_overwriting(&controller->phase);
    }
}

/* Prints from which step the run goes on, and whether that leaves it nothing to do. */
static void print_resumed(struct tdm__controller *controller)
{
    uint32_t num_rollout = (uint32_t)controller->spec->num_rollout;

    tdm__progress_note(&controller->progress, "resuming %s after step %u of %u",
                       controller->resumed.directory, controller->step, num_rollout);
    if (tdm__controller_is_finished(controller)) {
        tdm__progress_note(&controller->progress,
                           "no step is left: rollout.num_rollout is %u; set it above %u to go on",
                           num_rollout, controller->step);
    }
}

/* Opens the output directory. If the run resumes what an interrupted save has left there, that
 * becomes the checkpoint, so that the next save does not remove it. */
static tdm_status open_output(struct tdm__controller *controller)
{
    const struct tdm__job_run_options *options = controller->options;
    struct tdm__checkpoint_choice *choice = &controller->resumed;
    enum tdm__output_mode mode = options->resume != NULL ? TDM__OUTPUT_RESUME
                                 : options->overwrite    ? TDM__OUTPUT_OVERWRITE
                                                         : TDM__OUTPUT_NEW;

    TDM_TRY(tdm__output_directory_open(options->out, mode, &controller->output_lock_fd));
    if (options->resume == NULL) {
        return TDM_OK;
    }
    if (choice->refused[0] != '\0') {
        tdm__progress_note(&controller->progress, "resuming %s, because %s", choice->directory,
                           choice->refused);
    }
    print_resumed(controller);
    return strcmp(options->out, options->resume) == 0
               ? tdm__checkpoint_restore(options->out, choice)
               : TDM_OK;
}

/* Does everything that needs no cluster, so that mistakes in the job file are reported at once. */
static tdm_status controller_prepare(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;
    struct tdm__id run;

    TDM_TRY(tdm__dataset_read(spec->train, spec->prompt_key, spec->answer_key, &controller->train));
    TDM_TRY(
        tdm__dataset_read(spec->unseen, spec->prompt_key, spec->answer_key, &controller->unseen));
    TDM_TRY(tdm__job_library_open_for_job(spec, &controller->library));
    TDM_TRY(tdm__wrap(tdm__job_library_check_device(&controller->library, spec->device), "%s",
                      tdm_config_where(spec->config, "cluster.device")));
    TDM_TRY(check_budget(controller));
    TDM_TRY(tdm__id_generate(&run));
    (void)tdm__id_text(&run, controller->run);
    if (controller->options->resume != NULL) {
        TDM_TRY(find_checkpoint(controller, controller->options->resume));
        keep_number_of_engines(controller);
    }
    init_phases(controller);
    TDM_TRY(open_output(controller));
    return open_trace(controller);
}

/* Prints the first two lines of the job's output. */
static void print_placement(struct tdm__controller *controller)
{
    char text[TDM__BANNER_BYTES];

    tdm__banner_title(controller->spec, controller->options,
                      is_in_cluster() ? getenv("TANDEM_ADDRESS") : NULL, text);
    tdm__progress_note(&controller->progress, "%s", text);
    tdm__banner_placement(controller->spec, text);
    tdm__progress_note(&controller->progress, "%s", text);
}

/* Forgets the memory of an engine in the trace. */
static void forget_resident_bytes(struct tdm__controller *controller, uint32_t engine)
{
    uint32_t ranks_per_engine = controller->workers.ranks_per_engine;

    memset(&controller->resident_bytes[1][(size_t)engine * ranks_per_engine], 0,
           ranks_per_engine * sizeof(controller->resident_bytes[1][0]));
}

/* Prints that an engine serves, and marks in the trace when an added engine has joined. */
static void print_engine_serving(struct tdm__controller *controller, uint32_t engine)
{
    bool is_new = controller->workers.engine_states[engine].is_new;
    const struct tdm__trace_argument argument = {
        .name = "version", .number = (double)controller->phase.committed_version};
    char name[48];
    const struct tdm__trace_event event = {.name = name,
                                           .category = "job",
                                           .process = TDM__TRACE_JOB,
                                           .begin_ns = tdm__clock_ns(),
                                           .end_ns = tdm__clock_ns(),
                                           .arguments = &argument,
                                           .arguments_count = 1};

    (void)snprintf(name, sizeof(name), "engine %u %s", engine, is_new ? "joined" : "back");
    tdm__log(TDM__INFO, "job", "%s at version %llu", name,
             (unsigned long long)controller->phase.committed_version);
    tdm__progress_note(&controller->progress, "%s at version %llu", name,
                       (unsigned long long)controller->phase.committed_version);
    if (is_new && controller->trace != NULL) {
        tdm__trace_event(controller->trace, &event);
    }
}

/* Prints that an engine was lost and forgets its memory in the trace. The caller of the failed
 * operation decides whether the job continues. */
static void print_engine_lost(struct tdm__controller *controller, uint32_t engine, const char *why)
{
    uint32_t left = tdm__worker_group_live_engines(&controller->workers);

    forget_resident_bytes(controller, engine);
    /* The progress line shows only the first line of the reason; the log has all of it. */
    tdm__progress_note(&controller->progress, "engine %u lost: %.*s; %u of %u %s", engine,
                       (int)strcspn(why, "\n"), why, left, controller->spec->num_engines,
                       left == 1 ? "goes on" : (left == 0 ? "are left" : "go on"));
}

/* Callback of the worker group: tells the phase machine about a lost or restarted engine and
 * prints it. */
static void on_engine_event(void *arg, uint32_t engine, enum tdm__engine_event news,
                            const char *text)
{
    struct tdm__controller *controller = arg;
    char who[32];
    struct tdm__phase_event event = {.kind = news == TDM__ENGINE_EVENT_RESTARTED
                                                 ? TDM__PHASE_ENGINE_RECOVERED
                                                 : TDM__PHASE_PARTICIPANT_DIED,
                                     .participant = TDM__PHASE_ENGINE,
                                     .participant_name = who,
                                     .text = text};
    enum tdm__phase_action action;

    (void)snprintf(who, sizeof(who), "engine %u", engine);
    if (news != TDM__ENGINE_EVENT_SERVING) {
        (void)tdm__phase_handle_event(&controller->phase, &event, &action);
    }
    if (news == TDM__ENGINE_EVENT_LOST) {
        print_engine_lost(controller, engine, text);
    } else if (news == TDM__ENGINE_EVENT_RETIRED) {
        forget_resident_bytes(controller, engine);
        tdm__progress_note(&controller->progress, "engine %u ended: %s", engine, text);
    } else if (news == TDM__ENGINE_EVENT_SERVING) {
        print_engine_serving(controller, engine);
    }
}

/* Starts the runtime. A node that the job has used before and that refuses connections now is lost,
 * and may be started again. */
static tdm_status join_cluster(struct tdm__controller *controller,
                               const struct tdm_runtime_options *options)
{
    tdm_status status = tdm_runtime_start(options, &controller->runtime);

    return controller->has_started && status == TDM_E_IO
               ? tdm__wrap(TDM_E_NODE_LOST, "joining the node again")
               : status;
}

/* Gives the files of the job to the cluster, unless this is a private node, where all ranks are on
 * this machine and read them by their paths. */
static tdm_status publish_contents(struct tdm__controller *controller)
{
    if (controller->runtime->private_node != NULL) {
        return TDM_OK;
    }
    if (!controller->contents.is_read) {
        TDM_TRY(tdm__job_contents_read(controller->spec, &controller->contents));
    }
    return tdm__job_contents_publish(&controller->contents, controller->runtime);
}

/* Starts the runtime and creates all actors. */
static tdm_status start_cluster(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm__worker_group_options waits = {.interrupts = controller->options->interrupts,
                                              .names_ms = TDM__WORKER_NAMES_MS,
                                              .contents = &controller->contents};

    options.cpus = (uint32_t)spec->cpus;
    options.gpus = spec->num_gpus;
    options.gpu_bytes = spec->gpu_bytes;
    options.device = spec->device;
    TDM_TRY(join_cluster(controller, &options));
    if (!controller->has_started) {
        print_placement(controller);
    }
    TDM_TRY(publish_contents(controller));
    if (controller->has_started) {
        waits.names_ms = RESTART_NAMES_MS;
        waits.joining_ms = RESTART_JOINING_MS;
    }
    TDM_TRY(tdm__worker_group_start(&controller->workers, controller->runtime, spec, &waits));
    controller->workers.on_event = on_engine_event;
    controller->workers.on_event_arg = controller;
    return tdm__job_library_has_reward_actor(&controller->library)
               ? tdm__rewards_start(&controller->rewards, controller->runtime, spec, waits.names_ms)
               : TDM_OK;
}

/* ---- the phases ------------------------------------------------------------------------- */

/* Resets the measurements for the next step. */
static void init_step_progress(struct tdm__controller *controller)
{
    controller->step_progress =
        (struct tdm__progress_step){.step = controller->step + 1,
                                    .steps_count = controller->spec->num_rollout,
                                    .reward = NAN,
                                    .kl = NAN,
                                    .version = controller->phase.committed_version};
}

/* Decides whether a job continues after an update with `status`. It does if the update was
 * aborted for a reason that a retry may remedy, such as a lost engine. A dead trainer, too few
 * engines, an undecided outcome or a second interrupt end the job. Returns false in these cases. */
static bool handle_update_failure(struct tdm__controller *controller, tdm_status status)
{
    bool died = status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST ||
                status == TDM_E_ACTOR_UNAVAILABLE;

    if (status == TDM_OK) {
        return true;
    }
    if (status == TDM_E_CANCELED || !controller->update.decided ||
        (died && controller->update.engines_lost == 0) ||
        tdm__worker_group_live_engines(&controller->workers) < controller->spec->num_engines_min) {
        return false;
    }
    controller->abort_status = status;
    (void)snprintf(controller->abort_reason, sizeof(controller->abort_reason), "%s",
                   tdm_error_detail());
    if (controller->update.engines_lost > 0) { /* The loss itself was printed before. */
        tdm__progress_note(&controller->progress,
                           "update to version %llu aborted: an engine was lost",
                           (unsigned long long)controller->update.version);
    } else {
        tdm__progress_note(&controller->progress, "update to version %llu aborted: %s: %s",
                           (unsigned long long)controller->update.version, tdm_strerror(status),
                           controller->abort_reason);
    }
    return true;
}

/* Sets how many engines hold the version served before an update that was aborted, if the job's
 * updates overwrite it. */
static tdm_status count_holders(struct tdm__controller *controller, struct tdm__phase_event *event)
{
    return event->kind == TDM__PHASE_UPDATE_ABORTED && tdm__job_updates_overwrite(controller->spec)
               ? tdm__recovery_find_torn_engines(&controller->workers, false, &event->holders)
               : TDM_OK;
}

/* Executes one action of the phase machine. `event` is the event to report to the machine
 * afterwards. */
static tdm_status execute_phase_action(struct tdm__controller *controller,
                                       enum tdm__phase_action action,
                                       struct tdm__phase_event *event)
{
    tdm_status status;

    switch (action) {
    case TDM__PHASE_DO_PAUSE_ENGINES:
        event->kind = TDM__PHASE_ENGINES_PAUSED;
        return tdm__controller_pause_engines(controller);
    case TDM__PHASE_DO_RESUME_TRAINER:
        event->kind = TDM__PHASE_TRAINER_RESUMED;
        return tdm__controller_resume_trainer(controller);
    case TDM__PHASE_DO_TRAIN:
        event->kind = TDM__PHASE_STEP_DONE;
        return tdm__controller_train(controller);
    case TDM__PHASE_DO_PAUSE_TRAINER:
        event->kind = TDM__PHASE_TRAINER_PAUSED;
        return tdm__controller_pause_trainer(controller);
    case TDM__PHASE_DO_RESUME_WEIGHTS:
        event->kind = TDM__PHASE_WEIGHTS_RESUMED;
        return tdm__controller_resume_weights(controller);
    case TDM__PHASE_DO_UPDATE:
        if (!controller->spec->update_enabled && controller->phase.serving_version != 0) {
            /* Updates are disabled, which only tests do. */
            event->kind = TDM__PHASE_UPDATE_SKIPPED;
            return TDM_OK;
        }
        status = tdm__controller_update(controller);
        event->kind = status == TDM_OK ? TDM__PHASE_UPDATE_COMMITTED : TDM__PHASE_UPDATE_ABORTED;
        event->version = controller->update.version;
        return handle_update_failure(controller, status) ? count_holders(controller, event)
                                                         : status;
    case TDM__PHASE_DO_FLUSH:
        event->kind = TDM__PHASE_CACHES_FLUSHED;
        return controller->spec->update_enabled || controller->update.committed
                   ? tdm__controller_flush(controller)
                   : TDM_OK;
    case TDM__PHASE_DO_RESUME_KV:
        event->kind = TDM__PHASE_KV_RESUMED;
        return tdm__controller_resume_kv(controller);
    case TDM__PHASE_DO_FAIL: /* The machine has no way to continue after the last abort. */
        return tdm__fail(controller->abort_status, "%s: %s", controller->phase.failure,
                         controller->abort_reason);
    case TDM__PHASE_DO_GENERATE:
    case TDM__PHASE_DO_NOTHING:
        break;
    }
    return tdm__fail(TDM_E_STATE, "the phase machine asks for no action in phase %s",
                     tdm__phase_name_text(controller->phase.phase));
}

/* Adds a phase that ends now to the trace. */
static void trace_phase(struct tdm__controller *controller, enum tdm__phase_name phase,
                        int64_t begin_ns)
{
    struct tdm__trace_argument argument = {.name = "version",
                                           .number = (double)controller->phase.committed_version};
    struct tdm__trace_event event = {.name = tdm__phase_name_text(phase),
                                     .category = "phase",
                                     .process = TDM__TRACE_JOB,
                                     .begin_ns = begin_ns,
                                     .end_ns = tdm__clock_ns(),
                                     .arguments = &argument,
                                     .arguments_count = 1};

    tdm__trace_event(controller->trace, &event);
}

/* Reports an event to the phase machine and executes actions until the machine asks for none. */
static tdm_status phase_machine_advance(struct tdm__controller *controller,
                                        enum tdm__phase_event_kind first)
{
    struct tdm__phase_event event = {.kind = first};
    enum tdm__phase_action action;

    TDM_TRY(tdm__phase_handle_event(&controller->phase, &event, &action));
    while (action != TDM__PHASE_DO_NOTHING) {
        enum tdm__phase_name phase = controller->phase.phase;
        int64_t begin_ns = tdm__clock_ns();

        event = (struct tdm__phase_event){.kind = first};
        TDM_TRY(tdm__wrap(execute_phase_action(controller, action, &event), "%s, step %u",
                          tdm__phase_name_text(phase), controller->step_progress.step));
        trace_phase(controller, phase, begin_ns);
        TDM_TRY(tdm__phase_handle_event(&controller->phase, &event, &action));
    }
    return TDM_OK;
}

/* Runs `ask`, which uses the engines to generate, between the events that allow it. The phase
 * machine refuses unless the job is in the phase ROLLOUT. */
static tdm_status run_rollout_phase(struct tdm__controller *controller,
                                    tdm_status (*ask)(struct tdm__controller *controller))
{
    struct tdm__phase_event requested = {.kind = TDM__PHASE_GENERATE_REQUESTED};
    struct tdm__phase_event done = {.kind = TDM__PHASE_GENERATE_DONE};
    enum tdm__phase_action action;
    int64_t begin_ns = tdm__clock_ns();
    tdm_status status;

    TDM_TRY(tdm__phase_handle_event(&controller->phase, &requested, &action));
    status =
        action == TDM__PHASE_DO_GENERATE
            ? ask(controller)
            : tdm__fail(TDM_E_STATE, "generate failed: the job is in phase %s, expected ROLLOUT",
                        tdm__phase_name_text(controller->phase.phase));
    TDM_TRY(tdm__wrap(status, "ROLLOUT, step %u", controller->step_progress.step));
    trace_phase(controller, TDM__PHASE_ROLLOUT, begin_ns);
    return tdm__phase_handle_event(&controller->phase, &done, &action);
}

/* Evaluates on the unseen rows before the first step. */
static tdm_status evaluate_before_training(struct tdm__controller *controller)
{
    TDM_TRY(tdm__controller_evaluate(controller, &controller->score_before));
    tdm__progress_note(&controller->progress, "before     %.3f on %u unseen prompts",
                       controller->score_before, controller->unseen.rows_count);
    return TDM_OK;
}

/* Evaluates on the unseen rows after the last step. */
static tdm_status evaluate_after_training(struct tdm__controller *controller)
{
    return tdm__controller_evaluate(controller, &controller->score_after);
}

/* Evaluates on the unseen rows between steps and prints the score. The caller decides when it is
 * due. */
static tdm_status evaluate_if_due(struct tdm__controller *controller)
{
    double score;

    TDM_TRY(tdm__controller_evaluate(controller, &score));
    tdm__progress_note(&controller->progress, "step %u     %.3f on %u unseen prompts",
                       controller->step, score, controller->unseen.rows_count);
    return TDM_OK;
}

/* Runs one step: rollout, training, weight update, and the trace. */
static tdm_status run_step(struct tdm__controller *controller)
{
    uint32_t interval = controller->spec->eval_interval;
    uint32_t step_before = controller->step;

    init_step_progress(controller);
    TDM_TRY(tdm__wrap(tdm__controller_scale(controller), "ROLLOUT, step %u",
                      controller->step_progress.step));
    TDM_TRY(run_rollout_phase(controller, tdm__controller_rollout));
    TDM_TRY(phase_machine_advance(controller, TDM__PHASE_ROLLOUT_DONE));
    if (controller->step == step_before) {
        /* The samples of a wrong engine were dropped, and the step is repeated without it. */
        return tdm__wrap(tdm__controller_trace(controller), "trace, step %u", controller->step);
    }
    tdm__progress_show(&controller->progress, &controller->step_progress);
    TDM_TRY(tdm__wrap(tdm__controller_trace(controller), "trace, step %u", controller->step));
    if (interval > 0 && controller->step % interval == 0 &&
        !tdm__controller_is_finished(controller)) {
        TDM_TRY(run_rollout_phase(controller, evaluate_if_due));
    }
    return TDM_OK;
}

/* Runs all steps of the job, with evaluations before and after them. */
static tdm_status run_steps(struct tdm__controller *controller)
{
    init_step_progress(controller);
    TDM_TRY(phase_machine_advance(controller, TDM__PHASE_TRAIN_WANTED));
    if (isnan(controller->score_before)) {
        TDM_TRY(run_rollout_phase(controller, evaluate_before_training));
    }
    while (!tdm__controller_is_finished(controller)) {
        /* If the interrupt came after the step had saved its checkpoint, that checkpoint is
         * enough. Otherwise one more step runs and saves. */
        if (tdm__controller_is_interrupted(controller) && controller->saved) {
            return TDM_OK;
        }
        TDM_TRY(run_step(controller));
    }
    return run_rollout_phase(controller, evaluate_after_training);
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Prints the scores and the output files, or how to resume an interrupted job. */
static void print_result(struct tdm__controller *controller)
{
    const char *out = controller->options->out;

    tdm__progress_end(&controller->progress);
    if (tdm__controller_is_finished(controller)) {
        tdm__progress_note(&controller->progress,
                           "reward %.3f → %.3f on %u unseen prompts      checkpoint %s/hf "
                           "(Hugging Face safetensors)      trace %s/trace.json",
                           controller->score_before, controller->score_after,
                           controller->unseen.rows_count, out, out);
    } else {
        tdm__progress_note(&controller->progress,
                           "interrupted after step %u of %u: go on with tandem run … --resume %s",
                           controller->step, controller->spec->num_rollout, out);
    }
}

/* Ends all ranks and leaves the cluster; a private node ends. */
static void leave_cluster(struct tdm__controller *controller)
{
    tdm__rollout_fini(&controller->rollout);
    tdm__rewards_stop(&controller->rewards);
    tdm__worker_group_fini(&controller->workers);
    tdm__job_contents_withdraw(&controller->contents);
    tdm_runtime_stop(controller->runtime);
    controller->runtime = NULL;
}

/* ---- restarts --------------------------------------------------------------------------- */

/* Prints why the job is restarted, from where, and what that costs. `reached` is the number of
 * steps that were completed, `why` the error text of the failure. */
static void print_restart(struct tdm__controller *controller, uint32_t reached, const char *why)
{
    const struct tdm__restart_policy *restarts = &controller->restarts;
    const char *directory = controller->resumed.directory;
    uint32_t repeated = reached > controller->step ? reached - controller->step : 0;

    tdm__progress_note(&controller->progress, "restart %u of %u after step %u, because %.*s",
                       restarts->restarts_count, restarts->restarts_max, reached,
                       (int)strcspn(why, "\n"), why);
    if (directory[0] == '\0') {
        tdm__progress_note(&controller->progress,
                           "starting again from step 0, because no checkpoint was saved; steps "
                           "repeated: %u",
                           repeated);
    } else {
        tdm__progress_note(&controller->progress, "resuming %s after step %u; steps repeated: %u",
                           directory, controller->step, repeated);
    }
}

/* Chooses where the next ranks begin: at the last checkpoint of this run, else at the one that this
 * run resumed, else at step 0. */
static tdm_status choose_restart_point(struct tdm__controller *controller)
{
    const char *out = controller->options->out;
    uint64_t highest = controller->phase.committed_version;
    tdm_status status;

    highest = highest < controller->update.version ? controller->update.version : highest;
    if (controller->version_floor < highest) {
        controller->version_floor = highest;
    }
    status = find_checkpoint(controller, out);
    if (status == TDM_OK) {
        return tdm__checkpoint_restore(out, &controller->resumed);
    }
    if (status != TDM_E_NOT_FOUND) {
        return status;
    }
    controller->step =
        controller->resumed.directory[0] == '\0' ? 0 : controller->resumed.state.step;
    return TDM_OK;
}

/* Kills all ranks, so that their names and their memory are free for the next ones, and forgets
 * what is known of them. A private node is killed as a whole, which needs no reply of its parts. */
static void end_ranks(struct tdm__controller *controller)
{
    if (controller->runtime != NULL && !tdm__runtime_kill_private_daemon(controller->runtime)) {
        tdm__worker_group_kill(&controller->workers, tdm__deadline_after(KILL_RANKS_MS));
    }
    leave_cluster(controller);
    controller->started = false;
    controller->saved = false;
    controller->record_is_ours = false;
    tdm__controller_forget_scale_requests(controller);
    controller->earlier_version = 0;
    controller->update = (struct tdm__weight_update){.version = 0};
    controller->abort_status = TDM_OK;
    tdm__engine_set_clear(&controller->logprob_check.suspects);
    memset(controller->resident_bytes, 0, sizeof(controller->resident_bytes));
}

/* Waits before a restart; an interrupt ends the wait. */
static void pause_before_restart(const struct tdm__controller *controller, int64_t pause_ms)
{
    const struct timespec slice = {.tv_nsec = 100000000};
    int64_t deadline_ms = tdm__deadline_after(pause_ms);

    while (tdm__deadline_remaining_ms(deadline_ms) > 0 &&
           !tdm__controller_is_interrupted(controller)) {
        (void)nanosleep(&slice, NULL);
    }
}

/* Prepares the job for new ranks after the failure `why`. */
static tdm_status prepare_restart(struct tdm__controller *controller, const char *why)
{
    int64_t pause_ms = tdm__restart_policy_count(&controller->restarts);
    uint32_t reached = controller->step;

    tdm__log(TDM__INFO, "job", "restart %u: %s", controller->restarts.restarts_count, why);
    TDM_TRY(choose_restart_point(controller));
    end_ranks(controller);
    init_phases(controller);
    print_restart(controller, reached, why);
    pause_before_restart(controller, pause_ms);
    return TDM_OK;
}

/* Changes a failure to TDM_E_IO if the file system for temporary files is full, and names it. The
 * store, the daemon and the ranks of a node need it, and their own errors do not name it. A restart
 * would not help. */
static tdm_status explain_full_disk(tdm_status status)
{
    const char *directory = tdm__directory_parent_path();
    struct statvfs space;

    if (status == TDM_OK || statvfs(directory, &space) < 0 ||
        (uint64_t)space.f_bavail * space.f_frsize >= FREE_BYTES_MIN) {
        return status;
    }
    return tdm__wrap(TDM_E_IO,
                     "the file system of %s is full (%llu KiB are left), which may be the cause: "
                     "remove files, or set TMPDIR to another directory",
                     directory, (unsigned long long)space.f_bavail * space.f_frsize / 1024);
}

/* Changes a failure to TDM_E_STORE if this node does not reach the cluster's store. What waits for
 * the store fails with its own deadline, or because others have given up. */
static tdm_status explain_lost_store(const struct tdm__controller *controller, tdm_status status)
{
    const char *error = controller->workers.store_error;

    if ((status != TDM_E_TIMEOUT && status != TDM_E_ABORTED) || error[0] == '\0') {
        return status;
    }
    return tdm__wrap(TDM_E_STORE, "the cluster's store does not reply to this node (%s)", error);
}

/* Starts the cluster and all ranks, and runs the steps that are left. */
static tdm_status run_ranks(struct tdm__controller *controller)
{
    tdm_status status = start_cluster(controller);

    if (status == TDM_OK) {
        status = run_steps(controller);
    }
    return explain_full_disk(explain_lost_store(controller, status));
}

/* Runs the job, and starts all ranks again after failures for which the policy allows it. */
static tdm_status run_with_restarts(struct tdm__controller *controller)
{
    const struct tdm__restart_policy *restarts = &controller->restarts;
    tdm_status status = run_ranks(controller);
    char why[TDM__ERROR_DETAIL_BYTES];

    while (status != TDM_OK && !tdm__controller_is_interrupted(controller) &&
           tdm__restart_policy_allows(restarts, status, controller->has_started)) {
        (void)snprintf(why, sizeof(why), "%s", tdm_error_detail());
        TDM_TRY(tdm__wrap(prepare_restart(controller, why), "restart after: %s", why));
        status = run_ranks(controller);
    }
    return restarts->restarts_count == 0
               ? status
               : tdm__wrap(status, "after %u of %u restarts (job.max_restarts)",
                           restarts->restarts_count, restarts->restarts_max);
}

/* Runs the job from preparation to result. The caller releases everything. */
static tdm_status job_execute(struct tdm__controller *controller)
{
    TDM_TRY(controller_prepare(controller));
    TDM_TRY(run_with_restarts(controller));
    print_result(controller);
    return TDM_OK;
}

/* Releases everything that the controller owns, also after a failure at any point. */
static void controller_fini(struct tdm__controller *controller)
{
    tdm__progress_end(&controller->progress);
    leave_cluster(controller);
    (void)tdm__trace_close(controller->trace);
    if (controller->library.jobs != NULL) {
        tdm__job_library_close(&controller->library);
    }
    tdm__dataset_fini(&controller->train);
    tdm__dataset_fini(&controller->unseen);
    tdm__job_contents_fini(&controller->contents);
    if (controller->output_lock_fd >= 0) {
        (void)close(controller->output_lock_fd);
    }
}

tdm_status tdm__job_run(const struct tdm__job_spec *spec,
                        const struct tdm__job_run_options *options, bool *finished_out)
{
    struct tdm__controller *controller = calloc(1, sizeof(*controller));
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status status;

    *finished_out = false;
    if (controller == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a job");
    }
    controller->own_spec = *spec;
    controller->spec = &controller->own_spec;
    controller->engines_of_file = spec->num_engines;
    controller->options = options;
    controller->progress =
        (struct tdm__progress){.stream = stdout, .mode = options->progress, .drawn = false};
    controller->score_before = NAN;
    controller->score_after = NAN;
    controller->output_lock_fd = -1;
    controller->restarts.restarts_max = spec->max_restarts;
    status = job_execute(controller);
    *finished_out = status == TDM_OK && tdm__controller_is_finished(controller);
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (controller->runtime != NULL && (status == TDM_E_IO || tdm__restart_policy_covers(status))) {
        /* Parts of the node do not reply, so that a graceful end would wait for them. */
        (void)tdm__runtime_kill_private_daemon(controller->runtime);
    }
    controller_fini(controller);
    free(controller);
    return status == TDM_OK ? TDM_OK : tdm__fail(status, "%s", detail);
}
