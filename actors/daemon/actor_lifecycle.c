/* actor_lifecycle.c - the states of an actor in a daemon's table, as a pure state machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_lifecycle.h"

#include "runtime/assert.h"

#include <stddef.h>

/* A daemon has one entry for each actor that a process of its node created, wherever the actor
 * runs.  It also has one for each guest: an actor that another daemon started on its node. This
 * machine decides what happens to an entry: (state, event) to (state, actions).  It has no
 * clock, does no I/O and allocates nothing.  The files actor_*.c translate what happens into
 * events, and carry out the actions.  All of it runs in the thread of the daemon's loop.
 *
 * The life of an actor on its creator's node:
 *
 *   NEW -> PLACING <-> WAITING          until the store reserves resources and the name
 *   PLACING -> STARTING -> ALIVE        on this node
 *   STARTING, ALIVE -> RESTARTING       when the worker died and max_restarts allows another
 *   STARTING, ALIVE -> ENDING -> ENDED  when the actor is not needed any more
 *   PLACING -> REMOTE_STARTING -> REMOTE -> ENDED_ELSEWHERE   on another node
 *   REMOTE -> PLACING                   when that node lost its lease
 *   REMOTE -> WAITING -> PLACING        when that node says that its lease has ended
 *
 * Invariants, which tests/actors/actor_lifecycle_test.c checks in every reachable state:
 *
 * - An actor never has two workers, and a worker only exists while its resources are reserved.
 * - A reservation is released exactly once, and before the end is reported.  The name is part
 *   of it, so a name is free, or about to be, when the end of its actor is known.
 * - The end is reported once, and nothing happens to the entry afterwards.
 * - An actor that was killed, or that must end, never gets another worker.
 * - The number of restarts never exceeds max_restarts.
 * - In each state something is pending that leads on, and a kill leads to the end.
 *
 * docs/protocols/actor_lifecycle.md has the table of states and events. */

enum {
    /* Milliseconds; a worker that died sooner after its start counts as a quick end. */
    QUICK_END_MS = 10000,
    /* Delay of the restart after two quick ends in a row, in milliseconds. */
    BACKOFF_MS = 50,
    BACKOFF_MS_MAX = 10000 /* Longest delay of a restart, in milliseconds. */
};

/* ---- properties of a state -------------------------------------------------------------- */

const char *tdm__actor_state_text(enum actor_state state)
{
    switch (state) {
    case ACTOR_NEW:
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
        return "placing";
    case ACTOR_WAITING:
        return "waiting";
    case ACTOR_STARTING:
    case ACTOR_CONSTRUCTOR_FAILED:
        return "starting";
    case ACTOR_ALIVE:
        return "alive";
    case ACTOR_RESTARTING:
        return "restarting";
    case ACTOR_ENDING:
    case ACTOR_ENDED:
        return "ending";
    case ACTOR_REMOTE_STARTING:
    case ACTOR_REMOTE_UNSURE:
    case ACTOR_REMOTE:
    case ACTOR_REMOTE_REFUSED:
    case ACTOR_ENDED_ELSEWHERE:
        break;
    }
    return "remote";
}

bool tdm__actor_state_is_remote(enum actor_state state)
{
    return state == ACTOR_REMOTE_STARTING || state == ACTOR_REMOTE_UNSURE ||
           state == ACTOR_REMOTE || state == ACTOR_REMOTE_REFUSED || state == ACTOR_ENDED_ELSEWHERE;
}

/* True if the daemon of the actor's node has been asked to end the actor, and has not replied. */
static bool end_is_requested(const struct actor_lifecycle *lifecycle)
{
    return lifecycle->demand >= ACTOR_STOP_REQUESTED;
}

/* True if the actor has a worker that has not been told to exit. */
static bool has_active_worker(const struct actor_lifecycle *lifecycle)
{
    return lifecycle->state == ACTOR_STARTING || lifecycle->state == ACTOR_CONSTRUCTOR_FAILED ||
           lifecycle->state == ACTOR_ALIVE;
}

/* True if the actor has a worker, also one that has been told to exit. */
static bool has_worker(const struct actor_lifecycle *lifecycle)
{
    return has_active_worker(lifecycle) || lifecycle->state == ACTOR_ENDING;
}

bool tdm__actor_lifecycle_holds_resources(const struct actor_lifecycle *lifecycle)
{
    return has_worker(lifecycle) || lifecycle->state == ACTOR_RESTARTING;
}

bool tdm__actor_lifecycle_wants_worker_end(const struct actor_lifecycle *lifecycle)
{
    return lifecycle->state == ACTOR_ENDING || lifecycle->kill != ACTOR_NOT_KILLED;
}

/* True if the actor's max_restarts allows another worker. */
static bool may_restart(const struct actor_lifecycle *lifecycle, const struct actor_facts *facts)
{
    return facts->max_restarts < 0 || lifecycle->incarnation < (uint32_t)facts->max_restarts;
}

