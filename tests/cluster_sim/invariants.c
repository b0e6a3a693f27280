/* invariants.c - what must hold in a simulated cluster after every step, and in the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_table.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "scheduler/records.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/cluster_sim/driver.h"
#include "tests/cluster_sim/machine.h"
#include "tests/cluster_sim/processes.h"
#include "tests/cluster_sim/store_records.h"
#include "tests/cluster_sim/world.h"
#include "tests/support/kill_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Most milliseconds for which a call may wait without a fault: the loss of a node, and what an
     * unreachable node may take. */
    CALL_MS = 12000 + TDM__NODE_GRACE_MS + 12000,
    /* Milliseconds after its start within which a daemon knows all other nodes, and they know it.
     */
    KNOWN_MS = 5000,
    /* Milliseconds for which a store of a new generation may let two hold a name or an actor. */
    TWICE_MS = 12000
};

/* ---- workers ---------------------------------------------------------------------------- */

static const struct tdm__actor_spec *spec_of(const struct sim_worker *worker)
{
    return worker->bootstrap.spec;
}

static bool is_claimable(const struct sim_worker *worker)
{
    const struct tdm__actor_spec *spec = spec_of(worker);

    return spec->name[0] != '\0' || spec->max_restarts != 0 || worker->bootstrap.gpus_count > 0;
}

/* By how many milliseconds the lease of the worker's node has ended, by the clock of that node. */
static int64_t past_lease_ms(const struct sim_worker *worker)
{
    const struct machine *machine = &machines[worker->machine - 1];
    int64_t fence_ms = machine->daemon == NULL ? 0 : machine->daemon->node.lease_status.fence_ms;

    return fence_ms == 0 ? 0 : tdm__clock_boot_ms() - fence_ms;
}

/* True if the worker can have an effect: its machine runs, and its lease has not ended. */
static bool has_effect(const struct sim_worker *worker)
{
    return !machines[worker->machine - 1].is_off && !worker->is_killed &&
           past_lease_ms(worker) <= 0;
}

