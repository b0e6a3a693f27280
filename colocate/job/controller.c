/* controller.c - carries out the actions of each phase of a job: training, weight updates,
 * rollouts. */
/* SPDX-License-Identifier: Apache-2.0 */
/* job.c drives the phase machine (colocate/phase.h) and calls one function of this file for each
 * action. All functions run on the thread of tdm__job_run() and block until the ranks have
 * replied.
 * Calls to engines tolerate the loss of an engine: tdm__failover_handle_failure() removes it, and
 * the call is repeated with the others. Every method that is called in this way is idempotent.
 * Calls to trainers do not tolerate a loss: they fail, and job.c restarts all ranks.
 * Versions increase monotonically. note_next_version() records each number on disk before the
 * update begins, so that a resumed job does not use it again. docs/protocols/commit.md specifies
 * the update itself. */
#include "colocate/job/controller.h"

#include "colocate/job/banner.h"
#include "colocate/job/earlier_job.h"
#include "colocate/job/engine_failover.h"
#include "colocate/job/engine_recovery.h"
#include "colocate/job/weight_connect.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/splitmix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tdm_bytes no_arguments = {"\x90", 1};

/* Purpose of a seed. The values are part of the reproducible random numbers of a job and never
 * change. */
enum seed_purpose { SEED_ROLLOUT = 1, SEED_SHUFFLE = 2, SEED_WARMUP = 3, SEED_TRAIN = 4 };

/* Returns a seed that depends on the job's seed, the purpose and a running number. */
static uint64_t derive_seed(const struct tdm__controller *controller, enum seed_purpose purpose,
                            uint64_t number)
{
    return tdm__splitmix64(tdm__splitmix64(controller->spec->seed, (uint64_t)purpose), number);
}

/* Returns the milliseconds since `begin_ns` of tdm__clock_ns(). */
static double ms_since(int64_t begin_ns)
{
    return (double)(tdm__clock_ns() - begin_ns) / 1e6;
}

bool tdm__controller_is_finished(const struct tdm__controller *controller)
{
    return controller->step >= controller->spec->num_rollout;
}

bool tdm__controller_is_interrupted(const struct tdm__controller *controller)
{
    return controller->options->interrupts != NULL && *controller->options->interrupts > 0;
}

/* ---- calls to all ----------------------------------------------------------------------- */

/* Calls a method without arguments on every trainer rank and waits for all replies. */
static tdm_status call_trainers(struct tdm__controller *controller, const char *method)
{
    struct tdm__worker_group *workers = &controller->workers;

    return tdm__worker_group_call(workers, workers->trainers, workers->trainers_count, method,
                                  no_arguments, (int64_t)controller->spec->step_timeout_ms);
}

/* Calls a method of all live engines, or only of those that serve, and waits for all replies.
 * Engines that are lost meanwhile are left out and the call is repeated, so the method must be
 * idempotent. */
static tdm_status call_engines(struct tdm__controller *controller, bool serving, const char *method,
                               struct tdm_bytes arguments)
{
    struct tdm__worker_group *workers = &controller->workers;
    tdm_actor **engines = calloc(workers->engines_count + 1, sizeof(tdm_actor *));
    bool again = true;
    tdm_status status = TDM_OK;

    if (engines == NULL) {
        return tdm__fail(TDM_E_NOMEM, "calls of %u engine ranks", workers->engines_count);
    }
    while (again) {
        for (uint32_t i = 0; i < workers->engines_count; i++) {
            bool called =
                !serving || tdm__worker_group_engine_serves(workers, i / workers->ranks_per_engine);

            engines[i] = called ? workers->engines[i] : NULL;
        }
        status = tdm__worker_group_call(workers, engines, workers->engines_count, method, arguments,
                                        (int64_t)controller->spec->update_timeout_ms);
        again = status != TDM_OK;
        status = tdm__failover_handle_failure(workers, status);
        again = again && status == TDM_OK;
    }
    free(engines);
    return status;
}

/* ---- the first turn --------------------------------------------------------------------- */

