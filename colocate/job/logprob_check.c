/* logprob_check.c - compares the engines' log-probabilities with the trainer's, and removes the
 * engines that are over the tolerance. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A right engine computes the same log-probabilities as the trainer, up to rounding. The comparison
 * happens when the trainers have their memory, before they learn from the rollout, so that the
 * weights on both sides are of the same version. It needs one sample of each prompt only, because
 * an engine that serves other weights is wrong about nearly all tokens. Each trainer rank gets the
 * samples of the prompts that it will learn from, so that all ranks compute equally many.
 * The reason is looked for later, when the engines have their memory again: each rank of a suspect
 * compares what it serves with the checksums that it recorded when the version became live
 * (colocate/weights/served_weights.h). All functions run on the controller's thread. */
#include "colocate/job/logprob_check.h"

#include "colocate/job/engine_failover.h"
#include "colocate/job/train_batch.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tdm_bytes no_arguments = {"\x90", 1};

double tdm__logprob_check_tolerance(const struct tdm__worker_group *workers, uint32_t engine,
                                    const char **name_out)
{
    const struct tdm__job_spec *spec = workers->spec;
    bool is_converted = spec->logprob_tolerance_converted > 0 &&
                        tdm__engine_set_has(&workers->converting_engines, engine);

    if (name_out != NULL) {
        *name_out =
            is_converted ? "update.logprob_tolerance_converted" : "update.logprob_tolerance";
    }
    return is_converted ? spec->logprob_tolerance_converted : spec->logprob_tolerance;
}

bool tdm__logprob_check_is_wanted(const struct tdm__job_spec *spec)
{
    return spec->update_enabled &&
           (spec->logprob_tolerance > 0 || spec->logprob_tolerance_converted > 0);
}

/* ---- compare ---------------------------------------------------------------------------- */

/* One comparison. It lives on the stack of tdm__logprob_check_compare(). */
struct comparison {
    struct tdm__worker_group *workers;  /* Borrowed worker group. */
    const struct tdm__rollout *rollout; /* Borrowed rollout. */
    struct tdm_sample *samples;         /* Owned array with the first sample of each prompt. */
    uint32_t count;                     /* Number of prompts. */
    tdm_ref **refs; /* Owned array with the reference to each trainer rank's reply. */
};

/* Returns the index of the first prompt of a trainer rank; for the number of ranks that of the end.
 */
static uint32_t first_prompt(const struct comparison *comparison, uint32_t rank)
{
    return (uint32_t)((uint64_t)comparison->count * rank / comparison->workers->trainers_count);
}

