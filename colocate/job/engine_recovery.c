/* engine_recovery.c - restarts lost engines, and gives weights to engines that have none. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A lost engine comes back in these steps, which recovery_state.h orders:
 *
 * 1. Its ranks are killed if they may still run.
 * 2. GPUs on another node are reserved if those that the engine had are lost.
 * 3. Its actors are created. The step ends when they are constructed.
 * 4. The actors are started and connected to the trainers.
 * 5. They get the committed weights.
 *
 * The weights come from a serving engine with the same layout on the same node
 * (join), without waiting for an update. If there is no such engine, they come from the next
 * update. Until then `awaits_weights` is set and the engine serves nothing. An aborted update can
 * leave a live engine with incomplete weights; such an engine needs the last step only. No step
 * waits long for a node that does not reply, or for a node with enough free GPUs: each call of
 * tdm__recovery_restart_engines() continues where the last call stopped. Handles of actors that are
 * still being constructed are in `other_ranks`; the engine takes part in updates as soon as they
 * are in workers->engines. All functions run on the controller's thread. docs/protocols/commit.md
 * specifies how a member joins.
 */
#include "colocate/job/engine_recovery.h"

#include "colocate/job/engine_failover.h"
#include "colocate/job/gpu_places.h"
#include "colocate/job/weight_connect.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest times in milliseconds of one call: to kill a rank whose node may not reply, and to wait
 * for GPUs and for the construction of actors. The construction is awaited once, because it usually
 * succeeds, and later only looked at. If engines share the trainers' nodes it is awaited fully. */
enum {
    KILL_MS = 200,
    PLACE_MS = 500,
    CONSTRUCT_MS = 5000,
    LOOK_MS = 50,
    SHARED_CONSTRUCT_MS = 60000
};
/* Longest time in milliseconds to wait for an engine when none is left, and the time between two
 * looks. */
enum { NONE_LEFT_MS = 60000, NONE_LEFT_PAUSE_MS = 100 };

static const struct tdm_bytes no_arguments = {"\x90", 1};

/* Calls the worker group's callback for engine events, if there is one. */
static void notify_engine_event(struct tdm__worker_group *workers, uint32_t engine,
                                enum tdm__engine_event event)
{
    if (workers->on_event != NULL) {
        workers->on_event(workers->on_event_arg, engine, event, NULL);
    }
}

/* Records that the engine has weights and serves. */
static void mark_engine_serving(struct tdm__worker_group *workers, uint32_t engine)
{
    workers->engine_states[engine].awaits_weights = false;
    notify_engine_event(workers, engine, TDM__ENGINE_EVENT_SERVING);
    workers->engine_states[engine].is_new = false;
}

/* Starts the new ranks of the engine and connects them. The start may take long: other processes
 * may still map memory of the lost engine. Trainer ranks then release their handles of the lost
 * actors, so that they find the new ones by name. */
static tdm_status start_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    uint32_t first = engine * workers->ranks_per_engine;
    const struct tdm__gather_groups *groups = &workers->gather_groups;
    uint32_t server =
        tdm__gather_groups_server(groups, tdm__worker_group_image_of_rank(workers, first));
    int64_t timeout_ms = (int64_t)workers->spec->update_timeout_ms;

    TDM_TRY(tdm__worker_group_call(workers, &workers->engines[first], workers->ranks_per_engine,
                                   "start", no_arguments, timeout_ms));
    TDM_TRY(tdm__weight_connect_engine(workers, engine));
    return tdm__worker_group_call(workers, &workers->trainers[server], groups->ranks_per_group,
                                  "detach_engine", no_arguments, timeout_ms);
}

/* ---- without waiting for an update ------------------------------------------------------ */

/* Waits for the exported weights of the peer's ranks and sends each to the same rank of the
 * engine `to`. Waits until these ranks have joined. */
static tdm_status forward_weight_blocks(struct tdm__worker_group *workers, tdm_ref **shown,
                                        tdm_actor *const *to, tdm_ref **joined)
{
    int64_t timeout_ms = (int64_t)workers->spec->update_timeout_ms;

    TDM_TRY(tdm__worker_group_await(workers, shown, workers->ranks_per_engine, timeout_ms));
    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        const tdm_value *value;
        tdm_writer *writer;
        tdm_status status;

        TDM_TRY(tdm_get_value(shown[i], 0, &value));
        TDM_TRY(tdm_writer_create(&writer));
        tdm_write_value(writer, value);
        status = tdm_writer_status(writer);
        if (status == TDM_OK) {
            status = tdm_actor_call_packed(to[i], "join", tdm_writer_bytes(writer), &joined[i]);
        }
        tdm_writer_destroy(writer);
        TDM_TRY(status);
    }
    return tdm__worker_group_await(workers, joined, workers->ranks_per_engine, timeout_ms);
}

