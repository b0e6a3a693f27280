/* spans.c - what a rank did when, kept until the controller fetches it for the trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/spans.h"

#include "runtime/clock.h"

#include <stdio.h>
#include <string.h>

void tdm__spans_add_move(struct tdm__spans *spans, const struct tdm__span *span)
{
    struct tdm__span *added;

    if (spans->count == TDM__SPANS_MAX) {
        return;
    }
    added = &spans->all[spans->count++];
    *added = *span;
    added->end_ns = tdm__clock_ns();
}

static void set_ends(struct tdm__span *span, const char *from, const char *to)
{
    (void)snprintf(span->from, sizeof(span->from), "%s", from);
    (void)snprintf(span->to, sizeof(span->to), "%s", to);
}

void tdm__spans_add(struct tdm__spans *spans, const char *name, int64_t begin_ns,
                    uint64_t bytes, uint64_t checksum)
{
    struct tdm__span span = {.begin_ns = begin_ns, .bytes = bytes, .checksum = checksum};

    (void)snprintf(span.name, sizeof(span.name), "%s", name);
    if (strncmp(name, "resume ", 7) == 0) {
        set_ends(&span, "nowhere", "device");
    } else if (strncmp(name, "pause ", 6) == 0) {
        set_ends(&span, "device", "nowhere");
    }
    tdm__spans_add_move(spans, &span);
}

void tdm__spans_write(struct tdm__spans *spans, tdm_writer *writer)
{
    tdm_write_array(writer, spans->count);
    for (uint32_t i = 0; i < spans->count; i++) {
        const struct tdm__span *span = &spans->all[i];

        tdm_write_array(writer, 7);
        tdm_write_string(writer, span->name);
        tdm_write_int(writer, span->begin_ns);
        tdm_write_int(writer, span->end_ns);
        tdm_write_uint(writer, span->bytes);
        tdm_write_uint(writer, span->checksum);
        tdm_write_string(writer, span->from);
        tdm_write_string(writer, span->to);
    }
    spans->count = 0;
}

int tdm__span_read(const tdm_value *array, uint32_t index, struct tdm__span *span_out)
{
    const tdm_value *value = tdm_value_at(array, index);
    const char *name;
    const char *from;
    const char *to;

    if (value == NULL ||
        tdm_unpack(value, "siiuuss", &name, &span_out->begin_ns, &span_out->end_ns,
                   &span_out->bytes, &span_out->checksum, &from, &to) != TDM_OK ||
        name == NULL || from == NULL || to == NULL) {
        return 0;
    }
    (void)snprintf(span_out->name, sizeof(span_out->name), "%s", name);
    (void)snprintf(span_out->from, sizeof(span_out->from), "%s", from);
    (void)snprintf(span_out->to, sizeof(span_out->to), "%s", to);
    return 1;
}