/* Sends a trainer rank the samples of its prompts. */
static tdm_status send_samples(const struct comparison *comparison, uint32_t step, uint32_t rank)
{
    const struct tdm__job_spec *spec = comparison->workers->spec;
    uint32_t first = first_prompt(comparison, rank);
    const struct tdm_batch batch = {.step = step,
                                    .steps_count = spec->num_rollout,
                                    .samples = comparison->samples + first,
                                    .samples_count = first_prompt(comparison, rank + 1) - first};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__batch_write(writer, &batch);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(comparison->workers->trainers[rank], "compare_logprobs",
                                       tdm_writer_bytes(writer), &comparison->refs[rank]);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Decodes the reply of a trainer rank and keeps the largest difference of each engine. */
static tdm_status read_differences(struct tdm__logprob_check *check,
                                   const struct comparison *comparison, uint32_t rank)
{
    uint32_t samples_per_prompt = comparison->rollout->samples_count / comparison->count;
    uint32_t first = first_prompt(comparison, rank);
    uint32_t count = first_prompt(comparison, rank + 1) - first;
    struct tdm__logprob_differences_message message;
    const tdm_value *value;

    TDM_TRY(tdm_get_value(comparison->refs[rank], 0, &value));
    TDM_TRY(tdm__logprob_differences_decode(value, &message));
    if (message.largest.size_bytes != count * sizeof(float)) {
        return tdm__fail(TDM_E_PROTOCOL, "%zu bytes of differences for %u samples",
                         message.largest.size_bytes, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t engine = comparison->rollout->engines[(size_t)(first + i) * samples_per_prompt];
        float largest;

        memcpy(&largest, (const char *)message.largest.data + i * sizeof(largest), sizeof(largest));
        check->largest[engine] = fmax(check->largest[engine], (double)largest);
    }
    return TDM_OK;
}

/* Sends all samples and reads the replies. */
static tdm_status compare_samples(struct tdm__logprob_check *check,
                                  const struct comparison *comparison, uint32_t step)
{
    struct tdm__worker_group *workers = comparison->workers;

    for (uint32_t i = 0; i < workers->trainers_count; i++) {
        TDM_TRY(send_samples(comparison, step, i));
    }
    TDM_TRY(tdm__worker_group_await(workers, comparison->refs, workers->trainers_count,
                                    (int64_t)workers->spec->step_timeout_ms));
    for (uint32_t i = 0; i < workers->trainers_count; i++) {
        TDM_TRY(tdm__wrap(read_differences(check, comparison, i), "trainer rank %u", i));
    }
    return TDM_OK;
}

/* Begins a comparison of a rollout: nothing is known about any engine. */
static void forget_last(struct tdm__logprob_check *check, const struct tdm__rollout *rollout)
{
    tdm__engine_set_clear(&check->suspects);
    check->version = rollout->samples[0].weight_version;
    memset(check->largest, 0, sizeof(check->largest));
}

tdm_status tdm__logprob_check_compare(struct tdm__logprob_check *check,
                                      struct tdm__worker_group *workers,
                                      const struct tdm__rollout *rollout, uint32_t step)
{
    struct comparison comparison = {
        .workers = workers,
        .rollout = rollout,
        .count = workers->spec->rollout_batch_size,
        .samples = calloc((size_t)workers->spec->rollout_batch_size, sizeof(*comparison.samples)),
        .refs = calloc((size_t)workers->trainers_count + 1, sizeof(tdm_ref *))};
    uint32_t samples_per_prompt = rollout->samples_count / comparison.count;
    tdm_status status = comparison.samples == NULL || comparison.refs == NULL
                            ? tdm__fail(TDM_E_NOMEM, "a comparison of %u samples", comparison.count)
                            : TDM_OK;

    if (status == TDM_OK) {
        forget_last(check, rollout);
        for (uint32_t i = 0; i < comparison.count; i++) {
            comparison.samples[i] = rollout->samples[(size_t)i * samples_per_prompt];
        }
        status = compare_samples(check, &comparison, step);
    }
    if (comparison.refs != NULL) {
        tdm__worker_group_release_refs(comparison.refs, workers->trainers_count);
    }
    free(comparison.refs);
    free(comparison.samples);
    TDM_TRY(tdm__wrap(status, "comparison of log-probabilities"));
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        double tolerance = tdm__logprob_check_tolerance(workers, i, NULL);

        if (tolerance > 0 && check->largest[i] > tolerance) {
            tdm__engine_set_add(&check->suspects, i);
        }
    }
    return TDM_OK;
}

/* ---- remove ----------------------------------------------------------------------------- */

/* Reads what the ranks of a suspect have found, and writes the finding about the first tensor that
 * differs on any of them to `text`. */
static tdm_status read_findings(const struct tdm__worker_group *workers, tdm_ref *const *refs,
                                char text[TDM__ERROR_DETAIL_BYTES])
{
    uint32_t first = UINT32_MAX;

    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        struct tdm__served_difference_message message;
        const tdm_value *value;

        TDM_TRY(tdm_get_value(refs[i], 0, &value));
        TDM_TRY(tdm__served_difference_decode(value, &message));
        if (i == 0 || message.tensor < first) {
            first = message.tensor;
            (void)snprintf(text, TDM__ERROR_DETAIL_BYTES, "%s%.400s",
                           i == 0 ? "" : "on another rank than 0, ", message.text);
        }
    }
    return TDM_OK;
}

