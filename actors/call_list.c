/* call_list.c - the calls of a process that have no result yet, as rows for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/call_list.h"

#include "actors/client/actor_channel.h"
#include "actors/client/call_arguments.h"
#include "actors/common/state_record.h"
#include "actors/server/call.h"
#include "runtime/clock.h"

#include <string.h>

/* ---- one row ---------------------------------------------------------------------------- */

static void write_row(tdm_writer *writer, const struct tdm_call_state *record)
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

/* Rows on their way. */
struct listing {
    const tdm_runtime *runtime;
    struct tdm__state_records *records;
    int64_t now_ms;
};

static void call_list_add(struct listing *listing, const struct tdm_call_state *record)
{
    tdm_writer *writer = tdm__state_records_next(listing->records);

    if (writer != NULL) {
        write_row(writer, record);
    }
}

/* ---- those that have not left ----------------------------------------------------------- */

static const char *why_here(const struct tdm__pending_call *pending_call)
{
    if (pending_call->retry_paused) {
        return "PAUSING";
    }
    return pending_call->channel->state == TDM__CHANNEL_OPEN ? "ARGUMENTS" : "ACTOR";
}

static void add_pending_call(struct listing *listing, const struct tdm__pending_calls *calls)
{
    const tdm_runtime *runtime = listing->runtime;
    const struct tdm__pending_call *pending_call;
    char caller[TDM__ID_TEXT_BYTES];

    (void)tdm__id_text(&runtime->self.id, caller);
    TAILQ_FOREACH(pending_call, calls, entry)
    {
        const struct tdm_actor_info *info = &pending_call->channel->info;

        call_list_add(listing,
                      &(struct tdm_call_state){.caller = caller,
                                               .caller_name = runtime->self.name,
                                               .caller_pid = runtime->self.pid,
                                               .actor = info->id,
                                               .class_name = info->class_name,
                                               .actor_name = info->name,
                                               .method = pending_call->method,
                                               .state = why_here(pending_call),
                                               .age_ms = listing->now_ms - pending_call->made_ms});
    }
}

/* ---- those that have come --------------------------------------------------------------- */

static const char *state_of(const tdm_call *call)
{
    if (!tdm__call_is_queued(call)) {
        return "RUNNING";
    }
    return call->start_holds > 0 ? "ARGUMENTS" : "QUEUED";
}

static void add_arrived(struct listing *listing, const tdm_call *call)
{
    const tdm_runtime *runtime = listing->runtime;
    const struct tdm__peer_identity *peer = tdm__incoming_peer(call->incoming);
    char caller[TDM__ID_TEXT_BYTES];

    call_list_add(listing, &(struct tdm_call_state){.caller = tdm__id_text(&peer->id, caller),
                                                    .caller_name = peer->name,
                                                    .caller_pid = peer->pid,
                                                    .actor = runtime->actor_id,
                                                    .class_name = runtime->class_name,
                                                    .actor_name = runtime->actor_name,
                                                    .method = tdm__incoming_method(call->incoming),
                                                    .state = state_of(call),
                                                    .age_ms = listing->now_ms - call->arrived_ms});
}

static void add_all_arrived(struct listing *listing, const struct tdm__calls *calls)
{
    const tdm_call *call;

    TAILQ_FOREACH(call, calls, all_link)
    {
        if (!call->is_replied) {
            add_arrived(listing, call);
        }
    }
}

/* ---- all of them ------------------------------------------------------------------------ */

void tdm__call_list_write(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__state_records *records)
{
    struct listing listing = {.runtime = runtime, .records = records, .now_ms = tdm__clock_ms()};
    TDM__LOCK(runtime);

    for (const struct tdm__actor_channel *channel = runtime->actor_channels; channel != NULL;
         channel = channel->next) {
        add_pending_call(&listing, &channel->retry_paused);
        add_pending_call(&listing, &channel->waiting);
    }
    if (executor != NULL) {
        add_all_arrived(&listing, tdm__executor_calls(executor));
    }
}

bool tdm__call_list_serve(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__incoming_call *incoming)
{
    struct tdm__state_records records;

    if (strcmp(tdm__incoming_method(incoming), "call.list") != 0) {
        return false;
    }
    if (tdm__state_records_reply_begin(&records, TDM__CALL_RECORDS_MAX, "calls", incoming)) {
        tdm__call_list_write(runtime, executor, &records);
        tdm__state_records_reply_end(&records, incoming);
    }
    return true;
}
