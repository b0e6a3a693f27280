/* lease_simulator.c - a small cluster whose nodes hold leases, for an exploration of all states. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/lease_simulator.h"

#include "tests/support/kept_clock.h"

#include <string.h>

enum {
    PRESENT = 100, /* The present time and the kept clock, as the machine and the rules see them. */
    /* Longer ago, or longer, is all alike. */
    PAST_MIN = -SIM_LEASE,
    TICKS_MAX = SIM_LEASE + SIM_GRACE + 1
};

/* ---- the machine of a node -------------------------------------------------------------- */

static struct lease_machine machine_of(const struct sim_node *node)
{
    return (struct lease_machine){.lease = SIM_LEASE,
                                  .sent_at = PRESENT + node->sent_at,
                                  .ends_at = PRESENT + node->ends_at,
                                  .request = (enum lease_request)node->request,
                                  .is_lost = node->is_lost,
                                  .may_have_joined = node->may_have_joined,
                                  .is_fenced = node->is_fenced,
                                  .is_alone = node->is_alone};
}

static int8_t relative(int64_t time)
{
    return (int8_t)(time - PRESENT < PAST_MIN ? PAST_MIN : time - PRESENT);
}

static int8_t earlier(int8_t time)
{
    return (int8_t)(time > PAST_MIN ? time - 1 : PAST_MIN);
}

static uint8_t later(uint8_t ticks)
{
    return (uint8_t)(ticks < TICKS_MAX ? ticks + 1 : TICKS_MAX);
}

static void set_machine(struct sim_node *node, const struct lease_machine *machine)
{
    node->request = (uint8_t)machine->request;
    node->is_lost = machine->is_lost;
    node->may_have_joined = machine->may_have_joined;
    node->is_fenced = machine->is_fenced;
    node->is_alone = machine->is_alone;
    node->sent_at = relative(machine->sent_at);
    node->ends_at = relative(machine->ends_at);
}

static bool lease_has_ended(const struct sim_node *node)
{
    struct lease_machine machine = machine_of(node);

    return tdm__lease_machine_fence_at(&machine) <= PRESENT;
}

/* The daemon kills at once; its supervisor may take SIM_KILL. */
static void report(struct lease_exploration *exploration, struct sim_node *node,
                   enum lease_event event)
{
    struct lease_machine machine = machine_of(node);
    struct lease_actions actions;

    if (exploration->mutation == FENCE_IS_COUNTED_FROM_THE_ANSWER &&
        (event == LEASE_ON_RENEWED || event == LEASE_ON_JOINED)) {
        machine.sent_at = PRESENT;
    }
    if (exploration->mutation == LONE_NODE_HAS_NO_LIMIT && event == LEASE_ON_SHARED) {
        return;
    }
    actions = tdm__lease_machine_step(&machine, event, PRESENT);
    set_machine(node, &machine);
    if (actions.fences) {
        node->has_process = 0;
    }
    if (actions.fences && machine.is_alone) {
        exploration->violations |= FENCED_WITHOUT_COMPETITOR;
    }
    if (actions.renews || actions.joins) {
        node->message = SIM_REQUEST;
    }
}

/* ---- states ----------------------------------------------------------------------------- */

