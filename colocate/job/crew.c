/* crew.c - the actors of a job, and calls to many of them at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/crew.h"

#include "colocate/job/loss.h"
#include "colocate/job/rank.h"
#include "colocate/job/vigil.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START_MS = 60000, SLICE_MS = 100, EXPLAIN_MS = 1500 };

/* ---- waiting ---------------------------------------------------------------------------- */

/* What calls came to, and which have. */
struct calls {
    tdm_ref **refs; /* owned, but not what is in it */
    uint8_t *done;  /* owned */
    const tdm_value **values;
    uint32_t count;
};

static void calls_fini(struct calls *calls)
{
    free(calls->refs);
    free(calls->done);
    free(calls->values);
}

/* Those that are there. */
static tdm_status calls_init(struct calls *calls, tdm_ref *const *refs, uint32_t count)
{
    *calls = (struct calls){.refs = calloc(count + 1, sizeof(*calls->refs)),
                            .done = calloc(count + 1, 1),
                            .values = calloc(count + 1, sizeof(*calls->values))};
    if (calls->refs == NULL || calls->done == NULL || calls->values == NULL) {
        calls_fini(calls);
        return tdm__fail(TDM_E_NOMEM, "waiting for %u calls", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (refs[i] != NULL) {
            calls->refs[calls->count++] = refs[i];
        }
    }
    return TDM_OK;
}

static uint32_t count_done(const struct calls *calls)
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
static tdm_status worst_of(const struct calls *calls)
{
    const tdm_value *value;
    tdm_ref *worst = NULL;
    int worst_weight = 0;

    for (uint32_t i = 0; i < calls->count; i++) {
        tdm_status status =
            calls->done[i] != 0 ? tdm_get_value(calls->refs[i], 0, &value) : TDM_OK;
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
static bool all_are_done(struct calls *calls, int64_t deadline_ms)
{
    int64_t left_ms = tdm__deadline_left(deadline_ms);

    (void)tdm_get_many(calls->refs, calls->count, left_ms < SLICE_MS ? left_ms : SLICE_MS,
                       calls->values);
    (void)tdm_wait(calls->refs, calls->count, 0, 0, calls->done);
    return count_done(calls) == calls->count;
}

/* Waits until all are done, one has failed, the time is over, or the user is impatient. */
static tdm_status wait_slices(struct tdm__crew *crew, struct calls *calls, int64_t deadline_ms)
{
    for (;;) {
        bool late = tdm__deadline_left(deadline_ms) == 0;
        bool all;

        if (crew->interrupts != NULL && *crew->interrupts >= 2) {
            return tdm__fail(TDM_E_CANCELED, "interrupted twice");
        }
        all = all_are_done(calls, deadline_ms);
        TDM_TRY(worst_of(calls));
        if (all) {
            return TDM_OK;
        }
        if (late) {
            return tdm__fail(TDM_E_TIMEOUT, "%u of %u ranks have not answered in time",
                             calls->count - count_done(calls), calls->count);
        }
        TDM_TRY(tdm__loss_watch(crew));
    }
}

/* What one failure tears down shows soon: waits a moment for the one that explains. */
static tdm_status explain(struct calls *calls, tdm_status status)
{
    int64_t deadline_ms = tdm__deadline_in(EXPLAIN_MS);
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status worst = status;
    tdm_status waited = TDM_OK;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    while (!is_death(worst) && count_done(calls) < calls->count && waited == TDM_OK) {
        waited = tdm_wait(calls->refs, calls->count, count_done(calls) + 1,
                          tdm__deadline_left(deadline_ms), calls->done);
        worst = worst_of(calls);
    }
    worst = worst_of(calls);
    return worst != TDM_OK ? worst : tdm__fail(status, "%s", detail);
}

tdm_status tdm__crew_await(struct tdm__crew *crew, tdm_ref *const *refs, uint32_t count,
                           int64_t timeout_ms)
{
    struct calls calls;
    tdm_status status;

    TDM_TRY(calls_init(&calls, refs, count));
    status = wait_slices(crew, &calls, tdm__deadline_in(timeout_ms));
    if (status != TDM_OK && status != TDM_E_CANCELED) {
        status = explain(&calls, status);
    }
    calls_fini(&calls);
    return status;
}

void tdm__crew_release(tdm_ref **refs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tdm_ref_release(refs[i]);
        refs[i] = NULL;
    }
}

tdm_status tdm__crew_call(struct tdm__crew *crew, tdm_actor *const *actors, uint32_t count,
                          const char *method, struct tdm_bytes arguments, int64_t timeout_ms)
{
    tdm_ref **refs = calloc(count + 1, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "%u calls", count) : TDM_OK;

    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        if (actors[i] != NULL) {
            status = tdm_actor_call_packed(actors[i], method, arguments, &refs[i]);
        }
    }
    if (status == TDM_OK) {
        status = tdm__crew_await(crew, refs, count, timeout_ms);
    }
    if (refs != NULL) {
        tdm__crew_release(refs, count);
        free(refs);
    }
    return tdm__wrap(status, "%s", method);
}

/* ---- who is there ----------------------------------------------------------------------- */

uint32_t tdm__crew_engines_left(const struct tdm__crew *crew)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < crew->engines_count; i += crew->per_engine) {
        left += crew->engines[i] != NULL ? 1 : 0;
    }
    return left;
}

