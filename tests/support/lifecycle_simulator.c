/* lifecycle_simulator.c - what surrounds an actor's lifecycle: its worker, the store, another
 * daemon.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/lifecycle_simulator.h"

void lifecycle_world_check(struct actor_exploration *exploration, bool holds, unsigned violation)
{
    if (!holds) {
        exploration->violations |= violation;
    }
}

/* ---- mutations --------------------------------------------------------------------------- */

static void remove_action(struct actor_actions *actions, enum actor_action_kind kind)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < actions->count; i++) {
        if (actions->entries[i].kind != kind) {
            actions->entries[kept++] = actions->entries[i];
        }
    }
    actions->count = kept;
}

static bool has_action(const struct actor_actions *actions, enum actor_action_kind kind)
{
    for (uint32_t i = 0; i < actions->count; i++) {
        if (actions->entries[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static void add_action(struct actor_actions *actions, enum actor_action_kind kind)
{
    actions->entries[actions->count++] = (struct actor_action){.kind = kind};
}

static void swap_actions(struct actor_actions *actions)
{
    struct actor_action first = actions->entries[0];

    if (actions->count == 2 && first.kind == ACTOR_DO_RELEASE) {
        actions->entries[0] = actions->entries[1];
        actions->entries[1] = first;
    }
}

/* Changes what a mutated machine is told, or how it begins. */
static void mutate_before(enum mutation mutation, struct actor_lifecycle *actor,
                          struct actor_event *event)
{
    bool is_end = event->kind == ACTOR_ON_KILL || event->kind == ACTOR_ON_END;

    if (mutation == RESTARTS_AFTER_KILL && is_end && actor->state == ACTOR_ALIVE) {
        event->kind = ACTOR_ON_KILL_WORKER;
    } else if (mutation == RESTARTS_ONCE_TOO_OFTEN && event->facts.max_restarts >= 0) {
        event->facts.max_restarts++;
    } else if (mutation == IGNORES_LEASE) {
        event->facts.is_claimable = false;
    } else if (mutation == FORGETS_LAST_HANDLE && actor->state == ACTOR_STARTING) {
        event->facts.is_detached = true;
    } else if (event->kind == ACTOR_ON_END_REPLY &&
               ((mutation == ENDS_UNDER_A_REPLY && actor->state == ACTOR_REMOTE_STARTING) ||
                (mutation == TRUSTS_UNSURE_START && actor->state == ACTOR_REMOTE_UNSURE))) {
        actor->state = ACTOR_REMOTE;
    }
}

/* Changes what a mutated machine has decided. */
static void mutate_after(enum mutation mutation, const struct actor_lifecycle *before,
                         const struct actor_event *event, struct actor_lifecycle *actor,
                         struct actor_actions *actions)
{
    if (mutation == FORGETS_RELEASE) {
        remove_action(actions, ACTOR_DO_RELEASE);
    } else if (mutation == FORGETS_THAT_IT_RELEASED && actor->state == ACTOR_WAITING &&
               has_action(actions, ACTOR_DO_RELEASE)) {
        actor->reservation = ACTOR_RESERVES;
    } else if (mutation == REPORTS_BEFORE_RELEASE) {
        swap_actions(actions);
    } else if (mutation == FORGETS_KILL_IN_PLACING && actor->state == ACTOR_PLACING) {
        actor->demand = before->demand;
    } else if (mutation == RESTARTS_BEFORE_THE_END && event->kind == ACTOR_ON_SILENCE &&
               has_action(actions, ACTOR_DO_KILL_WORKER)) {
        add_action(actions, ACTOR_DO_START_WORKER);
    } else if (mutation == FORGETS_PATIENCE) {
        for (uint32_t i = 0; i < actions->count; i++) {
            actions->entries[i].delay_ms = 0;
        }
    } else if (mutation == KEEPS_REFUSED && actor->state == ACTOR_REMOTE_REFUSED) {
        actor->state = ACTOR_REMOTE;
        actor->reservation = ACTOR_RESERVES;
    } else if (mutation == STARTS_UNWANTED_AGAIN && before->state == ACTOR_REMOTE_UNSURE &&
               has_action(actions, ACTOR_DO_END_ELSEWHERE) && event->kind == ACTOR_ON_NODE_SEEN) {
        remove_action(actions, ACTOR_DO_END_ELSEWHERE);
        add_action(actions, ACTOR_DO_START_ELSEWHERE);
        actor->state = ACTOR_REMOTE_STARTING;
        actor->demand = ACTOR_UNWANTED;
    }
}

/* ---- what the daemon does --------------------------------------------------------------- */

static void start_here(struct actor_exploration *exploration, struct lifecycle_simulator *world)
{
    int32_t most = exploration->kind->facts.max_restarts;

    lifecycle_world_check(exploration, world->worker == NO_WORKER && !world->is_attempted,
                          TWO_WORKERS);
    lifecycle_world_check(exploration, world->place == HERE && world->releasing == 0, NO_RESOURCES);
    lifecycle_world_check(exploration, !world->must_not_start, STARTED_UNWANTED);
    world->starts_count++;
    lifecycle_world_check(exploration, most < 0 || world->starts_count <= most + 1,
                          TOO_MANY_RESTARTS);
    world->is_attempted = 1;
}

static void start_there(struct actor_exploration *exploration, struct lifecycle_simulator *world)
{
    lifecycle_world_check(exploration, !world->is_starting, REQUESTED_TWICE);
    lifecycle_world_check(exploration, !world->must_not_start, STARTED_UNWANTED);
    world->is_starting = 1;
    if (world->guest == NO_GUEST) {
        world->guest = START_SENT;
    }
}

static void release(struct actor_exploration *exploration, struct lifecycle_simulator *world)
{
    lifecycle_world_check(exploration, world->worker == NO_WORKER, RELEASED_IN_USE);
    lifecycle_world_check(exploration, world->is_owed, RELEASED_TWICE);
    world->is_owed = 0;
    world->releasing = 1;
}

/* What a lost node leaves behind while this daemon stops, too, is removed by other daemons. */
static bool is_leaked(const struct lifecycle_simulator *world)
{
    return world->place != NOWHERE && world->releasing == 0 &&
           !(world->place == ELSEWHERE && (world->guest == RUNNING || world->is_stopping));
}

static void report_end(struct actor_exploration *exploration, struct lifecycle_simulator *world)
{
    lifecycle_world_check(exploration, world->ends_count++ == 0, REPORTED_TWICE);
    lifecycle_world_check(exploration, !is_leaked(world), NOT_RELEASED);
    lifecycle_world_check(exploration,
                          world->worker == NO_WORKER && !world->is_reserving &&
                              !world->is_finding && !world->is_starting && !world->is_ending,
                          ENDED_TOO_EARLY);
    lifecycle_world_check(exploration, world->is_stopping || world->guest != RUNNING,
                          ENDED_TOO_EARLY);
    world->has_timer = 0;
}

static void act_on_worker(struct actor_exploration *exploration, struct lifecycle_simulator *world,
                          const struct actor_action *action)
{
    lifecycle_world_check(exploration, world->worker != NO_WORKER, WRONG_WORKER_ACTION);
    if (action->kind == ACTOR_DO_KILL_WORKER) {
        world->is_killed = 1;
        return;
    }
    world->is_leaving = 1;
    world->has_timer = world->has_timer || action->delay_ms > 0;
    world->must_not_start = 1;
}

static void request(struct actor_exploration *exploration, uint8_t *is_pending)
{
    lifecycle_world_check(exploration, !*is_pending, REQUESTED_TWICE);
    *is_pending = 1;
}

static void act(struct actor_exploration *exploration, struct lifecycle_simulator *world,
                const struct actor_action *action)
{
    lifecycle_world_check(exploration, world->ends_count == 0, ACTIVE_AFTER_END);
    switch (action->kind) {
    case ACTOR_DO_RESERVE:
        lifecycle_world_check(exploration, world->releasing == 0, REQUESTED_TWICE);
        request(exploration, &world->is_reserving);
        break;
    case ACTOR_DO_RELEASE:
        release(exploration, world);
        break;
    case ACTOR_DO_FIND_HOLDER:
        request(exploration, &world->is_finding);
        break;
    case ACTOR_DO_START_WORKER:
        start_here(exploration, world);
        break;
    case ACTOR_DO_RESTART_LATER:
        world->has_timer = 1;
        break;
    case ACTOR_DO_DRAIN_WORKER:
    case ACTOR_DO_STOP_WORKER:
    case ACTOR_DO_EXPECT_EXIT:
    case ACTOR_DO_KILL_WORKER:
        act_on_worker(exploration, world, action);
        break;
    case ACTOR_DO_START_ELSEWHERE:
        start_there(exploration, world);
        break;
    case ACTOR_DO_END_ELSEWHERE:
    case ACTOR_DO_STOP_ELSEWHERE:
        request(exploration, &world->is_ending);
        break;
    case ACTOR_DO_REWRITE_RECORD:
        request(exploration, &world->is_rewriting);
        break;
    case ACTOR_DO_REFUSE:
    case ACTOR_DO_END:
        report_end(exploration, world);
        break;
    case ACTOR_DO_EXPLAIN_WAIT:
    case ACTOR_DO_ANSWER_WAITERS:
    case ACTOR_DO_RELEASE_ELSEWHERE:
    case ACTOR_DO_HURRY_ELSEWHERE:
        break;
    }
}

/* ---- one step --------------------------------------------------------------------------- */

void lifecycle_world_step(struct actor_exploration *exploration, struct lifecycle_simulator *world,
                          struct actor_event event)
{
    struct actor_lifecycle before = world->actor;
    struct actor_actions actions;

    event.facts = exploration->kind->facts;
    event.facts.awaits_creator_arguments = world->awaits_creator_arguments;
    event.facts.is_releasing = world->releasing > 0;
    event.facts.node_is_stopping = world->is_stopping;
    event.detail = "why";
    mutate_before(exploration->mutation, &world->actor, &event);
    tdm__actor_lifecycle_step(&world->actor, &event, &actions);
    mutate_after(exploration->mutation, &before, &event, &world->actor, &actions);
    for (uint32_t i = 0; i < actions.count; i++) {
        act(exploration, world, &actions.entries[i]);
    }
}