/* Records in the trace and prints what each update will move. */
static void trace_update_cost(struct tdm__controller *controller,
                              const struct tdm__weight_cost *cost)
{
    const struct tdm__trace_argument arguments[] = {
        {.name = "same_gpu_bytes", .number = (double)cost->same_gpu_bytes},
        {.name = "other_gpu_bytes", .number = (double)cost->other_gpu_bytes},
        {.name = "other_node_bytes", .number = (double)cost->other_node_bytes},
        {.name = "buckets", .number = (double)cost->buckets_count},
        {.name = "measured_bytes", .number = (double)cost->measured_bytes},
    };
    const struct tdm__trace_event event = {.name = "update plan",
                                           .category = "job",
                                           .begin_ns = tdm__clock_ns(),
                                           .end_ns = tdm__clock_ns(),
                                           .arguments = arguments,
                                           .arguments_count = 5};
    char text[TDM__BANNER_BYTES];

    if (controller->trace != NULL) { /* Benchmarks write no trace. */
        tdm__trace_event(controller->trace, &event);
    }
    if (!controller->workers.by_slices || controller->progress.stream == NULL ||
        controller->has_started) { /* After a restart it has been printed. */
        return;
    }
    tdm__banner_update(controller->spec, cost, text);
    tdm__progress_note(&controller->progress, "%s", text);
}

/* Prints the tolerance of the engines that keep tensors in another dtype than the trainers, if
 * there are such engines and log-probabilities are compared. */
static void note_converting_engines(struct tdm__controller *controller)
{
    const struct tdm__engine_set *engines = &controller->workers.converting_engines;
    const char *setting;
    double tolerance;

    if (tdm__engine_set_is_empty(engines) || controller->progress.stream == NULL ||
        controller->has_started || !tdm__logprob_check_is_wanted(controller->spec)) {
        return;
    }
    tolerance = tdm__logprob_check_tolerance(&controller->workers, tdm__engine_set_first(engines),
                                             &setting);
    tdm__progress_note(&controller->progress,
                       "%u of %u engines keep tensors in another dtype than the trainers: their "
                       "log-probabilities may differ by %.3g (%s)",
                       tdm__engine_set_count(engines), controller->spec->num_engines, tolerance,
                       setting);
}

/* Calls "start" on all trainers. Rank 0 replies the list of tensors, which is then sent to the
 * engines to connect both sides. */
static tdm_status start_trainers(struct tdm__controller *controller)
{
    struct tdm__worker_group *workers = &controller->workers;
    tdm_ref **refs = calloc(workers->trainers_count + 1, sizeof(*refs));
    const tdm_value *answer;
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "calls to trainers") : TDM_OK;

    for (uint32_t i = 0; i < workers->trainers_count && status == TDM_OK; i++) {
        status = tdm_actor_call_packed(workers->trainers[i], "start", no_arguments, &refs[i]);
    }
    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, refs, workers->trainers_count,
                                         (int64_t)controller->spec->step_timeout_ms);
    }
    if (status == TDM_OK) {
        status = tdm_get_value(refs[0], 0, &answer);
    }
    if (status == TDM_OK) {
        struct tdm__weight_cost cost;

        status = tdm__weight_connect(workers, answer, &cost);
        if (status == TDM_OK) {
            trace_update_cost(controller, &cost);
            note_converting_engines(controller);
        }
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, workers->trainers_count);
        free(refs);
    }
    return tdm__wrap(status, "start");
}

tdm_status tdm__controller_resume_trainer(struct tdm__controller *controller)
{
    int64_t begin_ns = tdm__clock_ns();

    if (!controller->started) {
        TDM_TRY(tdm__worker_group_call(&controller->workers, controller->workers.engines,
                                       controller->workers.engines_count, "start", no_arguments,
                                       (int64_t)controller->spec->update_timeout_ms));
        TDM_TRY(start_trainers(controller));
        controller->started = true;
        controller->has_started = true;
        return TDM_OK;
    }
    TDM_TRY(call_trainers(controller, "resume"));
    controller->step_progress.off_on_ms += ms_since(begin_ns);
    return TDM_OK;
}

/* ---- training --------------------------------------------------------------------------- */

/* Returns the share of the batch of trainer rank `rank`, with borrowed samples. Samples of one
 * prompt form a group and stay together: of G groups, rank r of R gets those from r·G/R to
 * (r+1)·G/R. */
