/* call_list.h - the unfinished calls of this process, as records for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CALL_LIST_H
#define TDM_ACTORS_CALL_LIST_H

#include "actors/common/state_record.h"
#include "actors/process/runtime.h"
#include "actors/server/executor.h"

/* Most call records in one reply to "call.list". That method takes no arguments, replies with
 * ([record ...], number of records left out), and is called by the daemon only. */
enum { TDM__CALL_RECORDS_MAX = 10000 };
/* Replies to `incoming` and returns true if its method is "call.list"; else returns false and
 * leaves `incoming` alone. `executor` is NULL in a driver, which executes no calls. */
bool tdm__call_list_serve(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__incoming_call *incoming);

/* Writes one record for each unfinished call: first the outgoing calls that wait in this process
 * for their actor or their arguments, then the calls that this process's actor has received. Both
 * lists are in order of creation. `executor` is NULL in a driver. */
void tdm__call_list_write(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__state_records *records);

#endif