/* Makes the engine copy the weights of the serving engine `peer`. */
static tdm_status join_peer_weights(struct tdm__worker_group *workers, uint32_t peer,
                                    uint32_t engine)
{
    tdm_actor *const *from = &workers->engines[(size_t)peer * workers->ranks_per_engine];
    tdm_ref **refs = calloc((size_t)2 * workers->ranks_per_engine, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "calls to a peer") : TDM_OK;

    for (uint32_t i = 0; i < workers->ranks_per_engine && status == TDM_OK; i++) {
        status = tdm_actor_call_packed(from[i], "export_weights", no_arguments, &refs[i]);
    }
    if (status == TDM_OK) {
        status = forward_weight_blocks(
            workers, refs, &workers->engines[(size_t)engine * workers->ranks_per_engine],
            refs + workers->ranks_per_engine);
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, 2 * workers->ranks_per_engine);
        free(refs);
    }
    return status;
}

/* Resumes all regions of the engine. */
static tdm_status resume_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    const struct tdm__resume_regions_message all_regions = {NULL};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__resume_regions_encode(&all_regions, writer);
    if (status == TDM_OK) {
        status = tdm__worker_group_call(
            workers, &workers->engines[(size_t)engine * workers->ranks_per_engine],
            workers->ranks_per_engine, "resume", tdm_writer_bytes(writer),
            (int64_t)workers->spec->update_timeout_ms);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Returns whether two engines keep their weights in the same layout, so that one can copy the
 * other's memory. */
static bool same_layouts(const struct tdm__worker_group *workers, uint32_t one, uint32_t other)
{
    return workers->by_slices &&
           memcmp(&workers->layouts[(size_t)one * workers->ranks_per_engine],
                  &workers->layouts[(size_t)other * workers->ranks_per_engine],
                  workers->ranks_per_engine * sizeof(workers->layouts[0])) == 0;
}

/* Returns whether two engines are on one node, so that one can map the other's memory. All ranks of
 * an engine are on one node. */
static bool are_on_one_node(const struct tdm__worker_group *workers, uint32_t one, uint32_t other)
{
    struct tdm_actor_info infos[2];

    tdm_actor_describe(workers->engines[(size_t)one * workers->ranks_per_engine], &infos[0]);
    tdm_actor_describe(workers->engines[(size_t)other * workers->ranks_per_engine], &infos[1]);
    return strcmp(infos[0].node_id, infos[1].node_id) == 0;
}

/* Tries to get the weights from each serving engine with the same layout on the same node. If no
 * such engine exists, or all of them fail, the engine waits for the next update. The death of a
 * rank is detected later. */
static void join_any_peer(struct tdm__worker_group *workers, uint32_t engine)
{
    tdm_status status = TDM_E_NOT_FOUND;

    for (uint32_t i = 0; i < workers->spec->num_engines && status != TDM_OK; i++) {
        if (!tdm__worker_group_engine_serves(workers, i) || !same_layouts(workers, i, engine) ||
            !are_on_one_node(workers, i, engine)) {
            continue;
        }
        status = join_peer_weights(workers, i, engine);
        if (status == TDM_OK) {
            status = resume_engine(workers, engine);
        }
        if (status == TDM_OK) {
            mark_engine_serving(workers, engine);
        } else {
            tdm__log(TDM__INFO, "job", "engine %u does not join with engine %u's weights: %s",
                     engine, i, tdm_error_detail());
        }
    }
}

void tdm__recovery_join_waiting_engines(struct tdm__worker_group *workers)
{
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        if (workers->engines[(size_t)i * workers->ranks_per_engine] != NULL &&
            workers->engine_states[i].awaits_weights) {
            join_any_peer(workers, i);
        }
    }
}

/* ---- engines that an aborted update has torn -------------------------------------------- */

/* Returns whether all ranks of the engine have replied a version to "held_version". */
static bool holds_version(tdm_ref *const *replies, uint32_t ranks_count)
{
    for (uint32_t i = 0; i < ranks_count; i++) {
        struct tdm__held_version_message held;
        const tdm_value *value;

        if (replies[i] == NULL || tdm_get_value(replies[i], 0, &value) != TDM_OK ||
            tdm__held_version_decode(value, &held) != TDM_OK || held.version == 0) {
            return false;
        }
    }
    return true;
}

