/* engine_failover.c - detects and removes failed engines, so that the job continues with the
 * others. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The liveness monitor says which ranks are dead or silent. A silent rank is killed before it is
 * treated as dead, so that it cannot act later (fencing). When one rank of an engine is lost,
 * all of its ranks are killed and added to workers->dead, which the next request to the store
 * reports. Ranks with GPUs of their own on a node that does not reply cannot be killed before that
 * node replies or is lost. They are named dead at once, and killed later: engine_recovery.c does
 * not restart the engine before. All functions run on the controller's thread. A lost trainer is
 * not replaced: the job fails. */
#include "colocate/job/engine_failover.h"

#include "colocate/job/liveness_monitor.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

/* Adds the actor to the list of dead members that the next request to the store reports. */
static tdm_status add_dead(struct tdm__worker_group *workers, tdm_actor *actor)
{
    struct tdm__member *dead =
        realloc(workers->dead, (workers->dead_count + 1) * sizeof(workers->dead[0]));
    struct tdm_actor_info info;

    if (dead == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u dead members", workers->dead_count + 1);
    }
    workers->dead = dead;
    tdm_actor_describe(actor, &info);
    TDM_TRY(tdm__id_parse(info.id, &dead[workers->dead_count].actor));
    dead[workers->dead_count++].incarnation = 1;
    return TDM_OK;
}

/* Returns whether the engine may be left out although its ranks may still run: it has GPUs of its
 * own, so that it shares no memory with trainers, and only this process calls it. The store refuses
 * the votes of its ranks once they are named dead. */
static bool may_be_left_running(const struct tdm__worker_group *workers)
{
    return workers->engine_states != NULL && tdm__engines_are_remote(workers);
}

/* Kills all ranks of an engine, and returns the result of the first kill that was not confirmed. If
 * the node of an engine with GPUs of its own does not reply, its other ranks are not tried: all are
 * on that node. */
static tdm_status kill_ranks(struct tdm__worker_group *workers, uint32_t engine)
{
    uint32_t first = engine * workers->ranks_per_engine;
    bool is_remote = may_be_left_running(workers);
    tdm_status killed = TDM_OK;

    if (is_remote && workers->engine_states[engine].cannot_be_killed) {
        return tdm__fail(TDM_E_TIMEOUT, "the node of engine %u does not reply", engine);
    }
    for (uint32_t i = first; i < first + workers->ranks_per_engine; i++) {
        tdm_status status = tdm_actor_kill(
            workers->engines[i], is_remote ? TDM__WORKER_REMOTE_KILL_MS : TDM__WORKER_KILL_MS);

        if (!tdm__recovery_status_proves_end(status)) {
            return status;
        }
        killed = killed == TDM_OK ? status : killed;
    }
    return killed;
}

/* Kills all ranks of an engine and lists them as dead. `killed_out` is the result of kill_ranks().
 */
static tdm_status fence_engine(struct tdm__worker_group *workers, uint32_t engine,
                               tdm_status *killed_out)
{
    uint32_t first = engine * workers->ranks_per_engine;

    *killed_out = kill_ranks(workers, engine);
    if (!tdm__recovery_status_proves_end(*killed_out) && !may_be_left_running(workers)) {
        return *killed_out;
    }
    for (uint32_t i = first; i < first + workers->ranks_per_engine; i++) {
        TDM_TRY(add_dead(workers, workers->engines[i]));
    }
    return TDM_OK;
}

/* Notes in the engine's state that its ranks are out of `engines`. Handles of ranks that may still
 * run are kept, so that they are killed before the engine is restarted. */
static void note_engine_lost(struct tdm__worker_group *workers, uint32_t engine, tdm_status killed)
{
    uint32_t first = engine * workers->ranks_per_engine;
    struct tdm__worker_group_engine *state = &workers->engine_states[engine];

    state->awaits_weights = false;
    state->cannot_be_killed = false;
    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        if (!tdm__recovery_status_proves_end(killed)) {
            state->other_ranks[i] = workers->engines[first + i];
            workers->engines[first + i] = NULL;
        }
    }
    tdm__recovery_on_lost(&state->recovery, killed, tdm__clock_ms());
}

/* Kills all ranks of an engine, releases their handles, and reports `event` with the reason `why`.
 */
