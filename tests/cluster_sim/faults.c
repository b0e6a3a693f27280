/* faults.c - what goes wrong in a simulated cluster, one fault after the other or two at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/cluster_sim/driver.h"
#include "tests/cluster_sim/machine.h"
#include "tests/cluster_sim/store_records.h"
#include "tests/cluster_sim/world.h"

#include <stdlib.h>
#include <string.h>

/* A little more than what a daemon waits for the answer to a request to join. */
enum { JOIN_DEADLINE_MS = 10500 };

enum fault_kind {
    CUT_MACHINES,
    CUT_MACHINES_ONE_WAY,
    CLAIM_WHILE_HOLDER_RETURNS,
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

static void isolate(const struct fault *fault)
{
    for (uint32_t i = 1; i < LINK_ENDS_MAX; i++) {
        cut_link(fault->machine->number, i, true, true);
    }
    sim_sleep(fault->duration_ms);
    for (uint32_t i = 1; i < LINK_ENDS_MAX; i++) {
        cut_link(fault->machine->number, i, true, false);
    }
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

/* A name that an actor of a node has. */
struct held_name {
    const struct tdm__id *node; /* The node, which has also created the actor. */
    uint32_t number;            /* The name is "name" with this number; DRIVER_NAMES for none. */
};

static void find_held_name(void *arg, const struct tdm__store_record *record)
{
    struct held_name *held = arg;
    struct tdm__actor_record holder;

    TDM_ASSERT(tdm__actor_record_read(record, &holder) == TDM_OK);
    if (tdm__id_equal(&holder.node, held->node) && tdm__id_equal(&holder.owner_node, held->node)) {
        held->number = (uint32_t)(record->key[strlen(record->key) - 1] - '0');
    }
}

/* A node is taken over, and just then another one claims the name of one of its actors. All that
 * changes names is late: the node joins again before the claim arrives, and has not yet given up
 * the name or placed the actor again then. */
static void claim_while_holder_returns(const struct fault *fault)
{
    uint32_t machine = fault->machine->number;
    char key[TDM__STORE_KEY_BYTES];
    struct held_name held = {.number = DRIVER_NAMES};

    if (!node_key(fault->machine, key)) {
        return;
    }
    driver_claim(fault->machine, sim_below(DRIVER_NAMES));
    sim_sleep(500);
    if (!node_key(fault->machine, key)) {
        return;
    }
    held.node = &fault->machine->daemon->node.record.id;
    store_records_each("name/", find_held_name, &held);
    if (held.number >= DRIVER_NAMES) {
        return;
    }
    cut_link(machine, STORE_MACHINE, true, true);
    if (await_node(key, false)) {
        sim_trace("the holder of name%u is lost", held.number);
        cluster_store_delay_names(1500 + sim_below(1500));
        driver_claim(fault->other, held.number);
    }
    cut_link(machine, STORE_MACHINE, true, false);
    sim_sleep(3000);
    cluster_store_delay_names(0);
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
    case CLAIM_WHILE_HOLDER_RETURNS:
        claim_while_holder_returns(fault);
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
        (fault->machine == fault->other && fault->kind <= CLAIM_WHILE_HOLDER_RETURNS) ||
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
