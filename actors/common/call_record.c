/* call_record.c - one unfinished call as a state record, as lists of calls contain it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/call_record.h"

#include "actors/common/state_record.h"

void tdm__call_record_write(tdm_writer *writer, const struct tdm_call_state *record)
{
    tdm_write_map(writer, 9);
    tdm__state_record_write_text(writer, "caller", record->caller);
    tdm__state_record_write_text(writer, "caller_name", record->caller_name);
    tdm__state_record_write_int(writer, "caller_pid", record->caller_pid);
    tdm__state_record_write_text(writer, "actor", record->actor);
    tdm__state_record_write_text(writer, "class_name", record->class_name);
    tdm__state_record_write_text(writer, "actor_name", record->actor_name);
    tdm__state_record_write_text(writer, "method", record->method);
    tdm__state_record_write_text(writer, "state", record->state);
    tdm__state_record_write_int(writer, "age_ms", record->age_ms);
}

void tdm__call_record_read(const tdm_value *value, struct tdm_call_state *record_out)
{
    *record_out =
        (struct tdm_call_state){.caller = tdm__state_record_text(value, "caller"),
                                .caller_name = tdm__state_record_text(value, "caller_name"),
                                .caller_pid = tdm__state_record_int(value, "caller_pid"),
                                .actor = tdm__state_record_text(value, "actor"),
                                .class_name = tdm__state_record_text(value, "class_name"),
                                .actor_name = tdm__state_record_text(value, "actor_name"),
                                .method = tdm__state_record_text(value, "method"),
                                .state = tdm__state_record_text(value, "state"),
                                .age_ms = tdm__state_record_int(value, "age_ms")};
}
