/* actor_end.c - the end of an actor's process: wanted or not, and what comes after it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "actors/node/death.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUICK_MS = 10000, BACK_OFF_MS = 50, BACK_OFF_MS_MAX = 10000 };

/* ---- the timer of an entry: one thing at a time is due ---------------------------------- */

static void on_timer(void *arg)
{
    struct actor_entry *entry = arg;

    if (entry->state == ACTOR_RESTARTING) {
        tdm__actor_entry_start(entry);
    } else if (entry->worker != NULL) {
        tdm__log(TDM__INFO, "actors", "actor %s does not leave: killing pid %d", entry->label,
                 (int)entry->worker->pid);
        tdm__worker_kill(entry->worker);
    }
}

static tdm_status set_timer(struct actor_entry *entry, int64_t delay_ms)
{
    if (entry->timer == NULL) {
        TDM_TRY(tdm__timer_create(entry->node->loop, on_timer, entry, &entry->timer));
    }
    return tdm__timer_set(entry->timer, tdm__deadline_in(delay_ms));
}

void tdm__actor_entry_leaves_soon(struct actor_entry *entry, int64_t patience_ms)
{
    tdm__worker_may_leave(entry->worker);
    if (set_timer(entry, patience_ms) != TDM_OK) {
        tdm__worker_kill(entry->worker);
    }
}

/* ---- its process has ended -------------------------------------------------------------- */

bool tdm__node_actor_ends_with(const struct tdm__actor_spec *spec, const void *creator)
{
    return (!spec->detached || spec->awaits_arguments) &&
           tdm__id_equal(&spec->creator, creator);
}

/* A crash soon after the start may be one of many: the more of them, the longer it waits. */
static void restart(struct actor_entry *entry)
{
    bool was_quick = tdm__clock_ms() - entry->started_ms < QUICK_MS;
    int64_t delay_ms = 0;

    entry->quick_ends = was_quick ? entry->quick_ends + 1 : 0;
    if (entry->quick_ends > 1) {
        delay_ms =
            entry->quick_ends > 10 ? BACK_OFF_MS_MAX : BACK_OFF_MS << (entry->quick_ends - 2);
    }
    delay_ms = delay_ms > BACK_OFF_MS_MAX ? BACK_OFF_MS_MAX : delay_ms;
    entry->state = ACTOR_RESTARTING;
    entry->incarnation++;
    entry->pid = 0;
    entry->unix_address[0] = '\0';
    if (entry->place_is_lost) {
        entry->place_is_lost = false;
        tdm__actor_entry_give_place_back(entry);
        entry->state = ACTOR_WAITING;
    } else if (set_timer(entry, delay_ms) != TDM_OK) {
        tdm__actor_entry_start(entry);
    }
}

/* Whatever the process held returns, and what it made or left behind ends. */
static void clear_away(struct actor_entry *entry, int64_t pid)
{
    struct tdm__node *node = entry->node;
    struct tdm__identity gone = {
        .kind = TDM__PEER_WORKER, .id = entry->spec->id, .node = node->record.id, .pid = pid};

    (void)snprintf(gone.name, sizeof(gone.name), "%.63s", entry->label);
    tdm__node_process_gone(node, &gone.id);
    tdm__services_peer_gone(node->services, &gone);
    tdm__node_actors_end(node, tdm__node_actor_ends_with, &gone.id, true, NULL, NULL);
    tdm__node_groups_creator_gone(node, &gone.id);
    if (!node->stopping) {
        tdm__workers_sweep_soon(node->workers);
    }
}

