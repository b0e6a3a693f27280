/* engine_recovery.c - restarts engines that were lost. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A lost engine is restarted in three steps: create its actors on the same GPUs, start them and
 * connect them to the trainers, and give them the committed weights. The weights come from a
 * serving engine with the same layout (join), which does not wait for an update; or else from
 * the next update. Until then `awaits_weights` is set and the engine serves nothing.
 * Each engine is restarted at most ATTEMPTS_MAX times until it has completed a rollout. All
 * functions run on the controller's thread. docs/protocols/commit.md specifies how a member
 * joins. */
#include "colocate/job/engine_recovery.h"

#include "colocate/job/engine_failover.h"
#include "colocate/job/weight_update.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* How often an engine is restarted until it has completed a rollout. */
enum { ATTEMPTS_MAX = 3 };

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
}

/* Starts the new ranks of the engine and connects them. The start may take long: other processes
 * may still map memory of the lost engine. Trainer ranks then release their handles of the lost
 * actors, so that they find the new ones by name. */
static tdm_status start_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    uint32_t first = engine * workers->ranks_per_engine;
    int64_t timeout_ms = (int64_t)workers->spec->update_timeout_ms;

    TDM_TRY(tdm__worker_group_call(workers, &workers->engines[first], workers->ranks_per_engine,
                                   "start", no_arguments, timeout_ms));
    TDM_TRY(tdm__weight_update_connect_engine(workers, engine));
    return tdm__worker_group_call(workers, &workers->trainers[first], workers->ranks_per_engine,
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

/* Tries to get the weights from each serving engine of the same layout. If all fail, the engine
 * waits for the next update. A rank that died is detected later. */
static void join_any_peer(struct tdm__worker_group *workers, uint32_t engine)
{
    tdm_status status = TDM_E_NOT_FOUND;

    for (uint32_t i = 0; i < workers->spec->num_engines && status != TDM_OK; i++) {
        if (!tdm__worker_group_engine_serves(workers, i) || !same_layouts(workers, i, engine)) {
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

/* ---- the whole -------------------------------------------------------------------------- */

/* Restarts one lost engine. If it cannot be started it is removed again. */
static tdm_status restart_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    tdm_status status;

    TDM_TRY(tdm__worker_group_create_engine(workers, engine));
    workers->engine_states[engine].awaits_weights = true;
    notify_engine_event(workers, engine, TDM__ENGINE_EVENT_RESTARTED);
    status = start_engine(workers, engine);
    if (status != TDM_OK) {
        return tdm__failover_remove_engine(workers, engine, status);
    }
    join_any_peer(workers, engine);
    return TDM_OK;
}

void tdm__recovery_restart_engines(struct tdm__worker_group *workers)
{
    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        if (workers->engines[(size_t)i * workers->ranks_per_engine] != NULL ||
            workers->engine_states[i].restart_attempts == ATTEMPTS_MAX) {
            continue;
        }
        workers->engine_states[i].restart_attempts++;
        if (restart_engine(workers, i) != TDM_OK) {
            tdm__log(TDM__WARN, "job", "engine %u is not back, attempt %u of %d: %s", i,
                     workers->engine_states[i].restart_attempts, ATTEMPTS_MAX, tdm_error_detail());
        }
    }
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
            workers->engine_states[i].restart_attempts = 0;
        }
    }
}
