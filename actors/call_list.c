/* call_list.c - the unfinished calls of this process, as records for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A call appears in exactly one process: in the caller until it is sent, in the callee afterwards.
 * So the daemon gets each call once when it asks all processes of the node. The states are ACTOR,
 * ARGUMENTS, PAUSING and, behind 100,000 others, QUEUED for calls that have not been sent,
 * ARGUMENTS, QUEUED and RUNNING for calls that have been received.
 *
 * The module keeps no data. Its functions hold the loop's lock while they read the channels of
 * actors/client and the calls of actors/server. The records are shown by "tandem list calls" and by
 * tdm_state_calls(). */

#include "actors/call_list.h"

#include "actors/client/actor_channel.h"
#include "actors/client/call_arguments.h"
#include "actors/common/call_record.h"
#include "actors/common/state_record.h"
#include "actors/server/received_call.h"
#include "runtime/clock.h"

#include <string.h>

/* State of one list that is being written. */
struct listing {
    const tdm_runtime *runtime;         /* The runtime of this process, borrowed. */
    struct tdm__state_records *records; /* Destination of the records, borrowed. */
    /* Time of the list on CLOCK_MONOTONIC, in milliseconds; ages are measured from it. */
    int64_t now_ms;
};

/* Appends one call record, or counts it as left out if the reply is full. */
static void call_list_add(struct listing *listing, const struct tdm_call_state *record)
{
    tdm_writer *writer = tdm__state_records_next(listing->records);

    if (writer != NULL) {
        tdm__call_record_write(writer, record);
    }
}

/* ---- calls that have not been sent --------------------------------------------------------- */

/* Returns why a call has not been sent: it pauses before a retry, too many calls before it have no
 * reply, or its arguments or its actor are not ready. */
static const char *pending_call_state(const struct tdm__pending_call *pending_call)
{
    if (pending_call->retry_paused) {
        return "PAUSING";
    }
    if (pending_call->channel->in_flight_is_full) {
        return "QUEUED";
    }
    return pending_call->channel->state == TDM__CHANNEL_OPEN ? "ARGUMENTS" : "ACTOR";
}

/* Adds a record for each call of `calls`, all of which this process has made and not sent. */
static void add_pending_call(struct listing *listing, const struct tdm__pending_calls *calls)
{
    const tdm_runtime *runtime = listing->runtime;
    const struct tdm__pending_call *pending_call;
    char caller[TDM__ID_TEXT_BYTES];

    (void)tdm__id_text(&runtime->self.id, caller);
    TAILQ_FOREACH(pending_call, calls, entry)
    {
        const struct tdm_actor_info *info = &pending_call->channel->info;

        call_list_add(listing, &(struct tdm_call_state){.caller = caller,
                                                        .caller_name = runtime->self.name,
                                                        .caller_pid = runtime->self.pid,
                                                        .actor = info->id,
                                                        .class_name = info->class_name,
                                                        .actor_name = info->name,
                                                        .method = pending_call->method,
                                                        .state = pending_call_state(pending_call),
                                                        .age_ms = listing->now_ms -
                                                                  pending_call->created_ms});
    }
}

/* ---- calls that have been received --------------------------------------------------------- */

/* Returns the state of a call that this process's actor has received. */
static const char *received_call_state(const tdm_call *call)
{
    if (!tdm__call_is_queued(call)) {
        return "RUNNING";
    }
    return call->start_holds > 0 ? "ARGUMENTS" : "QUEUED";
}

/* Adds a record for one call that this process's actor has received. */
static void add_received_call(struct listing *listing, const tdm_call *call)
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
                                                    .state = received_call_state(call),
                                                    .age_ms = listing->now_ms - call->arrived_ms});
}

/* Adds a record for each received call whose reply has not been sent. */
static void add_received_calls(struct listing *listing, const struct tdm__calls *calls)
{
    const tdm_call *call;

    TAILQ_FOREACH(call, calls, all_link)
    {
        if (!call->is_replied) {
            add_received_call(listing, call);
        }
    }
}

/* ---- the whole list ---------------------------------------------------------------------- */

void tdm__call_list_write(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__state_records *records)
{
    struct listing listing = {.runtime = runtime, .records = records, .now_ms = tdm__clock_ms()};
    TDM__LOCK(runtime);

    for (const struct tdm__actor_channel *channel = runtime->client->actor_channels;
         channel != NULL; channel = channel->next) {
        add_pending_call(&listing, &channel->retry_paused);
        add_pending_call(&listing, &channel->waiting);
    }
    if (executor != NULL) {
        add_received_calls(&listing, tdm__executor_calls(executor));
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
