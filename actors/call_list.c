/* call_list.c - the calls of a process that have no result yet, as rows for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/call_list.h"

#include "actors/arguments.h"
#include "actors/call.h"
#include "actors/link.h"
#include "actors/row.h"
#include "runtime/clock.h"

#include <string.h>

/* ---- one row ---------------------------------------------------------------------------- */

static void write_row(tdm_writer *writer, const struct tdm_call_state *row)
{
    tdm_write_map(writer, 9);
    tdm__row_write_text(writer, "caller", row->caller);
    tdm__row_write_text(writer, "caller_name", row->caller_name);
    tdm__row_write_number(writer, "caller_pid", row->caller_pid);
    tdm__row_write_text(writer, "actor", row->actor);
    tdm__row_write_text(writer, "class_name", row->class_name);
    tdm__row_write_text(writer, "actor_name", row->actor_name);
    tdm__row_write_text(writer, "method", row->method);
    tdm__row_write_text(writer, "state", row->state);
    tdm__row_write_number(writer, "age_ms", row->age_ms);
}

void tdm__call_row_read(const tdm_value *value, struct tdm_call_state *row_out)
{
    *row_out = (struct tdm_call_state){.caller = tdm__row_text(value, "caller"),
                                       .caller_name = tdm__row_text(value, "caller_name"),
                                       .caller_pid = tdm__row_number(value, "caller_pid"),
                                       .actor = tdm__row_text(value, "actor"),
                                       .class_name = tdm__row_text(value, "class_name"),
                                       .actor_name = tdm__row_text(value, "actor_name"),
                                       .method = tdm__row_text(value, "method"),
                                       .state = tdm__row_text(value, "state"),
                                       .age_ms = tdm__row_number(value, "age_ms")};
}

/* Rows on their way. */
struct listing {
    const tdm_runtime *runtime;
    struct tdm__rows *rows;
    int64_t now_ms;
};

static void add(struct listing *listing, const struct tdm_call_state *row)
{
    tdm_writer *writer = tdm__rows_next(listing->rows);

    if (writer != NULL) {
        write_row(writer, row);
    }
}

/* ---- those that have not left ----------------------------------------------------------- */

static const char *why_here(const struct tdm__outgoing *outgoing)
{
    if (outgoing->pausing) {
        return "PAUSING";
    }
    return outgoing->link->state == TDM__LINK_OPEN ? "ARGUMENTS" : "ACTOR";
}

static void add_outgoing(struct listing *listing, const struct tdm__outgoings *calls)
{
    const tdm_runtime *runtime = listing->runtime;
    const struct tdm__outgoing *outgoing;
    char caller[TDM__ID_TEXT_BYTES];

    (void)tdm__id_text(&runtime->self.id, caller);
    TAILQ_FOREACH(outgoing, calls, entry)
    {
        const struct tdm_actor_info *info = &outgoing->link->info;

        add(listing, &(struct tdm_call_state){.caller = caller,
                                              .caller_name = runtime->self.name,
                                              .caller_pid = runtime->self.pid,
                                              .actor = info->id,
                                              .class_name = info->class_name,
                                              .actor_name = info->name,
                                              .method = outgoing->method,
                                              .state = why_here(outgoing),
                                              .age_ms = listing->now_ms - outgoing->made_ms});
    }
}

/* ---- those that have come --------------------------------------------------------------- */

static const char *state_of(const tdm_call *call)
{
    if (!tdm__call_is_in_line(call)) {
        return "RUNNING";
    }
    return call->holds_count > 0 ? "ARGUMENTS" : "QUEUED";
}

static void add_arrived(struct listing *listing, const tdm_call *call)
{
    const tdm_runtime *runtime = listing->runtime;
    const struct tdm__identity *peer = tdm__incoming_peer(call->incoming);
    char caller[TDM__ID_TEXT_BYTES];

    add(listing, &(struct tdm_call_state){.caller = tdm__id_text(&peer->id, caller),
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
        if (!call->answered) {
            add_arrived(listing, call);
        }
    }
}

/* ---- all of them ------------------------------------------------------------------------ */

void tdm__call_list_write(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__rows *rows)
{
    struct listing listing = {.runtime = runtime, .rows = rows, .now_ms = tdm__clock_ms()};
    TDM__LOCK(runtime);

    for (const struct tdm__link *link = runtime->links; link != NULL; link = link->next) {
        add_outgoing(&listing, &link->pausing);
        add_outgoing(&listing, &link->waiting);
    }
    if (executor != NULL) {
        add_all_arrived(&listing, tdm__executor_calls(executor));
    }
}

bool tdm__call_list_serve(tdm_runtime *runtime, const struct tdm__executor *executor,
                          struct tdm__incoming *incoming)
{
    struct tdm__rows rows;

    if (strcmp(tdm__incoming_method(incoming), "call.list") != 0) {
        return false;
    }
    if (tdm__rows_begin_answer(&rows, TDM__CALL_ROWS_MAX, "calls", incoming)) {
        tdm__call_list_write(runtime, executor, &rows);
        tdm__rows_answer(&rows, incoming);
    }
    return true;
}