/* Asks the ranks of a suspect what they serve. */
static tdm_status ask_suspect(struct tdm__worker_group *workers, uint32_t engine,
                              char text[TDM__ERROR_DETAIL_BYTES])
{
    tdm_actor *const *ranks = &workers->engines[(size_t)engine * workers->ranks_per_engine];
    tdm_ref **refs = calloc((size_t)workers->ranks_per_engine + 1, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "calls to an engine") : TDM_OK;

    for (uint32_t i = 0; i < workers->ranks_per_engine && status == TDM_OK; i++) {
        status = tdm_actor_call_packed(ranks[i], "compare_served", no_arguments, &refs[i]);
    }
    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, refs, workers->ranks_per_engine,
                                         (int64_t)workers->spec->update_timeout_ms);
    }
    if (status == TDM_OK) {
        status = read_findings(workers, refs, text);
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, workers->ranks_per_engine);
        free(refs);
    }
    return status;
}

/* Removes a suspect. On success the error detail is the reason. */
static tdm_status remove_suspect(struct tdm__logprob_check *check,
                                 struct tdm__worker_group *workers, uint32_t engine)
{
    const char *setting;
    double tolerance = tdm__logprob_check_tolerance(workers, engine, &setting);
    char text[TDM__ERROR_DETAIL_BYTES];
    tdm_status status = ask_suspect(workers, engine, text);

    if (status == TDM_E_CANCELED) {
        return status;
    }
    if (status != TDM_OK) {
        (void)snprintf(text, sizeof(text), "what differs is not known: %.400s", tdm_error_detail());
    }
    check->removals[engine]++;
    if (check->removals[engine] > TDM__RECOVERY_ATTEMPTS_MAX && workers->engine_states != NULL) {
        workers->engine_states[engine].recovery.attempts = TDM__RECOVERY_ATTEMPTS_MAX;
    }
    status = tdm__fail(TDM_E_CHECKSUM,
                       "its log-probabilities of version %llu differ from the trainer's by up to "
                       "%.3g, %s is %.3g; %s",
                       (unsigned long long)check->version, check->largest[engine], setting,
                       tolerance, text);
    status = tdm__failover_remove_engine(workers, engine, status);
    return status == TDM_E_CHECKSUM ? TDM_OK : status;
}

/* Returns true if a lost engine will be restarted. */
static bool any_is_restarted(const struct tdm__worker_group *workers)
{
    bool found = false;

    for (uint32_t i = 0; workers->engine_states != NULL && i < workers->spec->num_engines; i++) {
        enum tdm__recovery_stage stage = workers->engine_states[i].recovery.stage;

        found = found || (stage != TDM__RECOVERY_NONE && stage != TDM__RECOVERY_GIVEN_UP);
    }
    return found;
}

tdm_status tdm__logprob_check_remove_suspects(struct tdm__logprob_check *check,
                                              struct tdm__worker_group *workers)
{
    const struct tdm__engine_set suspects = check->suspects;
    uint32_t live;

    tdm__engine_set_clear(&check->suspects);
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        if (tdm__engine_set_has(&suspects, i) &&
            workers->engines[(size_t)i * workers->ranks_per_engine] != NULL) {
            TDM_TRY(remove_suspect(check, workers, i));
        }
    }
    live = tdm__worker_group_live_engines(workers);
    if (live == 0 && !any_is_restarted(workers)) {
        return tdm__wrap(TDM_E_CHECKSUM, "no engine computes as the trainer does; the last one");
    }
    return live < workers->spec->num_engines_min
               ? tdm__wrap(TDM_E_ACTOR_DIED,
                           "%u engines are left, rollout.num_engines_min is %u; the last one that "
                           "was removed",
                           live, workers->spec->num_engines_min)
               : TDM_OK;
}