static struct tdm_batch share_of_rank(const struct tdm__controller *controller,
                                      const struct tdm_batch *batch, uint32_t groups_count,
                                      uint32_t rank)
{
    uint32_t ranks = controller->workers.trainers_count;
    uint32_t per_group = batch->samples_count / (groups_count > 0 ? groups_count : 1);
    uint32_t first = (uint32_t)((uint64_t)groups_count * rank / ranks) * per_group;
    uint32_t next = (uint32_t)((uint64_t)groups_count * (rank + 1) / ranks) * per_group;
    struct tdm_batch share = *batch;

    share.samples = batch->samples + first;
    share.samples_count = next - first;
    return share;
}

/* Sends a trainer rank its share of the batch. */
static tdm_status send_batch(struct tdm__controller *controller, const struct tdm_batch *share,
                             uint32_t rank, tdm_ref **ref_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__batch_write(writer, share);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(controller->workers.trainers[rank], "step",
                                       tdm_writer_bytes(writer), ref_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Reads the metrics that a trainer rank has replied. If one is not finite, the error names the
 * rank and the prompts that it has learned from. */
static tdm_status read_metrics(tdm_ref *ref, const struct tdm_batch *share, uint32_t rank,
                               struct tdm_metrics *metrics_out)
{
    const tdm_value *answer;
    tdm_status status;

    TDM_TRY(tdm_get_value(ref, 0, &answer));
    status = tdm__train_metrics_read(answer, metrics_out);
    if (status == TDM_OK || share->samples_count == 0) {
        return tdm__wrap(status, "trainer rank %u", rank);
    }
    return tdm__wrap(status,
                     "trainer rank %u, which learned from %u samples of the prompts "
                     "\"%.100s\" to \"%.100s\"",
                     rank, share->samples_count, share->samples[0].prompt,
                     share->samples[share->samples_count - 1].prompt);
}

/* Trains all ranks on a batch and waits. Stores the metrics of rank 0 and the time in the
 * controller. The step fails if a metric of any rank is not finite. */
static tdm_status train_step(struct tdm__controller *controller, const struct tdm_batch *batch,
                             uint32_t groups_count)
{
    struct tdm__worker_group *workers = &controller->workers;
    int64_t begin_ns = tdm__clock_ns();
    tdm_ref **refs = calloc(workers->trainers_count + 1, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "calls to trainers") : TDM_OK;

    for (uint32_t i = 0; i < workers->trainers_count && status == TDM_OK; i++) {
        const struct tdm_batch share = share_of_rank(controller, batch, groups_count, i);

        status = send_batch(controller, &share, i, &refs[i]);
    }
    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, refs, workers->trainers_count,
                                         (int64_t)controller->spec->step_timeout_ms);
    }
    for (uint32_t i = 0; i < workers->trainers_count && status == TDM_OK; i++) {
        const struct tdm_batch share = share_of_rank(controller, batch, groups_count, i);
        struct tdm_metrics metrics;

        status = read_metrics(refs[i], &share, i, i == 0 ? &controller->metrics : &metrics);
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, workers->trainers_count);
        free(refs);
    }
    controller->step_progress.train_ms = ms_since(begin_ns);
    return tdm__wrap(status, "train step %u", batch->step);
}

/* Trains one supervised step on prompts and answers of the data set. */
static tdm_status warm_up_step(struct tdm__controller *controller, uint32_t step)
{
    const struct tdm__job_spec *spec = controller->spec;
    struct tdm_sample *samples = calloc(spec->warmup_batch_size + 1, sizeof(*samples));
    struct tdm_batch batch = {.supervised = 1,
                              .step = step,
                              .steps_count = spec->warmup_steps,
                              .samples = samples,
                              .samples_count = spec->warmup_batch_size};
    tdm_status status;

    if (samples == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a batch of %u", spec->warmup_batch_size);
    }
    for (uint32_t i = 0; i < spec->warmup_batch_size; i++) {
        uint32_t row = tdm__dataset_shuffled_row(
            controller->train.rows_count, derive_seed(controller, SEED_WARMUP, 0),
            (uint64_t)(step - 1) * spec->warmup_batch_size + i);

        samples[i] = (struct tdm_sample){.group = i,
                                         .prompt = controller->train.rows[row].prompt,
                                         .answer = controller->train.rows[row].answer};
    }
    status = train_step(controller, &batch, spec->warmup_batch_size);
    free(samples);
    return status;
}

