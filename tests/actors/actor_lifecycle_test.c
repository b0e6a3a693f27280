/* actor_lifecycle_test.c - every state that an actor and the world around it can reach. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/lifecycle_simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The exploration visits each state of a world once: an actor's lifecycle, its worker, the
 * store, another daemon, and every request that is under way between them.  From each state it
 * tries everything that can happen next.  The world carries out the actions of the machine as
 * the daemon would, and notes each action that breaks an invariant.
 *
 * The same exploration runs with mutations of the machine, each of which it must find. */

enum {
    STATES_MAX = 1 << 20,
    INCARNATIONS_MAX = 3, /* The exploration of an actor without a limit ends here. */
    STEPS_TO_END_MAX = 24
};

/* ---- one step --------------------------------------------------------------------------- */

/* Lets the event happen in a copy of the world, and adds the state where that leads. */
static void try_event(struct actor_exploration *exploration, struct lifecycle_simulator world,
                      struct actor_event event)
{
    lifecycle_world_step(exploration, &world, event);
    if (exploration->violations == 0 && world.actor.incarnation <= INCARNATIONS_MAX) {
        (void)state_explorer_add(&exploration->walk, &world, &world);
    }
}

/* Something has happened that this daemon does not know of yet. */
static void add_world(struct actor_exploration *exploration,
                      const struct lifecycle_simulator *world)
{
    if (exploration->violations == 0) {
        (void)state_explorer_add(&exploration->walk, world, world);
    }
}

static void try_kind(struct actor_exploration *exploration, struct lifecycle_simulator world,
                     enum actor_event_kind kind)
{
    try_event(exploration, world, (struct actor_event){.kind = kind});
}

static void try_status(struct actor_exploration *exploration, struct lifecycle_simulator world,
                       enum actor_event_kind kind, tdm_status status)
{
    try_event(exploration, world, (struct actor_event){.kind = kind, .status = status});
}

/* ---- what may happen next --------------------------------------------------------------- */

static void try_reservation(struct actor_exploration *exploration, struct lifecycle_simulator world)
{
    static const tdm_status refusals[] = {TDM_E_AGAIN, TDM_E_EXISTS, TDM_E_NO_RESOURCES,
                                          TDM_E_NOT_FOUND};
    bool was_held = world.place != NOWHERE;

    world.is_reserving = 0;
    for (uint32_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        try_status(exploration, world, ACTOR_ON_NOT_RESERVED, refusals[i]);
    }
    world.is_owed = 1; /* The daemon must release it even if the reply is lost. */
    try_status(exploration, world, ACTOR_ON_NOT_RESERVED, TDM_E_TIMEOUT);
    world.place = HERE;
    if (!was_held) {
        try_status(exploration, world, ACTOR_ON_NOT_RESERVED, TDM_E_STORE);
    }
    world.guest = NO_GUEST;
    try_kind(exploration, world, ACTOR_ON_RESERVED_HERE);
    if (exploration->kind->has_other) {
        world.place = ELSEWHERE;
        world.other_is_lost = 0;
        try_kind(exploration, world, ACTOR_ON_RESERVED_ELSEWHERE);
    }
}

