/* spans.c - the timed operations of a rank, kept until the controller fetches them for the
 * trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/spans.h"

#include "runtime/clock.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

void tdm__spans_add_transfer(struct tdm__spans *spans, const struct tdm__span *span)
{
    struct tdm__span *added;

    if (spans->count == TDM__SPANS_MAX) {
        return;
    }
    added = &spans->all[spans->count++];
    *added = *span;
    added->end_ns = tdm__clock_ns();
}

/* Sets where the bytes of a span came from and went. */
static void set_ends(struct tdm__span *span, const char *from, const char *to)
{
    (void)snprintf(span->from, sizeof(span->from), "%s", from);
    (void)snprintf(span->to, sizeof(span->to), "%s", to);
}

void tdm__spans_add(struct tdm__spans *spans, const char *name, int64_t begin_ns, uint64_t bytes,
                    uint64_t checksum)
{
    struct tdm__span span = {.begin_ns = begin_ns, .bytes = bytes, .checksum = checksum};

    (void)snprintf(span.name, sizeof(span.name), "%s", name);
    if (strncmp(name, "resume ", 7) == 0) {
        set_ends(&span, "nowhere", "device");
    } else if (strncmp(name, "pause ", 6) == 0) {
        set_ends(&span, "device", "nowhere");
    }
    tdm__spans_add_transfer(spans, &span);
}

void tdm__spans_write(struct tdm__spans *spans, tdm_writer *writer)
{
    tdm_write_array(writer, spans->count);
    for (uint32_t i = 0; i < spans->count; i++) {
        const struct tdm__span *span = &spans->all[i];

        const struct tdm__job_span_message message = {span->name,  span->begin_ns, span->end_ns,
                                                      span->bytes, span->checksum, span->from,
                                                      span->to};

        (void)tdm__job_span_encode(&message, writer);
    }
    spans->count = 0;
}

int tdm__span_read(const tdm_value *array, uint32_t index, struct tdm__span *span_out)
{
    struct tdm__job_span_message message;

    if (tdm__job_span_decode(tdm_value_at(array, index), &message) != TDM_OK) {
        return 0;
    }
    span_out->begin_ns = message.begin_ns;
    span_out->end_ns = message.end_ns;
    span_out->bytes = message.bytes;
    span_out->checksum = message.checksum;
    (void)snprintf(span_out->name, sizeof(span_out->name), "%s", message.name);
    (void)snprintf(span_out->from, sizeof(span_out->from), "%s", message.from);
    (void)snprintf(span_out->to, sizeof(span_out->to), "%s", message.to);
    return 1;
}
