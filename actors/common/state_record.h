/* state_record.h - the rows that lists travel in: maps by name, with nothing for what is missing.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_STATE_RECORD_H
#define TDM_ACTORS_COMMON_STATE_RECORD_H

#include "runtime/rpc/rpc.h"

#include <tandem/value.h>

/* Borrowed from the row; "" without it. */
static inline const char *tdm__state_record_text(const tdm_value *record, const char *key)
{
    return tdm_value_string(tdm_value_find(record, key), "");
}

static inline int64_t tdm__state_record_int(const tdm_value *record, const char *key)
{
    return tdm_value_int(tdm_value_find(record, key), 0);
}

static inline void tdm__state_record_write_text(tdm_writer *writer, const char *key,
                                                const char *text)
{
    tdm_write_string(writer, key);
    tdm_write_string(writer, text);
}

static inline void tdm__state_record_write_int(tdm_writer *writer, const char *key, int64_t number)
{
    tdm_write_string(writer, key);
    tdm_write_int(writer, number);
}

/* The rows of a process, the first so many of them; the others are counted. */
struct tdm__state_records {
    tdm_writer *packed; /* owned; one after the other */
    uint32_t count;
    uint32_t count_max;
    uint64_t left_out;
};

tdm_status tdm__state_records_begin(struct tdm__state_records *records, uint32_t count_max);
/* Where to write one more; NULL where there is no room for it. */
tdm_writer *tdm__state_records_next(struct tdm__state_records *records);
/* Writes a message process_rows, and frees them. */
void tdm__state_records_end(struct tdm__state_records *records, tdm_writer *writer);

/* The same for a question, which the daemon alone may ask: false if that is answered with a
 * failure, and nothing is begun.  `what` is in the rows, in the plural. */
bool tdm__state_records_reply_begin(struct tdm__state_records *records, uint32_t count_max,
                                    const char *what, struct tdm__incoming_call *incoming);
void tdm__state_records_reply_end(struct tdm__state_records *records,
                                  struct tdm__incoming_call *incoming);

#endif
