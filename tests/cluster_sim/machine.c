/* machine.c - a simulated machine with the real state of a daemon, its supervisor and its faults.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/machine.h"

#include "actors/daemon/actor_service.h"
#include "actors/daemon/job_service.h"
#include "actors/daemon/node.h"
#include "actors/daemon/node_lease.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/placement_group_service.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/loop_lock.h"
#include "runtime/process/fence.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/cluster_sim/processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { JOIN_CHECK_MS = 2000, JOIN_MS = 10000, END_MS = 10000, PROCESSES_MAX = 64 };

struct machine machines[MACHINES_MAX];
uint32_t machines_count;
int64_t machines_lease_ms;

static const uint8_t token[TDM__TOKEN_BYTES] = {9};
static bool is_ending;

/* Drivers, which stop with their machine. */
static struct {
    struct sim_process *process;
    uint32_t machine;
} others[PROCESSES_MAX];
static uint32_t others_count;

/* ---- the daemon: as in cli/tandemd.c ------------------------------------------------------ */

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__node_serve(&((struct sim_daemon *)arg)->node, incoming);
}

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    (void)reason;
    (void)detail;
    tdm__node_peer_closed(&((struct sim_daemon *)arg)->node, tdm__conn_peer(conn));
}

static void on_accepted(void *arg, struct tdm__conn *conn)
{
    struct sim_daemon *daemon = arg;

    tdm__conn_on_closed(conn, on_closed, arg);
    if (tdm__conn_peer(conn)->kind == TDM__PEER_DRIVER) {
        tdm__node_notices_greet(&daemon->node, conn);
    }
}

static void on_store_connected(void *arg)
{
    tdm__node_lease_check(arg);
}

static void describe(struct machine *machine, struct sim_daemon *daemon)
{
    struct tdm__node *node = &daemon->node;
    struct tdm__resources totals = {.cpu = 0};

    TDM_ASSERT(tdm__resources_add(&totals, "CPU", MACHINE_CPUS) == TDM_OK);
    TDM_ASSERT(tdm__resources_add(&totals, "GPU", MACHINE_GPUS) == TDM_OK);
    TDM_ASSERT(tdm__pool_init(&node->totals.pool, &totals) == TDM_OK);
    TDM_ASSERT(tdm__id_generate(&node->record.id) == TDM_OK);
    TDM_ASSERT(tdm__fence_create(&node->fence) == TDM_OK);
    memcpy(node->token, token, sizeof(token));
    (void)snprintf(node->record.name, sizeof(node->record.name), "m%u.%u", machine->number,
                   ++machine->starts_count);
    memcpy(node->totals.name, node->record.name, sizeof(node->totals.name));
    memcpy(node->directory, machine->directory, sizeof(node->directory));
    node->totals.id = node->record.id;
    node->record.pid = machine->number;
    node->record.lease_ms = machines_lease_ms;
    node->unreachable_ms = CLUSTER_UNREACHABLE_MS;
    node->loop = daemon->loop;
    node->services = &daemon->services;
    node->visible_devices_variable = "CUDA_VISIBLE_DEVICES";
}

static tdm_status open_endpoint(struct machine *machine, struct sim_daemon *daemon)
{
    struct tdm__node *node = &daemon->node;
    struct tdm__peer_identity self = {.kind = TDM__PEER_DAEMON,
                                      .id = node->record.id,
                                      .node = node->record.id,
                                      .pid = machine->number};
    char address[TDM__ADDRESS_BYTES];

    (void)snprintf(self.name, sizeof(self.name), "tandemd on %.40s", node->record.name);
    TDM_TRY(tdm__rpc_create(daemon->loop, &self, token, &daemon->rpc));
    tdm__rpc_set_call_handler(daemon->rpc, serve, daemon);
    tdm__rpc_on_accepted(daemon->rpc, on_accepted, daemon);
    daemon->store = cluster_store_connect(daemon->loop, &node->record.id, on_store_connected, node);
    TDM_TRY(tdm__read_cache_create(&daemon->read_cache));
    daemon->store->read_cache = daemon->read_cache;
    network_address(machine->number, "daemon", address, sizeof(address));
    TDM_TRY(tdm__rpc_listen(daemon->rpc, address, node->record.unix_address,
                            sizeof(node->record.unix_address)));
    /* Other nodes use the same socket, which stands for one of TCP. */
    memcpy(node->record.tcp_address, node->record.unix_address, sizeof(node->record.tcp_address));
    (void)snprintf(node->listen_host, sizeof(node->listen_host), "simulated");
    return TDM_OK;
}