bool tdm__crew_is_far(const struct tdm__crew *crew)
{
    return !crew->spec->engine_colocate;
}

bool tdm__crew_serves(const struct tdm__crew *crew, uint32_t engine)
{
    return crew->engines[(size_t)engine * crew->per_engine] != NULL &&
           (crew->about == NULL || !crew->about[engine].fresh);
}

/* ---- start ------------------------------------------------------------------------------ */

static tdm_status reserve_gpus(struct tdm__crew *crew, uint32_t count,
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
    status = tdm_placement_group_create(crew->runtime, bundles, count, strategy, START_MS,
                                        group_out);
    free(bundles);
    return status;
}

/* The ranks of a group share memory: trainers are on one node, and so is each engine. */
static tdm_status reserve(struct tdm__crew *crew)
{
    if (!tdm__crew_is_far(crew)) {
        return reserve_gpus(crew, crew->spec->num_gpus, TDM_PACK, &crew->group);
    }
    crew->engine_groups = calloc(crew->spec->num_engines, sizeof(tdm_placement_group *));
    if (crew->engine_groups == NULL) {
        return tdm__fail(TDM_E_NOMEM, "places of %u engines", crew->spec->num_engines);
    }
    TDM_TRY(reserve_gpus(crew, crew->spec->trainer_num_ranks, TDM_STRICT_PACK, &crew->group));
    for (uint32_t i = 0; i < crew->spec->num_engines; i++) {
        TDM_TRY(reserve_gpus(crew, crew->per_engine, TDM_STRICT_PACK, &crew->engine_groups[i]));
    }
    return TDM_OK;
}

