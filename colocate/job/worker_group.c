/* worker_group.c - the trainer and engine actors of a job, and calls to many of them at once. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The controller owns the group and uses it on one thread. Waiting for calls is done in
 * intervals of SLICE_MS, between which the function polls the user's interrupts and the liveness
 * of the ranks. If a rank is silent for too long it is killed, and the call that waits for it
 * fails.
 * When one rank dies, calls to other ranks fail as a consequence, because they wait for it in
 * collectives. explain_failure() therefore waits up to EXPLAIN_MS for a failure that is a cause,
 * such as the death of an actor, and prefers it to consequences.
 * An element of `engines` is NULL exactly while its engine is lost; all ranks of an engine are lost
 * together. */
#include "colocate/job/worker_group.h"

#include "actors/process/runtime.h"
#include "colocate/job/gpu_places.h"
#include "colocate/job/liveness_monitor.h"
#include "colocate/job/python_library.h"
#include "colocate/job/rank.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Milliseconds: length of one wait interval, longest wait for the cause of a failure. */
enum { SLICE_MS = 100, EXPLAIN_MS = 1500 };

/* ---- waiting ---------------------------------------------------------------------------- */

/* Calls that are being awaited. */
struct pending_calls {
    /* Owned array of borrowed references to the replies, without NULL elements. */
    tdm_ref **refs;
    /* Owned flags: 1 for each call that has completed. */
    uint8_t *done;
    /* Owned array that tdm_get_many() fills; the values are not used. */
    const tdm_value **values;
    /* Number of elements of the three arrays. */
    uint32_t count;
};

/* Frees the arrays, but not the references. */
static void pending_calls_fini(struct pending_calls *calls)
{
    free(calls->refs);
    free(calls->done);
    free(calls->values);
}

/* Collects the references that are not NULL. */
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

/* Returns the number of completed calls. */
static uint32_t count_done(const struct pending_calls *calls)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < calls->count; i++) {
        sum += calls->done[i];
    }
    return sum;
}

/* Returns whether the status means that an actor or its node died, or that its node has not
 * answered for so long that the job goes on without it. */
static bool is_death(tdm_status status)
{
    return status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST ||
           status == TDM_E_ACTOR_UNAVAILABLE;
}

/* Returns the failure of a completed call that best explains the others, with its error detail;
 * TDM_OK if none has failed. A death ranks first, TDM_E_ABORTED last. */
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
            weight = 1; /* Another rank's failure caused this one. */
        }
        if (weight > worst_weight) {
            worst = calls->refs[i];
            worst_weight = weight;
        }
    }
    return worst == NULL ? TDM_OK : tdm_get_value(worst, 0, &value);
}

/* Waits for one interval, or less if all calls complete or one fails before. Returns whether all
 * have completed. */
static bool wait_all_done(struct pending_calls *calls, int64_t deadline_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

    (void)tdm_get_many(calls->refs, calls->count, remaining_ms < SLICE_MS ? remaining_ms : SLICE_MS,
                       calls->values);
    (void)tdm_wait(calls->refs, calls->count, 0, 0, calls->done);
    return count_done(calls) == calls->count;
}

/* Fails if the daemon of this node is silent. A daemon that belongs to this job is killed, because
 * nothing of its node can be used, and a new node can be started. */
static tdm_status check_daemon_liveness(struct tdm__worker_group *workers)
{
    tdm_status status = tdm__liveness_monitor_check_daemon(workers->trainers_monitor);

    if (status != TDM_OK) {
        (void)tdm__runtime_kill_private_daemon(workers->runtime);
    }
    return status;
}

/* Notes whether the daemon reaches the cluster's store, and logs when that changes. Ranks and
 * updates that wait for the store do not say so themselves before their deadlines. */
static void note_store_error(struct tdm__worker_group *workers)
{
    char error[sizeof(workers->store_error)];

    tdm__liveness_monitor_store_error(workers->trainers_monitor, error, sizeof(error));
    if (error[0] != '\0' && workers->store_error[0] == '\0') {
        tdm__log(TDM__WARN, "job", "the cluster's store does not reply, and the job may wait: %s",
                 error);
    } else if (error[0] == '\0' && workers->store_error[0] != '\0') {
        tdm__log(TDM__WARN, "job", "the cluster's store replies again");
    }
    memcpy(workers->store_error, error, sizeof(error));
}

/* Kills a trainer rank that is silent and returns its failure. It is killed so that other ranks
 * do not wait for it. */