static void try_store(struct actor_exploration *exploration, const struct lifecycle_simulator *from)
{
    static const tdm_status rewritten[] = {TDM_OK, TDM_E_EXISTS, TDM_E_TIMEOUT, TDM_E_NOT_FOUND,
                                           TDM_E_AGAIN};
    struct lifecycle_simulator world = *from;

    if (from->is_reserving) {
        try_reservation(exploration, world);
    }
    if (from->is_finding) {
        world.is_finding = 0;
        try_kind(exploration, world, ACTOR_ON_HOLDER_FOUND);
        try_status(exploration, world, ACTOR_ON_HOLDER_NOT_FOUND, TDM_E_NOT_FOUND);
        try_status(exploration, world, ACTOR_ON_HOLDER_NOT_FOUND, TDM_E_TIMEOUT);
        try_status(exploration, world, ACTOR_ON_HOLDER_NOT_FOUND, TDM_E_AGAIN);
    }
    if (from->is_rewriting) {
        world = *from;
        world.is_rewriting = 0;
        for (uint32_t i = 0; i < sizeof(rewritten) / sizeof(rewritten[0]); i++) {
            try_event(exploration, world,
                      (struct actor_event){
                          .kind = ACTOR_ON_REWRITTEN, .status = rewritten[i], .is_overdue = true});
        }
        try_status(exploration, world, ACTOR_ON_REWRITTEN, TDM_E_NOT_FOUND);
    } else {
        try_kind(exploration, *from, ACTOR_ON_REWRITE_DUE);
    }
    try_kind(exploration, *from, ACTOR_ON_RECORD_LOST);
    if (from->releasing > 0) {
        world = *from;
        world.releasing = 0;
        world.place = NOWHERE;
        try_kind(exploration, world, ACTOR_ON_RETRY);
    }
}

/* The worker is being started: nothing else happens until that has succeeded or failed. */
static void try_attempt(struct actor_exploration *exploration, struct lifecycle_simulator world)
{
    world.is_attempted = 0;
    try_kind(exploration, world, ACTOR_ON_WORKER_FAILED);
    world.worker = FORKED;
    add_world(exploration, &world);
}

static void try_worker_end(struct actor_exploration *exploration, struct lifecycle_simulator world)
{
    struct actor_event event = {.kind = ACTOR_ON_WORKER_ENDED};

    world.worker = NO_WORKER;
    world.is_killed = world.is_leaving = world.has_timer = 0;
    try_event(exploration, world, event);
    event.lifetime_ms = 60000;
    try_event(exploration, world, event);
    event.exited_normally = true;
    world.must_not_start = 1;
    try_event(exploration, world, event);
}

static void try_worker(struct actor_exploration *exploration,
                       const struct lifecycle_simulator *from)
{
    struct lifecycle_simulator world = *from;

    try_worker_end(exploration, world);
    try_kind(exploration, world, ACTOR_ON_SILENCE);
    if (from->worker == FORKED) {
        world.worker = CONSTRUCTED;
        try_kind(exploration, world, ACTOR_ON_CONSTRUCTED);
        world.worker = FAILED;
        try_kind(exploration, world, ACTOR_ON_CONSTRUCTOR_FAILED);
    } else if (from->worker == CONSTRUCTED && !from->is_leaving) {
        try_kind(exploration, world, ACTOR_ON_EXIT);
    }
}

static void try_start_reply(struct actor_exploration *exploration, struct lifecycle_simulator world)
{
    bool was_gone = world.guest == GONE;

    world.is_starting = 0;
    if (world.other_is_lost) {
        try_status(exploration, world, ACTOR_ON_REFUSED_ELSEWHERE, TDM_E_NODE_LOST);
        return;
    }
    try_status(exploration, world, ACTOR_ON_REFUSED_ELSEWHERE, TDM_E_STORE); /* not sent */
    try_status(exploration, world, ACTOR_ON_REFUSED_ELSEWHERE, TDM_E_AGAIN); /* without lease */
    if (world.guest == NO_GUEST) { /* Other actors of that node hold the resources. */
        try_status(exploration, world, ACTOR_ON_REFUSED_ELSEWHERE, TDM_E_NO_RESOURCES);
    }
    if (!was_gone) {
        world.guest = RUNNING;
        try_kind(exploration, world, ACTOR_ON_STARTED_ELSEWHERE);
        try_status(exploration, world, ACTOR_ON_REFUSED_ELSEWHERE, TDM_E_NODE_LOST);
    }
    world.guest = GONE; /* The constructor failed, or the other daemon has ended the actor. */
    world.place = NOWHERE;
    try_status(exploration, world, ACTOR_ON_REFUSED_ELSEWHERE, TDM_E_ACTOR_DIED);
}

