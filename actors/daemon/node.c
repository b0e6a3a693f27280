/* node.c - starting and stopping the state of a daemon, and the service "node". */
/* SPDX-License-Identifier: Apache-2.0 */

/* The function tdm__node_start() creates the parts of a node in the order of their dependencies and
 * joins the cluster by writing the node's record. tdm__node_end_actors() ends actors gracefully;
 * tdm__node_stop() kills the rest and destroys the parts in reverse order. Each part is described
 * in its own file: worker_processes, actor_table, placement_group_service, peer_daemons,
 * node_lease, worker_logs, job_service, state_service. Everything runs on the daemon's loop thread.
 */

#include "actors/daemon/node.h"

#include "actors/common/worker_bootstrap.h"
#include "actors/daemon/actor_actions.h"
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_service.h"
#include "actors/daemon/ended_actors.h"
#include "actors/daemon/job_service.h"
#include "actors/daemon/log_service.h"
#include "actors/daemon/node_lease.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/node_reconcile.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/peer_pings.h"
#include "actors/daemon/placement_group_service.h"
#include "actors/daemon/state_service.h"
#include "actors/daemon/worker_logs.h"
#include "actors/daemon/worker_processes.h"
#include "actors/objects/owned_refs.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- start and end ---------------------------------------------------------------------- */

/* Starts keeping the output of workers in log files and adds the service "log". */
static tdm_status node_start_logs(struct tdm__node *node)
{
    const char *fold = getenv("TANDEM_DEDUP_LOGS");
    struct tdm__worker_logs_options options = {.directory = node->directory,
                                               .node = node,
                                               .print = node->print_logs,
                                               .fold = fold != NULL && strcmp(fold, "1") == 0};

    tdm__oom_init(&node->oom, "");
    TDM_TRY(tdm__worker_logs_create(node->loop, &options, &node->logs));
    tdm__services_add(node->services, &tdm__log_service, node->logs);
    tdm__workers_set_logs(node->workers, node->logs);
    return TDM_OK;
}

/* Handles the end of the last process that a dead worker had left; `arg` is the node. */
static void node_on_tree_ended(void *arg, struct tdm__worker_process *worker)
{
    const struct tdm__node *node = arg;

    tdm__services_peer_tree_ended(node->services, &worker->identity);
}

tdm_status tdm__node_start(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg)
{
    node->events = &tdm__node_events;
    TDM_TRY(
        tdm__workers_create(node->rpc, node->worker_program, node->exempt_child, &node->workers));
    tdm__workers_on_tree_ended(node->workers, node_on_tree_ended, node);
    TDM_TRY(node_start_logs(node));
    TDM_TRY(tdm__jobs_create(node));
    tdm__services_add(node->services, &tdm__job_service, node->jobs);
    TDM_TRY(tdm__ended_actors_create(node));
    tdm__services_add(node->services, &tdm__state_service, node);
    TDM_TRY(tdm__node_actors_create(node));
    TDM_TRY(tdm__placement_groups_create(node));
    TDM_TRY(tdm__node_notices_create(node));
    TDM_TRY(tdm__node_peers_create(node));
    TDM_TRY(tdm__node_pings_create(node));
    TDM_TRY(tdm__node_reconcile_create(node));
    return tdm__node_lease_start(node, fn, arg);
}

/* Matching function that is true for every actor. */
static bool match_any_actor(const struct tdm__actor_spec *spec, const void *key)
{
    (void)spec;
    (void)key;
    return true;
}

void tdm__node_end_actors(struct tdm__node *node, void (*fn)(void *arg), void *arg)
{
    node->stopping = true;
    tdm__node_actors_end(node, match_any_actor, NULL, false, fn, arg);
}