/* Notes which engines hold a version, as their ranks have replied: counts them, and with `marks`
 * makes the others wait for weights. */
static void note_held_versions(struct tdm__worker_group *workers, tdm_ref *const *replies,
                               bool marks, uint32_t *holders_out)
{
    *holders_out = 0;
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        size_t first = (size_t)i * workers->ranks_per_engine;
        bool holds = holds_version(replies + first, workers->ranks_per_engine);

        *holders_out += holds ? 1 : 0;
        if (marks && !holds && workers->engines[first] != NULL) {
            workers->engine_states[i].awaits_weights = true;
        }
    }
}

/* Asks the ranks of all live engines once which version they hold. */
static tdm_status ask_held_versions(struct tdm__worker_group *workers, bool marks,
                                    uint32_t *holders_out)
{
    tdm_ref **replies = calloc((size_t)workers->engines_count + 1, sizeof(*replies));
    tdm_status status = replies == NULL ? tdm__fail(TDM_E_NOMEM, "calls to the engines") : TDM_OK;

    for (uint32_t i = 0; i < workers->engines_count && status == TDM_OK; i++) {
        if (workers->engines[i] != NULL) {
            status = tdm_actor_call_packed(workers->engines[i], "held_version", no_arguments,
                                           &replies[i]);
        }
    }
    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, replies, workers->engines_count,
                                         (int64_t)workers->spec->update_timeout_ms);
    }
    if (status == TDM_OK) {
        note_held_versions(workers, replies, marks, holders_out);
    }
    if (replies != NULL) {
        tdm__worker_group_release_refs(replies, workers->engines_count);
        free(replies);
    }
    return status;
}

tdm_status tdm__recovery_find_torn_engines(struct tdm__worker_group *workers, bool marks,
                                           uint32_t *holders_out)
{
    tdm_status status;

    while ((status = ask_held_versions(workers, marks, holders_out)) != TDM_OK) {
        TDM_TRY(tdm__failover_handle_failure(workers, status));
    }
    return TDM_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */

/* Kills the ranks that may still run, and releases their handles. Returns the first failure that
 * does not prove that a rank has ended. */
static tdm_status kill_other_ranks(struct tdm__worker_group *workers, uint32_t engine)
{
    tdm_actor **ranks = workers->engine_states[engine].other_ranks;

    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        tdm_status status = ranks[i] == NULL ? TDM_OK : tdm_actor_kill(ranks[i], KILL_MS);

        if (!tdm__recovery_status_proves_end(status)) {
            return status;
        }
        tdm_actor_destroy(ranks[i]);
        ranks[i] = NULL;
    }
    return TDM_OK;
}

/* Waits until the new actors are constructed: for the first time longer than later. */
static tdm_status await_other_ranks(struct tdm__worker_group *workers, uint32_t engine)
{
    struct tdm__worker_group_engine *state = &workers->engine_states[engine];
    int64_t first_ms = state->recovery.has_own_gpus ? CONSTRUCT_MS : SHARED_CONSTRUCT_MS;
    int64_t deadline_ms = tdm__deadline_after(state->construction_was_awaited ? LOOK_MS : first_ms);

    state->construction_was_awaited = true;
    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        TDM_TRY(
            tdm_actor_wait_ready(state->other_ranks[i], tdm__deadline_remaining_ms(deadline_ms)));
    }
    return TDM_OK;
}

/* Takes the constructed ranks into the worker group, starts them, and gives them weights. If they
 * cannot be started the engine is removed again. */
static tdm_status connect_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    struct tdm__worker_group_engine *state = &workers->engine_states[engine];
    tdm_status status;

    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        workers->engines[(size_t)engine * workers->ranks_per_engine + i] = state->other_ranks[i];
        state->other_ranks[i] = NULL;
    }
    state->awaits_weights = true;
    notify_engine_event(workers, engine, TDM__ENGINE_EVENT_RESTARTED);
    status = start_engine(workers, engine);
    if (status != TDM_OK) {
        return tdm__failover_remove_engine(workers, engine, status);
    }
    join_any_peer(workers, engine);
    return TDM_OK;
}