struct recruit {
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

static enum tdm__verify verify_of(const struct tdm__job_spec *spec)
{
    if (strcmp(spec->verify, "none") == 0) {
        return TDM__VERIFY_NONE;
    }
    return strcmp(spec->verify, "sample") == 0 ? TDM__VERIFY_SAMPLE : TDM__VERIFY_FULL;
}

static tdm_status create(struct tdm__crew *crew, const struct recruit *recruit,
                         const char *config_json, tdm_actor **actor_out)
{
    const struct tdm__job_spec *spec = crew->spec;
    struct tdm__rank_arguments arguments = {.config_json = config_json,
                                            .config_name = "job file",
                                            .library = spec->library,
                                            .model_config = spec->model_config,
                                            .model = spec->update_model,
                                            .group = recruit->group,
                                            .rank = recruit->rank,
                                            .ranks_count = recruit->ranks_count,
                                            .engine = recruit->engine,
                                            .per_engine = crew->per_engine,
                                            .seed = spec->seed,
                                            .bucket_bytes = spec->update_weight_buffer_size,
                                            .timeout_ms = spec->step_timeout_ms,
                                            .verify = verify_of(spec)};
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
        status = tdm_actor_create_packed(crew->runtime, recruit->class_name, &options,
                                         tdm_writer_bytes(writer), actor_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status create_trainers(struct tdm__crew *crew, const char *config_json)
{
    for (uint32_t i = 0; i < crew->spec->trainer_num_ranks; i++) {
        struct recruit recruit = {.class_name = "tandem.trainer",
                                  .rank = i,
                                  .ranks_count = crew->spec->trainer_num_ranks,
                                  .place = crew->group,
                                  .bundle = i,
                                  .num_gpus = crew->spec->trainer_num_gpus_per_actor};

        tdm__rank_name(recruit.name, crew->spec->update_model, "trainer/%u", i);
        tdm__rank_name(recruit.group, crew->spec->update_model, "trainers");
        TDM_TRY(create(crew, &recruit, config_json, &crew->trainers[i]));
        crew->trainers_count++;
    }
    return TDM_OK;
}

static tdm_status create_engine_rank(struct tdm__crew *crew, const char *config_json,
                                     uint32_t index)
{
    struct recruit recruit = {.class_name = "tandem.engine",
                              .rank = index % crew->per_engine,
                              .ranks_count = crew->per_engine,
                              .engine = index / crew->per_engine,
                              .place = crew->group,
                              .bundle = index,
                              .num_gpus = crew->spec->engine_num_gpus_per_actor};

    if (tdm__crew_is_far(crew)) {
        recruit.place = crew->engine_groups[recruit.engine];
        recruit.bundle = recruit.rank;
    }
    tdm__rank_name(recruit.name, crew->spec->update_model, "engine/%u/%u", recruit.engine,
                   recruit.rank);
    tdm__rank_name(recruit.group, crew->spec->update_model, "engine/%u", recruit.engine);
    return create(crew, &recruit, config_json, &crew->engines[index]);
}

static tdm_status create_engines(struct tdm__crew *crew, const char *config_json)
{
    for (uint32_t i = 0; i < crew->spec->num_engines * crew->per_engine; i++) {
        TDM_TRY(create_engine_rank(crew, config_json, i));
        crew->engines_count++;
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

static tdm_status create_all(struct tdm__crew *crew)
{
    char *config_json;
    tdm_status status;

    TDM_TRY(tdm_config_json(crew->spec->config, &config_json));
    status = create_trainers(crew, config_json);
    if (status == TDM_OK) {
        status = create_engines(crew, config_json);
    }
    free(config_json);
    TDM_TRY(status);
    TDM_TRY(await_all(crew->trainers, crew->trainers_count));
    return await_all(crew->engines, crew->engines_count);
}

static tdm_status create_one(struct tdm__crew *crew, uint32_t first)
{
    char *config_json;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_config_json(crew->spec->config, &config_json));
    for (uint32_t i = first; i < first + crew->per_engine && status == TDM_OK; i++) {
        status = create_engine_rank(crew, config_json, i);
    }
    free(config_json);
    TDM_TRY(status);
    return await_all(&crew->engines[first], crew->per_engine);
}

tdm_status tdm__crew_create_engine(struct tdm__crew *crew, uint32_t engine)
{
    uint32_t first = engine * crew->per_engine;
    tdm_status status = create_one(crew, first);
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (status == TDM_OK) {
        return TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    for (uint32_t i = first; i < first + crew->per_engine; i++) {
        if (crew->engines[i] != NULL) {
            (void)tdm_actor_kill(crew->engines[i], START_MS);
            tdm_actor_destroy(crew->engines[i]);
            crew->engines[i] = NULL;
        }
    }
    return tdm__fail(status, "%s", detail);
}

tdm_status tdm__crew_start(struct tdm__crew *crew, tdm_runtime *runtime,
                           const struct tdm__job_spec *spec,
                           const volatile sig_atomic_t *interrupts)
{
    tdm_status status;

    *crew = (struct tdm__crew){.runtime = runtime,
                               .spec = spec,
                               .interrupts = interrupts,
                               .per_engine = spec->rollout_num_gpus_per_engine};
    crew->trainers = calloc(spec->trainer_num_ranks + 1, sizeof(tdm_actor *));
    crew->engines = calloc(spec->num_engines * crew->per_engine + 1, sizeof(tdm_actor *));
    crew->about = calloc(spec->num_engines + 1, sizeof(*crew->about));
    crew->layouts = calloc(spec->num_engines * crew->per_engine + 1, sizeof(crew->layouts[0]));
    status = crew->trainers == NULL || crew->engines == NULL || crew->about == NULL ||
                     crew->layouts == NULL
                 ? tdm__fail(TDM_E_NOMEM, "the actors of a job")
                 : reserve(crew);
    if (status == TDM_OK) {
        status = create_all(crew);
    }
    if (status == TDM_OK) {
        status = tdm__vigil_create(runtime, crew->engines_count, spec->update_stall_timeout_ms,
                                   &crew->vigil);
    }
    if (status == TDM_OK) {
        status = tdm__vigil_create(runtime, crew->trainers_count,
                                   spec->trainer_stall_timeout_ms, &crew->trainers_vigil);
    }
    if (status != TDM_OK) {
        tdm__crew_fini(crew);
    }
    return status;
}

static void destroy_all(tdm_actor **actors, uint32_t count)
{
    for (uint32_t i = 0; actors != NULL && i < count; i++) {
        tdm_actor_destroy(actors[i]);
    }
    free(actors);
}

void tdm__crew_fini(struct tdm__crew *crew)
{
    tdm__vigil_destroy(crew->vigil);
    tdm__vigil_destroy(crew->trainers_vigil);
    free(crew->about);
    free(crew->manifest);
    free(crew->layouts);
    free(crew->dead);
    crew->vigil = NULL;
    crew->trainers_vigil = NULL;
    crew->about = NULL;
    crew->manifest = NULL;
    crew->layouts = NULL;
    crew->dead = NULL;
    crew->dead_count = 0;
    destroy_all(crew->trainers, crew->trainers_count);
    destroy_all(crew->engines, crew->engines_count);
    crew->trainers = NULL;
    crew->engines = NULL;
    crew->trainers_count = 0;
    crew->engines_count = 0;
    /* The group goes with its creator: removing it here would kill actors that could leave. */
    tdm_placement_group_release(crew->group);
    for (uint32_t i = 0; crew->engine_groups != NULL && i < crew->spec->num_engines; i++) {
        tdm_placement_group_release(crew->engine_groups[i]);
    }
    free(crew->engine_groups);
    crew->group = NULL;
    crew->engine_groups = NULL;
}