/* Runs the supervised warm-up. An interrupt ends it with TDM_E_CANCELED. */
static tdm_status warm_up(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;

    for (uint32_t step = 1; step <= spec->warmup_steps; step++) {
        struct tdm__progress_step shown = {.supervised = true,
                                           .step = step,
                                           .steps_count = spec->warmup_steps,
                                           .reward = NAN,
                                           .kl = NAN,
                                           .rollout_ms = NAN,
                                           .update_ms = NAN,
                                           .off_on_ms = NAN};

        TDM_TRY(warm_up_step(controller, step));
        shown.train_ms = controller->step_progress.train_ms;
        shown.metrics = &controller->metrics;
        tdm__progress_show(&controller->progress, &shown);
        if (tdm__controller_is_interrupted(controller)) {
            return tdm__fail(TDM_E_CANCELED, "interrupted during the warm-up: nothing to save yet");
        }
    }
    return TDM_OK;
}

/* Returns whether engines read each version from a checkpoint, so that every step must save one. */
static bool updates_from_disk(const struct tdm__controller *controller)
{
    return strcmp(controller->spec->update_source, "disk") == 0;
}

/* Saves a checkpoint if the interval, the end of the job, an interrupt or updates from disk
 * require it. */
static tdm_status save_checkpoint_if_due(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;
    struct tdm__checkpoint_state state = {.step = controller->step,
                                          .version = controller->phase.committed_version,
                                          .score_before = controller->score_before};
    bool is_scaled = spec->num_engines != controller->engines_of_file;
    bool due = (spec->save_interval > 0 && controller->step % spec->save_interval == 0) ||
               updates_from_disk(controller);

    if (!due && !tdm__controller_is_finished(controller) &&
        !tdm__controller_is_interrupted(controller)) {
        return TDM_OK;
    }
    if (is_scaled) {
        state.engines = spec->num_engines;
        state.engines_of_file = controller->engines_of_file;
    }
    memcpy(state.run, controller->run, sizeof(state.run));
    TDM_TRY(tdm__checkpoint_save(&controller->workers, controller->options->out, &state));
    controller->saved = true;
    return TDM_OK;
}

/* Compares the log-probabilities of the engines with the trainer's. Sets `repeats_out` if an engine
 * is over the tolerance. */
static tdm_status compare_logprobs(struct tdm__controller *controller, bool *repeats_out)
{
    *repeats_out = false;
    if (!tdm__logprob_check_is_wanted(controller->spec)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__logprob_check_compare(&controller->logprob_check, &controller->workers,
                                       &controller->rollout, controller->step + 1));
    if (!tdm__engine_set_is_empty(&controller->logprob_check.suspects)) {
        tdm__progress_note(&controller->progress,
                           "step %u is repeated: %u of %u engines are over "
                           "update.logprob_tolerance",
                           controller->step + 1,
                           tdm__engine_set_count(&controller->logprob_check.suspects),
                           tdm__worker_group_live_engines(&controller->workers));
        *repeats_out = true;
    }
    return TDM_OK;
}

/* Adds the largest difference of an engine in the last comparison to the metrics of the step, if
 * there was a comparison and the trainer has left an entry free. */
static void add_logprob_metric(struct tdm__controller *controller)
{
    struct tdm_metrics *metrics = &controller->metrics;
    struct tdm_metric metric = {.name = "engine_logprob_diff"};

    if (!tdm__logprob_check_is_wanted(controller->spec) || metrics->count == TDM_METRICS_MAX) {
        return;
    }
    for (uint32_t i = 0; i < controller->spec->num_engines; i++) {
        metric.value = fmax(metric.value, controller->logprob_check.largest[i]);
    }
    metrics->entries[metrics->count++] = metric;
}

