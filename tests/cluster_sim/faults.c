/* faults.c - what goes wrong in a simulated cluster, one fault after the other or two at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/cluster_sim/driver.h"
#include "tests/cluster_sim/machine.h"
#include "tests/cluster_sim/store_records.h"
#include "tests/cluster_sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A little more than what a daemon waits for the answer to a request to join. */
enum { JOIN_DEADLINE_MS = 10500 };
enum {
    /* Most milliseconds until a daemon has sent the claim of a name that its driver wants. */
    CLAIM_MS = 1000,
    HOLD_MS = 3000,   /* Most milliseconds for which that claim is held back. */
    LOOK_MS = 100,    /* Milliseconds between two looks for an actor with a name. */
    CLAIM_LOOKS = 10, /* Number of looks after which it is created again. */
    CREATE_LOOKS = 40 /* Number of looks after which there is none. */
};

enum fault_kind {
    CUT_MACHINES,
    CUT_MACHINES_ONE_WAY,
    CLAIM_WHILE_OWNER_RETURNS,
    CUT_FROM_STORE,
    CUT_FROM_STORE_ONE_WAY,
    LATE_ANSWERS_THEN_CUT,
    JOIN_WITHOUT_ANSWER,
    ISOLATE_MACHINE,
    STOP_DAEMON,
    POWER_OFF_FOR_A_WHILE,
    KILL_DAEMON,
    LEAVE_AND_RETURN,
    STOP_STORE,
    RESTART_STORE,
    POWER_OFF_FOR_GOOD,
    RESTART_STORE_WITHOUT_DATA,
    RESTART_STORE_WITHOUT_ACTORS,
    FAULT_KINDS
};

static struct {
    struct sim_process *process;
    uint32_t active_count;
    int64_t last_end_ms;
    bool are_over;
    bool one_is_off_for_good;
} faults;

struct fault {
    enum fault_kind kind;
    struct machine *machine;
    struct machine *other;
    int64_t duration_ms;
};

static void cut_link(uint32_t a, uint32_t b, bool both, bool is_cut)
{
    network_set_cut(a, b, is_cut);
    if (both) {
        network_set_cut(b, a, is_cut);
    }
}

/* Cuts the machine from the store in one direction or both. */
static void cut_from_store(struct fault *fault, bool both)
{
    bool outwards = sim_below(2) == 0;

    cut_link(outwards ? fault->machine->number : STORE_MACHINE,
             outwards ? STORE_MACHINE : fault->machine->number, both, true);
    sim_sleep(fault->duration_ms);
    cut_link(fault->machine->number, STORE_MACHINE, true, false);
}

static void set_isolated(const struct machine *machine, bool is_isolated)
{
    for (uint32_t i = 1; i < LINK_ENDS_MAX; i++) {
        cut_link(machine->number, i, true, is_isolated);
    }
}

static void isolate(const struct fault *fault)
{
    set_isolated(fault->machine, true);
    sim_sleep(fault->duration_ms);
    set_isolated(fault->machine, false);
}

static void stop_daemon(const struct fault *fault)
{
    const struct sim_daemon *daemon = fault->machine->daemon;

    machine_stop_daemon(fault->machine, true);
    sim_sleep(fault->duration_ms);
    if (fault->machine->daemon == daemon) {
        machine_stop_daemon(fault->machine, false);
    }
}

/* Brings the daemon of a machine to an end, and its drivers with it. */
static void end_daemon(const struct fault *fault)
{
    if (fault->kind == KILL_DAEMON) {
        machine_kill_daemon(fault->machine);
    } else {
        machine_ask_to_leave(fault->machine);
    }
    drivers_kill(fault->machine);
    while (fault->machine->daemon != NULL) {
        sim_sleep(50);
    }
    sim_sleep(sim_below(2) == 0 ? sim_below(300) : fault->duration_ms);
    if (fault->machine->daemon == NULL && !fault->machine->is_off) {
        machine_start_daemon(fault->machine);
        sim_sleep(1000);
        driver_start(fault->machine);
    }
}

/* The answers of the store come late, and then none comes any more: the lease ends one lease after
 * the renewals were sent, not after their answers. */