static void try_end_reply(struct actor_exploration *exploration, struct lifecycle_simulator world)
{
    bool was_running = world.guest == RUNNING;

    world.is_ending = 0;
    try_status(exploration, world, ACTOR_ON_END_REPLY, TDM_E_NODE_LOST);
    if (world.other_is_lost) {
        return;
    }
    if (was_running) {
        world.guest = GONE;
        world.place = NOWHERE;
        try_status(exploration, world, ACTOR_ON_END_REPLY, TDM_OK);
        try_status(exploration, world, ACTOR_ON_END_REPLY, TDM_E_TIMEOUT);
    } else {
        try_status(exploration, world, ACTOR_ON_END_REPLY, TDM_E_ACTOR_DIED);
    }
}

static void try_other_daemon(struct actor_exploration *exploration,
                             const struct lifecycle_simulator *from)
{
    struct lifecycle_simulator world = *from;

    if (from->is_starting) {
        try_start_reply(exploration, *from);
    }
    if (from->is_ending) {
        try_end_reply(exploration, *from);
    }
    if (from->is_reported) {
        world.is_reported = 0;
        try_event(
            exploration, world,
            (struct actor_event){.kind = ACTOR_ON_ENDED_ELSEWHERE, .status = TDM_E_ACTOR_DIED});
    }
    if (from->other_is_lost) {
        try_kind(exploration, *from, ACTOR_ON_NODE_LOST);
        return;
    }
    try_kind(exploration, *from, ACTOR_ON_NODE_SEEN);
    world = *from;
    if (from->guest == RUNNING) {
        world.guest = GONE; /* The actor ends by itself, and the report may get lost. */
        world.place = NOWHERE;
        add_world(exploration, &world);
        world.is_reported = 1;
        add_world(exploration, &world);
        world = *from;
        world.guest = GONE; /* The lease of that node has ended, and it has reported that. */
        world.place = NOWHERE;
        try_kind(exploration, world, ACTOR_ON_FENCED_ELSEWHERE);
    }
    world = *from;
    world.other_is_lost = 1; /* That daemon stops what it runs before its lease ends. */
    world.guest = GONE;
    world.is_reported = 0;
    add_world(exploration, &world);
}

/* Requests of the creator, of its daemon, and of processes that end the actor. */
static void try_requests(struct actor_exploration *exploration,
                         const struct lifecycle_simulator *from)
{
    const struct actor_facts *facts = &exploration->kind->facts;
    struct lifecycle_simulator world = *from;

    try_kind(exploration, world, ACTOR_ON_KILL_WORKER);
    try_kind(exploration, world, ACTOR_ON_RETRY);
    world.has_no_handle = 1;
    try_kind(exploration, world, ACTOR_ON_LAST_HANDLE_GONE);
    world = *from;
    world.must_not_start = 1;
    try_kind(exploration, world, ACTOR_ON_END);
    try_kind(exploration, world, ACTOR_ON_KILL);
    world.is_stopping = 1;
    try_kind(exploration, world, ACTOR_ON_END);
    world = *from;
    if (facts->is_guest) {
        world.must_not_start = world.must_not_start || world.worker != NO_WORKER;
        try_kind(exploration, world, ACTOR_ON_DISOWNED);
        world.must_not_start = from->must_not_start || !facts->is_detached;
        try_kind(exploration, world, ACTOR_ON_CREATOR_NODE_LOST);
    }
    if (from->awaits_creator_arguments) {
        world = *from;
        try_kind(exploration, world, ACTOR_ON_ARGUMENTS_FAILED);
        world.awaits_creator_arguments = 0;
        try_kind(exploration, world, ACTOR_ON_ARGUMENTS);
    }
}

static void try_lease(struct actor_exploration *exploration, struct lifecycle_simulator world)
{
    struct lifecycle_simulator after = world;
    bool has_worker;

    lifecycle_world_step(exploration, &after, (struct actor_event){.kind = ACTOR_ON_LEASE_ENDING});
    has_worker = after.worker != NO_WORKER;
    lifecycle_world_check(exploration,
                          !exploration->kind->facts.is_claimable || !has_worker || after.is_killed,
                          NOT_FENCED);
    try_kind(exploration, world, ACTOR_ON_LEASE_ENDING);
}

