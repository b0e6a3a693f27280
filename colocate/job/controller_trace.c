/* controller_trace.c - collects what the ranks of a job did and writes it to the job's trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/controller.h"
#include "colocate/job/engine_failover.h"
#include "colocate/job/rank_trace.h"
#include "runtime/error.h"

#include <stdlib.h>

/* Arguments of a call without arguments: an empty array of MessagePack. */
static const struct tdm_bytes no_arguments = {"\x90", 1};

/* Calls "trace" on all of these actors. Spans of an engine that is lost meanwhile are lost. */
static tdm_status request_spans(struct tdm__controller *controller, tdm_actor *const *actors,
                                uint32_t count, tdm_ref **refs)
{
    for (uint32_t i = 0; i < count; i++) {
        tdm_status status = TDM_OK;

        if (actors[i] != NULL) {
            status = tdm_actor_call_packed(actors[i], "trace", no_arguments, &refs[i]);
        }
        if (status != TDM_OK) {
            TDM_TRY(tdm__failover_handle_failure(&controller->workers, status));
        }
    }
    return TDM_OK;
}

/* Releases the pending calls to engines that have been removed. */
static void drop_lost_engines(tdm_actor *const *actors, uint32_t count, tdm_ref **refs)
{
    for (uint32_t i = 0; i < count; i++) {
        if (actors[i] == NULL) {
            tdm_ref_release(refs[i]);
            refs[i] = NULL;
        }
    }
}

/* Waits for the replies; engines that are lost meanwhile are left out. */
static tdm_status await_spans(struct tdm__controller *controller, tdm_actor *const *actors,
                              uint32_t count, tdm_ref **refs)
{
    int64_t timeout_ms = (int64_t)controller->spec->step_timeout_ms;
    tdm_status status;

    drop_lost_engines(actors, count, refs);
    while ((status = tdm__worker_group_await(&controller->workers, refs, count, timeout_ms)) !=
           TDM_OK) {
        TDM_TRY(tdm__failover_handle_failure(&controller->workers, status));
        drop_lost_engines(actors, count, refs);
    }
    return TDM_OK;
}

/* Fetches the spans of all of these actors and writes them to the trace as rows of `process`. */
static tdm_status fetch_spans(struct tdm__controller *controller, enum tdm__trace_process process,
                              tdm_actor *const *actors, uint32_t count)
{
    uint64_t *resident_bytes = controller->resident_bytes[process == TDM__TRACE_ENGINES ? 1 : 0];
    tdm_ref **refs = calloc(count + 1, sizeof(*refs));
    tdm_status status = refs == NULL ? tdm__fail(TDM_E_NOMEM, "%u calls", count)
                                     : request_spans(controller, actors, count, refs);

    if (status == TDM_OK) {
        status = await_spans(controller, actors, count, refs);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        const tdm_value *spans;

        if (refs[i] == NULL) {
            continue;
        }
        status = tdm_get_value(refs[i], 0, &spans);
        if (status == TDM_OK) {
            tdm__rank_trace_write(controller->trace, process, i, spans, &resident_bytes[i]);
        }
    }
    if (refs != NULL) {
        tdm__worker_group_release_refs(refs, count);
        free(refs);
    }
    return status;
}

tdm_status tdm__controller_trace(struct tdm__controller *controller)
{
    struct tdm__worker_group *workers = &controller->workers;

    TDM_TRY(
        fetch_spans(controller, TDM__TRACE_TRAINERS, workers->trainers, workers->trainers_count));
    TDM_TRY(fetch_spans(controller, TDM__TRACE_ENGINES, workers->engines, workers->engines_count));
    tdm__trace_flush(controller->trace);
    return TDM_OK;
}
