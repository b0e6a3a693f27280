/* actor_actions.c - hands events to an actor's lifecycle and carries out its actions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_actions.h"

#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_facts.h"
#include "actors/daemon/actor_names.h"
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_remote.h"
#include "actors/daemon/actor_start.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/ended_actors.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <string.h>

/* Carries out ACTOR_DO_EXPLAIN_WAIT: records what the actor waits for, for queries and time-outs.
 */
static void action_explain_wait(struct actor_entry *entry, const char *what_for)
{
    (void)snprintf(entry->waits_for, sizeof(entry->waits_for), "%s%s",
                   what_for[0] == '\0' ? "" : "it waits: ", what_for);
}

/* Carries out ACTOR_DO_END: remembers the ended actor for lists, notifies the owner's node, and
 * removes the actor from the table. */
static void action_end(struct actor_entry *entry, tdm_status status, const char *text)
{
    if (status != TDM_E_ACTOR_RESTARTING) { /* Its creator's node places the actor again. */
        tdm__ended_actors_add(entry->node, entry, text);
    }
    tdm__actor_entry_notify_owner(entry, status, text);
    tdm__actor_entry_remove(entry, status, text);
}

/* Carries out ACTOR_DO_REFUSE: removes an actor that cannot be created from the table. */
static void action_refuse(struct actor_entry *entry, const struct actor_action *action)
{
    char text[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(text, sizeof(text), "actor %s cannot be made: %s", entry->label, action->text);
    action_end(entry, action->status, text);
}

/* Carries out ACTOR_DO_ANSWER_WAITERS: replies to the calls that wait for the actor's start with
 * `reply` of the other daemon or, if that is NULL, with the actor's description. */
static void action_reply_waiters(struct actor_entry *entry, const struct tdm__rpc_reply *reply)
{
    if (reply != NULL) {
        tdm__actor_entry_pass_reply(entry, reply);
    } else {
        tdm__actor_entry_answer_waiters(entry);
    }
}

/* Carries out ACTOR_DO_KILL_WORKER: kills the worker and logs the reason, if there is one. */
static void action_kill_worker(struct actor_entry *entry, const char *why)
{
    if (why != NULL && entry->worker != NULL) {
        tdm__log(TDM__WARN, "actors", "actor %s, pid %d: %s", entry->label, (int)entry->worker->pid,
                 why);
    }
    tdm__actor_entry_kill_now(entry);
}

/* True for the actions that end the actor's worker; the text of such an action explains the
 * worker's death. */
static bool action_ends_worker(enum actor_action_kind kind)
{
    return kind == ACTOR_DO_DRAIN_WORKER || kind == ACTOR_DO_STOP_WORKER ||
           kind == ACTOR_DO_EXPECT_EXIT || kind == ACTOR_DO_KILL_WORKER;
}

/* Carries out one action of the actor's state machine; `reply` is that of the event, or NULL. */
static void action_carry_out(struct actor_entry *entry, const struct actor_action *action,
                             const struct tdm__rpc_reply *reply)
{
    if (action_ends_worker(action->kind) && action->text != NULL) {
        (void)snprintf(entry->failure, sizeof(entry->failure), "%s", action->text);
    }
    switch (action->kind) {
    case ACTOR_DO_RESERVE:
        tdm__actor_entry_reserve(entry);
        break;
    case ACTOR_DO_RELEASE:
        tdm__actor_entry_release_placement(entry, action->reservation);
        break;
    case ACTOR_DO_FIND_HOLDER:
        tdm__actor_entry_reply_name_holder(entry);
        break;
    case ACTOR_DO_EXPLAIN_WAIT:
        action_explain_wait(entry, action->text);
        break;
    case ACTOR_DO_START_WORKER:
        tdm__actor_entry_start(entry);
        break;
    case ACTOR_DO_RESTART_LATER:
        tdm__actor_entry_start_later(entry, action->delay_ms);
        break;
    case ACTOR_DO_ANSWER_WAITERS:
        action_reply_waiters(entry, reply);
        break;
    case ACTOR_DO_DRAIN_WORKER:
    case ACTOR_DO_STOP_WORKER:
        tdm__actor_entry_ask_to_leave(entry, action->kind == ACTOR_DO_DRAIN_WORKER,
                                      action->delay_ms);
        break;
    case ACTOR_DO_EXPECT_EXIT:
        tdm__actor_entry_expect_exit(entry, action->delay_ms);
        break;
    case ACTOR_DO_KILL_WORKER:
        action_kill_worker(entry, action->text);
        break;
    case ACTOR_DO_START_ELSEWHERE:
        tdm__actor_entry_start_remote(entry);
        break;
    case ACTOR_DO_END_ELSEWHERE:
    case ACTOR_DO_STOP_ELSEWHERE:
        tdm__actor_entry_end_remote(entry, action->kind == ACTOR_DO_END_ELSEWHERE);
        break;
    case ACTOR_DO_HURRY_ELSEWHERE:
        tdm__actor_entry_hurry_remote(entry);
        break;
    case ACTOR_DO_RELEASE_ELSEWHERE:
        tdm__actor_entry_release_on_other(entry);
        break;
    case ACTOR_DO_REWRITE_RECORD:
        tdm__actor_entry_rewrite(entry);
        break;
    case ACTOR_DO_REFUSE:
        action_refuse(entry, action);
        break;
    case ACTOR_DO_END:
        action_end(entry, action->status, action->text);
        break;
    }
}

/* Only the last action of an event may hand another event to the same entry, or remove the entry.
 */
void tdm__actor_entry_handle(struct actor_entry *entry, struct actor_event event)
{
    struct actor_actions actions;

    event.facts = tdm__actor_entry_facts(entry);
    tdm__actor_lifecycle_step(&entry->lifecycle, &event, &actions);
    tdm__actor_entry_answer_name_waiters(entry);
    for (uint32_t i = 0; i < actions.count; i++) {
        action_carry_out(entry, &actions.entries[i], event.reply);
    }
}