bool tdm__actor_lifecycle_restarts(const struct actor_lifecycle *lifecycle,
                                   const struct actor_event *ended)
{
    return (lifecycle->state == ACTOR_STARTING || lifecycle->state == ACTOR_ALIVE) &&
           !ended->exited_normally && !ended->facts.node_is_stopping &&
           may_restart(lifecycle, &ended->facts);
}

bool tdm__actor_lifecycle_outlives_node(const struct actor_lifecycle *lifecycle,
                                        const struct actor_facts *facts)
{
    return tdm__actor_state_is_remote(lifecycle->state) &&
           lifecycle->state != ACTOR_REMOTE_REFUSED && lifecycle->demand < ACTOR_UNWANTED &&
           !facts->node_is_stopping && !facts->has_group &&
           (lifecycle->state == ACTOR_REMOTE_UNSURE || may_restart(lifecycle, facts));
}

/* ---- actions ---------------------------------------------------------------------------- */

/* Appends an action of kind `kind` to the list and returns the action, so that the caller can set
 * its other members. */
static struct actor_action *actions_add(struct actor_actions *actions, enum actor_action_kind kind)
{
    struct actor_action *action = &actions->entries[actions->count++];

    TDM_ASSERT(actions->count <= ACTOR_ACTIONS_MAX);
    *action = (struct actor_action){.kind = kind};
    return action;
}

/* Appends an action on the actor's worker. `text` says why the worker ends; NULL keeps the reason
 * that was given before. */
static void actions_add_for_worker(struct actor_actions *actions, enum actor_action_kind kind,
                                   int64_t delay_ms, const char *text)
{
    struct actor_action *action = actions_add(actions, kind);

    action->delay_ms = delay_ms;
    action->text = text;
}

/* Appends the action that gives the actor's reservation back to the store, if the store may hold
 * one. */
static void release_reservation(struct actor_lifecycle *lifecycle, struct actor_actions *actions)
{
    if (lifecycle->reservation != ACTOR_RESERVES_NOTHING) {
        actions_add(actions, ACTOR_DO_RELEASE)->reservation = lifecycle->reservation;
        lifecycle->reservation = ACTOR_RESERVES_NOTHING;
    }
}

/* Releases what the actor has reserved, and appends the action `kind` that reports the actor's end.
 */
static void lifecycle_end_by(struct actor_lifecycle *lifecycle, struct actor_actions *actions,
                             enum actor_action_kind kind, tdm_status status, const char *text)
{
    struct actor_action *action;

    release_reservation(lifecycle, actions);
    action = actions_add(actions, kind);
    action->status = status;
    action->text = text;
    lifecycle->state =
        tdm__actor_state_is_remote(lifecycle->state) ? ACTOR_ENDED_ELSEWHERE : ACTOR_ENDED;
}

/* Ends the actor and reports `status` and `text` as the cause. */
static void lifecycle_end(struct actor_lifecycle *lifecycle, struct actor_actions *actions,
                          tdm_status status, const char *text)
{
    lifecycle_end_by(lifecycle, actions, ACTOR_DO_END, status, text);
}

/* ---- resources and the name ------------------------------------------------------------- */

/* Lets the actor wait until something changes; `what_for` tells users what it waits for. An
 * actor without handles ends instead. */
static void lifecycle_wait(struct actor_lifecycle *lifecycle, struct actor_actions *actions,
                           const char *what_for)
{
    if (lifecycle->demand == ACTOR_RELEASED) {
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED,
                      "its last handle was gone before it had a place");
        return;
    }
    lifecycle->state = ACTOR_WAITING;
    actions_add(actions, ACTOR_DO_EXPLAIN_WAIT)->text = what_for;
}

/* Asks the store for the actor's resources and name, unless something else has to come first. */
static void lifecycle_reserve(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                              struct actor_actions *actions)
{
    if (event->facts.awaits_creator_arguments) {
        lifecycle_wait(lifecycle, actions,
                       "a reference among its constructor's arguments is not there yet");
    } else if (event->facts.is_releasing) {
        lifecycle_wait(lifecycle, actions, "");
    } else {
        lifecycle->state = ACTOR_PLACING;
        (void)actions_add(actions, ACTOR_DO_RESERVE);
    }
}

/* Appends the action that starts the actor's worker on the reserved resources. */
static void start_worker(struct actor_lifecycle *lifecycle, struct actor_actions *actions)
{
    lifecycle->state = ACTOR_STARTING;
    lifecycle->kill = ACTOR_NOT_KILLED;
    (void)actions_add(actions, ACTOR_DO_START_WORKER);
}

/* Handles ACTOR_ON_CREATE: a process of this node has asked for the actor, which is placed. */
static void on_create(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                      struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_NEW) {
        lifecycle_reserve(lifecycle, event, actions);
    }
}

/* Handles ACTOR_ON_START_HERE: another daemon has reserved resources of this node for the actor,
 * whose worker is started. */