/* Forgets what makes no difference for the future of a node. */
static void normalise(const struct lease_exploration *exploration, struct lease_world *world,
                      uint32_t self)
{
    struct sim_node *node = &world->nodes[self];
    bool counts_renewals = exploration->mutation == CLOCK_ADDS_A_STEP_PER_NODE ||
                           exploration->mutation == TAKEOVER_DOES_NOT_CHECK_THE_LEASE;
    int8_t end = world->store.lease_end[self];

    if (node->phase == SIM_DEAD) {
        *node = (struct sim_node){.phase = SIM_DEAD};
    }
    if (node->request == LEASE_ASKS_NOTHING && node->sent_at < -1) {
        node->sent_at = -1;
    }
    if (node->ends_at < (node->has_process ? -SIM_KILL : 0)) {
        node->ends_at = node->has_process ? -SIM_KILL : 0;
    }
    if (!counts_renewals || node->passed > SIM_STEP + 1) {
        node->passed = counts_renewals ? SIM_STEP + 1 : 0;
    }
    if (!world->store.is_member[self] || !exploration->counts_outages) {
        node->counted = 0;
    }
    if (!exploration->counts_outages) {
        world->was_down = 0;
    }
    if (node->ends_at <= 0 && !node->has_process && !node->is_alone && node->phase != SIM_UNBORN) {
        node->is_fenced = 1; /* There is nothing left to fence. */
    }
    world->store.lease_end[self] =
        (int8_t)(!world->store.is_member[self] || end < -SIM_GRACE - 1 ? -SIM_GRACE - 1 : end);
}

static void add(struct lease_exploration *exploration, const struct lease_world *from)
{
    struct lease_world normal = *from;
    struct lease_world *world = &normal;
    uint32_t holders_count = 0;

    for (uint32_t i = 0; i < exploration->nodes_count; i++) {
        normalise(exploration, world, i);
    }
    for (uint32_t i = 0; i < exploration->nodes_count; i++) {
        holders_count += world->nodes[i].has_process;
    }
    if (holders_count > 1) {
        exploration->violations |= TWO_HOLDERS;
    }
    if (exploration->violations == 0) {
        (void)state_explorer_add(&exploration->walk, world, world);
    }
}

void lease_world_init(struct lease_world *world, bool is_alone, uint32_t faults_count)
{
    *world =
        (struct lease_world){.server = 1, .clock_server = 1, .faults_left = (uint8_t)faults_count};
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        world->nodes[i].sent_at = world->nodes[i].ends_at = PAST_MIN;
        world->store.lease_end[i] = PAST_MIN;
    }
    world->nodes[0] = (struct sim_node){
        .phase = SIM_UP, .is_alone = is_alone, .ends_at = SIM_LEASE, .server = 1, .has_process = 1};
    world->store.is_member[0] = 1;
    world->store.lease_end[0] = SIM_LEASE;
}

/* Returns the world with one fault less, or false if none is left. */
static bool take_fault(const struct lease_world *from, struct lease_world *world)
{
    *world = *from;
    if (world->faults_left == 0) {
        return false;
    }
    world->faults_left--;
    return true;
}

/* ---- the store -------------------------------------------------------------------------- */

/* Returns how much after the end of its lease a node is taken over. */
static int64_t grace_of(const struct lease_exploration *exploration)
{
    return exploration->mutation == GRACE_IS_SHORTER_THAN_A_KILL ? SIM_KILL - 1 : SIM_GRACE;
}

/* A node loses its membership: the place where nodes are taken over. */
static void lose(struct lease_exploration *exploration, struct lease_world *world, uint32_t lost)
{
    if (exploration->counts_outages &&
        world->nodes[lost].counted <= SIM_LEASE + grace_of(exploration) &&
        world->nodes[lost].phase == SIM_UP && world->server == world->nodes[lost].server) {
        exploration->violations |= OUTAGE_COUNTED;
    }
    world->store.is_member[lost] = 0;
    world->store.lease_end[lost] = PAST_MIN;
}

static void advance_clock(struct lease_exploration *exploration, struct lease_world *world,
                          uint32_t self)
{
    struct kept_clock clock = {.now = PRESENT, .time = 0, .has_time = true};
    int64_t passed = world->since_advance;

    if (exploration->mutation == CLOCK_ADDS_A_STEP_PER_NODE) {
        passed = world->nodes[self].passed;
    } else if (exploration->mutation == PEXPIRE_STAYS) {
        passed = 0; /* The leases end by themselves, see tick(). */
    }
    kept_clock_advance(&clock, passed, SIM_STEP);
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        int64_t end = world->store.lease_end[i] - (clock.now - PRESENT);

        world->store.lease_end[i] = (int8_t)(end < PAST_MIN ? PAST_MIN : end);
    }
    world->store.held_left = (uint8_t)(world->store.held_left > clock.now - PRESENT
                                           ? world->store.held_left - (clock.now - PRESENT)
                                           : 0);
    if (world->was_down) {
        for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
            world->nodes[i].counted = later(world->nodes[i].counted);
        }
    }
    world->was_down = 0;
    world->since_advance = 0;
}