/* ---- what is true in each state --------------------------------------------------------- */

static bool has_ended(const struct lifecycle_simulator *world)
{
    return world->actor.state == ACTOR_ENDED || world->actor.state == ACTOR_ENDED_ELSEWHERE;
}

static bool is_waiting_for_resources(const struct lifecycle_simulator *world)
{
    return world->actor.state == ACTOR_WAITING;
}

static bool is_on_other_node(const struct lifecycle_simulator *world)
{
    return world->actor.state == ACTOR_REMOTE || world->actor.state == ACTOR_REMOTE_UNSURE;
}

static void check_state(struct actor_exploration *exploration,
                        const struct lifecycle_simulator *world)
{
    const struct actor_lifecycle *actor = &world->actor;
    bool is_pending = world->worker != NO_WORKER || world->is_attempted || world->has_timer ||
                      world->is_reserving || world->is_finding || world->is_starting ||
                      world->is_ending;

    lifecycle_world_check(exploration,
                          is_pending || is_waiting_for_resources(world) || is_on_other_node(world),
                          NOTHING_PENDING);
    lifecycle_world_check(exploration,
                          !world->has_no_handle || exploration->kind->facts.is_detached ||
                              actor->state != ACTOR_ALIVE,
                          KEPT_WITHOUT_HANDLE);
    lifecycle_world_check(
        exploration,
        tdm__actor_lifecycle_holds_resources(actor) ==
            (actor->reservation >= ACTOR_RESERVES && !tdm__actor_state_is_remote(actor->state)),
        NO_RESOURCES);
}

/* Lets each party do at once what the machine asked for, but the worker only ends if killed. */
static void lead_on(struct actor_exploration *exploration, struct lifecycle_simulator *world)
{
    struct actor_event event = {.kind = ACTOR_ON_NODE_SEEN};

    if (world->is_killed) {
        world->worker = NO_WORKER;
        world->is_killed = world->is_leaving = world->has_timer = 0;
        event.kind = ACTOR_ON_WORKER_ENDED;
    } else if (world->is_attempted) {
        world->is_attempted = 0;
        world->worker = FORKED;
        event.kind = ACTOR_ON_KILL;
    } else if (world->has_timer) {
        world->has_timer = 0;
        event.kind = ACTOR_ON_TIMER;
    } else if (world->is_reserving) {
        world->is_reserving = 0;
        world->is_owed = 1;
        world->place = HERE;
        event.kind = ACTOR_ON_RESERVED_HERE;
    } else if (world->is_finding) {
        world->is_finding = 0;
        event.kind = ACTOR_ON_HOLDER_FOUND;
    } else if (world->is_starting) {
        world->is_starting = 0;
        world->guest = world->guest == GONE ? GONE : RUNNING;
        event.kind = world->guest == GONE ? ACTOR_ON_REFUSED_ELSEWHERE : ACTOR_ON_STARTED_ELSEWHERE;
        event.status = TDM_E_ACTOR_DIED;
    } else if (world->is_ending) {
        world->is_ending = 0;
        event.kind = ACTOR_ON_END_REPLY;
        event.status = world->other_is_lost      ? TDM_E_NODE_LOST
                       : world->guest == RUNNING ? TDM_OK
                                                 : TDM_E_ACTOR_DIED;
        world->place = world->guest == RUNNING ? NOWHERE : world->place;
        world->guest = GONE;
    } else if (world->other_is_lost) {
        event.kind = ACTOR_ON_NODE_LOST;
    }
    lifecycle_world_step(exploration, world, event);
}

