/* object_list.h - the objects of a process as state records, for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_OBJECT_LIST_H
#define TDM_ACTORS_COMMON_OBJECT_LIST_H

#include "actors/common/state_record.h"
#include "actors/process/runtime.h"

#include <tandem/state.h>

/* Most records in one reply to "object.list" (): ([record ...], number of records beyond these). */
enum { TDM__OBJECT_RECORDS_MAX = 10000 };
/* Replies to `incoming` and returns true if its method is "object.list", which only the daemon may
 * call; else returns false and leaves `incoming` alone. */
bool tdm__object_list_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

/* Writes one record for each object that this process owns: references that it has passed on,
 * then large values without such a reference. */
void tdm__object_list_write(tdm_runtime *runtime, struct tdm__state_records *records);

/* Writes one object's record as a map. */
void tdm__object_record_write(tdm_writer *writer, const struct tdm_object_state *record);
/* Reads one object's record. The texts are borrowed from `value`; a missing text is "" and a
 * missing number 0. */
void tdm__object_record_read(const tdm_value *value, struct tdm_object_state *record_out);

#endif
