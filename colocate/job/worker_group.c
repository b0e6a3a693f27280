/* worker_group.c - the actors of a job, and calls to many of them at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/worker_group.h"

#include "colocate/job/engine_failover.h"
#include "colocate/job/liveness_monitor.h"
#include "colocate/job/rank.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START_MS = 60000, SLICE_MS = 100, EXPLAIN_MS = 1500 };

/* ---- waiting ---------------------------------------------------------------------------- */

/* What calls came to, and which have. */
struct pending_calls {
    tdm_ref **refs; /* owned, but not what is in it */
    uint8_t *done;  /* owned */
    const tdm_value **values;
    uint32_t count;
};

static void pending_calls_fini(struct pending_calls *calls)
{
    free(calls->refs);
    free(calls->done);
    free(calls->values);
}

/* Those that are there. */
static tdm_status pending_calls_init(struct pending_calls *calls, tdm_ref *const *refs,
                                     uint32_t count)
{
    *calls = (struct pending_calls){.refs = calloc(count + 1, sizeof(*calls->refs)),
                                    .done = calloc(count + 1, 1),
                                    .values = calloc(count + 1, sizeof(*calls->values))};
    if (calls->refs == NULL || calls->done == NULL || calls->values == NULL) {
        pending_calls_fini(calls);
        return tdm__fail(TDM_E_NOMEM, "waiting for %u calls", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (refs[i] != NULL) {
            calls->refs[calls->count++] = refs[i];
        }
    }
    return TDM_OK;
}

static uint32_t count_done(const struct pending_calls *calls)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < calls->count; i++) {
        sum += calls->done[i];
    }
    return sum;
}

static bool is_death(tdm_status status)
{
    return status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST;
}

/* The failure among those done that explains the others best; TDM_OK if none has failed. */
static tdm_status worst_failure(const struct pending_calls *calls)
{
    const tdm_value *value;
    tdm_ref *worst = NULL;
    int worst_weight = 0;

    for (uint32_t i = 0; i < calls->count; i++) {
        tdm_status status = calls->done[i] != 0 ? tdm_get_value(calls->refs[i], 0, &value) : TDM_OK;
        int weight = 2;

        if (status == TDM_OK) {
            continue;
        }
        if (is_death(status)) {
            weight = 3;
        } else if (status == TDM_E_ABORTED) {
            weight = 1; /* a consequence */
        }
        if (weight > worst_weight) {
            worst = calls->refs[i];
            worst_weight = weight;
        }
    }
    return worst == NULL ? TDM_OK : tdm_get_value(worst, 0, &value);
}

/* Wakes once: when all are done, one has failed, or the slice is over. */
static bool wait_all_done(struct pending_calls *calls, int64_t deadline_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

    (void)tdm_get_many(calls->refs, calls->count, remaining_ms < SLICE_MS ? remaining_ms : SLICE_MS,
                       calls->values);
    (void)tdm_wait(calls->refs, calls->count, 0, 0, calls->done);
    return count_done(calls) == calls->count;
}

/* Waits until all are done, one has failed, the time is over, or the user is impatient. */
static tdm_status wait_in_intervals(struct tdm__worker_group *workers, struct pending_calls *calls,
                                    int64_t deadline_ms)
{
    for (;;) {
        bool late = tdm__deadline_remaining_ms(deadline_ms) == 0;
        bool all;

        if (workers->interrupts != NULL && *workers->interrupts >= 2) {
            return tdm__fail(TDM_E_CANCELED, "interrupted twice");
        }
        all = wait_all_done(calls, deadline_ms);
        TDM_TRY(worst_failure(calls));
        if (all) {
            return TDM_OK;
        }
        if (late) {
            return tdm__fail(TDM_E_TIMEOUT, "%u of %u ranks have not answered in time",
                             calls->count - count_done(calls), calls->count);
        }
        TDM_TRY(tdm__failover_check_liveness(workers));
    }
}

/* What one failure tears down shows soon: waits a moment for the one that explains. */
static tdm_status explain_failure(struct pending_calls *calls, tdm_status status)
{
    int64_t deadline_ms = tdm__deadline_after(EXPLAIN_MS);
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status worst = status;
    tdm_status waited = TDM_OK;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    while (!is_death(worst) && count_done(calls) < calls->count && waited == TDM_OK) {
        waited = tdm_wait(calls->refs, calls->count, count_done(calls) + 1,
                          tdm__deadline_remaining_ms(deadline_ms), calls->done);
        worst = worst_failure(calls);
    }
    worst = worst_failure(calls);
    return worst != TDM_OK ? worst : tdm__fail(status, "%s", detail);
}