/* An end that is asked for now comes, and comes also if the worker does not exit by itself. */
static void check_end(struct actor_exploration *exploration, struct lifecycle_simulator world,
                      enum actor_event_kind kind)
{
    world.must_not_start = 1;
    lifecycle_world_step(exploration, &world, (struct actor_event){.kind = kind});
    for (int i = 0; i < STEPS_TO_END_MAX && !has_ended(&world); i++) {
        lead_on(exploration, &world);
    }
    lifecycle_world_check(exploration, has_ended(&world), NO_WAY_TO_END);
}

static void visit_ended(struct actor_exploration *exploration,
                        const struct lifecycle_simulator *from)
{
    for (uint32_t kind = 0; kind < ACTOR_EVENTS_COUNT; kind++) {
        struct lifecycle_simulator world = *from;

        lifecycle_world_step(exploration, &world,
                             (struct actor_event){.kind = (enum actor_event_kind)kind});
        lifecycle_world_check(exploration, memcmp(&world, from, sizeof(world)) == 0,
                              ACTIVE_AFTER_END);
    }
}

static void visit(struct actor_exploration *exploration, const struct lifecycle_simulator *from)
{
    if (has_ended(from)) {
        visit_ended(exploration, from);
        return;
    }
    check_state(exploration, from);
    if (from->is_attempted) {
        try_attempt(exploration, *from);
        return;
    }
    check_end(exploration, *from, ACTOR_ON_KILL);
    if (!from->is_leaving) {
        check_end(exploration, *from, ACTOR_ON_END);
    }
    try_store(exploration, from);
    try_requests(exploration, from);
    try_lease(exploration, *from);
    if (from->worker != NO_WORKER) {
        try_worker(exploration, from);
    }
    if (exploration->kind->has_other) {
        try_other_daemon(exploration, from);
    }
    if (from->has_timer) {
        struct lifecycle_simulator world = *from;

        world.has_timer = 0;
        try_kind(exploration, world, ACTOR_ON_TIMER);
    }
}

/* ---- examples --------------------------------------------------------------------------- */

static struct actor_action step_alone(struct actor_lifecycle *actor, struct actor_event event)
{
    struct actor_actions actions;

    tdm__actor_lifecycle_step(actor, &event, &actions);
    assert_int_equal(actions.count, 1);
    return actions.entries[0];
}