static bool was_own_will(int wait_status)
{
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker,
                                   int wait_status)
{
    struct actor_entry *entry = arg;
    struct tdm__node *node = entry->node;
    const struct tdm__death death = {.label = entry->label,
                                     .node_name = node->record.name,
                                     .pid = worker->pid,
                                     .wait_status = wait_status,
                                     .failure = entry->failure,
                                     .was_wanted =
                                         entry->state == ACTOR_ENDING || entry->killed_here,
                                     .oom = &node->oom,
                                     .output = worker->output};
    bool restarts = !node->stopping && entry->state != ACTOR_ENDING &&
                    !entry->construction_failed && !was_own_will(wait_status) &&
                    tdm__actor_entry_may_restart(entry);
    char text[TDM__DEATH_BYTES];

    tdm__death_write(&death, text);
    tdm__log(entry->state == ACTOR_ENDING ? TDM__DEBUG : TDM__INFO, "actors", "%s%s", text,
             restarts ? "; it is restarted" : "");
    entry->worker = NULL;
    tdm__timer_destroy(entry->timer);
    entry->timer = NULL;
    clear_away(entry, worker->pid);
    if (restarts) {
        restart(entry);
        return;
    }
    tdm__actor_entry_give_place_back(entry);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, text);
}

/* ---- wanted ends ------------------------------------------------------------------------ */

/* With `drain` it comes to the calls that it has been sent, else they fail. */
static void ask_to_leave(struct actor_entry *entry, bool drain, int64_t patience_ms)
{
    struct tdm__request request = {.method = "worker.exit",
                                   .packed = {drain ? "\x91\xc3" : "\x91\xc2", 2},
                                   .deadline_ms = tdm__deadline_in(patience_ms)};

    entry->state = ACTOR_ENDING;
    tdm__actor_entry_leaves_soon(entry, patience_ms);
    if (entry->worker->conn == NULL ||
        tdm__conn_call(entry->worker->conn, &request, NULL, NULL, NULL) != TDM_OK) {
        tdm__worker_kill(entry->worker);
    }
}

void tdm__actor_entry_end(struct actor_entry *entry, bool at_once)
{
    switch (entry->state) {
    case ACTOR_PLACING:
        entry->unwanted = true;
        break;
    case ACTOR_WAITING:
        tdm__actor_entry_give_any_place_back(entry);
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "it was ended before it had a place");
        break;
    case ACTOR_RESTARTING:
        tdm__actor_entry_give_place_back(entry);
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "it was ended while it was restarted");
        break;
    case ACTOR_REMOTE:
        tdm__actor_entry_end_on_other(entry);
        break;
    case ACTOR_STARTING:
    case ACTOR_ALIVE:
    case ACTOR_ENDING:
        if (at_once) {
            entry->state = ACTOR_ENDING;
            tdm__worker_kill(entry->worker);
        } else if (entry->state != ACTOR_ENDING) {
            ask_to_leave(entry, false, LEAVE_MS);
        }
        break;
    }
}

void tdm__actor_entry_kill_process(struct actor_entry *entry)
{
    if (entry->state == ACTOR_STARTING || entry->state == ACTOR_ALIVE) {
        entry->killed_here = true;
        tdm__worker_kill(entry->worker);
    }
}

void tdm__actor_entry_release(struct actor_entry *entry)
{
    entry->released = true;
    if (entry->state == ACTOR_WAITING) {
        tdm__actor_entry_wait_for_place(entry, "");
    } else if (entry->state == ACTOR_ALIVE) {
        (void)snprintf(entry->failure, sizeof(entry->failure),
                       "ended in good order: its last handle is gone");
        ask_to_leave(entry, true, DRAIN_MS);
    }
}

void tdm__actor_entry_exits(struct actor_entry *entry)
{
    if (entry->state == ACTOR_STARTING || entry->state == ACTOR_ALIVE) {
        entry->state = ACTOR_ENDING;
        (void)snprintf(entry->failure, sizeof(entry->failure),
                       "ended in good order, of its own will");
        tdm__worker_may_leave(entry->worker);
    }
}

void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg)
{
    struct actor_entry *next;

    if (fn != NULL) {
        struct ender *ender = calloc(1, sizeof(*ender));

        TDM_ASSERT(ender != NULL);
        *ender = (struct ender){
            .next = node->actors->enders, .matches = matches, .fn = fn, .arg = arg};
        if (key != NULL) {
            ender->key = *(const struct tdm__id *)key;
        }
        node->actors->enders = ender;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (matches(entry->spec, key)) {
            tdm__actor_entry_end(entry, at_once);
        }
    }
    tdm__node_actors_tell_enders(node);
}