static void late_answers_then_cut(const struct fault *fault)
{
    network_set_cut(STORE_MACHINE, fault->machine->number, true);
    sim_sleep(1000 + sim_below((uint32_t)machines_lease_ms / 2));
    network_set_cut(STORE_MACHINE, fault->machine->number, false);
    sim_sleep(60 + sim_below(100));
    cut_link(fault->machine->number, STORE_MACHINE, true, true);
    sim_sleep(machines_lease_ms + TDM__NODE_GRACE_MS + fault->duration_ms);
    cut_link(fault->machine->number, STORE_MACHINE, true, false);
}

/* Writes the key of the machine's node to `key`. Returns false if no daemon of it has joined. */
static bool node_key(const struct machine *machine, char key[TDM__STORE_KEY_BYTES])
{
    bool has_joined = machine->daemon != NULL && machine->daemon->has_joined;

    if (has_joined) {
        (void)tdm__store_key("node", &machine->daemon->node.record.id, key);
    }
    return has_joined;
}

/* Waits until the store has the record of a node, or has it no more, at most so long that another
 * node has taken it over and it has joined again. Returns whether that happened. */
static bool await_node(const char *key, bool is_there)
{
    int64_t limit_ms = sim_now_ms() + machines_lease_ms + TDM__NODE_GRACE_MS + 6000;

    while (store_records_have(key) != is_there && sim_now_ms() < limit_ms) {
        sim_sleep(1);
    }
    return store_records_have(key) == is_there;
}

/* A node is taken over and joins again, and the answers to its request to join are lost. */
static void join_without_answer(const struct fault *fault)
{
    uint32_t machine = fault->machine->number;
    char key[TDM__STORE_KEY_BYTES];

    if (!node_key(fault->machine, key)) {
        return;
    }
    cut_link(machine, STORE_MACHINE, true, true);
    if (await_node(key, false)) {
        cut_link(machine, STORE_MACHINE, true, false);
        if (await_node(key, true)) {
            network_set_cut(STORE_MACHINE, machine, true);
            sim_sleep(JOIN_DEADLINE_MS);
        }
    }
    cut_link(machine, STORE_MACHINE, true, false);
}

/* A name of an actor that one node has created, that runs on another or the same, and that may be
 * restarted. */
struct held_name {
    struct tdm__id owner_node;
    struct tdm__id node;
    char owner_key[TDM__STORE_KEY_BYTES]; /* Keys of the records of these nodes. */
    char node_key[TDM__STORE_KEY_BYTES];
    uint32_t number; /* The name is "name" with this number; DRIVER_NAMES for none. */
    char key[TDM__STORE_KEY_BYTES]; /* Key of the name's record. */
};

static void find_held_name(void *arg, const struct tdm__store_record *record)
{
    struct held_name *held = arg;
    struct tdm__actor_record holder;

    TDM_ASSERT(tdm__actor_record_read(record, &holder) == TDM_OK);
    if (tdm__id_equal(&holder.node, &held->node) &&
        tdm__id_equal(&holder.owner_node, &held->owner_node) && holder.recreate_on_node_loss) {
        held->number = (uint32_t)(record->key[strlen(record->key) - 1] - '0');
        (void)snprintf(held->key, sizeof(held->key), "%s", record->key);
    }
}

/* Returns the number of a name that no actor has, if there is one. */
static uint32_t free_name(void)
{
    uint32_t first = sim_below(DRIVER_NAMES);

    for (uint32_t i = 0; i < DRIVER_NAMES; i++) {
        uint32_t number = (first + i) % DRIVER_NAMES;
        char key[TDM__STORE_KEY_BYTES];

        (void)snprintf(key, sizeof(key), "name/space/name%u", number);
        if (!store_records_have(key)) {
            return number;
        }
    }
    return first;
}

/* Lets a driver of the machine create an actor with a name on the machine `host`, and waits for it.
 * Returns whether the store has such an actor. */
static bool create_held(const struct machine *machine, const struct machine *host,
                        struct held_name *held)
{
    held->number = DRIVER_NAMES;
    for (int i = 0; i < CREATE_LOOKS && held->number == DRIVER_NAMES; i++) {
        bool have_joined = node_key(machine, held->owner_key) && node_key(host, held->node_key);

        if (have_joined && i % CLAIM_LOOKS == 0) {
            driver_claim_on(machine, free_name(), &host->daemon->node.record.id);
        }
        sim_sleep(LOOK_MS);
        if (node_key(machine, held->owner_key) && node_key(host, held->node_key)) {
            held->owner_node = machine->daemon->node.record.id;
            held->node = host->daemon->node.record.id;
            store_records_each("name/", find_held_name, held);
        }
    }
    return held->number < DRIVER_NAMES;
}

