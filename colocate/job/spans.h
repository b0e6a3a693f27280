/* spans.h - what a rank did when, kept until the controller fetches it for the trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_SPANS_H
#define TDM_COLOCATE_JOB_SPANS_H

#include <stdint.h>
#include <tandem/value.h>

enum { TDM__SPANS_MAX = 512, TDM__SPAN_NAME_BYTES = 32, TDM__SPAN_END_BYTES = 16 };

struct tdm__span {
    char name[TDM__SPAN_NAME_BYTES]; /* "pause weights", "bucket 3" */
    int64_t begin_ns;                /* tdm__clock_ns() */
    int64_t end_ns;
    uint64_t bytes;                 /* moved or freed; 0: none */
    uint64_t checksum;              /* of what was moved; 0: none */
    char from[TDM__SPAN_END_BYTES]; /* where bytes moved: "device", "host"; "": nothing moved */
    char to[TDM__SPAN_END_BYTES];
};

/* The newest ones are lost when nobody fetches. */
struct tdm__spans {
    uint32_t count;
    struct tdm__span all[TDM__SPANS_MAX];
};

/* "resume …" and "pause …" are of memory that comes and goes without its contents. */
void tdm__spans_add(struct tdm__spans *spans, const char *name, int64_t begin_ns, uint64_t bytes,
                    uint64_t checksum);
/* The same for bytes that went from one place to another; `span` has all but the end. */
void tdm__spans_add_transfer(struct tdm__spans *spans, const struct tdm__span *span);
/* Writes an array of (name, begin, end, bytes, checksum, from, to) and forgets them. */
void tdm__spans_write(struct tdm__spans *spans, tdm_writer *writer);
/* Element `index` of such an array; false past its end or where it is malformed. */
int tdm__span_read(const tdm_value *array, uint32_t index, struct tdm__span *span_out);

#endif