static void test_restart_delay_doubles_until_a_worker_lives_long(void **state)
{
    static const int64_t delays_ms[] = {0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    const struct actor_event quick = {
        .kind = ACTOR_ON_WORKER_ENDED, .facts.max_restarts = -1, .lifetime_ms = 9999};
    struct actor_event slow = quick;
    struct actor_lifecycle actor = {.state = ACTOR_ALIVE, .reservation = ACTOR_RESERVES};

    (void)state;
    for (size_t i = 0; i < sizeof(delays_ms) / sizeof(delays_ms[0]); i++) {
        assert_int_equal(step_alone(&actor, quick).delay_ms, delays_ms[i]);
        actor.state = ACTOR_ALIVE;
    }
    slow.lifetime_ms = 10000;
    assert_int_equal(step_alone(&actor, slow).delay_ms, 0);
    assert_int_equal(actor.quick_end_count, 0);
    assert_int_equal(actor.incarnation, 12);
}

static void test_impossible_reservation_is_refused_unless_nodes_may_be_missing(void **state)
{
    struct actor_event event = {.kind = ACTOR_ON_NOT_RESERVED,
                                .status = TDM_E_NO_RESOURCES,
                                .detail = "no node has 9 GPUs"};
    struct actor_lifecycle actor = {.state = ACTOR_PLACING};
    struct actor_action action;

    (void)state;
    event.facts.lease_was_lost_recently = true;
    assert_int_equal(step_alone(&actor, event).kind, ACTOR_DO_EXPLAIN_WAIT);
    assert_int_equal(actor.state, ACTOR_WAITING);
    actor = (struct actor_lifecycle){.state = ACTOR_PLACING, .incarnation = 1};
    event.facts.lease_was_lost_recently = false;
    assert_int_equal(step_alone(&actor, event).kind, ACTOR_DO_EXPLAIN_WAIT);
    actor = (struct actor_lifecycle){.state = ACTOR_PLACING};
    action = step_alone(&actor, event);
    assert_int_equal(action.kind, ACTOR_DO_REFUSE);
    assert_int_equal(action.status, TDM_E_NO_RESOURCES);
    assert_string_equal(action.text, event.detail);
}

/* The node of the name's holder lives, but there is no connection with it at the moment. */
static void test_holder_that_cannot_be_asked_is_looked_for_again(void **state)
{
    const struct actor_event event = {
        .kind = ACTOR_ON_HOLDER_NOT_FOUND, .status = TDM_E_AGAIN, .detail = "no reply"};
    struct actor_lifecycle actor = {.state = ACTOR_FINDING_HOLDER};
    struct actor_action action = step_alone(&actor, event);

    (void)state;
    assert_int_equal(action.kind, ACTOR_DO_EXPLAIN_WAIT);
    assert_string_equal(action.text, "no reply");
    assert_int_equal(actor.state, ACTOR_WAITING);
}

static void test_end_of_lost_node_is_reported_as_such(void **state)
{
    const struct actor_event lost = {.kind = ACTOR_ON_NODE_LOST, .detail = "lost"};
    struct actor_lifecycle actor = {.state = ACTOR_REMOTE};

    (void)state;
    assert_int_equal(step_alone(&actor, lost).status, TDM_E_NODE_LOST);
    actor = (struct actor_lifecycle){.state = ACTOR_REMOTE, .demand = ACTOR_UNWANTED};
    assert_int_equal(step_alone(&actor, lost).status, TDM_E_ACTOR_DIED);
}

/* ---- explorations ----------------------------------------------------------------------- */

static const struct kind_of_actor kinds[] = {
    {"plain", {.max_restarts = 0}, true},
    {"restarted", {.max_restarts = 2, .is_claimable = true}, true},
    {"restarted for ever", {.max_restarts = -1, .is_claimable = true}, false},
    {"named", {.is_claimable = true, .takes_name_holder = true}, true},
    {"in a group", {.max_restarts = 1, .has_group = true, .is_claimable = true}, true},
    {"detached", {.max_restarts = 1, .is_detached = true, .is_claimable = true}, true},
    {"awaiting arguments", {.max_restarts = 1, .awaits_creator_arguments = true}, false},
    {"guest", {.max_restarts = 1, .is_guest = true, .is_claimable = true}, false},
    {"detached guest", {.max_restarts = 1, .is_guest = true, .is_detached = true}, false},
};

static void add_first_state(struct actor_exploration *exploration)
{
    struct lifecycle_simulator world = {.awaits_creator_arguments =
                                            exploration->kind->facts.awaits_creator_arguments};

    if (exploration->kind->facts.is_guest) {
        world.place = HERE;
        world.is_owed = 1;
        try_kind(exploration, world, ACTOR_ON_START_HERE);
    } else {
        try_kind(exploration, world, ACTOR_ON_CREATE);
    }
}

/* Returns the violations of the first state that has any, or 0 if none has, and adds the states
 * of the actor that were reached. */
static unsigned explore(const struct kind_of_actor *kind, enum mutation mutation,
                        uint32_t *states_out)
{
    struct actor_exploration exploration = {.kind = kind, .mutation = mutation};
    struct lifecycle_simulator world = {.worker = NO_WORKER};

    state_explorer_init_plain(&exploration.walk, sizeof(world), STATES_MAX);
    add_first_state(&exploration);
    while (exploration.violations == 0 && state_explorer_next(&exploration.walk, &world)) {
        exploration.states |= UINT32_C(1) << world.actor.state;
        visit(&exploration, &world);
    }
    *states_out |= exploration.states;
    if (mutation == NO_MUTATION) {
        print_message("%s: %u states, %llu transitions, violations %#x in state %d\n", kind->name,
                      exploration.walk.seen, (unsigned long long)exploration.walk.transitions,
                      exploration.violations, (int)world.actor.state);
    }
    state_explorer_fini(&exploration.walk);
    return exploration.violations;
}

static void test_invariants_hold_in_every_reachable_state(void **state)
{
    const uint32_t all = (UINT32_C(2) << ACTOR_ENDED_ELSEWHERE) - 1;
    uint32_t reached = UINT32_C(1) << ACTOR_NEW;

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        assert_int_equal(explore(&kinds[i], NO_MUTATION, &reached), 0);
    }
    assert_int_equal(reached, all);
}

