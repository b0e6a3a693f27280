/* spans.h - the timed operations of a rank, kept until the controller fetches them for the
 * trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_SPANS_H
#define TDM_COLOCATE_JOB_SPANS_H

#include <stdint.h>
#include <tandem/value.h>

/* Most spans that a rank keeps, and the sizes of the text fields of a span with their NUL. */
enum { TDM__SPANS_MAX = 512, TDM__SPAN_NAME_BYTES = 32, TDM__SPAN_END_BYTES = 16 };

/* One operation of a rank with its begin and end. */
struct tdm__span {
    /* Name of the operation, for example "pause weights" or "bucket 3". */
    char name[TDM__SPAN_NAME_BYTES];
    /* Begin in nanoseconds of tdm__clock_ns(). */
    int64_t begin_ns;
    /* End in nanoseconds of tdm__clock_ns(). */
    int64_t end_ns;
    /* Bytes that were moved or freed; 0 if none. */
    uint64_t bytes;
    /* Checksum of the moved bytes; 0 if it is not known. */
    uint64_t checksum;
    /* Where the bytes came from, for example "device", "host" or a rank; "" if no bytes were
     * moved. */
    char from[TDM__SPAN_END_BYTES];
    /* Where the bytes went; "" if no bytes were moved. */
    char to[TDM__SPAN_END_BYTES];
};

/* The spans of one rank. When it is full, new spans are dropped until the controller fetches the
 * old ones. */
struct tdm__spans {
    /* Number of spans. */
    uint32_t count;
    /* The spans, oldest first. */
    struct tdm__span all[TDM__SPANS_MAX];
};

/* Adds a span that ends now. A name that starts with "resume " or "pause " is recorded as memory
 * that is taken or freed without its contents. */
void tdm__spans_add(struct tdm__spans *spans, const char *name, int64_t begin_ns, uint64_t bytes,
                    uint64_t checksum);
/* Adds a copy of `span` that ends now. The caller fills all fields but the end. */
void tdm__spans_add_transfer(struct tdm__spans *spans, const struct tdm__span *span);
/* Encodes all spans as an array of messages and removes them. */
void tdm__spans_write(struct tdm__spans *spans, tdm_writer *writer);
/* Decodes element `index` of such an array. Returns 0 if the index is past the end or the
 * element is malformed, else 1. */
int tdm__span_read(const tdm_value *array, uint32_t index, struct tdm__span *span_out);

#endif