tdm_status tdm__controller_train(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;
    struct tdm_batch batch = {.step = controller->step + 1,
                              .steps_count = spec->num_rollout,
                              .samples = controller->rollout.samples,
                              .samples_count = controller->rollout.samples_count};
    bool repeats;

    if (controller->rollout.samples == NULL) { /* Before the first rollout there are no samples. */
        TDM_TRY(controller->resumed.directory[0] != '\0'
                    ? tdm__checkpoint_load(&controller->workers, controller->resumed.directory)
                    : warm_up(controller));
        return updates_from_disk(controller) ? save_checkpoint_if_due(controller) : TDM_OK;
    }
    TDM_TRY(compare_logprobs(controller, &repeats));
    if (repeats) {
        tdm__rollout_fini(&controller->rollout);
        return TDM_OK;
    }
    TDM_TRY(train_step(controller, &batch, spec->rollout_batch_size));
    add_logprob_metric(controller);
    tdm__rollout_fini(&controller->rollout);
    controller->step++;
    tdm__restart_policy_on_step(&controller->restarts);
    controller->saved = false;
    controller->step_progress.metrics = &controller->metrics;
    controller->step_progress.kl = tdm__train_metrics_find(&controller->metrics, "kl", NAN);
    return save_checkpoint_if_due(controller);
}

tdm_status tdm__controller_pause_trainer(struct tdm__controller *controller)
{
    int64_t begin_ns = tdm__clock_ns();

    if (tdm__engines_are_remote(&controller->workers)) {
        return TDM_OK; /* Engines have other GPUs, so that the trainers keep their memory. */
    }
    TDM_TRY(call_trainers(controller, "pause"));
    controller->step_progress.off_on_ms += ms_since(begin_ns);
    return TDM_OK;
}

/* ---- the update ------------------------------------------------------------------------- */

/* Resumes the regions with this tag on all live engines. A NULL tag resumes all regions, on
 * serving engines only. */
