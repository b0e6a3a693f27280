/* earlier_job.c - continues the record of weight versions that an earlier job has left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/earlier_job.h"

#include "actors/process/runtime.h"
#include "colocate/weights/version_service.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <time.h>

enum {
    ASK_MS = 2000, /* Longest wait for one answer about an actor, in milliseconds. */
    /* Longest further wait for the end of an actor whose node does not answer, in milliseconds. The
     * node counts as lost before. */
    UNKNOWN_MS = 60000,
    PAUSE_MS = 50 /* Pause before the daemon is asked again, in milliseconds. */
};

/* Asks the daemon whether an actor lives. Returns TDM_OK if it does, TDM_E_ACTOR_DIED or
 * TDM_E_NODE_LOST if it has ended, and anything else if that is not known now. */
static tdm_status ask_fate(tdm_runtime *runtime, const struct tdm__id *actor)
{
    const struct tdm__actor_query_message query = {.actor = *actor};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        status =
            tdm__runtime_call_daemon(runtime, "actor.fate", tdm_writer_bytes(writer), ASK_MS, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Waits until an actor of the earlier job has ended. The actors of a job end with its driver, but
 * some time after it. */
static tdm_status await_end(struct tdm__worker_group *workers, const struct tdm__id *actor,
                            int64_t deadline_ms)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    char text[TDM__ID_TEXT_BYTES];

    for (;;) {
        tdm_status status = ask_fate(workers->runtime, actor);

        if (status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST) {
            return TDM_OK;
        }
        if (workers->interrupts != NULL && *workers->interrupts >= 2) {
            return tdm__fail(TDM_E_CANCELED, "interrupted twice");
        }
        if (tdm__deadline_remaining_ms(deadline_ms + (status == TDM_OK ? 0 : UNKNOWN_MS)) == 0) {
            return status != TDM_OK
                       ? tdm__wrap(status, "asking whether actor %s lives, which served model %s",
                                   tdm__id_text(actor, text), workers->spec->update_model)
                       : tdm__fail(TDM_E_STATE,
                                   "actor %s serves model %s, and still lives after %u ms: wait "
                                   "for the end of the job that it belongs to, or set update.model "
                                   "to another name",
                                   tdm__id_text(actor, text), workers->spec->update_model,
                                   workers->spec->update_timeout_ms);
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* Adds members to the list of those that the next request to the store names dead. */
static tdm_status add_dead(struct tdm__worker_group *workers, const struct tdm__member *members,
                           uint32_t count)
{
    struct tdm__member *dead =
        realloc(workers->dead, ((size_t)workers->dead_count + count + 1) * sizeof(*dead));

    if (dead == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u dead members", workers->dead_count + count);
    }
    workers->dead = dead;
    for (uint32_t i = 0; i < count; i++) {
        dead[workers->dead_count++] = members[i];
    }
    return TDM_OK;
}

/* Waits for the end of all members, lists them as dead, and aborts the update if it is
 * undecided. */
static tdm_status end_latest_update(struct tdm__worker_group *workers,
                                    const struct tdm__version_summary *summary)
{
    int64_t timeout_ms = (int64_t)workers->spec->update_timeout_ms;
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    struct tdm__version_request decide = {
        .kind = TDM__VERSION_DECIDE, .update = summary->latest, .proposal = TDM__UPDATE_ABORTED};
    struct tdm__version_reply reply;

    for (uint32_t i = 0; i < summary->living_count; i++) {
        TDM_TRY(await_end(workers, &summary->living[i].actor, deadline_ms));
    }
    TDM_TRY(add_dead(workers, summary->living, summary->living_count));
    if (summary->outcome != TDM__UPDATE_UNDECIDED) {
        return TDM_OK;
    }
    decide.dead = workers->dead;
    decide.dead_count = workers->dead_count;
    return tdm__version_service_call(workers->runtime, workers->spec->update_model, &decide,
                                     timeout_ms, &reply);
}

tdm_status tdm__earlier_job_supersede(struct tdm__worker_group *workers,
                                      struct tdm__earlier_versions *versions_out)
{
    struct tdm__version_summary summary;
    tdm_status status;

    TDM_TRY(tdm__version_service_read(workers->runtime, workers->spec->update_model,
                                      (int64_t)workers->spec->update_timeout_ms, &summary));
    status = end_latest_update(workers, &summary);
    free(summary.living);
    TDM_TRY(status);
    *versions_out = (struct tdm__earlier_versions){summary.version, summary.version_highest};
    return TDM_OK;
}