static tdm_status end_engine(struct tdm__worker_group *workers, uint32_t engine,
                             enum tdm__engine_event event, const char *why)
{
    uint32_t first = engine * workers->ranks_per_engine;
    char text[TDM__ERROR_DETAIL_BYTES];
    tdm_status killed;

    (void)snprintf(text, sizeof(text), "%s", why);
    TDM_TRY(fence_engine(workers, engine, &killed));
    if (workers->engine_states != NULL) {
        note_engine_lost(workers, engine, killed);
    }
    for (uint32_t i = first; i < first + workers->ranks_per_engine; i++) {
        tdm_actor_destroy(workers->engines[i]);
        workers->engines[i] = NULL;
        tdm__liveness_monitor_reset(workers->monitor, i);
    }
    tdm__log(workers->on_event == NULL ? TDM__WARN : TDM__INFO, "job", "engine %u %s: %s", engine,
             event == TDM__ENGINE_EVENT_LOST ? "lost" : "ended", text);
    if (workers->on_event != NULL) {
        workers->on_event(workers->on_event_arg, engine, event, text);
    }
    return TDM_OK;
}

/* Removes a lost engine. */
static tdm_status remove_engine(struct tdm__worker_group *workers, uint32_t engine, const char *why)
{
    return end_engine(workers, engine, TDM__ENGINE_EVENT_LOST, why);
}

tdm_status tdm__failover_retire_engine(struct tdm__worker_group *workers, uint32_t engine,
                                       const char *why)
{
    return end_engine(workers, engine, TDM__ENGINE_EVENT_RETIRED, why);
}

/* Returns why a rank of this engine failed; NULL if all are alive or the engine was removed
 * before. */
static const char *engine_failure_reason(const struct tdm__worker_group *workers, uint32_t engine)
{
    const char *why = NULL;

    for (uint32_t i = engine * workers->ranks_per_engine;
         i < (engine + 1) * workers->ranks_per_engine && why == NULL; i++) {
        why =
            workers->engines[i] == NULL ? NULL : tdm__liveness_monitor_failure(workers->monitor, i);
    }
    return why;
}

tdm_status tdm__failover_remove_dead_engines(struct tdm__worker_group *workers, uint32_t *lost_out)
{
    *lost_out = 0;
    if (workers->monitor == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__liveness_monitor_poll_sync(workers->monitor, workers->engines));
    for (uint32_t i = 0; i < workers->engines_count / workers->ranks_per_engine; i++) {
        const char *why = engine_failure_reason(workers, i);

        if (why != NULL) {
            TDM_TRY(remove_engine(workers, i, why));
            (*lost_out)++;
        }
    }
    return TDM_OK;
}

tdm_status tdm__failover_remove_cut_off_engines(struct tdm__worker_group *workers,
                                                uint32_t *lost_out)
{
    *lost_out = 0;
    for (uint32_t i = 0; workers->engine_states != NULL && i < workers->spec->num_engines; i++) {
        if (!tdm__engine_set_has(&workers->cut_off_engines, i) ||
            workers->engines[(size_t)i * workers->ranks_per_engine] == NULL) {
            continue;
        }
        TDM_TRY(remove_engine(workers, i, "its node does not reach the store or the trainers"));
        tdm__recovery_on_cut_off(&workers->engine_states[i].recovery, tdm__clock_ms());
        (*lost_out)++;
    }
    tdm__engine_set_clear(&workers->cut_off_engines);
    return TDM_OK;
}

tdm_status tdm__failover_remove_engine(struct tdm__worker_group *workers, uint32_t engine,
                                       tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    TDM_TRY(remove_engine(workers, engine, detail));
    return tdm__fail(status, "%s", detail);
}

tdm_status tdm__failover_handle_failure(struct tdm__worker_group *workers, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    uint32_t lost = 0;

    if (status == TDM_OK || status == TDM_E_CANCELED) {
        return status;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (tdm__failover_remove_dead_engines(workers, &lost) != TDM_OK ||
        (lost == 0 && tdm__failover_remove_cut_off_engines(workers, &lost) != TDM_OK)) {
        tdm__log(TDM__WARN, "job", "a failed engine cannot be left out: %s", tdm_error_detail());
    } else if (lost > 0 ? tdm__worker_group_live_engines(workers) >= workers->spec->num_engines_min
                        : status == TDM_E_ACTOR_UNAVAILABLE) {
        return TDM_OK; /* Without a loss, a node that did not reply for a while replies again. */
    }
    return tdm__fail(status, "%s", detail);
}