static tdm_status check_trainers_liveness(struct tdm__worker_group *workers)
{
    if (workers->trainers_monitor == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__liveness_monitor_poll(workers->trainers_monitor, workers->trainers));
    TDM_TRY(check_daemon_liveness(workers));
    note_store_error(workers);
    for (uint32_t i = 0; i < workers->trainers_count; i++) {
        const char *why = tdm__liveness_monitor_failure(workers->trainers_monitor, i);

        if (why != NULL) {
            TDM_TRY(tdm_actor_kill(workers->trainers[i], TDM__WORKER_KILL_MS));
            return tdm__fail(TDM_E_ACTOR_DIED, "%s", why);
        }
    }
    return TDM_OK;
}

/* Kills the engine rank with this index in `engines`. If it is on a node that does not reply, that
 * is tried once: calls to it fail when the node counts as unreachable. */
static tdm_status kill_silent_engine_rank(struct tdm__worker_group *workers, uint32_t index)
{
    struct tdm__worker_group_engine *engine;

    if (workers->engine_states == NULL || !tdm__engines_are_remote(workers)) {
        return tdm_actor_kill(workers->engines[index], TDM__WORKER_KILL_MS);
    }
    engine = &workers->engine_states[index / workers->ranks_per_engine];
    if (!engine->cannot_be_killed) {
        engine->cannot_be_killed = !tdm__recovery_status_proves_end(
            tdm_actor_kill(workers->engines[index], TDM__WORKER_REMOTE_KILL_MS));
    }
    return TDM_OK;
}

tdm_status tdm__worker_group_check_liveness(struct tdm__worker_group *workers)
{
    if (workers->interrupts != NULL && *workers->interrupts >= 2) {
        return tdm__fail(TDM_E_CANCELED, "interrupted twice");
    }
    TDM_TRY(check_trainers_liveness(workers));
    if (workers->monitor == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__liveness_monitor_poll(workers->monitor, workers->engines));
    for (uint32_t i = 0; i < workers->engines_count; i++) {
        if (workers->engines[i] != NULL &&
            tdm__liveness_monitor_failure(workers->monitor, i) != NULL) {
            TDM_TRY(kill_silent_engine_rank(workers, i));
        }
    }
    return TDM_OK;
}

/* Fails because calls have not completed within `timeout_ms`, and says which rank is awaited. */
static tdm_status fail_late(const struct pending_calls *calls, int64_t timeout_ms)
{
    const tdm_value *value;
    const char *call;
    uint32_t first = 0;

    while (first + 1 < calls->count && calls->done[first] != 0) {
        first++;
    }
    (void)tdm_get_value(calls->refs[first], 0, &value); /* Its error detail describes the call. */
    call = strstr(tdm_error_detail(), "method ");
    return tdm__fail(TDM_E_TIMEOUT,
                     "%u of %u ranks have not replied within %lld ms, although their processes are "
                     "alive; the first is: %.400s",
                     calls->count - count_done(calls), calls->count, (long long)timeout_ms,
                     call == NULL ? "unknown" : call);
}

/* Waits until all calls have completed, one has failed, `timeout_ms` have passed, or the user has
 * interrupted twice. */
static tdm_status wait_in_intervals(struct tdm__worker_group *workers, struct pending_calls *calls,
                                    int64_t timeout_ms)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);

    for (;;) {
        bool late = tdm__deadline_remaining_ms(deadline_ms) == 0;
        bool all;

        all = wait_all_done(calls, deadline_ms);
        TDM_TRY(worst_failure(calls));
        if (all) {
            return TDM_OK;
        }
        if (late) {
            return fail_late(calls, timeout_ms);
        }
        TDM_TRY(tdm__worker_group_check_liveness(workers));
    }
}