static void on_start_here(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                          struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_NEW) {
        lifecycle->reservation = ACTOR_RESERVES;
        lifecycle->incarnation = event->incarnation;
        start_worker(lifecycle, actions);
    }
}

/* Handles ACTOR_ON_RETRY: resources may have come free, so a waiting actor asks the store again. */
static void on_retry(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                     struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_WAITING && !event->facts.node_is_stopping) {
        lifecycle_reserve(lifecycle, event, actions);
    }
}

/* Handles ACTOR_ON_ARGUMENTS_FAILED: without its constructor's arguments the actor cannot be
 * created. */
static void on_arguments_failed(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_WAITING) {
        lifecycle_end_by(lifecycle, actions, ACTOR_DO_REFUSE, TDM_E_ACTOR_DIED, event->detail);
    }
}

/* Appends the action that asks the daemon of the reserved node to start the actor. */
static void start_elsewhere(struct actor_lifecycle *lifecycle, struct actor_actions *actions)
{
    lifecycle->state = ACTOR_REMOTE_STARTING;
    (void)actions_add(actions, ACTOR_DO_START_ELSEWHERE);
}

/* Handles a successful reservation: the actor starts on the node whose resources are reserved. */
static void on_reserved(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                        struct actor_actions *actions)
{
    if (lifecycle->state != ACTOR_PLACING) {
        return;
    }
    /* The reserving transaction also gave up whatever the store held for the actor before. */
    lifecycle->reservation = ACTOR_RESERVES;
    if (lifecycle->demand == ACTOR_UNWANTED || event->facts.node_is_stopping) {
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED, "it was ended before it was started");
    } else if (event->kind == ACTOR_ON_RESERVED_HERE) {
        start_worker(lifecycle, actions);
    } else {
        start_elsewhere(lifecycle, actions);
    }
}

/* True if a failed reservation may succeed later. The failure "no node can ever hold the actor" is
 * not believed while nodes may not have joined again, nor for an actor that had resources once. */
static bool may_be_reserved_later(const struct actor_lifecycle *lifecycle,
                                  const struct actor_event *event)
{
    return event->status == TDM_E_AGAIN || event->status == TDM_E_STORE ||
           event->status == TDM_E_TIMEOUT ||
           (event->status == TDM_E_NO_RESOURCES &&
            (lifecycle->incarnation > 0 || event->facts.lease_was_lost_recently));
}

/* Handles a failed reservation: the actor waits, the holder of its name is looked up, or the actor
 * cannot be created. */
static void on_not_reserved(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                            struct actor_actions *actions)
{
    bool is_unwanted = lifecycle->demand == ACTOR_UNWANTED;

    if (lifecycle->state != ACTOR_PLACING) {
        return;
    }
    if (event->status == TDM_E_STORE || event->status == TDM_E_TIMEOUT) {
        lifecycle->reservation = ACTOR_RESERVES_UNKNOWN;
    }
    if (may_be_reserved_later(lifecycle, event) && !is_unwanted && !event->facts.node_is_stopping) {
        lifecycle_wait(lifecycle, actions, event->detail);
    } else if (event->status == TDM_E_EXISTS && event->facts.takes_name_holder && !is_unwanted) {
        release_reservation(lifecycle, actions);
        lifecycle->state = ACTOR_FINDING_HOLDER;
        (void)actions_add(actions, ACTOR_DO_FIND_HOLDER);
    } else {
        lifecycle_end_by(lifecycle, actions, ACTOR_DO_REFUSE,
                         is_unwanted ? TDM_E_ACTOR_DIED : event->status,
                         is_unwanted ? "it was ended before it had a place" : event->detail);
    }
}

/* Handles ACTOR_ON_HOLDER_FOUND: the creator got the actor that holds the name, so this actor is
 * not needed. */
static void on_holder_found(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                            struct actor_actions *actions)
{
    (void)event;
    if (lifecycle->state == ACTOR_FINDING_HOLDER) {
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED, "another actor has its name");
        lifecycle->state = ACTOR_ENDED_ELSEWHERE; /* This actor never existed. */
    }
}

/* Handles ACTOR_ON_HOLDER_NOT_FOUND: the actor asks for the free name again, waits while the
 * holder's node cannot be asked and is neither unreachable nor lost (TDM_E_AGAIN), or ends with the
 * error. */
static void on_holder_not_found(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                struct actor_actions *actions)
{
    bool is_unwanted = lifecycle->demand == ACTOR_UNWANTED;

    if (lifecycle->state != ACTOR_FINDING_HOLDER) {
        return;
    }
    if (event->status == TDM_E_NOT_FOUND && !is_unwanted) {
        lifecycle->state = ACTOR_WAITING; /* The name is free, or will be in a moment. */
    } else if (event->status == TDM_E_AGAIN && !is_unwanted && !event->facts.node_is_stopping) {
        lifecycle_wait(lifecycle, actions, event->detail);
    } else {
        lifecycle_end(lifecycle, actions, is_unwanted ? TDM_E_ACTOR_DIED : event->status,
                      event->detail);
    }
}