static void on_joined(void *arg, tdm_status status, const char *detail)
{
    struct sim_daemon *daemon = arg;

    sim_trace("has joined: %s: %s", tdm_strerror(status), detail);
    daemon->join_is_settled = true;
    daemon->join_status = status;
}

static bool join_is_settled(void *arg)
{
    return ((const struct sim_daemon *)arg)->join_is_settled;
}

static tdm_status start(struct machine *machine, struct sim_daemon *daemon)
{
    struct tdm__node *node = &daemon->node;

    TDM_TRY(tdm__loop_create(&daemon->loop));
    describe(machine, daemon);
    TDM_TRY(open_endpoint(machine, daemon));
    tdm__services_add(&daemon->services, &tdm__node_service, node);
    tdm__services_add(&daemon->services, &tdm__actor_service, node);
    tdm__services_add(&daemon->services, &tdm__placement_group_service, node);
    node->rpc = daemon->rpc;
    node->store = daemon->store;
    /* Here tandemd looks at the other nodes (join_check.h), and may be called meanwhile. */
    (void)tdm__loop_run(daemon->loop, NULL, NULL, tdm__deadline_after(sim_below(JOIN_CHECK_MS)));
    TDM_TRY(tdm__node_start(node, on_joined, daemon));
    TDM_TRY(tdm__loop_run(daemon->loop, join_is_settled, daemon, tdm__deadline_after(JOIN_MS)));
    return daemon->join_status;
}

static void on_actors_ended(void *arg)
{
    ((struct sim_daemon *)arg)->actors_ended = true;
}

static bool all_has_ended(void *arg)
{
    const struct sim_daemon *daemon = arg;

    return daemon->actors_ended && !tdm__placement_groups_are_going(&daemon->node);
}

static void on_left(void *arg, tdm_status status, const char *detail)
{
    sim_trace("leaves: %s: %s", tdm_strerror(status), detail);
    ((struct sim_daemon *)arg)->has_left = true;
}

static bool has_left(void *arg)
{
    return ((const struct sim_daemon *)arg)->has_left;
}

static void leave(struct sim_daemon *daemon)
{
    tdm__node_end_actors(&daemon->node, on_actors_ended, daemon);
    if (tdm__loop_run(daemon->loop, all_has_ended, daemon, tdm__deadline_after(END_MS)) == TDM_OK &&
        tdm__node_leave(&daemon->node, on_left, daemon) == TDM_OK) {
        (void)tdm__loop_run(daemon->loop, has_left, daemon, tdm__deadline_after(END_MS));
    }
}

static void destroy(struct sim_daemon *daemon)
{
    daemon->node.stopping = true;
    if (daemon->store != NULL) {
        daemon->store->ops->close(daemon->store);
        daemon->node.store = NULL;
    }
    tdm__read_cache_destroy(daemon->read_cache);
    tdm__node_stop(&daemon->node);
    tdm__services_destroy(&daemon->services);
    tdm__rpc_destroy(daemon->rpc);
    tdm__loop_destroy(daemon->loop);
    free(daemon->node.fence);
    free(daemon);
}

static bool stop_is_wanted(void *arg)
{
    return ((const struct sim_daemon *)arg)->stop_wanted;
}

static void daemon_main(void *arg)
{
    struct machine *machine = arg;
    struct sim_daemon *daemon = machine->daemon;
    tdm_status status = start(machine, daemon);

    if (status == TDM_OK) {
        daemon->has_joined = true;
        (void)tdm__loop_run(daemon->loop, stop_is_wanted, daemon, TDM__NEVER);
        daemon->has_joined = false;
        if (!sim_is_dying()) {
            leave(daemon);
        }
    } else {
        sim_trace("does not start: %s", tdm_error_detail());
    }
    machine->daemon = NULL;
    processes_end_at_once(machine->number, true);
    destroy(daemon);
    processes_end_at_once(machine->number, false);
}