/* Waits a short time for a failure that explains `status`, and returns it, or else `status`. */
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
    status = wait_in_intervals(workers, &calls, timeout_ms);
    if (status != TDM_OK && status != TDM_E_CANCELED && !is_death(status)) {
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

/* Engines by what their ranks have replied. */
struct engine_replies {
    /* Engines that were called. */
    struct tdm__engine_set called;
    /* Engines with a rank that has not succeeded. */
    struct tdm__engine_set failed;
    /* Engines with a rank that did not reach the store. */
    struct tdm__engine_set without_store;
    /* Engines with a rank that did not reach another node. */
    struct tdm__engine_set without_node;
};

/* Sorts the engines by what their ranks have replied. Replies may be pending. */
static struct engine_replies sort_engine_replies(const struct tdm__worker_group *workers,
                                                 tdm_ref *const *refs)
{
    struct engine_replies replies = {.called = {.words = {0}}};

    for (uint32_t i = 0; i < workers->engines_count; i++) {
        uint32_t engine = i / workers->ranks_per_engine;
        const tdm_value *value;
        tdm_status status;

        if (refs[i] == NULL) {
            continue;
        }
        status = tdm_get_value(refs[i], 0, &value);
        tdm__engine_set_add(&replies.called, engine);
        if (status != TDM_OK) {
            tdm__engine_set_add(&replies.failed, engine);
        }
        if (status == TDM_E_STORE) {
            tdm__engine_set_add(&replies.without_store, engine);
        }
        if (status == TDM_E_NODE_LOST || status == TDM_E_ACTOR_UNAVAILABLE) {
            tdm__engine_set_add(&replies.without_node, engine);
        }
    }
    return replies;
}

/* If no engine has reached the store, the store is away; if no engine reaches a node, it is lost.
 */
void tdm__worker_group_note_cut_off_engines(struct tdm__worker_group *workers, tdm_ref *const *refs)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    struct engine_replies replies;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    replies = sort_engine_replies(workers, refs);
    tdm__engine_set_clear(&workers->cut_off_engines);
    if (!tdm__engine_set_equal(&replies.called, &replies.failed)) {
        tdm__engine_set_add_all(&workers->cut_off_engines, &replies.without_store);
    }
    if (!tdm__engine_set_equal(&replies.called, &replies.without_node)) {
        tdm__engine_set_add_all(&workers->cut_off_engines, &replies.without_node);
    }
    (void)tdm__fail(TDM_OK, "%s", detail);
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
    if (refs != NULL && actors == workers->engines && count == workers->engines_count) {
        tdm__worker_group_note_cut_off_engines(workers, refs);
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, count);
        free(refs);
    }
    return tdm__wrap(status, "%s", method);
}

/* ---- live engines ---------------------------------------------------------------------- */

uint32_t tdm__worker_group_live_engines(const struct tdm__worker_group *workers)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < workers->engines_count; i += workers->ranks_per_engine) {
        left += workers->engines[i] != NULL ? 1 : 0;
    }
    return left;
}

uint32_t tdm__worker_group_image_of_rank(const struct tdm__worker_group *workers, uint32_t index)
{
    return tdm__gather_groups_image(&workers->gather_groups, index / workers->ranks_per_engine,
                                    index % workers->ranks_per_engine);
}