/* ---- requested ends --------------------------------------------------------------------- */

/* Asks the daemon of the actor's node to end the actor, unless that daemon has been asked or has
 * refused to start the actor. A daemon that was asked for a graceful end is told if the actor must
 * end at once. */
static void end_elsewhere(struct actor_lifecycle *lifecycle, bool at_once,
                          struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_REMOTE_REFUSED) {
        return;
    }
    if (!end_is_requested(lifecycle)) {
        lifecycle->demand = at_once ? ACTOR_END_REQUESTED : ACTOR_STOP_REQUESTED;
        (void)actions_add(actions, at_once ? ACTOR_DO_END_ELSEWHERE : ACTOR_DO_STOP_ELSEWHERE);
    } else if (at_once && lifecycle->demand == ACTOR_STOP_REQUESTED) {
        lifecycle->demand = ACTOR_END_REQUESTED;
        (void)actions_add(actions, ACTOR_DO_HURRY_ELSEWHERE);
    }
}

/* Ends the actor without a restart. `text` says why a worker, if one exists, ends; NULL keeps the
 * reason that was given before. */
static void lifecycle_stop(struct actor_lifecycle *lifecycle, bool at_once, const char *text,
                           struct actor_actions *actions)
{
    switch (lifecycle->state) {
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
        lifecycle->demand = ACTOR_UNWANTED;
        break;
    case ACTOR_WAITING:
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED, "it was ended before it had a place");
        break;
    case ACTOR_RESTARTING:
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED, "it was ended while it was restarted");
        break;
    case ACTOR_STARTING:
    case ACTOR_CONSTRUCTOR_FAILED:
    case ACTOR_ALIVE:
    case ACTOR_ENDING:
        if (at_once) {
            actions_add_for_worker(actions, ACTOR_DO_KILL_WORKER, 0, text);
        } else if (lifecycle->state != ACTOR_ENDING) {
            actions_add_for_worker(actions, ACTOR_DO_STOP_WORKER, LEAVE_MS, text);
        }
        lifecycle->state = ACTOR_ENDING;
        break;
    case ACTOR_REMOTE_STARTING:
    case ACTOR_REMOTE_UNSURE:
    case ACTOR_REMOTE:
    case ACTOR_REMOTE_REFUSED:
        end_elsewhere(lifecycle, at_once, actions);
        break;
    case ACTOR_NEW:
    case ACTOR_ENDED:
    case ACTOR_ENDED_ELSEWHERE:
        break;
    }
}

/* Handles ACTOR_ON_END: the actor ends gracefully, without a restart. */
static void on_end(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                   struct actor_actions *actions)
{
    (void)event;
    lifecycle_stop(lifecycle, false, NULL, actions);
}

/* Handles ACTOR_ON_KILL: the actor ends at once, without a restart. */
static void on_kill(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                    struct actor_actions *actions)
{
    (void)event;
    lifecycle_stop(lifecycle, true, NULL, actions);
}

/* Handles ACTOR_ON_CREATOR_NODE_LOST: a guest ends with its creator's node, unless the guest is
 * detached. */
static void on_creator_node_lost(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                 struct actor_actions *actions)
{
    if (event->facts.is_guest && !event->facts.is_detached &&
        !tdm__actor_state_is_remote(lifecycle->state)) {
        lifecycle_stop(lifecycle, true, NULL, actions);
    }
}

/* Handles ACTOR_ON_DISOWNED: the creator's daemon has given the actor up, so the actor ends. */
static void on_disowned(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                        struct actor_actions *actions)
{
    if (has_active_worker(lifecycle)) {
        lifecycle_stop(lifecycle, true, event->detail, actions);
    }
}

/* Appends the action that lets the worker execute the calls that it was sent, and then exit. */
static void drain_worker(struct actor_lifecycle *lifecycle, struct actor_actions *actions)
{
    lifecycle->state = ACTOR_ENDING;
    actions_add_for_worker(actions, ACTOR_DO_DRAIN_WORKER, DRAIN_MS,
                           "ended normally: its last handle is gone");
}

/* Handles ACTOR_ON_LAST_HANDLE_GONE: the actor ends after the calls that were made, unless it is
 * detached. */
static void on_last_handle_gone(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                struct actor_actions *actions)
{
    if (event->facts.is_detached) {
        return;
    }
    if (lifecycle->demand == ACTOR_WANTED) {
        lifecycle->demand = ACTOR_RELEASED;
    }
    if (lifecycle->state == ACTOR_WAITING) {
        lifecycle_wait(lifecycle, actions, "");
    } else if (lifecycle->state == ACTOR_ALIVE) {
        drain_worker(lifecycle, actions);
    }
}

