/* state_record.h - state records, the maps in which lists travel, and lists of a maximum length. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_STATE_RECORD_H
#define TDM_ACTORS_COMMON_STATE_RECORD_H

#include "runtime/rpc/rpc.h"

#include <tandem/value.h>

/* Returns a text of a state record, borrowed from the record; "" if the record does not contain
 * `key`. */
static inline const char *tdm__state_record_text(const tdm_value *record, const char *key)
{
    return tdm_value_string(tdm_value_find(record, key), "");
}

/* Returns a number of a state record; 0 if the record does not contain `key`. */
static inline int64_t tdm__state_record_int(const tdm_value *record, const char *key)
{
    return tdm_value_int(tdm_value_find(record, key), 0);
}

/* Writes one text field of a state record: `key` and `text`. */
static inline void tdm__state_record_write_text(tdm_writer *writer, const char *key,
                                                const char *text)
{
    tdm_write_string(writer, key);
    tdm_write_string(writer, text);
}

/* Writes one number field of a state record: `key` and `number`. */
static inline void tdm__state_record_write_int(tdm_writer *writer, const char *key, int64_t number)
{
    tdm_write_string(writer, key);
    tdm_write_int(writer, number);
}

/* State records that a process writes for a list, up to a maximum; the others are only counted. */
struct tdm__state_records {
    tdm_writer *packed; /* The list's records, packed one after the other; owned. */
    uint32_t count;     /* Number of records in `packed`. */
    uint32_t count_max; /* Most records that the list may contain. */
    uint64_t left_out;  /* Number of records that were left out, beyond `count_max`. */
};

/* Starts a list of at most `count_max` state records. */
tdm_status tdm__state_records_begin(struct tdm__state_records *records, uint32_t count_max);
/* Returns the writer for one more record, or NULL if the list is full; the record is then
 * counted as left out. */
tdm_writer *tdm__state_records_next(struct tdm__state_records *records);
/* Writes the message process_state_list with the list and frees it. */
void tdm__state_records_end(struct tdm__state_records *records, tdm_writer *writer);

/* Starts a list for a request that only the daemon may send. Returns false if it has replied
 * with a failure instead. `what` names the records in the plural, for the message. */
bool tdm__state_records_reply_begin(struct tdm__state_records *records, uint32_t count_max,
                                    const char *what, struct tdm__incoming_call *incoming);
/* Replies to `incoming` with the list, and frees the list. */
void tdm__state_records_reply_end(struct tdm__state_records *records,
                                  struct tdm__incoming_call *incoming);

#endif