uint32_t tdm__worker_group_trainer_gpu(const struct tdm__worker_group *workers, uint32_t rank)
{
    return tdm__engines_are_remote(workers)
               ? rank
               : tdm__gather_groups_first_image(&workers->gather_groups, rank);
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

/* What distinguishes the actor of one rank from the others when it is created. */
struct rank_creation {
    /* Actor class: "tandem.trainer" or "tandem.engine". */
    const char *class_name;
    /* Name of the actor, for example "engine/0/1". */
    char name[TDM__RANK_NAME_BYTES];
    /* Name of its collective group. */
    char group[TDM__RANK_NAME_BYTES];
    /* Borrowed ID of the node at which that group meets; NULL if its ranks are on one node. */
    const char *meeting_node;
    /* Rank in that group. */
    uint32_t rank;
    /* Number of ranks of that group. */
    uint32_t ranks_count;
    /* Index of the engine; 0 for trainers. */
    uint32_t engine;
    /* Borrowed placement group that has the rank's GPU. */
    tdm_placement_group *placement_group;
    /* Index of the rank's bundle in that placement group. */
    uint32_t bundle;
    /* Share of the GPU that the actor reserves, 0 to 1. */
    double num_gpus;
};

/* Returns the enum value of update.verify, which was validated before. */
static enum tdm__verify parse_verify_mode(const struct tdm__job_spec *spec)
{
    if (strcmp(spec->verify, "none") == 0) {
        return TDM__VERIFY_NONE;
    }
    return strcmp(spec->verify, "sample") == 0 ? TDM__VERIFY_SAMPLE : TDM__VERIFY_FULL;
}

/* Creates the actor of one rank. Does not wait until it is constructed. */
static tdm_status create_rank(struct tdm__worker_group *workers,
                              const struct rank_creation *creation, const char *config_json,
                              tdm_actor **actor_out)
{
    const struct tdm__job_spec *spec = workers->spec;
    const struct tdm__gather_groups *groups = &workers->gather_groups;
    struct tdm__rank_arguments_message arguments = {.config_json = config_json,
                                                    .config_name = "job file",
                                                    .library = spec->library,
                                                    .model_config = spec->model_config,
                                                    .model = spec->update_model,
                                                    .group = creation->group,
                                                    .meeting_node = creation->meeting_node,
                                                    .rank = creation->rank,
                                                    .ranks_count = creation->ranks_count,
                                                    .engine = creation->engine,
                                                    .ranks_per_engine = workers->ranks_per_engine,
                                                    .gather_groups = groups->count,
                                                    .ranks_per_group = groups->ranks_per_group,
                                                    .engines_per_group = groups->engines_per_group,
                                                    .seed = spec->seed,
                                                    .bucket_bytes = spec->update_weight_buffer_size,
                                                    .timeout_ms = (int64_t)spec->step_timeout_ms,
                                                    .verify = (uint32_t)parse_verify_mode(spec),
                                                    .overwrites = tdm__job_updates_overwrite(spec)};
    struct tdm_actor_options options = {.name = creation->name,
                                        .num_gpus = creation->num_gpus,
                                        .group = creation->placement_group,
                                        .bundle = creation->bundle,
                                        .environment = {"OPENBLAS_NUM_THREADS=1"}};
    struct tdm__python_actor *python = calloc(1, sizeof(*python));
    tdm_writer *writer = NULL;
    tdm_status status =
        python == NULL ? tdm__fail(TDM_E_NOMEM, "an actor's options") : tdm_writer_create(&writer);

    tdm__job_contents_describe(workers->contents, &arguments);
    if (status == TDM_OK) {
        status = tdm__python_actor_init(python, spec, &options);
    }
    if (status == TDM_OK) {
        status = tdm__rank_arguments_encode(&arguments, writer);
    }
    if (status == TDM_OK) {
        status = tdm_actor_create_packed(workers->runtime, creation->class_name, &options,
                                         tdm_writer_bytes(writer), actor_out);
    }
    tdm_writer_destroy(writer);
    free(python);
    return status;
}

/* Creates the actors of all trainer ranks. The name of their collective group has a random number,
 * so that they meet neither ranks of another job of the same name nor their own predecessors. */
static tdm_status create_trainers(struct tdm__worker_group *workers, const char *config_json)
{
    char meeting_node[TDM__ID_TEXT_BYTES];
    char id_text[TDM__ID_TEXT_BYTES];
    struct tdm__id id;
    bool is_one_node;

    TDM_TRY(tdm__id_generate(&id));
    TDM_TRY(tdm__gpu_places_meeting_node(workers, meeting_node, &is_one_node));
    for (uint32_t i = 0; i < workers->spec->trainer_num_ranks; i++) {
        struct rank_creation creation = {.class_name = "tandem.trainer",
                                         .meeting_node = is_one_node ? NULL : meeting_node,
                                         .rank = i,
                                         .ranks_count = workers->spec->trainer_num_ranks,
                                         .placement_group = workers->group,
                                         .bundle = tdm__worker_group_trainer_gpu(workers, i),
                                         .num_gpus = workers->spec->trainer_num_gpus_per_actor};

        tdm__rank_name(creation.name, workers->spec->update_model, "trainer/%u", i);
        tdm__rank_name(creation.group, workers->spec->update_model, "trainers/%.16s",
                       tdm__id_text(&id, id_text));
        TDM_TRY(create_rank(workers, &creation, config_json, &workers->trainers[i]));
        workers->trainers_count++;
    }
    return TDM_OK;
}

/* Creates the actor of the engine rank with this index among the ranks of all engines. */
static tdm_status create_engine_rank(struct tdm__worker_group *workers, const char *config_json,
                                     uint32_t index, tdm_actor **actor_out)
{
    struct rank_creation creation = {.class_name = "tandem.engine",
                                     .rank = index % workers->ranks_per_engine,
                                     .ranks_count = workers->ranks_per_engine,
                                     .engine = index / workers->ranks_per_engine,
                                     .placement_group = workers->group,
                                     .bundle = index,
                                     .num_gpus = workers->spec->engine_num_gpus_per_actor};

    if (tdm__engines_are_remote(workers)) {
        creation.placement_group = workers->engine_groups[creation.engine];
        creation.bundle = creation.rank;
    }
    tdm__rank_name(creation.name, workers->spec->update_model, "engine/%u/%u", creation.engine,
                   creation.rank);
    tdm__rank_name(creation.group, workers->spec->update_model, "engine/%u", creation.engine);
    return create_rank(workers, &creation, config_json, actor_out);
}

/* Creates the actors of all engine ranks. */
static tdm_status create_engines(struct tdm__worker_group *workers, const char *config_json)
{
    for (uint32_t i = 0; i < workers->spec->num_engines * workers->ranks_per_engine; i++) {
        TDM_TRY(create_engine_rank(workers, config_json, i, &workers->engines[i]));
        workers->engines_count++;
    }
    return TDM_OK;
}

/* Returns the failure of an actor whose construction has failed, if there is one. Others may wait
 * for that rank in their constructors. Does not wait for actors that are being constructed. */
static tdm_status find_failed_actor(tdm_actor *const *actors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tdm_status status = tdm_actor_wait_ready(actors[i], 1);

        if (status != TDM_E_TIMEOUT) {
            TDM_TRY(status);
        }
    }
    return TDM_OK;
}