/* Kills the actor's worker; max_restarts decides whether the actor gets another one. */
static void kill_worker(struct actor_lifecycle *lifecycle, enum actor_kill reason, const char *text,
                        struct actor_actions *actions)
{
    if (has_active_worker(lifecycle)) {
        lifecycle->kill = lifecycle->kill > reason ? lifecycle->kill : reason;
        actions_add_for_worker(actions, ACTOR_DO_KILL_WORKER, 0, text);
    }
}

/* True if the daemon of the creator places a guest again whose worker ended with the lease. */
static bool is_placed_again_by_creator(const struct actor_lifecycle *lifecycle,
                                       const struct actor_facts *facts)
{
    return facts->is_guest && !facts->has_group && may_restart(lifecycle, facts);
}

/* Ends an actor that cannot find other resources itself. The daemon of a guest's creator is told
 * that the lease is the reason, unless the guest was ending before. */
static void stop_without_lease(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                               struct actor_actions *actions)
{
    bool was_ending = !has_active_worker(lifecycle) && lifecycle->state != ACTOR_RESTARTING;

    if (event->facts.is_guest && !was_ending) {
        lifecycle->kill = ACTOR_KILLED_WITHOUT_LEASE;
    }
    if (lifecycle->state == ACTOR_RESTARTING &&
        is_placed_again_by_creator(lifecycle, &event->facts)) {
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_RESTARTING, event->detail);
    } else {
        lifecycle_stop(lifecycle, true, event->detail, actions);
    }
}

/* Handles ACTOR_ON_LEASE_ENDING: kills a worker whose resources or name other nodes may claim, and
 * starts none. An actor that was created here and is in no group finds new resources when the node
 * has joined again. */
static void on_lease_ending(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                            struct actor_actions *actions)
{
    bool finds_place = !event->facts.is_guest && !event->facts.has_group;

    if (!event->facts.is_claimable ||
        (!has_worker(lifecycle) && lifecycle->state != ACTOR_RESTARTING) ||
        lifecycle->kill == ACTOR_KILLED_WITHOUT_LEASE) {
        return;
    }
    if (finds_place && lifecycle->state == ACTOR_RESTARTING) {
        lifecycle->state = ACTOR_WAITING; /* ACTOR_ON_RETRY reserves resources again. */
        release_reservation(lifecycle, actions);
    } else if (finds_place && has_active_worker(lifecycle)) {
        kill_worker(lifecycle, ACTOR_KILLED_WITHOUT_LEASE, event->detail, actions);
    } else {
        stop_without_lease(lifecycle, event, actions);
    }
}

/* ---- the worker ------------------------------------------------------------------------- */

/* Handles ACTOR_ON_WORKER_FAILED: no worker can be started, so the actor has died. */
static void on_worker_failed(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                             struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_STARTING) {
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED, event->detail);
    }
}

/* Handles ACTOR_ON_SILENCE: the worker has not answered a ping in time and is killed; the actor may
 * be restarted. */
static void on_silence(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                       struct actor_actions *actions)
{
    if (lifecycle->state == ACTOR_ALIVE) {
        kill_worker(lifecycle, ACTOR_KILLED, event->detail, actions);
    }
}

/* Handles ACTOR_ON_KILL_WORKER: the worker is killed, and the actor may be restarted. */
static void on_kill_worker(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                           struct actor_actions *actions)
{
    (void)event;
    kill_worker(lifecycle, ACTOR_KILLED, NULL, actions);
}

/* Handles ACTOR_ON_CONSTRUCTED: the calls that wait for the actor's start get their replies. */
static void on_constructed(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                           struct actor_actions *actions)
{
    (void)event;
    if (!has_worker(lifecycle)) {
        return;
    }
    (void)actions_add(actions, ACTOR_DO_ANSWER_WAITERS);
    if (lifecycle->state != ACTOR_STARTING) {
        return;
    }
    lifecycle->state = ACTOR_ALIVE;
    if (lifecycle->demand == ACTOR_RELEASED) {
        drain_worker(lifecycle, actions);
    }
}

/* Handles ACTOR_ON_CONSTRUCTOR_FAILED: the worker exits and is not replaced. */
static void on_constructor_failed(struct actor_lifecycle *lifecycle,
                                  const struct actor_event *event, struct actor_actions *actions)
{
    if (has_worker(lifecycle)) {
        lifecycle->state =
            lifecycle->state == ACTOR_ENDING ? ACTOR_ENDING : ACTOR_CONSTRUCTOR_FAILED;
        actions_add_for_worker(actions, ACTOR_DO_EXPECT_EXIT, LEAVE_MS, event->detail);
    }
}

/* Handles ACTOR_ON_EXIT: the worker exits by itself and is not replaced. */
static void on_exit_by_itself(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                              struct actor_actions *actions)
{
    (void)event;
    if (has_active_worker(lifecycle)) {
        lifecycle->state = ACTOR_ENDING;
        actions_add_for_worker(actions, ACTOR_DO_EXPECT_EXIT, 0,
                               "ended normally: its own method asked for that");
    }
}

