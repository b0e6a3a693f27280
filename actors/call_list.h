/* call_list.h - the calls of a process that have no result yet, as rows for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CALL_LIST_H
#define TDM_ACTORS_CALL_LIST_H

#include "actors/common/state_record.h"
#include "actors/runtime.h"
#include "actors/server/executor.h"

#include <tandem/state.h>

/* "call.list" (): ([row …], rows left out beyond these).  Asked by the daemon alone. */
enum { TDM__CALL_RECORDS_MAX = 10000 };
/* False for any other call.  `executor` is NULL in a process that is no actor. */
bool tdm__call_list_serve(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__incoming_call *incoming);

/* A call is told of by the process that has it: those that have not left here, then those that
 * have come here, each in the order made. */
void tdm__call_list_write(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__state_records *records);

/* A row is a map; it borrows the texts of `value`, and what is missing is "" or 0. */
void tdm__call_record_read(const tdm_value *value, struct tdm_call_state *record_out);

#endif