/* Returns a machine whose daemon has joined and which is neither `a` nor `b`; `b` if there is none.
 */
static struct machine *third_machine(struct machine *a, struct machine *b)
{
    for (uint32_t i = 0; i < machines_count; i++) {
        if (&machines[i] != a && &machines[i] != b && machines[i].daemon != NULL &&
            machines[i].daemon->has_joined) {
            return &machines[i];
        }
    }
    return b;
}

/* Two nodes are lost, and just then a third one claims the name of an actor that the first node has
 * created, and that ran on the second one. The claim arrives just when the first node has joined
 * again, and has not yet placed the actor again. In a cluster of two nodes the actor ran on the
 * first one, which seldom joins before it changes the name. */
static void claim_while_owner_returns(const struct fault *fault)
{
    const struct machine *claimer = third_machine(fault->machine, fault->other);
    const struct machine *host = claimer == fault->other ? fault->machine : fault->other;
    struct held_name held;

    if (!create_held(fault->machine, host, &held)) {
        return;
    }
    set_isolated(host, true);
    cut_link(fault->machine->number, STORE_MACHINE, true, true);
    if (await_node(held.owner_key, false) && await_node(held.node_key, false)) {
        sim_trace("the holder of name%u is lost", held.number);
        cluster_store_hold_name(held.key, claimer->number);
        driver_claim(claimer, held.number);
        for (int i = 0; i < CLAIM_MS && !cluster_store_name_is_claimed(); i++) {
            sim_sleep(1);
        }
    }
    cut_link(fault->machine->number, STORE_MACHINE, true, false);
    for (int i = 0; i < HOLD_MS && !store_records_have(held.owner_key); i++) {
        sim_sleep(1);
    }
    cluster_store_hold_name(NULL, 0);
    sim_sleep(1000);
    set_isolated(host, false);
}

static void store_fault(const struct fault *fault)
{
    if (fault->kind == STOP_STORE) {
        cluster_store_set_fault(STORE_STOPPED);
        sim_sleep(fault->duration_ms);
    } else if (fault->kind == RESTART_STORE_WITHOUT_ACTORS) {
        /* The claim arrives before the node has learned of the new generation. */
        cluster_store_set_fault(STORE_IS_BROKEN);
        driver_claim(fault->machine, sim_below(DRIVER_NAMES));
        sim_sleep(100 + sim_below(1000));
        cluster_store_restart_without_actors();
    } else {
        cluster_store_set_fault(STORE_IS_BROKEN);
        sim_sleep(sim_below(2000));
        cluster_store_restart(fault->kind == RESTART_STORE);
        /* A name that the store has lost is claimed before its holder's node has written it again.
         */
        driver_claim(fault->machine, sim_below(DRIVER_NAMES));
    }
    cluster_store_set_fault(STORE_ANSWERS);
}

static void machine_fault(struct fault *fault)
{
    switch (fault->kind) {
    case CUT_MACHINES:
    case CUT_MACHINES_ONE_WAY:
        cut_link(fault->machine->number, fault->other->number, fault->kind == CUT_MACHINES, true);
        sim_sleep(fault->duration_ms);
        cut_link(fault->machine->number, fault->other->number, true, false);
        break;
    case CUT_FROM_STORE:
    case CUT_FROM_STORE_ONE_WAY:
        cut_from_store(fault, fault->kind == CUT_FROM_STORE);
        break;
    case LATE_ANSWERS_THEN_CUT:
        late_answers_then_cut(fault);
        break;
    case JOIN_WITHOUT_ANSWER:
        join_without_answer(fault);
        break;
    case CLAIM_WHILE_OWNER_RETURNS:
        claim_while_owner_returns(fault);
        break;
    case ISOLATE_MACHINE:
        isolate(fault);
        break;
    case STOP_DAEMON:
        stop_daemon(fault);
        break;
    case POWER_OFF_FOR_A_WHILE:
        machine_power(fault->machine, false);
        sim_sleep(fault->duration_ms);
        machine_power(fault->machine, true);
        break;
    case POWER_OFF_FOR_GOOD:
        machine_power(fault->machine, false);
        fault->machine->is_off_for_good = true;
        break;
    case KILL_DAEMON:
    case LEAVE_AND_RETURN:
        end_daemon(fault);
        break;
    case STOP_STORE:
    case RESTART_STORE:
    case RESTART_STORE_WITHOUT_DATA:
    case RESTART_STORE_WITHOUT_ACTORS:
    case FAULT_KINDS:
        break;
    }
}