/* Returns the milliseconds until the restart of an actor whose worker lived `lifetime_ms`. One
 * quick end may be an accident; from the second in a row on, each doubles the delay. */
static int64_t restart_delay_ms(struct actor_lifecycle *lifecycle, int64_t lifetime_ms)
{
    uint32_t doublings;
    int64_t delay_ms = BACKOFF_MS;

    lifecycle->quick_end_count = lifetime_ms < QUICK_END_MS ? lifecycle->quick_end_count + 1 : 0;
    if (lifecycle->quick_end_count < 2) {
        return 0;
    }
    doublings = lifecycle->quick_end_count - 2;
    for (uint32_t i = 0; i < doublings && delay_ms < BACKOFF_MS_MAX; i++) {
        delay_ms *= 2;
    }
    return delay_ms < BACKOFF_MS_MAX ? delay_ms : BACKOFF_MS_MAX;
}

/* Handles ACTOR_ON_WORKER_ENDED: the actor gets another worker after a delay, or has died. */
static void on_worker_ended(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                            struct actor_actions *actions)
{
    bool has_lost_lease = lifecycle->kill == ACTOR_KILLED_WITHOUT_LEASE;
    int64_t delay_ms;

    if (!has_worker(lifecycle)) {
        return;
    }
    if (!tdm__actor_lifecycle_restarts(lifecycle, event)) {
        lifecycle_end(lifecycle, actions,
                      has_lost_lease && is_placed_again_by_creator(lifecycle, &event->facts)
                          ? TDM_E_ACTOR_RESTARTING
                          : TDM_E_ACTOR_DIED,
                      event->detail);
        return;
    }
    delay_ms = restart_delay_ms(lifecycle, event->lifetime_ms);
    lifecycle->incarnation++;
    lifecycle->kill = ACTOR_NOT_KILLED;
    if (has_lost_lease) {
        lifecycle->state = ACTOR_WAITING;
        release_reservation(lifecycle, actions);
    } else {
        lifecycle->state = ACTOR_RESTARTING;
        actions_add(actions, ACTOR_DO_RESTART_LATER)->delay_ms = delay_ms;
    }
}

/* Handles ACTOR_ON_TIMER: the next worker is started, or a worker that has not exited in time is
 * killed. */
static void on_timer(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                     struct actor_actions *actions)
{
    (void)event;
    if (lifecycle->state == ACTOR_RESTARTING) {
        start_worker(lifecycle, actions);
    } else if (lifecycle->state == ACTOR_ENDING || lifecycle->state == ACTOR_CONSTRUCTOR_FAILED) {
        actions_add_for_worker(actions, ACTOR_DO_KILL_WORKER, 0, NULL);
    }
}

/* ---- on another node -------------------------------------------------------------------- */

/* Handles ACTOR_ON_STARTED_ELSEWHERE: the calls that wait for the actor's start get their replies.
 */
static void on_started_elsewhere(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                 struct actor_actions *actions)
{
    (void)event;
    if (lifecycle->state != ACTOR_REMOTE_STARTING) {
        return;
    }
    lifecycle->state = ACTOR_REMOTE;
    (void)actions_add(actions, ACTOR_DO_ANSWER_WAITERS);
    if (lifecycle->demand == ACTOR_UNWANTED) {
        end_elsewhere(lifecycle, true, actions);
    } else if (lifecycle->demand == ACTOR_RELEASED) {
        (void)actions_add(actions, ACTOR_DO_RELEASE_ELSEWHERE);
    }
}

/* Handles ACTOR_ON_REFUSED_ELSEWHERE. The other daemon has given the reservation back, if it could;
 * this daemon releases it, too, to be certain. TDM_E_NO_RESOURCES: the other node cannot hold the
 * actor, and another place is needed. TDM_E_AGAIN: the other node cannot start it yet, and is asked
 * again. */
static void on_refused_elsewhere(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                 struct actor_actions *actions)
{
    bool is_unsure = event->status == TDM_E_NODE_LOST || event->status == TDM_E_STORE ||
                     event->status == TDM_E_AGAIN;

    if (lifecycle->state != ACTOR_REMOTE_STARTING) {
        return;
    }
    if (is_unsure && !event->facts.node_is_stopping) {
        lifecycle->state = ACTOR_REMOTE_UNSURE; /* ACTOR_ON_NODE_SEEN asks again. */
    } else if (event->status == TDM_E_NO_RESOURCES && lifecycle->demand < ACTOR_UNWANTED &&
               !event->facts.node_is_stopping) {
        release_reservation(lifecycle, actions); /* ACTOR_ON_RETRY places the actor again. */
        lifecycle_wait(lifecycle, actions, event->detail);
    } else if (end_is_requested(lifecycle)) {
        lifecycle->state = ACTOR_REMOTE_REFUSED;
        release_reservation(lifecycle, actions);
        (void)actions_add(actions, ACTOR_DO_ANSWER_WAITERS);
    } else {
        lifecycle_end(lifecycle, actions, event->status, event->detail);
    }
}