tdm_status tdm__worker_group_await(struct tdm__worker_group *workers, tdm_ref *const *refs,
                                   uint32_t count, int64_t timeout_ms)
{
    struct pending_calls calls;
    tdm_status status;

    TDM_TRY(pending_calls_init(&calls, refs, count));
    status = wait_in_intervals(workers, &calls, tdm__deadline_after(timeout_ms));
    if (status != TDM_OK && status != TDM_E_CANCELED) {
        status = explain_failure(&calls, status);
    }
    pending_calls_fini(&calls);
    return status;
}

void tdm__worker_group_release_refs(tdm_ref **refs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tdm_ref_release(refs[i]);
        refs[i] = NULL;
    }
}

tdm_status tdm__worker_group_call(struct tdm__worker_group *workers, tdm_actor *const *actors,
                                  uint32_t count, const char *method, struct tdm_bytes arguments,
                                  int64_t timeout_ms)
{
    tdm_ref **refs = calloc(count + 1, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "%u calls", count) : TDM_OK;

    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        if (actors[i] != NULL) {
            status = tdm_actor_call_packed(actors[i], method, arguments, &refs[i]);
        }
    }
    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, refs, count, timeout_ms);
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, count);
        free(refs);
    }
    return tdm__wrap(status, "%s", method);
}

/* ---- who is there ----------------------------------------------------------------------- */

uint32_t tdm__worker_group_live_engines(const struct tdm__worker_group *workers)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < workers->engines_count; i += workers->ranks_per_engine) {
        left += workers->engines[i] != NULL ? 1 : 0;
    }
    return left;
}

bool tdm__engines_are_remote(const struct tdm__worker_group *workers)
{
    return !workers->spec->engine_colocate;
}

bool tdm__worker_group_engine_serves(const struct tdm__worker_group *workers, uint32_t engine)
{
    return workers->engines[(size_t)engine * workers->ranks_per_engine] != NULL &&
           (workers->engine_states == NULL || !workers->engine_states[engine].awaits_weights);
}

/* ---- start ------------------------------------------------------------------------------ */

static tdm_status reserve_gpus(struct tdm__worker_group *workers, uint32_t count,
                               enum tdm_placement_strategy strategy,
                               tdm_placement_group **group_out)
{
    struct tdm_bundle *bundles = calloc(count, sizeof(*bundles));
    tdm_status status;

    if (bundles == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u bundles", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        bundles[i].num_gpus = 1;
    }
    status =
        tdm_placement_group_create(workers->runtime, bundles, count, strategy, START_MS, group_out);
    free(bundles);
    return status;
}

/* The ranks of a group share memory: trainers are on one node, and so is each engine. */
static tdm_status reserve_placement_groups(struct tdm__worker_group *workers)
{
    if (!tdm__engines_are_remote(workers)) {
        return reserve_gpus(workers, workers->spec->num_gpus, TDM_PACK, &workers->group);
    }
    workers->engine_groups = calloc(workers->spec->num_engines, sizeof(tdm_placement_group *));
    if (workers->engine_groups == NULL) {
        return tdm__fail(TDM_E_NOMEM, "places of %u engines", workers->spec->num_engines);
    }
    TDM_TRY(
        reserve_gpus(workers, workers->spec->trainer_num_ranks, TDM_STRICT_PACK, &workers->group));
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        TDM_TRY(reserve_gpus(workers, workers->ranks_per_engine, TDM_STRICT_PACK,
                             &workers->engine_groups[i]));
    }
    return TDM_OK;
}

struct rank_creation {
    const char *class_name;
    char name[TDM__RANK_NAME_BYTES];
    char group[TDM__RANK_NAME_BYTES];
    uint32_t rank;
    uint32_t ranks_count;
    uint32_t engine;
    tdm_placement_group *place;
    uint32_t bundle;
    double num_gpus;
};