void tdm__node_stop(struct tdm__node *node)
{
    node->stopping = true;
    tdm__node_lease_destroy(node);
    tdm__node_pings_destroy(node);
    tdm__node_reconcile_destroy(node);
    if (node->workers != NULL) {
        tdm__jobs_destroy(node);
        tdm__workers_destroy(node->workers);
        node->workers = NULL;
    }
    tdm__node_peers_destroy(node);
    tdm__node_actors_destroy(node);
    /* Placement groups are notified of ended actors until here. */
    tdm__placement_groups_destroy(node);
    tdm__node_notices_destroy(node);
    tdm__ended_actors_destroy(node);
    tdm__worker_logs_destroy(node->logs);
    node->logs = NULL;
}

/* ---- events of the parts ----------------------------------------------------------------- */

/* Removes the socket files of a process of this node that has ended. */
static void node_remove_sockets(const struct tdm__node *node, const struct tdm__id *process)
{
    char id[TDM__ID_TEXT_BYTES];
    char path[TDM__ADDRESS_BYTES + 40];

    (void)tdm__id_text(process, id);
    (void)snprintf(path, sizeof(path), "%s/" TDM__WORKER_SOCKET, node->directory, id);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/" TDM__OWNER_SOCKET, node->directory, id);
    (void)unlink(path);
}

/* Handles the end of a driver or worker of this node: releases what the process held, and ends the
 * actors and placement groups that it created. If processes that it started have not ended, their
 * memory is released later, by node_on_tree_ended(). */
static void node_on_process_ended(struct tdm__node *node, const struct tdm__peer_identity *process,
                                  bool tree_has_ended)
{
    node_remove_sockets(node, &process->id);
    tdm__services_peer_exited(node->services, process);
    if (tree_has_ended) {
        tdm__services_peer_tree_ended(node->services, process);
    }
    tdm__node_actors_end(node, tdm__node_actor_ends_with, &process->id, true, NULL, NULL);
    tdm__placement_groups_creator_gone(node, &process->id);
    tdm__ended_actors_creator_left(node, &process->id);
}

/* Tries again to place the actors and placement groups that wait for resources. */
static void node_on_resources_freed(struct tdm__node *node)
{
    tdm__node_actors_retry(node);
    tdm__placement_groups_retry(node);
}

const struct tdm__node_events tdm__node_events = {.actor_event = tdm__actor_entry_handle,
                                                  .process_ended = node_on_process_ended,
                                                  .resources_freed = node_on_resources_freed};

void tdm__node_serve(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (node->placement_groups != NULL || strncmp(method, "node.", strlen("node.")) == 0 ||
        strncmp(method, "store.", strlen("store.")) == 0) {
        tdm__services_serve(node->services, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_AGAIN, "the node is starting");
    }
}

void tdm__node_peer_closed(struct tdm__node *node, const struct tdm__peer_identity *peer)
{
    bool has_started = node->placement_groups != NULL;

    if (peer->kind == TDM__PEER_DRIVER && has_started && !node->stopping) {
        node_on_process_ended(node, peer, true); /* Its child processes are not Tandem's. */
    }
}

/* ---- the service "node" ----------------------------------------------------------------- */

/* Serves "node.describe". */
static void serve_describe(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    char id[TDM__ID_TEXT_BYTES];
    struct tdm__node_description_message message = {.id = tdm__id_text(&node->record.id, id),
                                                    .name = node->record.name,
                                                    .directory = node->directory,
                                                    .listen_host = node->listen_host,
                                                    .store_error = node->lease_status.store_error,
                                                    .unreachable_ms = node->unreachable_ms};

    tdm__tcp_settings_to_message(tdm__rpc_tcp_settings(node->rpc), &message.tcp);
    tdm__incoming_reply_message(incoming, tdm__node_description_table(), &message);
}

/* Serves the calls of the service "node". */
static void node_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "node.describe") == 0) {
        serve_describe(self, incoming);
    } else if (strcmp(method, "node.ping") == 0) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

const struct tdm__service_ops tdm__node_service = {.prefix = "node", .serve = node_serve};