/* Handles ACTOR_ON_END_REPLY. The entry must outlast the replies to both requests: to start, and to
 * end. Unless the other daemon says that the actor is gone, or was never there, ACTOR_ON_NODE_SEEN
 * asks again. */
static void on_end_reply(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                         struct actor_actions *actions)
{
    bool has_ended = event->status == TDM_OK || event->status == TDM_E_ACTOR_DIED ||
                     event->facts.node_is_stopping;

    if (!end_is_requested(lifecycle)) {
        return;
    }
    lifecycle->demand = ACTOR_UNWANTED;
    if (lifecycle->state == ACTOR_REMOTE_STARTING ||
        (!has_ended && lifecycle->state != ACTOR_REMOTE_REFUSED)) {
        return;
    }
    if (lifecycle->state == ACTOR_REMOTE) {
        /* The other daemon releases the reservation. */
        lifecycle->reservation = ACTOR_RESERVES_NOTHING;
    }
    lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED,
                  event->status == TDM_OK ? "ended with its creator" : event->detail);
}

/* Handles ACTOR_ON_ENDED_ELSEWHERE: the other daemon has released the reservation of the actor,
 * which had started there. */
static void on_ended_elsewhere(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                               struct actor_actions *actions)
{
    if ((lifecycle->state == ACTOR_REMOTE || lifecycle->state == ACTOR_REMOTE_UNSURE) &&
        !end_is_requested(lifecycle)) {
        lifecycle->reservation = ACTOR_RESERVES_NOTHING;
        lifecycle_end(lifecycle, actions, event->status, event->detail);
    }
}

/* Handles ACTOR_ON_FENCED_ELSEWHERE: no process of the actor is left on the other node, whose lease
 * has ended, so the actor is placed again as if the node were lost. The other daemon may be unable
 * to release the reservation, so this daemon does. */
static void on_fenced_elsewhere(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                                struct actor_actions *actions)
{
    if ((lifecycle->state != ACTOR_REMOTE && lifecycle->state != ACTOR_REMOTE_UNSURE) ||
        end_is_requested(lifecycle)) {
        return;
    }
    lifecycle->reservation = ACTOR_RESERVES_UNKNOWN;
    if (!tdm__actor_lifecycle_outlives_node(lifecycle, &event->facts)) {
        lifecycle_end(lifecycle, actions, TDM_E_ACTOR_DIED, event->detail);
        return;
    }
    lifecycle->incarnation += lifecycle->state == ACTOR_REMOTE_UNSURE ? 0 : 1;
    lifecycle->state = ACTOR_WAITING;
    release_reservation(lifecycle, actions);
    lifecycle_wait(lifecycle, actions, event->detail);
}

/* Handles ACTOR_ON_NODE_SEEN: the other node still has its lease, so requests whose replies were
 * lost are made again. */
static void on_node_seen(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                         struct actor_actions *actions)
{
    (void)event;
    if (lifecycle->state != ACTOR_REMOTE && lifecycle->state != ACTOR_REMOTE_UNSURE) {
        return;
    }
    if (lifecycle->demand == ACTOR_UNWANTED) {
        end_elsewhere(lifecycle, true, actions);
    } else if (lifecycle->state == ACTOR_REMOTE_UNSURE && lifecycle->demand < ACTOR_UNWANTED) {
        start_elsewhere(lifecycle, actions);
    } else if (lifecycle->demand == ACTOR_RELEASED) {
        (void)actions_add(actions, ACTOR_DO_RELEASE_ELSEWHERE);
    }
}

/* Handles ACTOR_ON_NODE_LOST. While a request to the lost node is pending, its reply comes first,
 * because the end of a connection counts as a reply. */
static void on_node_lost(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                         struct actor_actions *actions)
{
    if ((lifecycle->state != ACTOR_REMOTE && lifecycle->state != ACTOR_REMOTE_UNSURE) ||
        end_is_requested(lifecycle)) {
        return;
    }
    if (!tdm__actor_lifecycle_outlives_node(lifecycle, &event->facts)) {
        lifecycle_end(lifecycle, actions,
                      lifecycle->demand == ACTOR_UNWANTED ? TDM_E_ACTOR_DIED : TDM_E_NODE_LOST,
                      event->detail);
        return;
    }
    lifecycle->incarnation += lifecycle->state == ACTOR_REMOTE_UNSURE ? 0 : 1;
    lifecycle->reservation = ACTOR_RESERVES_UNKNOWN;
    lifecycle_reserve(lifecycle, event, actions);
}

/* ---- the record in the store ------------------------------------------------------------ */

/* Handles ACTOR_ON_RECORD_LOST: the store may have lost the record of the actor's reservation,
 * which has to be written again. */