static bool share_a_gpu(const struct tdm__bootstrap *a, const struct tdm__bootstrap *b)
{
    for (uint32_t i = 0; i < a->gpus_count; i++) {
        for (uint32_t k = 0; k < b->gpus_count; k++) {
            if (a->gpu_indices[i] == b->gpu_indices[k]) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the daemon of the worker's machine may not have known all nodes when the store lost its
 * data, or was started later. */
static bool is_new_in_the_store(const struct sim_worker *worker)
{
    return machines[worker->machine - 1].started_ms + KNOWN_MS > cluster_store_lost_data_ms();
}

/* Checks two workers. Returns whether they hold something twice that is allowed for a while: by a
 * new generation of the store, or because a start was not confirmed. */
static bool check_pair(const struct sim_worker *a, const struct sim_worker *b)
{
    bool is_same = tdm__id_equal(&spec_of(a)->id, &spec_of(b)->id);
    bool has_same_name =
        spec_of(a)->name[0] != '\0' && strcmp(spec_of(a)->name, spec_of(b)->name) == 0;

    if (a->machine == b->machine && share_a_gpu(&a->bootstrap, &b->bootstrap)) {
        world_fail("workers %d and %d have the same GPU of machine %u", a->pid, b->pid, a->machine);
    }
    if (!has_effect(a) || !has_effect(b)) {
        return false;
    }
    /* An actor that nobody may claim can be started again elsewhere if its node was lost before it
     * confirmed the start (docs/lifetimes.md). */
    if (is_same && is_claimable(a) && cluster_store_lost_data_ms() == 0) {
        world_fail("workers %d of machine %u and %d of machine %u are the same actor", a->pid,
                   a->machine, b->pid, b->machine);
    }
    if (has_same_name && !is_same &&
        !(cluster_store_lost_data_ms() > 0 && (is_new_in_the_store(a) || is_new_in_the_store(b)))) {
        world_fail("workers %d of machine %u and %d of machine %u have the name %s", a->pid,
                   a->machine, b->pid, b->machine, spec_of(a)->name);
    }
    return is_same || has_same_name;
}

/* Since when something has been held twice. */
static int64_t twice_since_ms;

static void check_twice(bool is_twice)
{
    int64_t since_ms = faults_quiet_since();

    if (!is_twice) {
        twice_since_ms = sim_now_ms();
    }
    since_ms = since_ms > twice_since_ms ? since_ms : twice_since_ms;
    if (sim_now_ms() - since_ms > TWICE_MS) {
        world_fail("a name or an actor is held twice for %lld ms",
                   (long long)(sim_now_ms() - since_ms));
    }
}

static void check_workers(void)
{
    const struct sim_worker *a;
    const struct sim_worker *b;
    bool is_twice = false;

    TAILQ_FOREACH(a, processes_all(), link)
    {
        if (is_claimable(a) && !machines[a->machine - 1].is_off && past_lease_ms(a) > KILL_MS_MAX &&
            sim_now_ms() - machines[a->machine - 1].on_since_ms > KILL_MS_MAX) {
            world_fail("worker %d of machine %u lives %lld ms after the end of its lease", a->pid,
                       a->machine, (long long)past_lease_ms(a));
        }
        for (b = TAILQ_NEXT(a, link); b != NULL; b = TAILQ_NEXT(b, link)) {
            is_twice = check_pair(a, b) || is_twice;
        }
    }
    check_twice(is_twice);
}

/* ---- calls ------------------------------------------------------------------------------- */

/* A creation and what waits for it may wait for resources and names that others hold. */
static bool may_wait_for_others(const struct driver_call *call)
{
    return strcmp(call->method, "actor.create") == 0 || strcmp(call->method, "actor.await") == 0 ||
           strcmp(call->method, "actor.fate") == 0 || strcmp(call->method, "actor.find") == 0;
}

static void check_call(const struct driver_call *call)
{
    int64_t since_ms = faults_quiet_since();

    if (call->replies_count > 1) {
        world_fail("a call of %s got %u replies", call->method, call->replies_count);
    }
    since_ms = call->sent_ms > since_ms ? call->sent_ms : since_ms;
    if (call->replies_count == 0 && !machines[driver_call_machine(call) - 1].is_off_for_good &&
        !may_wait_for_others(call) && sim_now_ms() - since_ms > CALL_MS) {
        world_fail("a call of %s about %02x%02x waits for %lld ms without a fault", call->method,
                   call->actor.bytes[0], call->actor.bytes[1],
                   (long long)(sim_now_ms() - since_ms));
    }
}

void invariants_check(void)
{
    const struct driver_call *call;

    check_workers();
    TAILQ_FOREACH(call, drivers_calls(), link)
    {
        check_call(call);
    }
}

void invariants_describe(void)
{
    for (uint32_t i = 0; i < machines_count; i++) {
        const struct sim_daemon *daemon = machines[i].daemon;

        if (daemon == NULL || daemon->node.actors == NULL) {
            (void)printf("machine %u has no daemon\n", i + 1);
            continue;
        }
        (void)printf("machine %u, node %s:%s\n", i + 1, daemon->node.record.name,
                     machines[i].is_off ? " off" : "");
        for (const struct actor_entry *entry = daemon->node.actors->all; entry != NULL;
             entry = entry->next) {
            (void)printf("  actor %02x%02x in state %d, %s\n", entry->spec->id.bytes[0],
                         entry->spec->id.bytes[1], (int)entry->lifecycle.state, entry->waits_for);
        }
    }
}

/* ---- the end ------------------------------------------------------------------------------ */

static bool is_living_node(const struct tdm__id *id)
{
    for (uint32_t i = 0; i < machines_count; i++) {
        if (!machines[i].is_off && machines[i].daemon != NULL &&
            tdm__id_equal(&machines[i].daemon->node.record.id, id)) {
            return true;
        }
    }
    return false;
}

struct lost_peer {
    bool is_there;
    char name[64];
};

static void find_lost_peer(void *arg, struct tdm__conn *conn)
{
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);
    struct lost_peer *lost = arg;

    if (peer->kind == TDM__PEER_DAEMON && !is_living_node(&peer->id)) {
        lost->is_there = true;
        (void)snprintf(lost->name, sizeof(lost->name), "%s", peer->name);
    }
}

static bool machine_holds(const struct machine *machine, char *text, uint32_t text_bytes)
{
    const struct sim_daemon *daemon = machine->daemon;
    struct lost_peer lost = {.is_there = false};

    if (machine->is_off_for_good) {
        return true;
    }
    if (daemon->node.actors->all != NULL) {
        (void)snprintf(text, text_bytes, "node %s has the actor %s in state %d",
                       daemon->node.record.name, daemon->node.actors->all->label,
                       (int)daemon->node.actors->all->lifecycle.state);
        return false;
    }
    if (daemon->node.actors->pending_releases != NULL) {
        (void)snprintf(text, text_bytes, "node %s has a release that the store lacks",
                       daemon->node.record.name);
        return false;
    }
    tdm__rpc_each_conn(daemon->rpc, find_lost_peer, &lost);
    if (lost.is_there) {
        (void)snprintf(text, text_bytes, "node %s has a connection with %s, which is lost",
                       daemon->node.record.name, lost.name);
        return false;
    }
    return true;
}

/* What the checks of records have found. */
struct record_check {
    uint32_t count; /* Number of records of the kind that is checked. */
    char *text;
    uint32_t text_bytes;
    bool is_wrong;
};

static void check_left_record(void *arg, const struct tdm__store_record *record)
{
    struct record_check *check = arg;

    check->is_wrong = true;
    (void)snprintf(check->text, check->text_bytes, "the store still has the record %s",
                   record->key);
}

static void check_free_record(void *arg, const struct tdm__store_record *record)
{
    struct record_check *check = arg;
    struct tdm__node_resources node;
    bool is_free;

    TDM_ASSERT(tdm__free_record_read(record, &node) == TDM_OK);
    check->count++;
    is_free = node.pool.cpu.free == node.pool.cpu.total && node.actors_count == 0;
    for (uint32_t i = 0; i < node.pool.gpus_count; i++) {
        is_free = is_free && node.pool.gpus[i].free == node.pool.gpus[i].total;
    }
    if (!is_free) {
        check->is_wrong = true;
        (void)snprintf(check->text, check->text_bytes,
                       "the store counts resources of node %s as taken: %lld of %lld CPUs are "
                       "free, %u actors",
                       node.name, (long long)node.pool.cpu.free, (long long)node.pool.cpu.total,
                       node.actors_count);
    }
}

bool invariants_hold_at_the_end(char *text, uint32_t text_bytes)
{
    struct record_check check = {.text = text, .text_bytes = text_bytes};
    uint32_t living = 0;

    for (uint32_t i = 0; i < machines_count; i++) {
        living += machines[i].is_off_for_good ? 0 : 1;
        if (!machine_holds(&machines[i], text, text_bytes)) {
            return false;
        }
    }
    store_records_each("actor/", check_left_record, &check);
    store_records_each("name/", check_left_record, &check);
    store_records_each("group/", check_left_record, &check);
    store_records_each("free/", check_free_record, &check);
    if (!check.is_wrong && check.count != living) {
        check.is_wrong = true;
        (void)snprintf(text, text_bytes, "the store has resources of %u nodes instead of %u",
                       check.count, living);
    }
    return !check.is_wrong;
}
