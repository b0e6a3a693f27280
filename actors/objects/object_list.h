/* object_list.h - the objects of a process as rows, for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECT_LIST_H
#define TDM_ACTORS_OBJECTS_OBJECT_LIST_H

#include "actors/common/state_record.h"
#include "actors/runtime.h"

#include <tandem/state.h>

/* "object.list" (): ([row …], rows left out beyond these).  Asked by the daemon alone. */
enum { TDM__OBJECT_RECORDS_MAX = 10000 };
void tdm__object_list_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

/* What this process owns: references that others know, then large values that are no such
 * reference's. */
void tdm__object_list_write(tdm_runtime *runtime, struct tdm__state_records *records);

/* A row is a map; read, it borrows the texts of `value`, and what is missing is "" or 0. */
void tdm__object_record_write(tdm_writer *writer, const struct tdm_object_state *record);
void tdm__object_record_read(const tdm_value *value, struct tdm_object_state *record_out);

#endif