static tdm_status resume_engines(struct tdm__controller *controller, const char *tag)
{
    int64_t begin_ns = tdm__clock_ns();
    const struct tdm__resume_regions_message message = {tag};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__resume_regions_encode(&message, writer);
    if (status == TDM_OK) {
        status = call_engines(controller, tag == NULL, "resume", tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    controller->step_progress.off_on_ms += ms_since(begin_ns);
    return status;
}

tdm_status tdm__controller_resume_weights(struct tdm__controller *controller)
{
    if (tdm__worker_group_live_engines(&controller->workers) == 0) {
        TDM_TRY(tdm__recovery_await_any_engine(&controller->workers));
    }
    TDM_TRY(resume_engines(controller, "weights"));
    return tdm__engine_set_is_empty(&controller->logprob_check.suspects)
               ? TDM_OK
               : tdm__logprob_check_remove_suspects(&controller->logprob_check,
                                                    &controller->workers);
}

/* Returns the absolute path of the folder with the model of the last checkpoint, which is in one
 * file or in several with an index. The caller frees it with free(). */
static tdm_status saved_model(const struct tdm__controller *controller, char **file_out)
{
    char path[TDM__PATH_BYTES];

    if (snprintf(path, sizeof(path), "%s/checkpoint/hf", controller->options->out) >=
        (int)sizeof(path)) {
        return tdm__fail(TDM_E_LIMIT, "the path %.60s… is too long", controller->options->out);
    }
    *file_out = realpath(path, NULL);
    return *file_out == NULL ? tdm__fail_errno(errno, "%s", path) : TDM_OK;
}

/* Records on disk that the next version number may be used, so that it is not reused if this
 * process dies. */
static tdm_status note_next_version(const struct tdm__controller *controller)
{
    uint64_t highest = controller->phase.committed_version;

    highest = highest < controller->version_floor ? controller->version_floor : highest;
    highest = highest < controller->update.version ? controller->update.version : highest;
    return controller->options->out == NULL /* Benchmarks have no output directory. */
               ? TDM_OK
               : tdm__checkpoint_write_version(controller->options->out, highest + 1);
}

/* Prepares the record of the versions in the store before the first update. New versions are
 * greater than all that an earlier job on the same store has used. */
static tdm_status take_over_record(struct tdm__controller *controller)
{
    struct tdm__earlier_versions earlier;

    if (controller->record_is_ours) {
        return TDM_OK;
    }
    TDM_TRY(tdm__wrap(tdm__earlier_job_supersede(&controller->workers, &earlier),
                      "the record of an earlier job"));
    controller->earlier_version = earlier.committed;
    if (controller->version_floor < earlier.highest) {
        controller->version_floor = earlier.highest;
    }
    controller->record_is_ours = true;
    return TDM_OK;
}

/* Returns the version that the store has as committed. */
static uint64_t recorded_version(const struct tdm__controller *controller)
{
    uint64_t committed = controller->phase.committed_version;

    return committed > controller->version_floor ? committed : controller->earlier_version;
}

tdm_status tdm__controller_update(struct tdm__controller *controller)
{
    int64_t begin_ns = tdm__clock_ns();
    char *file = NULL;
    tdm_status status = TDM_OK;

    if (tdm__worker_group_live_engines(&controller->workers) ==
        0) { /* The previous attempt lost the last engine. */
        TDM_TRY(tdm__controller_resume_weights(controller));
    }
    TDM_TRY(take_over_record(controller));
    TDM_TRY(note_next_version(controller));
    if (updates_from_disk(controller)) {
        status = saved_model(controller, &file);
    }
    if (status == TDM_OK) {
        status = tdm__weight_update_run(&controller->workers, file, recorded_version(controller),
                                        controller->version_floor, &controller->update);
    }
    free(file);
    controller->step_progress.update_ms = ms_since(begin_ns);
    return status;
}

tdm_status tdm__controller_flush(struct tdm__controller *controller)
{
    int64_t begin_ns = tdm__clock_ns();
    uint32_t holders;

    TDM_TRY(tdm__weight_update_finish(&controller->workers, &controller->update));
    if (controller->update.committed) {
        tdm__recovery_mark_serving(&controller->workers);
    } else if (tdm__job_updates_overwrite(controller->spec)) {
        TDM_TRY(tdm__recovery_find_torn_engines(&controller->workers, true, &holders));
    }
    controller->step_progress.update_ms += ms_since(begin_ns);
    controller->step_progress.version = controller->phase.committed_version;
    return TDM_OK;
}

/* Returns whether at least one engine is alive and has weights. */
static bool any_engine_serves(const struct tdm__controller *controller)
{
    uint32_t engine = 0;

    while (engine < controller->spec->num_engines &&
           !tdm__worker_group_engine_serves(&controller->workers, engine)) {
        engine++;
    }
    return engine < controller->spec->num_engines;
}

/* Sends the weights of the paused trainers to the restarted engines under a new version number;
 * called when no engine serves. If an engine is lost after the update was decided, and enough other
 * engines live, the function does not fail: the caller checks again whether an engine serves. */
static tdm_status resend_trainer_weights(struct tdm__controller *controller)
{
    struct tdm__phase_event event = {.kind = TDM__PHASE_WEIGHTS_RECOVERED};
    enum tdm__phase_action action;
    tdm_status status;

    TDM_TRY(tdm__controller_resume_weights(controller));
    status = tdm__controller_update(controller);
    if (status == TDM_OK) {
        event.version = controller->update.version;
        TDM_TRY(tdm__phase_handle_event(&controller->phase, &event, &action));
    } else if (!controller->update.decided || controller->update.engines_lost == 0 ||
               tdm__worker_group_live_engines(&controller->workers) <
                   controller->spec->num_engines_min) {
        return status;
    }
    return tdm__controller_flush(controller);
}

/* Resumes all memory of the engines until at least one serves. Engines that an aborted update has
 * torn copy the weights of others first. The loop ends because each engine is restarted only a
 * limited number of times. */
static tdm_status resume_serving(struct tdm__controller *controller)
{
    if (any_engine_serves(controller)) {
        tdm__recovery_join_waiting_engines(&controller->workers);
    }
    do {
        if (!any_engine_serves(controller)) {
            tdm__recovery_restart_engines(&controller->workers);
        }
        if (!any_engine_serves(controller)) {
            TDM_TRY(resend_trainer_weights(controller));
        }
        TDM_TRY(resume_engines(controller, NULL));
    } while (!any_engine_serves(controller));
    return TDM_OK;
}

tdm_status tdm__controller_resume_kv(struct tdm__controller *controller)
{
    return resume_serving(controller);
}

tdm_status tdm__controller_pause_engines(struct tdm__controller *controller)
{
    int64_t begin_ns = tdm__clock_ns();

    if (tdm__engines_are_remote(&controller->workers)) {
        return TDM_OK;
    }
    TDM_TRY(call_engines(controller, false, "pause", no_arguments));
    controller->step_progress.off_on_ms += ms_since(begin_ns);
    return TDM_OK;
}

/* ---- rollouts --------------------------------------------------------------------------- */

/* Restarts lost engines while the other engines generate. */
static void restart_engines_meanwhile(void *arg)
{
    struct tdm__controller *controller = arg;

    tdm__recovery_restart_engines(&controller->workers);
}

/* Runs a rollout and repeats it if an engine is lost: the remaining engines produce the same
 * samples. The loop ends because each engine is restarted only a limited number of times. */
static tdm_status run_rollout(struct tdm__controller *controller,
                              struct tdm__rollout_options *options,
                              struct tdm__rollout *rollout_out)
{
    tdm_status status;

    options->on_requests_sent = restart_engines_meanwhile;
    options->on_requests_sent_arg = controller;
    do {
        if (!any_engine_serves(controller)) { /* The last one may be lost since the last rollout. */
            TDM_TRY(resume_serving(controller));
        }
        status = tdm__rollout_run(&controller->workers, options, rollout_out);
        TDM_TRY(tdm__failover_handle_failure(&controller->workers, status));
    } while (status != TDM_OK);
    tdm__recovery_reset_attempts(&controller->workers);
    return TDM_OK;
}

/* Returns the name in the library's table, or its path if the table has no name. */
static const char *library_name(const struct tdm__controller *controller)
{
    const char *name = controller->library.jobs->name;

    return name == NULL ? controller->spec->library : name;
}

/* Returns the actor that computes rewards, or NULL if the library's function does. */
static const struct tdm__rewards *used_rewards(const struct tdm__controller *controller)
{
    return controller->rewards.actor == NULL ? NULL : &controller->rewards;
}

tdm_status tdm__controller_rollout(struct tdm__controller *controller)
{
    const struct tdm__job_spec *spec = controller->spec;
    int64_t begin_ns = tdm__clock_ns();
    uint32_t *rows = calloc(spec->rollout_batch_size + 1, sizeof(*rows));
    struct tdm__rollout_options options = {
        .dataset = &controller->train,
        .rows = rows,
        .rows_count = spec->rollout_batch_size,
        .samples_per_row = spec->n_samples_per_prompt,
        .sampling = {spec->temperature, spec->rollout_max_response_len},
        .seed = derive_seed(controller, SEED_ROLLOUT, controller->step),
        .rewards = used_rewards(controller),
        .reward = controller->library.jobs->reward,
        .library = library_name(controller)};
    tdm_status status;

    if (rows == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u rows", spec->rollout_batch_size);
    }
    for (uint32_t i = 0; i < spec->rollout_batch_size; i++) {
        rows[i] = tdm__dataset_shuffled_row(
            controller->train.rows_count, derive_seed(controller, SEED_TRAIN, 0),
            (uint64_t)controller->step * spec->rollout_batch_size + i);
    }
    status = run_rollout(controller, &options, &controller->rollout);
    free(rows);
    TDM_TRY(status);
    controller->step_progress.rollout_ms = ms_since(begin_ns);
    controller->step_progress.reward = controller->rollout.exact;
    if (spec->shuffle_rewards) {
        tdm__rollout_shuffle_rewards(&controller->rollout,
                                     derive_seed(controller, SEED_SHUFFLE, controller->step));
    }
    return TDM_OK;
}

tdm_status tdm__controller_evaluate(struct tdm__controller *controller, double *score_out)
{
    const struct tdm__job_spec *spec = controller->spec;
    uint32_t count = controller->unseen.rows_count;
    uint32_t *rows = calloc(count + 1, sizeof(*rows));
    struct tdm__rollout_options options = {.dataset = &controller->unseen,
                                           .rows = rows,
                                           .rows_count = count,
                                           .samples_per_row = 1,
                                           .sampling = {0, spec->rollout_max_response_len},
                                           .rewards = used_rewards(controller),
                                           .reward = controller->library.jobs->reward,
                                           .library = library_name(controller)};
    struct tdm__rollout rollout;
    tdm_status status;

    if (rows == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u rows", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = i;
    }
    status = run_rollout(controller, &options, &rollout);
    free(rows);
    TDM_TRY(status);
    *score_out = rollout.exact;
    tdm__rollout_fini(&rollout);
    return TDM_OK;
}