/* Begins a generation if the server is another one. Returns the clock by which leases are judged.
 */
static struct kept_clock check_generation(struct lease_exploration *exploration,
                                          struct lease_world *world)
{
    struct kept_clock clock = {.now = PRESENT,
                               .began = PRESENT,
                               .held_until = PRESENT + world->store.held_left,
                               .server = world->clock_server};
    int64_t hold =
        exploration->mutation == GENERATION_CHANGE_ALLOWS_TAKEOVERS ? 0 : SIM_LEASE + SIM_GRACE + 1;

    if (kept_clock_check_generation(&clock, world->server, clock.server == world->server ? 0 : hold,
                                    false)) {
        world->store.held_left = (uint8_t)(clock.held_until - PRESENT);
    }
    world->clock_server = world->server;
    return clock;
}

static void take_over(struct lease_exploration *exploration, struct lease_world *world,
                      const struct kept_clock *clock, uint32_t self)
{
    for (uint32_t i = 0; i < exploration->nodes_count; i++) {
        bool is_due = kept_clock_takes_over(clock, PRESENT + world->store.lease_end[i],
                                            grace_of(exploration));

        if (exploration->mutation == TAKEOVER_DOES_NOT_CHECK_THE_LEASE) {
            is_due = i != self && world->nodes[i].passed > 0;
        }
        if (world->store.is_member[i] && is_due) {
            lose(exploration, world, i);
        }
    }
}

/* The store carries out a renewal. Returns false if it refuses it. */
static bool renew(struct lease_exploration *exploration, struct lease_world *world, uint32_t self)
{
    struct kept_clock clock;

    if (!world->store.is_member[self]) {
        return false;
    }
    advance_clock(exploration, world, self);
    clock = check_generation(exploration, world);
    world->store.lease_end[self] = SIM_LEASE;
    world->nodes[self].passed = world->nodes[self].counted = 0;
    take_over(exploration, world, &clock, self);
    return true;
}

/* The store writes the records of a node. */
static void join(struct lease_exploration *exploration, struct lease_world *world, uint32_t self)
{
    if (exploration->mutation != JOIN_DOES_NOT_ADVANCE_THE_CLOCK) {
        advance_clock(exploration, world, self);
    }
    world->store.is_member[self] = 1;
    world->store.lease_end[self] = SIM_LEASE;
    world->nodes[self].passed = world->nodes[self].counted = 0;
}

/* Returns whether `self` may have the name. */
static bool may_claim(struct lease_exploration *exploration, const struct lease_world *world,
                      uint32_t self)
{
    const struct kept_clock clock = {.now = PRESENT,
                                     .held_until = PRESENT + world->store.held_left,
                                     .server = world->clock_server};
    uint8_t holder = world->store.holder;

    if (world->is_down || holder == self || world->nodes[self].phase != SIM_UP ||
        lease_has_ended(&world->nodes[self]) || world->nodes[self].is_lost) {
        return false;
    }
    if (exploration->mutation == NAME_CLAIM_SKIPS_THE_RULE && holder != SIM_NOBODY) {
        return world->store.lease_end[holder] <= 0;
    }
    return world->store.is_member[self] &&
           (holder == SIM_NOBODY || !world->store.is_member[holder]) &&
           !kept_clock_is_held(&clock) && world->clock_server == world->server;
}

/* ---- what may happen next --------------------------------------------------------------- */

/* The daemon handles the reply to its request. A daemon that learns of a new server writes the
 * records of what it holds. */
