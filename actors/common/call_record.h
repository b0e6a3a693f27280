/* call_record.h - one unfinished call as a state record, as lists of calls contain it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_CALL_RECORD_H
#define TDM_ACTORS_COMMON_CALL_RECORD_H

#include <tandem/state.h>
#include <tandem/value.h>

/* Writes one call as a map of nine entries, which tdm__call_record_read() reads back. */
void tdm__call_record_write(tdm_writer *writer, const struct tdm_call_state *record);
/* Reads one call record, which is a map, into `record_out`. The texts in `record_out` point into
 * `value`; a missing entry becomes "" or 0. */
void tdm__call_record_read(const tdm_value *value, struct tdm_call_state *record_out);

#endif