/* Waits until all of these actors of the job are constructed, up to `deadline_ms` on the monotonic
 * clock, or until the construction of one of them has failed. The deadline is that of
 * job.start_timeout_ms, which the error then names. */
static tdm_status await_all(const struct tdm__worker_group *workers, tdm_actor *const *actors,
                            uint32_t count, int64_t deadline_ms)
{
    uint32_t ready_count = 0;

    while (ready_count < count) {
        int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);
        int64_t wait_ms = remaining_ms < SLICE_MS ? remaining_ms : SLICE_MS;
        tdm_status status = tdm_actor_wait_ready(actors[ready_count], wait_ms > 1 ? wait_ms : 1);

        if (status == TDM_OK) {
            ready_count++;
        } else if (status != TDM_E_TIMEOUT) {
            return status;
        } else if (remaining_ms <= SLICE_MS) {
            return tdm__wrap(status,
                             "the ranks did not start within %u ms: raise job.start_timeout_ms if "
                             "they need longer. The last wait was for one of them",
                             workers->spec->start_timeout_ms);
        } else {
            TDM_TRY(find_failed_actor(actors + ready_count, count - ready_count));
        }
    }
    return TDM_OK;
}

/* Creates all actors and waits until they are constructed. */
static tdm_status create_all(struct tdm__worker_group *workers)
{
    int64_t deadline_ms = tdm__deadline_after((int64_t)workers->spec->start_timeout_ms);
    char *config_json;
    tdm_status status;

    TDM_TRY(tdm_config_json(workers->spec->config, &config_json));
    status = create_trainers(workers, config_json);
    if (status == TDM_OK) {
        status = create_engines(workers, config_json);
    }
    free(config_json);
    TDM_TRY(status);
    TDM_TRY(await_all(workers, workers->trainers, workers->trainers_count, deadline_ms));
    return await_all(workers, workers->engines, workers->engines_count, deadline_ms);
}

/* Kills the actors that are not NULL. */
static void kill_actors(tdm_actor *const *actors, uint32_t count, int64_t deadline_ms)
{
    for (uint32_t i = 0; i < count && tdm__deadline_remaining_ms(deadline_ms) > 0; i++) {
        if (actors[i] != NULL) {
            (void)tdm_actor_kill(actors[i], TDM__WORKER_KILL_MS);
        }
    }
}

void tdm__worker_group_kill(struct tdm__worker_group *workers, int64_t deadline_ms)
{
    kill_actors(workers->trainers, workers->trainers_count, deadline_ms);
    kill_actors(workers->engines, workers->engines_count, deadline_ms);
    for (uint32_t i = 0; workers->engine_states != NULL && i < workers->engines_max; i++) {
        kill_actors(workers->engine_states[i].other_ranks, workers->ranks_per_engine, deadline_ms);
    }
}

/* Kills the actors and destroys their handles. */
static void discard_actors(tdm_actor **actors, uint32_t *count)
{
    kill_actors(actors, *count, tdm__deadline_after(TDM__WORKER_KILL_MS));
    for (uint32_t i = 0; i < *count; i++) {
        tdm_actor_destroy(actors[i]);
        actors[i] = NULL;
    }
    *count = 0;
}

/* Creates all actors as create_all() does. If an actor of an earlier job still has one of the
 * names, tries again for a while: that job may have ended just now, and its actors end after it. */