static void handle_reply(struct lease_exploration *exploration, struct lease_world *world,
                         uint32_t self)
{
    struct sim_node *node = &world->nodes[self];
    bool is_refused = node->message == SIM_REPLY_REFUSED;
    bool was_joining = node->request == LEASE_JOINS;

    node->message = SIM_NO_MESSAGE;
    if (is_refused) {
        report(exploration, node, LEASE_ON_REFUSED);
        return;
    }
    report(exploration, node, was_joining ? LEASE_ON_JOINED : LEASE_ON_RENEWED);
    if (node->server != world->clock_server && node->has_process) {
        world->store.holder = (uint8_t)self;
    }
    node->server = world->clock_server;
}

/* The store carries the request of a node out, whose reply arrives at once. To delay or to lose the
 * reply, and to repeat the request, are faults. */
static void try_request(struct lease_exploration *exploration, const struct lease_world *from,
                        uint32_t self)
{
    struct lease_world world = *from;
    bool is_done = true;

    if (from->nodes[self].message != SIM_REQUEST || from->is_down ||
        from->nodes[self].requests_are_cut) {
        return;
    }
    if (from->nodes[self].request == LEASE_JOINS) {
        join(exploration, &world, self);
    } else {
        is_done = renew(exploration, &world, self);
    }
    world.nodes[self].message = is_done ? SIM_REPLY_OK : SIM_REPLY_REFUSED;
    if (world.faults_left > 0 && !exploration->only_cuts) {
        world.faults_left--;
        world.nodes[self].stale = from->nodes[self].request; /* It comes twice. */
        add(exploration, &world);
        world.nodes[self].stale = from->nodes[self].stale;
        add(exploration, &world); /* The reply is late, or lost. */
        world.faults_left++;
    }
    if (world.nodes[self].phase == SIM_UP && !world.nodes[self].replies_are_cut) {
        handle_reply(exploration, &world, self);
    }
    add(exploration, &world);
}

/* A copy of an old request reaches the store, or is lost. */
static void try_stale_request(struct lease_exploration *exploration, const struct lease_world *from,
                              uint32_t self)
{
    struct lease_world world = *from;

    if (from->nodes[self].stale == LEASE_ASKS_NOTHING) {
        return;
    }
    world.nodes[self].stale = LEASE_ASKS_NOTHING;
    add(exploration, &world);
    if (from->is_down) {
        return;
    }
    if (from->nodes[self].stale == LEASE_JOINS) {
        join(exploration, &world, self);
    } else {
        (void)renew(exploration, &world, self);
    }
    add(exploration, &world);
}

/* A reply that was delayed arrives; or the daemon gives up a message that was delayed, and the
 * store may carry it out later nevertheless. */
static void try_delayed_messages(struct lease_exploration *exploration,
                                 const struct lease_world *from, uint32_t self)
{
    struct lease_world world = *from;

    if (from->nodes[self].message == SIM_NO_MESSAGE || from->nodes[self].phase != SIM_UP) {
        return;
    }
    if (from->nodes[self].message != SIM_REQUEST && !from->nodes[self].replies_are_cut) {
        handle_reply(exploration, &world, self);
        add(exploration, &world);
    }
    world = *from;
    world.nodes[self].message = SIM_NO_MESSAGE;
    report(exploration, &world.nodes[self], LEASE_ON_FAILED);
    add(exploration, &world);
    if (from->nodes[self].message == SIM_REQUEST && !exploration->only_cuts) {
        world.nodes[self].stale = from->nodes[self].request;
        add(exploration, &world);
    }
}