static void test_exploration_finds_each_mutation(void **state)
{
    static const unsigned expected[MUTATIONS_COUNT] = {
        [FORGETS_RELEASE] = NOT_RELEASED,
        [FORGETS_THAT_IT_RELEASED] = RELEASED_TWICE | NO_RESOURCES,
        [REPORTS_BEFORE_RELEASE] = NOT_RELEASED | ACTIVE_AFTER_END,
        [FORGETS_KILL_IN_PLACING] = STARTED_UNWANTED,
        [RESTARTS_AFTER_KILL] = STARTED_UNWANTED,
        [RESTARTS_ONCE_TOO_OFTEN] = TOO_MANY_RESTARTS,
        [RESTARTS_BEFORE_THE_END] = TWO_WORKERS,
        [FORGETS_PATIENCE] = NO_WAY_TO_END,
        [IGNORES_LEASE] = NOT_FENCED,
        [FORGETS_LAST_HANDLE] = KEPT_WITHOUT_HANDLE,
        [ENDS_UNDER_A_REPLY] = ENDED_TOO_EARLY,
        [KEEPS_REFUSED] = RELEASED_TWICE,
        [TRUSTS_UNSURE_START] = NOT_RELEASED,
        [STARTS_UNWANTED_AGAIN] = STARTED_UNWANTED};

    (void)state;
    for (int mutation = NO_MUTATION + 1; mutation < MUTATIONS_COUNT; mutation++) {
        unsigned found = 0;
        uint32_t reached = 0;

        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && found == 0; i++) {
            found = explore(&kinds[i], (enum mutation)mutation, &reached);
        }
        if ((found & expected[mutation]) == 0) {
            fail_msg("mutation %d was found as %#x", mutation, found);
        }
    }
}

/* Two actors have got the same name in a store that lost changes. The younger one is killed, and
 * whoever waits for it is told why. */
static void test_younger_holder_of_a_name_ends_with_the_reason(void **state)
{
    static const char reason[] = "the name \"only\" is taken by actor 12";
    static const enum actor_state running[] = {ACTOR_STARTING, ACTOR_ALIVE, ACTOR_ENDING};

    (void)state;
    for (size_t i = 0; i < sizeof(running) / sizeof(running[0]); i++) {
        struct actor_lifecycle lifecycle = {.state = running[i],
                                            .reservation = ACTOR_RESERVATION_REWRITTEN};
        const struct actor_event event = {
            .kind = ACTOR_ON_REWRITTEN, .status = TDM_E_EXISTS, .detail = reason};
        struct actor_actions actions;

        tdm__actor_lifecycle_step(&lifecycle, &event, &actions);
        assert_int_equal(actions.count, 1);
        assert_int_equal(actions.entries[0].kind, ACTOR_DO_KILL_WORKER);
        assert_string_equal(actions.entries[0].text, reason);
        assert_int_equal(lifecycle.state, ACTOR_ENDING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_younger_holder_of_a_name_ends_with_the_reason),
        cmocka_unit_test(test_restart_delay_doubles_until_a_worker_lives_long),
        cmocka_unit_test(test_impossible_reservation_is_refused_unless_nodes_may_be_missing),
        cmocka_unit_test(test_holder_that_cannot_be_asked_is_looked_for_again),
        cmocka_unit_test(test_end_of_lost_node_is_reported_as_such),
        cmocka_unit_test(test_invariants_hold_in_every_reachable_state),
        cmocka_unit_test(test_exploration_finds_each_mutation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