static enum tdm__verify parse_verify_mode(const struct tdm__job_spec *spec)
{
    if (strcmp(spec->verify, "none") == 0) {
        return TDM__VERIFY_NONE;
    }
    return strcmp(spec->verify, "sample") == 0 ? TDM__VERIFY_SAMPLE : TDM__VERIFY_FULL;
}

static tdm_status create_rank(struct tdm__worker_group *workers,
                              const struct rank_creation *recruit, const char *config_json,
                              tdm_actor **actor_out)
{
    const struct tdm__job_spec *spec = workers->spec;
    struct tdm__rank_arguments arguments = {.config_json = config_json,
                                            .config_name = "job file",
                                            .library = spec->library,
                                            .model_config = spec->model_config,
                                            .model = spec->update_model,
                                            .group = recruit->group,
                                            .rank = recruit->rank,
                                            .ranks_count = recruit->ranks_count,
                                            .engine = recruit->engine,
                                            .ranks_per_engine = workers->ranks_per_engine,
                                            .seed = spec->seed,
                                            .bucket_bytes = spec->update_weight_buffer_size,
                                            .timeout_ms = spec->step_timeout_ms,
                                            .verify = parse_verify_mode(spec)};
    struct tdm_actor_options options = {.name = recruit->name,
                                        .num_gpus = recruit->num_gpus,
                                        .group = recruit->place,
                                        .bundle = recruit->bundle,
                                        .environment = {"OPENBLAS_NUM_THREADS=1"}};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__rank_arguments_write(writer, &arguments);
    if (status == TDM_OK) {
        status = tdm_actor_create_packed(workers->runtime, recruit->class_name, &options,
                                         tdm_writer_bytes(writer), actor_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status create_trainers(struct tdm__worker_group *workers, const char *config_json)
{
    for (uint32_t i = 0; i < workers->spec->trainer_num_ranks; i++) {
        struct rank_creation recruit = {.class_name = "tandem.trainer",
                                        .rank = i,
                                        .ranks_count = workers->spec->trainer_num_ranks,
                                        .place = workers->group,
                                        .bundle = i,
                                        .num_gpus = workers->spec->trainer_num_gpus_per_actor};

        tdm__rank_name(recruit.name, workers->spec->update_model, "trainer/%u", i);
        tdm__rank_name(recruit.group, workers->spec->update_model, "trainers");
        TDM_TRY(create_rank(workers, &recruit, config_json, &workers->trainers[i]));
        workers->trainers_count++;
    }
    return TDM_OK;
}

static tdm_status create_engine_rank(struct tdm__worker_group *workers, const char *config_json,
                                     uint32_t index)
{
    struct rank_creation recruit = {.class_name = "tandem.engine",
                                    .rank = index % workers->ranks_per_engine,
                                    .ranks_count = workers->ranks_per_engine,
                                    .engine = index / workers->ranks_per_engine,
                                    .place = workers->group,
                                    .bundle = index,
                                    .num_gpus = workers->spec->engine_num_gpus_per_actor};

    if (tdm__engines_are_remote(workers)) {
        recruit.place = workers->engine_groups[recruit.engine];
        recruit.bundle = recruit.rank;
    }
    tdm__rank_name(recruit.name, workers->spec->update_model, "engine/%u/%u", recruit.engine,
                   recruit.rank);
    tdm__rank_name(recruit.group, workers->spec->update_model, "engine/%u", recruit.engine);
    return create_rank(workers, &recruit, config_json, &workers->engines[index]);
}

static tdm_status create_engines(struct tdm__worker_group *workers, const char *config_json)
{
    for (uint32_t i = 0; i < workers->spec->num_engines * workers->ranks_per_engine; i++) {
        TDM_TRY(create_engine_rank(workers, config_json, i));
        workers->engines_count++;
    }
    return TDM_OK;
}

static tdm_status await_all(tdm_actor *const *actors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(tdm_actor_wait_ready(actors[i], START_MS));
    }
    return TDM_OK;
}

static tdm_status create_all(struct tdm__worker_group *workers)
{
    char *config_json;
    tdm_status status;

    TDM_TRY(tdm_config_json(workers->spec->config, &config_json));
    status = create_trainers(workers, config_json);
    if (status == TDM_OK) {
        status = create_engines(workers, config_json);
    }
    free(config_json);
    TDM_TRY(status);
    TDM_TRY(await_all(workers->trainers, workers->trainers_count));
    return await_all(workers->engines, workers->engines_count);
}

static tdm_status create_lost_engine(struct tdm__worker_group *workers, uint32_t first)
{
    char *config_json;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_config_json(workers->spec->config, &config_json));
    for (uint32_t i = first; i < first + workers->ranks_per_engine && status == TDM_OK; i++) {
        status = create_engine_rank(workers, config_json, i);
    }
    free(config_json);
    TDM_TRY(status);
    return await_all(&workers->engines[first], workers->ranks_per_engine);
}

tdm_status tdm__worker_group_create_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    uint32_t first = engine * workers->ranks_per_engine;
    tdm_status status = create_lost_engine(workers, first);
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (status == TDM_OK) {
        return TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    for (uint32_t i = first; i < first + workers->ranks_per_engine; i++) {
        if (workers->engines[i] != NULL) {
            (void)tdm_actor_kill(workers->engines[i], START_MS);
            tdm_actor_destroy(workers->engines[i]);
            workers->engines[i] = NULL;
        }
    }
    return tdm__fail(status, "%s", detail);
}

tdm_status tdm__worker_group_start(struct tdm__worker_group *workers, tdm_runtime *runtime,
                                   const struct tdm__job_spec *spec,
                                   const volatile sig_atomic_t *interrupts)
{
    tdm_status status;

    *workers = (struct tdm__worker_group){.runtime = runtime,
                                          .spec = spec,
                                          .interrupts = interrupts,
                                          .ranks_per_engine = spec->rollout_num_gpus_per_engine};
    workers->trainers = calloc(spec->trainer_num_ranks + 1, sizeof(tdm_actor *));
    workers->engines =
        calloc(spec->num_engines * workers->ranks_per_engine + 1, sizeof(tdm_actor *));
    workers->engine_states = calloc(spec->num_engines + 1, sizeof(*workers->engine_states));
    workers->layouts =
        calloc(spec->num_engines * workers->ranks_per_engine + 1, sizeof(workers->layouts[0]));
    status = workers->trainers == NULL || workers->engines == NULL ||
                     workers->engine_states == NULL || workers->layouts == NULL
                 ? tdm__fail(TDM_E_NOMEM, "the actors of a job")
                 : reserve_placement_groups(workers);
    if (status == TDM_OK) {
        status = create_all(workers);
    }
    if (status == TDM_OK) {
        status = tdm__liveness_monitor_create(runtime, workers->engines_count,
                                              spec->update_stall_timeout_ms, &workers->monitor);
    }
    if (status == TDM_OK) {
        status = tdm__liveness_monitor_create(runtime, workers->trainers_count,
                                              spec->trainer_stall_timeout_ms,
                                              &workers->trainers_monitor);
    }
    if (status != TDM_OK) {
        tdm__worker_group_fini(workers);
    }
    return status;
}

static void release_actors(tdm_actor **actors, uint32_t count)
{
    for (uint32_t i = 0; actors != NULL && i < count; i++) {
        tdm_actor_destroy(actors[i]);
    }
    free(actors);
}

void tdm__worker_group_fini(struct tdm__worker_group *workers)
{
    tdm__liveness_monitor_destroy(workers->monitor);
    tdm__liveness_monitor_destroy(workers->trainers_monitor);
    free(workers->engine_states);
    free(workers->manifest);
    free(workers->layouts);
    free(workers->dead);
    workers->monitor = NULL;
    workers->trainers_monitor = NULL;
    workers->engine_states = NULL;
    workers->manifest = NULL;
    workers->layouts = NULL;
    workers->dead = NULL;
    workers->dead_count = 0;
    release_actors(workers->trainers, workers->trainers_count);
    release_actors(workers->engines, workers->engines_count);
    workers->trainers = NULL;
    workers->engines = NULL;
    workers->trainers_count = 0;
    workers->engines_count = 0;
    /* The group goes with its creator: removing it here would kill actors that could leave. */
    tdm_placement_group_release(workers->group);
    for (uint32_t i = 0; workers->engine_groups != NULL && i < workers->spec->num_engines; i++) {
        tdm_placement_group_release(workers->engine_groups[i]);
    }
    free(workers->engine_groups);
    workers->group = NULL;
    workers->engine_groups = NULL;
}