static void fault_main(void *arg)
{
    struct fault *fault = arg;

    sim_trace("fault %d of machine %u, other %u, %lld ms", (int)fault->kind, fault->machine->number,
              fault->other->number, (long long)fault->duration_ms);
    if (fault->kind == STOP_STORE || fault->kind == RESTART_STORE ||
        fault->kind == RESTART_STORE_WITHOUT_DATA || fault->kind == RESTART_STORE_WITHOUT_ACTORS) {
        store_fault(fault);
    } else {
        machine_fault(fault);
    }
    sim_trace("fault %d of machine %u is over", (int)fault->kind, fault->machine->number);
    fault->machine->fault_ms = fault->other->fault_ms = sim_now_ms();
    fault->machine->has_fault = false;
    fault->other->has_fault = false;
    faults.active_count--;
    faults.last_end_ms = sim_now_ms();
    free(fault);
}

/* A machine without a fault that is not off for good; NULL if there is none. */
static struct machine *choose_machine(void)
{
    struct machine *machine = &machines[sim_below(machines_count)];

    return machine->has_fault || machine->is_off_for_good || machine->daemon == NULL ? NULL
                                                                                     : machine;
}

static void make_fault(void)
{
    struct fault *fault = calloc(1, sizeof(*fault));

    TDM_ASSERT(fault != NULL);
    fault->kind = (enum fault_kind)sim_below(FAULT_KINDS);
    if (fault->kind == RESTART_STORE_WITHOUT_DATA && sim_below(4) > 0) {
        fault->kind = RESTART_STORE;
    }
    fault->machine = choose_machine();
    fault->other = choose_machine();
    fault->duration_ms = sim_below(3) == 0 ? sim_below(1000) : sim_below(14000);
    if (fault->machine == NULL || fault->other == NULL ||
        (fault->machine == fault->other && fault->kind <= CLAIM_WHILE_OWNER_RETURNS) ||
        (fault->kind == POWER_OFF_FOR_GOOD && (machines_count < 3 || faults.one_is_off_for_good))) {
        free(fault);
        return;
    }
    faults.one_is_off_for_good = faults.one_is_off_for_good || fault->kind == POWER_OFF_FOR_GOOD;
    fault->machine->has_fault = fault->other->has_fault = true;
    faults.active_count++;
    world_totals.faults++;
    sim_fiber_start(fault_main, fault);
}

static bool machine_works(const struct machine *machine)
{
    return machine->is_off_for_good || (machine->daemon != NULL && machine->daemon->has_joined);
}

/* Starts the daemons that could not start during a fault, and waits until all have joined. */
static void repair(void)
{
    bool all_work = false;

    cluster_store_set_losses(0);
    while (!all_work) {
        all_work = true;
        for (uint32_t i = 0; i < machines_count; i++) {
            all_work = all_work && machine_works(&machines[i]);
            if (machines[i].daemon == NULL && !machines[i].is_off_for_good) {
                machine_start_daemon(&machines[i]);
            }
        }
        sim_sleep(500);
    }
}

static void faults_main(void *arg)
{
    uint32_t rounds = 1 + sim_below(5);

    (void)arg;
    sim_sleep(sim_below(6000));
    for (uint32_t i = 0; i < rounds; i++) {
        make_fault();
        sim_sleep(sim_below(3) == 0 ? sim_below(300) : sim_below(8000));
    }
    sim_join_others();
    repair();
    faults.last_end_ms = sim_now_ms();
    faults.are_over = true;
}

static void on_killed(void *arg)
{
    (void)arg; /* The faults are never killed. */
}

void faults_begin(void)
{
    faults.active_count = 0;
    faults.last_end_ms = sim_now_ms();
    faults.are_over = faults.one_is_off_for_good = false;
    faults.process = sim_process_create("faults", faults_main, on_killed, NULL);
}

bool faults_are_over(void)
{
    return faults.are_over;
}

bool faults_have_ended(void)
{
    return sim_process_has_ended(faults.process);
}

int64_t faults_quiet_since(void)
{
    return faults.active_count > 0 ? sim_now_ms() : faults.last_end_ms;
}