static void on_daemon_killed(void *arg)
{
    processes_kill_machine(((const struct machine *)arg)->number);
}

/* ---- the supervisor ------------------------------------------------------------------------ */

static void supervisor_main(void *arg)
{
    const struct machine *machine = arg;

    while (!is_ending) {
        sim_sleep(machine->daemon == NULL || machine->daemon->node.fence == NULL
                      ? 1000
                      : tdm__fence_enforce(machine->daemon->node.fence, tdm__clock_boot_ms()));
    }
}

static void on_supervisor_killed(void *arg)
{
    (void)arg; /* A supervisor is never killed. */
}

/* ---- machines ------------------------------------------------------------------------------ */

void machine_start_daemon(struct machine *machine)
{
    TDM_ASSERT(machine->daemon == NULL);
    machine->daemon = calloc(1, sizeof(*machine->daemon));
    TDM_ASSERT(machine->daemon != NULL);
    machine->started_ms = sim_now_ms();
    machine->daemon->process =
        sim_process_create(machine->directory + strlen(machine->directory) - 2, daemon_main,
                           on_daemon_killed, machine);
    sim_process_set_machine(machine->daemon->process, machine->number);
}

void machine_kill_daemon(struct machine *machine)
{
    if (machine->daemon != NULL) {
        sim_process_kill(machine->daemon->process);
    }
}

void machine_stop_daemon(struct machine *machine, bool stopped)
{
    if (machine->daemon != NULL) {
        sim_process_stop(machine->daemon->process, stopped);
    }
}

void machine_power(struct machine *machine, bool is_on)
{
    machine->is_off = !is_on;
    machine->on_since_ms = sim_now_ms();
    if (machine->daemon != NULL) {
        sim_process_stop(machine->daemon->process, !is_on);
    }
    processes_stop_machine(machine->number, !is_on);
    sim_process_stop(machine->supervisor, !is_on);
    for (uint32_t i = 0; i < others_count; i++) {
        if (others[i].machine == machine->number) {
            sim_process_stop(others[i].process, !is_on);
        }
    }
    for (uint32_t other = 1; other < LINK_ENDS_MAX; other++) {
        network_set_cut(machine->number, other, !is_on);
        network_set_cut(other, machine->number, !is_on);
    }
}

void machine_ask_to_leave(struct machine *machine)
{
    if (machine->daemon != NULL) {
        machine->daemon->stop_wanted = true;
    }
}

void machine_add_process(struct machine *machine, struct sim_process *process)
{
    TDM_ASSERT(others_count < PROCESSES_MAX);
    others[others_count].process = process;
    others[others_count++].machine = machine->number;
    sim_process_set_machine(process, machine->number);
}

void machines_begin(uint32_t count, int64_t lease_ms, const char *directory)
{
    machines_lease_ms = lease_ms;
    is_ending = false;
    others_count = 0;
    machines_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct machine *machine = &machines[i];

        *machine = (struct machine){.number = i + 1};
        (void)snprintf(machine->directory, sizeof(machine->directory), "%s/d%u", directory, i + 1);
        (void)mkdir(machine->directory, 0700);
        machine->supervisor =
            sim_process_create("supervisor", supervisor_main, on_supervisor_killed, machine);
    }
}

static bool supervisors_have_ended(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < machines_count; i++) {
        if (!sim_process_has_ended(machines[i].supervisor)) {
            return false;
        }
    }
    return true;
}

void machines_end(void)
{
    is_ending = true;
    for (uint32_t i = 0; i < machines_count; i++) {
        TDM_ASSERT(machines[i].daemon == NULL);
        sim_process_stop(machines[i].supervisor, false);
    }
    TDM_ASSERT(sim_run(supervisors_have_ended, NULL) == SIM_DONE);
}
