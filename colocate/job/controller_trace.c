/* controller_trace.c - collects what the ranks of a job did and writes it to the job's trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/controller.h"
#include "colocate/job/engine_failover.h"
#include "colocate/job/spans.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arguments of a call without arguments: an empty array of MessagePack. */
static const struct tdm_bytes no_arguments = {"\x90", 1};

/* Process numbers in the trace for the ranks of trainers and engines. */
enum { TRACE_PROCESS_TRAINER = 1, TRACE_PROCESS_ENGINE = 2 };

/* Adds a sample of the bytes that a rank has on its GPU, if the span resumed or paused memory. */
static void trace_memory(struct tdm__controller *controller, uint32_t process, uint32_t thread,
                         const struct tdm__span *span)
{
    uint64_t *resident = &controller->resident_bytes[process - 1][thread];
    struct tdm__trace_argument argument = {.name = "bytes"};
    char name[48];
    struct tdm__trace_event event = {
        .name = name, .begin_ns = span->end_ns, .arguments = &argument, .arguments_count = 1};

    if (strncmp(span->name, "resume ", 7) == 0) {
        *resident += span->bytes;
    } else if (strncmp(span->name, "pause ", 6) == 0) {
        *resident -= span->bytes < *resident ? span->bytes : *resident;
    } else {
        return;
    }
    (void)snprintf(name, sizeof(name), "GPU %u %s", thread,
                   process == TRACE_PROCESS_TRAINER ? "trainer" : "engine");
    argument.number = (double)*resident;
    tdm__trace_counter(controller->trace, &event);
}

/* Writes the spans of one rank to the trace. */
static void trace_spans(struct tdm__controller *controller, uint32_t process, uint32_t thread,
                        const tdm_value *spans)
{
    struct tdm__trace *trace = controller->trace;
    struct tdm__span span;

    for (uint32_t i = 0; tdm__span_read(spans, i, &span); i++) {
        char checksum[24];
        struct tdm__trace_argument arguments[4] = {{.name = "bytes", .number = (double)span.bytes}};
        uint32_t count = 1;
        struct tdm__trace_event event = {.name = span.name,
                                         .category = process == TRACE_PROCESS_TRAINER ? "trainer"
                                                                                      : "engine",
                                         .process = process,
                                         .thread = thread,
                                         .begin_ns = span.begin_ns,
                                         .end_ns = span.end_ns,
                                         .arguments = arguments};

        (void)snprintf(checksum, sizeof(checksum), "%016llx", (unsigned long long)span.checksum);
        if (span.checksum != 0) {
            arguments[count++] = (struct tdm__trace_argument){"checksum", checksum, 0};
        }
        if (span.from[0] != '\0') {
            arguments[count++] = (struct tdm__trace_argument){"from", span.from, 0};
            arguments[count++] = (struct tdm__trace_argument){"to", span.to, 0};
        }
        event.arguments_count = count;
        tdm__trace_event(trace, &event);
        trace_memory(controller, process, thread, &span);
    }
}

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
static tdm_status fetch_spans(struct tdm__controller *controller, uint32_t process,
                              tdm_actor *const *actors, uint32_t count)
{
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
            trace_spans(controller, process, i, spans);
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
        fetch_spans(controller, TRACE_PROCESS_TRAINER, workers->trainers, workers->trainers_count));
    TDM_TRY(
        fetch_spans(controller, TRACE_PROCESS_ENGINE, workers->engines, workers->engines_count));
    tdm__trace_flush(controller->trace);
    return TDM_OK;
}