static void try_daemon(struct lease_exploration *exploration, const struct lease_world *from,
                       uint32_t self)
{
    struct lease_world world = *from;

    if (from->nodes[self].phase == SIM_UP && from->nodes[self].request == LEASE_ASKS_NOTHING &&
        (from->nodes[self].sent_at < 0 || from->nodes[self].is_lost)) {
        report(exploration, &world.nodes[self], LEASE_ON_TIMER);
        try_request(exploration, &world, self);
        if (world.is_down || world.nodes[self].requests_are_cut) {
            add(exploration, &world);
        } else if (world.faults_left > 0 && !exploration->only_cuts) {
            world.faults_left--; /* The request is late, or lost. */
            add(exploration, &world);
        }
    }
    world = *from;
    if (from->nodes[self].phase == SIM_UP && may_claim(exploration, from, self)) {
        exploration->takeovers_count++;
        world.store.holder = (uint8_t)self;
        world.nodes[self].has_process = 1;
        add(exploration, &world);
    }
    world = *from;
    if (from->nodes[self].has_process && lease_has_ended(&from->nodes[self]) &&
        exploration->mutation != SUPERVISOR_DOES_NOT_FENCE) {
        world.nodes[self].has_process = 0; /* The supervisor has killed it. */
        add(exploration, &world);
    }
}

/* A daemon starts and asks to join; the daemon of a node that was alone lets it reach the store. */
static void start_daemon(struct lease_exploration *exploration, const struct lease_world *from,
                         uint32_t self)
{
    struct lease_world world = *from;
    struct lease_machine machine;

    report(exploration, &world.nodes[0], LEASE_ON_SHARED);
    tdm__lease_machine_init(&machine, SIM_LEASE, false, PRESENT);
    set_machine(&world.nodes[self], &machine);
    world.nodes[self].phase = SIM_UP;
    world.nodes[self].message = SIM_REQUEST;
    world.nodes[self].server = world.server;
    add(exploration, &world);
}

/* A node joins for the first time. */
static void try_birth(struct lease_exploration *exploration, const struct lease_world *from,
                      uint32_t self)
{
    if (from->nodes[self].phase != SIM_UNBORN || from->nodes[self - 1].phase == SIM_UNBORN ||
        (from->nodes[0].is_alone && from->nodes[0].phase != SIM_UP)) {
        return;
    }
    start_daemon(exploration, from, self);
}

/* Starts the daemon of a dead node again. To the other nodes it is a new node, because each start
 * has its own ID. In the simulator it takes the place of the dead node, so it waits until no record
 * of the dead node is left and the record of the name names no node. */
static void try_restart(struct lease_exploration *exploration, const struct lease_world *from,
                        uint32_t self)
{
    struct lease_world world = *from;

    if (from->nodes[self].phase != SIM_DEAD || from->store.is_member[self] ||
        (from->has_snapshot && from->snapshot.is_member[self])) {
        return;
    }
    exploration->restarts_count++;
    if (world.store.holder == self) {
        world.store.holder = SIM_NOBODY;
    }
    world.nodes[self].has_process = exploration->mutation == RESTARTED_DAEMON_STARTS_ITS_ACTORS;
    if (world.has_snapshot && world.snapshot.holder == self) {
        world.snapshot.holder = SIM_NOBODY;
    }
    start_daemon(exploration, &world, self);
}

static void try_faults_of_node(struct lease_exploration *exploration,
                               const struct lease_world *from, uint32_t self)
{
    struct lease_world world;

    if (from->nodes[self].phase == SIM_STOPPED) {
        world = *from;
        world.nodes[self].phase = SIM_UP;
        add(exploration, &world);
    }
    world = *from;
    if (from->nodes[self].requests_are_cut || from->nodes[self].replies_are_cut) {
        world.nodes[self].requests_are_cut = world.nodes[self].replies_are_cut = 0;
        add(exploration, &world);
    }
    if (from->nodes[self].phase != SIM_UP || !take_fault(from, &world)) {
        return;
    }
    world.nodes[self].requests_are_cut = 1;
    add(exploration, &world);
    world.nodes[self].requests_are_cut = from->nodes[self].requests_are_cut;
    world.nodes[self].replies_are_cut = 1;
    add(exploration, &world);
    world.nodes[self].replies_are_cut = from->nodes[self].replies_are_cut;
    if (exploration->only_cuts) {
        return;
    }
    world.nodes[self].phase = SIM_STOPPED;
    add(exploration, &world);
    world.nodes[self].phase = SIM_DEAD;
    world.nodes[self].has_process = 0;
    world.nodes[self].message = SIM_NO_MESSAGE;
    add(exploration, &world);
}

