/* rank_trace.c - the rows of a job's trace, and what a rank did as events in its row. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank_trace.h"

#include "colocate/job/spans.h"

#include <stdio.h>
#include <string.h>

/* Returns "trainer" or "engine". */
static const char *rank_kind(enum tdm__trace_process process)
{
    return process == TDM__TRACE_TRAINERS ? "trainer" : "engine";
}

/* Adds a sample of the bytes that a rank has on its GPU, if the span resumed or paused memory. */
static void trace_memory(struct tdm__trace *trace, enum tdm__trace_process process, uint32_t rank,
                         const struct tdm__span *span, uint64_t *resident_bytes)
{
    struct tdm__trace_argument argument = {.name = "bytes"};
    char name[48];
    struct tdm__trace_event event = {
        .name = name, .begin_ns = span->end_ns, .arguments = &argument, .arguments_count = 1};

    if (strncmp(span->name, "resume ", 7) == 0) {
        *resident_bytes += span->bytes;
    } else if (strncmp(span->name, "pause ", 6) == 0) {
        *resident_bytes -= span->bytes < *resident_bytes ? span->bytes : *resident_bytes;
    } else {
        return;
    }
    (void)snprintf(name, sizeof(name), "GPU %u %s", rank, rank_kind(process));
    argument.number = (double)*resident_bytes;
    tdm__trace_counter(trace, &event);
}

/* Adds an event for the span, with its bytes, and with its checksum and its ends if it has them. */
static void trace_span(struct tdm__trace *trace, enum tdm__trace_process process, uint32_t rank,
                       const struct tdm__span *span)
{
    char checksum[24];
    struct tdm__trace_argument arguments[4] = {{.name = "bytes", .number = (double)span->bytes}};
    uint32_t count = 1;
    struct tdm__trace_event event = {.name = span->name,
                                     .category = rank_kind(process),
                                     .process = process,
                                     .thread = rank,
                                     .begin_ns = span->begin_ns,
                                     .end_ns = span->end_ns,
                                     .arguments = arguments};

    (void)snprintf(checksum, sizeof(checksum), "%016llx", (unsigned long long)span->checksum);
    if (span->checksum != 0) {
        arguments[count++] = (struct tdm__trace_argument){"checksum", checksum, 0};
    }
    if (span->from[0] != '\0') {
        arguments[count++] = (struct tdm__trace_argument){"from", span->from, 0};
        arguments[count++] = (struct tdm__trace_argument){"to", span->to, 0};
    }
    event.arguments_count = count;
    tdm__trace_event(trace, &event);
}

void tdm__rank_trace_write(struct tdm__trace *trace, enum tdm__trace_process process, uint32_t rank,
                           const tdm_value *spans, uint64_t *resident_bytes)
{
    struct tdm__span span;

    for (uint32_t i = 0; tdm__span_read(spans, i, &span); i++) {
        trace_span(trace, process, rank, &span);
        trace_memory(trace, process, rank, &span, resident_bytes);
    }
}