static tdm_status create_all_with_names(struct tdm__worker_group *workers, int64_t names_ms)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    int64_t deadline_ms = tdm__deadline_after(names_ms);
    tdm_status status;

    while ((status = create_all(workers)) == TDM_E_EXISTS &&
           tdm__deadline_remaining_ms(deadline_ms) > 0 &&
           (workers->interrupts == NULL || *workers->interrupts < 2)) {
        discard_actors(workers->engines, &workers->engines_count);
        discard_actors(workers->trainers, &workers->trainers_count);
        (void)nanosleep(&pause, NULL);
    }
    return status != TDM_E_EXISTS
               ? status
               : tdm__wrap(
                     status,
                     "another job for model %s has not ended within %lld ms: wait for it, or set "
                     "update.model to another name",
                     workers->spec->update_model, (long long)names_ms);
}

tdm_status tdm__worker_group_create_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    uint32_t first = engine * workers->ranks_per_engine;
    char *config_json;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_config_json(workers->spec->config, &config_json));
    for (uint32_t i = 0; i < workers->ranks_per_engine && status == TDM_OK; i++) {
        status = create_engine_rank(workers, config_json, first + i,
                                    &workers->engine_states[engine].other_ranks[i]);
    }
    free(config_json);
    return status;
}

/* Allocates the states of the engines, none of which is lost. */
static tdm_status create_engine_states(struct tdm__worker_group *workers)
{
    uint32_t count = workers->engines_max;

    workers->engine_states = calloc(count + 1, sizeof(*workers->engine_states));
    for (uint32_t i = 0; workers->engine_states != NULL && i < count; i++) {
        workers->engine_states[i].recovery.has_own_gpus = tdm__engines_are_remote(workers);
        workers->engine_states[i].other_ranks =
            calloc(workers->ranks_per_engine, sizeof(tdm_actor *));
        if (workers->engine_states[i].other_ranks == NULL) {
            return tdm__fail(TDM_E_NOMEM, "the ranks of an engine");
        }
    }
    return workers->engine_states == NULL ? tdm__fail(TDM_E_NOMEM, "%u engines", count) : TDM_OK;
}

/* Returns the number of engines for which a job reserves array elements. Engines with GPUs of their
 * own may be added while the job runs. */
static uint32_t engines_max_of(const struct tdm__job_spec *spec)
{
    return spec->engine_colocate ? spec->num_engines : tdm__engines_limit(spec);
}

tdm_status tdm__worker_group_start(struct tdm__worker_group *workers, tdm_runtime *runtime,
                                   const struct tdm__job_spec *spec,
                                   const struct tdm__worker_group_options *options)
{
    uint32_t engine_ranks_max;
    tdm_status status;

    *workers =
        (struct tdm__worker_group){.runtime = runtime,
                                   .spec = spec,
                                   .contents = options->contents,
                                   .interrupts = options->interrupts,
                                   .ranks_per_engine = spec->rollout_num_gpus_per_engine,
                                   .engines_max = engines_max_of(spec),
                                   .gather_groups = tdm__gather_groups_form(
                                       spec->trainer_num_ranks, spec->rollout_num_gpus_per_engine,
                                       spec->num_engines, spec->engine_colocate)};
    engine_ranks_max = workers->engines_max * workers->ranks_per_engine;
    workers->trainers = calloc(spec->trainer_num_ranks + 1, sizeof(tdm_actor *));
    workers->engines = calloc(engine_ranks_max + 1, sizeof(tdm_actor *));
    workers->layouts = calloc(engine_ranks_max + 1, sizeof(workers->layouts[0]));
    status = workers->trainers == NULL || workers->engines == NULL || workers->layouts == NULL
                 ? tdm__fail(TDM_E_NOMEM, "the actors of a job")
                 : create_engine_states(workers);
    if (status == TDM_OK) {
        status = tdm__gpu_places_reserve(workers, options->joining_ms);
    }
    if (status == TDM_OK) {
        status = create_all_with_names(workers, options->names_ms);
    }
    if (status == TDM_OK) {
        status = tdm__liveness_monitor_create(runtime, engine_ranks_max,
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

/* Releases the handles and frees the array. */
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
    for (uint32_t i = 0; workers->engine_states != NULL && i < workers->engines_max; i++) {
        release_actors(workers->engine_states[i].other_ranks, workers->ranks_per_engine);
    }
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
    /* The placement groups end with this process. Removing them here would kill actors that can
     * still end gracefully. */
    tdm_placement_group_release(workers->group);
    for (uint32_t i = 0; workers->engine_groups != NULL && i < workers->engines_max; i++) {
        tdm_placement_group_release(workers->engine_groups[i]);
    }
    free(workers->engine_groups);
    workers->group = NULL;
    workers->engine_groups = NULL;
}