/* Carries out one step that brings the engine back. */
static tdm_status take_step(struct tdm__worker_group *workers, uint32_t engine,
                            enum tdm__recovery_stage step)
{
    switch (step) {
    case TDM__RECOVERY_KILL:
        return kill_other_ranks(workers, engine);
    case TDM__RECOVERY_PLACE:
        return tdm__gpu_places_replace(workers, engine, PLACE_MS);
    case TDM__RECOVERY_CREATE:
        workers->engine_states[engine].construction_was_awaited = false;
        return tdm__worker_group_create_engine(workers, engine);
    case TDM__RECOVERY_AWAIT:
        return await_other_ranks(workers, engine);
    case TDM__RECOVERY_CONNECT:
        return connect_engine(workers, engine);
    case TDM__RECOVERY_NONE:
    case TDM__RECOVERY_GIVEN_UP:
        break;
    }
    return TDM_OK;
}

/* Keeps and logs why a step has failed. A failure of the engine is logged as a warning. If a node
 * does not reply or has no room, the step is tried again, so that this is logged as information. */
static void note_failed_step(struct tdm__worker_group_engine *state, uint32_t engine,
                             uint32_t attempts_before)
{
    const char *goal = state->is_new ? "has not joined" : "is not back";

    (void)snprintf(state->trouble, sizeof(state->trouble), "%s", tdm_error_detail());
    if (state->recovery.attempts > attempts_before) {
        tdm__log(TDM__WARN, "job", "engine %u %s, attempt %u of %d: %s", engine, goal,
                 state->recovery.attempts, TDM__RECOVERY_ATTEMPTS_MAX, tdm_error_detail());
    } else {
        tdm__log(TDM__INFO, "job", "engine %u %s yet: %s", engine, goal, tdm_error_detail());
    }
}

/* Takes steps that bring one lost or added engine into the job, until one of them fails or has to
 * wait. */
static void restart_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    struct tdm__recovery_state *state = &workers->engine_states[engine].recovery;
    enum tdm__recovery_stage step;
    tdm_status status = TDM_OK;

    while (status == TDM_OK &&
           (step = tdm__recovery_next(state, tdm__clock_ms())) != TDM__RECOVERY_NONE) {
        uint32_t attempts = state->attempts;

        status = take_step(workers, engine, step);
        tdm__recovery_on_result(state, step, status, tdm__clock_ms());
        workers->engine_states[engine].trouble[0] = '\0';
        if (status != TDM_OK) {
            note_failed_step(&workers->engine_states[engine], engine, attempts);
        }
    }
}

void tdm__recovery_restart_engines(struct tdm__worker_group *workers)
{
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        restart_engine(workers, i);
    }
}

/* Returns whether a lost engine may still come back. */
static bool any_may_return(const struct tdm__worker_group *workers)
{
    uint32_t engine = 0;

    while (engine < workers->spec->num_engines &&
           (workers->engine_states[engine].recovery.stage == TDM__RECOVERY_NONE ||
            workers->engine_states[engine].recovery.stage == TDM__RECOVERY_GIVEN_UP)) {
        engine++;
    }
    return engine < workers->spec->num_engines;
}

tdm_status tdm__recovery_await_any_engine(struct tdm__worker_group *workers)
{
    const struct timespec pause = {.tv_nsec = NONE_LEFT_PAUSE_MS * 1000000L};
    int64_t deadline_ms = tdm__deadline_after(NONE_LEFT_MS);

    tdm__recovery_restart_engines(workers);
    while (tdm__worker_group_live_engines(workers) == 0 && any_may_return(workers) &&
           tdm__deadline_remaining_ms(deadline_ms) > 0) {
        (void)nanosleep(&pause, NULL);
        TDM_TRY(tdm__worker_group_check_liveness(workers));
        tdm__recovery_restart_engines(workers);
    }
    return tdm__worker_group_live_engines(workers) > 0
               ? TDM_OK
               : tdm__fail(TDM_E_ACTOR_DIED, "all %u engines are lost, and none comes back",
                           workers->spec->num_engines);
}

void tdm__recovery_mark_serving(struct tdm__worker_group *workers)
{
    for (uint32_t i = 0; workers->engine_states != NULL && i < workers->spec->num_engines; i++) {
        if (workers->engines[(size_t)i * workers->ranks_per_engine] != NULL &&
            workers->engine_states[i].awaits_weights) {
            mark_engine_serving(workers, i);
        }
    }
}

void tdm__recovery_reset_attempts(struct tdm__worker_group *workers)
{
    for (uint32_t i = 0; workers->engine_states != NULL && i < workers->spec->num_engines; i++) {
        if (tdm__worker_group_engine_serves(workers, i)) {
            tdm__recovery_on_rollout(&workers->engine_states[i].recovery);
        }
    }
}