static void on_record_lost(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                           struct actor_actions *actions)
{
    (void)event;
    (void)actions;
    if (lifecycle->reservation == ACTOR_RESERVES &&
        tdm__actor_lifecycle_holds_resources(lifecycle) &&
        lifecycle->kill != ACTOR_KILLED_WITHOUT_LEASE) {
        lifecycle->reservation = ACTOR_RESERVATION_LOST;
    }
}

/* Handles ACTOR_ON_REWRITE_DUE: the actor's lost record is written into the store again. */
static void on_rewrite_due(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                           struct actor_actions *actions)
{
    if (lifecycle->reservation == ACTOR_RESERVATION_LOST && !event->facts.node_is_stopping) {
        lifecycle->reservation = ACTOR_RESERVATION_REWRITTEN;
        (void)actions_add(actions, ACTOR_DO_REWRITE_RECORD);
    }
}

/* Handles ACTOR_ON_REWRITTEN: a failed rewrite is tried again later, or the actor ends because
 * another actor has its name or resources. */
static void on_rewritten(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                         struct actor_actions *actions)
{
    bool is_hopeless =
        event->status == TDM_E_EXISTS || (event->status == TDM_E_NOT_FOUND && event->is_overdue);

    if (lifecycle->reservation != ACTOR_RESERVATION_REWRITTEN) {
        return; /* The actor has given the reservation up since. */
    }
    lifecycle->reservation =
        event->status == TDM_OK || is_hopeless ? ACTOR_RESERVES : ACTOR_RESERVATION_LOST;
    if (is_hopeless) {
        lifecycle_stop(lifecycle, true, event->detail, actions);
    }
}

/* ---- one step --------------------------------------------------------------------------- */

typedef void event_handler(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                           struct actor_actions *actions);

void tdm__actor_lifecycle_step(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                               struct actor_actions *actions_out)
{
    static event_handler *const handlers[ACTOR_EVENTS_COUNT] = {
        [ACTOR_ON_CREATE] = on_create,
        [ACTOR_ON_START_HERE] = on_start_here,
        [ACTOR_ON_ARGUMENTS] = on_retry,
        [ACTOR_ON_ARGUMENTS_FAILED] = on_arguments_failed,
        [ACTOR_ON_RETRY] = on_retry,
        [ACTOR_ON_RESERVED_HERE] = on_reserved,
        [ACTOR_ON_RESERVED_ELSEWHERE] = on_reserved,
        [ACTOR_ON_NOT_RESERVED] = on_not_reserved,
        [ACTOR_ON_HOLDER_FOUND] = on_holder_found,
        [ACTOR_ON_HOLDER_NOT_FOUND] = on_holder_not_found,
        [ACTOR_ON_WORKER_FAILED] = on_worker_failed,
        [ACTOR_ON_CONSTRUCTED] = on_constructed,
        [ACTOR_ON_CONSTRUCTOR_FAILED] = on_constructor_failed,
        [ACTOR_ON_EXIT] = on_exit_by_itself,
        [ACTOR_ON_SILENCE] = on_silence,
        [ACTOR_ON_WORKER_ENDED] = on_worker_ended,
        [ACTOR_ON_TIMER] = on_timer,
        [ACTOR_ON_LAST_HANDLE_GONE] = on_last_handle_gone,
        [ACTOR_ON_END] = on_end,
        [ACTOR_ON_KILL] = on_kill,
        [ACTOR_ON_KILL_WORKER] = on_kill_worker,
        [ACTOR_ON_STARTED_ELSEWHERE] = on_started_elsewhere,
        [ACTOR_ON_REFUSED_ELSEWHERE] = on_refused_elsewhere,
        [ACTOR_ON_END_REPLY] = on_end_reply,
        [ACTOR_ON_ENDED_ELSEWHERE] = on_ended_elsewhere,
        [ACTOR_ON_FENCED_ELSEWHERE] = on_fenced_elsewhere,
        [ACTOR_ON_NODE_SEEN] = on_node_seen,
        [ACTOR_ON_NODE_LOST] = on_node_lost,
        [ACTOR_ON_CREATOR_NODE_LOST] = on_creator_node_lost,
        [ACTOR_ON_DISOWNED] = on_disowned,
        [ACTOR_ON_LEASE_ENDING] = on_lease_ending,
        [ACTOR_ON_RECORD_LOST] = on_record_lost,
        [ACTOR_ON_REWRITE_DUE] = on_rewrite_due,
        [ACTOR_ON_REWRITTEN] = on_rewritten,
    };

    TDM_ASSERT((uint32_t)event->kind < ACTOR_EVENTS_COUNT);
    actions_out->count = 0;
    if (lifecycle->state != ACTOR_ENDED && lifecycle->state != ACTOR_ENDED_ELSEWHERE) {
        handlers[event->kind](lifecycle, event, actions_out);
    }
}