static void try_faults_of_store(struct lease_exploration *exploration,
                                const struct lease_world *from)
{
    struct lease_world world;

    if (from->is_down) {
        world = *from;
        world.is_down = 0;
        add(exploration, &world);
        return;
    }
    if (exploration->restores && !from->has_snapshot && from->server == 1) {
        world = *from;
        world.has_snapshot = 1;
        world.snapshot = from->store;
        add(exploration, &world);
    }
    if (!exploration->only_cuts && take_fault(from, &world)) {
        world.is_down = world.was_down = 1;
        add(exploration, &world);
    }
    if (from->has_snapshot) {
        world = *from;
        world.store = from->snapshot;
        world.server++;
        world.has_snapshot = 0;
        world.snapshot = (struct sim_store){.holder = 0};
        world.was_down = 1;
        for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
            /* The requests that the old server did not carry out are lost with the server. */
            world.nodes[i].stale = LEASE_ASKS_NOTHING;
        }
        add(exploration, &world);
    }
}

/* Returns whether a renewal of the node is due before the next tick, or a message of the node could
 * arrive; to delay it is a fault. */
static bool is_late(const struct lease_world *world, uint32_t self)
{
    const struct sim_node *node = &world->nodes[self];

    if (node->phase != SIM_UP) {
        return false;
    }
    return (node->request == LEASE_ASKS_NOTHING && node->sent_at < 0) ||
           (node->message == SIM_REQUEST && !world->is_down && !node->requests_are_cut) ||
           (node->message > SIM_REQUEST && !node->replies_are_cut);
}

/* Lets a tick pass, unless a process must be killed first. */
static void try_tick(struct lease_exploration *exploration, const struct lease_world *from)
{
    struct lease_world world = *from;

    for (uint32_t i = 0; i < exploration->nodes_count; i++) {
        if (is_late(&world, i)) {
            if (world.faults_left == 0 || exploration->only_cuts) {
                return;
            }
            world.faults_left--;
        }
    }
    for (uint32_t i = 0; i < exploration->nodes_count; i++) {
        struct sim_node *node = &world.nodes[i];

        if (node->has_process && lease_has_ended(node) && node->ends_at <= -SIM_KILL &&
            exploration->mutation != SUPERVISOR_DOES_NOT_FENCE) {
            return;
        }
        if (node->phase == SIM_UNBORN) {
            continue;
        }
        node->sent_at = earlier(node->sent_at);
        node->ends_at = earlier(node->ends_at);
        node->passed = later(node->passed);
        node->counted = world.is_down ? node->counted : later(node->counted);
        if (exploration->mutation == PEXPIRE_STAYS && world.store.is_member[i]) {
            world.store.lease_end[i] = earlier(world.store.lease_end[i]);
            if (world.store.lease_end[i] <= 0) {
                lose(exploration, &world, i);
            }
        }
    }
    world.since_advance =
        (uint8_t)(world.since_advance > SIM_STEP ? world.since_advance : world.since_advance + 1);
    add(exploration, &world);
}

void lease_world_visit(struct lease_exploration *exploration, const struct lease_world *world)
{
    for (uint32_t i = 0; i < exploration->nodes_count; i++) {
        if (world->nodes[i].phase == SIM_UNBORN) {
            try_birth(exploration, world, i);
            continue;
        }
        try_request(exploration, world, i);
        try_stale_request(exploration, world, i);
        try_delayed_messages(exploration, world, i);
        try_daemon(exploration, world, i);
        try_faults_of_node(exploration, world, i);
        try_restart(exploration, world, i);
    }
    try_faults_of_store(exploration, world);
    try_tick(exploration, world);
}
