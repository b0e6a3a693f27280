/* actor_start.c - starting the worker of an actor, and describing the actor to callers. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The function tdm__actor_entry_start() is an action of the lifecycle. It writes the bootstrap
 * (worker_bootstrap.h) and starts a worker process with the granted GPUs. The worker reports
 * "actor.constructed", which becomes an event. After that the description of the actor (pid, node,
 * GPUs, addresses, incarnation) is sent to the calls that wait for the start, and to later queries.
 * A query by name does not wait for the constructor: before, its reply only has the metadata.
 * Everything runs on the daemon's loop thread. */

#include "actors/daemon/actor_start.h"

#include "actors/common/fork_server.h"
#include "actors/common/worker_bootstrap.h"
#include "actors/daemon/actor_cpus.h"
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_facts.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Environment variable with the UUID of the real GPU of each of the node's GPUs, in their order;
 * the daemon sets it when it starts (TDM__GPU_UUIDS_VARIABLE of colocate/device/kind.h). */
#define GPU_UUIDS_VARIABLE "TANDEM_GPU_UUIDS"

/* Number of descriptors that starting a worker takes for a moment, besides those that stay. */
enum { START_FDS = 12 };

/* Writes the name of GPU `index` of this node. If the daemon's environment has a list such as
 * "GPU-77,GPU-3f2a", it is the entry of that list; else it is the number. TANDEM_GPU_UUIDS goes
 * before the variable of the visible devices, which names each real GPU once. */
static void write_device_name(const char *variable, uint32_t index, char *text, size_t capacity)
{
    const char *uuids = getenv(GPU_UUIDS_VARIABLE);
    const char *visible = uuids != NULL && uuids[0] != '\0' ? uuids : getenv(variable);

    for (uint32_t i = 0; visible != NULL && *visible != '\0'; i++) {
        size_t length = strcspn(visible, ",");

        if (i == index) {
            (void)snprintf(text, capacity, "%.*s", (int)length, visible);
            return;
        }
        visible += length + (visible[length] == ',' ? 1 : 0);
    }
    (void)snprintf(text, capacity, "%u", index);
}

/* Returns true if the list of names separated by commas has this name. */
static bool list_has_name(const char *list, const char *name)
{
    while (*list != '\0') {
        size_t length = strcspn(list, ",");

        if (length == strlen(name) && strncmp(list, name, length) == 0) {
            return true;
        }
        list += length + (list[length] == ',' ? 1 : 0);
    }
    return false;
}

/* Writes a setting of the environment variable such as "CUDA_VISIBLE_DEVICES=0,2" with the granted
 * GPUs; the list is empty for an actor without GPUs. A real GPU that several of the granted GPUs
 * share is named once, because CUDA sees no device at all in a list with repeats. */
static void write_devices_setting(const char *variable, const struct tdm__grant *grant, char *text,
                                  size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "%s=", variable);
    const char *list = text + used;

    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        char device[64];
        int added;

        write_device_name(variable, grant->gpu_indices[i], device, sizeof(device));
        if (list_has_name(list, device)) {
            continue;
        }
        added = snprintf(text + used, capacity - used, "%s%s", *list == '\0' ? "" : ",", device);
        used += (size_t)added < capacity - used ? (size_t)added : 0;
    }
}

/* Refuses to start a worker if the descriptors that would be left are too few for the daemon's
 * other work, which keeps the actors that run alive. */
static tdm_status node_check_descriptors(const struct tdm__node *node)
{
    uint32_t count = 0;

    if (!tdm__descriptors_are_few(TDM__DESCRIPTORS_RESERVED + TDM__WORKER_FDS + START_FDS)) {
        return TDM_OK;
    }
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count += entry->worker != NULL ? 1 : 0;
    }
    return tdm__fail(
        TDM_E_LIMIT,
        "the node can run %u actors at a time, which it does: its daemon may have %llu "
        "descriptors and needs %d for each actor; raise its limit of open files "
        "(ulimit -n) before it starts",
        count, (unsigned long long)tdm__descriptors_limit(), (int)TDM__WORKER_FDS);
}

/* Writes the bootstrap message for the actor's worker and starts the worker process. */
static tdm_status actor_entry_start_worker(struct actor_entry *entry)
{
    char devices[TDM__DEVICES_SETTING_BYTES];
    const struct tdm__node *node = entry->node;
    struct tdm__bootstrap bootstrap = {.node = node->record.id,
                                       .gpus_count = entry->record.grant.gpus_count,
                                       .incarnation = entry->lifecycle.incarnation,
                                       .tcp = *tdm__rpc_tcp_settings(node->rpc),
                                       .unreachable_ms = node->unreachable_ms,
                                       .spec = entry->spec};
    struct tdm__worker_start_options start_options;
    int fd;
    tdm_status status;

    TDM_TRY(node_check_descriptors(node));
    memcpy(bootstrap.token, node->token, sizeof(bootstrap.token));
    memcpy(bootstrap.node_name, node->record.name, sizeof(bootstrap.node_name));
    (void)snprintf(bootstrap.daemon_address, sizeof(bootstrap.daemon_address), "%s",
                   node->record.unix_address);
    memcpy(bootstrap.directory, node->directory, sizeof(bootstrap.directory));
    memcpy(bootstrap.listen_host, node->listen_host, sizeof(bootstrap.listen_host));
    for (uint32_t i = 0; i < bootstrap.gpus_count; i++) {
        bootstrap.gpu_indices[i] = entry->record.grant.gpu_indices[i];
    }
    TDM_TRY(tdm__bootstrap_write(&bootstrap, &fd));
    write_devices_setting(node->visible_devices_variable, &entry->record.grant, devices,
                          sizeof(devices));
    start_options = (struct tdm__worker_start_options){
        .spec = entry->spec,
        .devices = entry->spec->keep_visible_devices ? NULL : devices,
        .node_directory = node->directory,
        .bootstrap_fd = fd,
        .fence = tdm__actor_entry_facts(entry).is_claimable ? node->fence : NULL};
    status = tdm__workers_start(node->workers, &start_options, tdm__actor_entry_worker_ended, entry,
                                &entry->worker);
    (void)close(fd);
    if (status == TDM_OK && entry->worker->conn != NULL) {
        tdm__node_notices_greet(entry->node, entry->worker->conn);
    }
    return status;
}

/* Returns whether the actor must not be started, because other nodes may take it over now that the
 * lease of this node has ended. */
static bool is_fenced(const struct actor_entry *entry)
{
    return tdm__actor_entry_facts(entry).is_claimable &&
           tdm__lease_status_has_ended(&entry->node->lease_status);
}

void tdm__actor_entry_start(struct actor_entry *entry)
{
    char text[512];
    tdm_status status;

    if (is_fenced(entry)) {
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_LEASE_ENDING,
                                                            .detail = TDM__LEASE_ENDED_TEXT});
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_WORKER_ENDED,
                                                            .detail = TDM__LEASE_ENDED_TEXT});
        return;
    }
    tdm__actor_entry_take_cpus_back(entry);
    entry->started_ms = tdm__clock_ms();
    entry->ping = NULL;
    entry->failure[0] = '\0';
    status = actor_entry_start_worker(entry);
    if (status != TDM_OK) {
        (void)snprintf(text, sizeof(text), "actor %s cannot be started on node %s: %s",
                       entry->label, entry->node->record.name, tdm_error_detail());
        tdm__actor_entry_report(
            entry, (struct actor_event){.kind = ACTOR_ON_WORKER_FAILED, .detail = text});
    }
}

/* Writes the description of the actor, whose parts tdm__actor_entry_reply_description() lists. */
static void actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer)
{
    char node_id[TDM__ID_TEXT_BYTES];

    const struct tdm__actor_description_message message = {
        .pid = entry->pid,
        .node_id = tdm__id_text(&entry->node->record.id, node_id),
        .gpu_indices = {.count = entry->record.grant.gpus_count,
                        .items = entry->record.grant.gpu_indices},
        .unix_address = entry->unix_address,
        .tcp_address = entry->tcp_address[0] == '\0' ? NULL : entry->tcp_address,
        .incarnation = entry->lifecycle.incarnation,
        .metadata = {entry->spec->metadata, entry->spec->metadata_bytes},
        .previous_end = entry->previous_end[0] == '\0' ? NULL : entry->previous_end};

    (void)tdm__actor_description_encode(&message, writer);
}

void tdm__actor_entry_reply_description(const struct actor_entry *entry,
                                        struct tdm__incoming_call *incoming)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    actor_entry_describe(entry, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

/* Replies to one call that waits for an actor's start with the actor's description; `arg` is the
 * entry. */
static void start_reply_description(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__actor_entry_reply_description(arg, incoming);
}

void tdm__actor_entry_answer_waiters(struct actor_entry *entry)
{
    tdm__actor_entry_reply_waiters(entry, WAITER_FOR_START, start_reply_description, entry);
}

/* True if a query by name finds an actor in this state: it is known whether the actor has the name,
 * and it is not about to end. */
static bool state_can_be_found(enum actor_state state)
{
    switch (state) {
    case ACTOR_NEW:
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
    case ACTOR_CONSTRUCTOR_FAILED:
    case ACTOR_ENDING:
    case ACTOR_REMOTE_REFUSED:
    case ACTOR_ENDED:
    case ACTOR_ENDED_ELSEWHERE:
        return false;
    case ACTOR_WAITING:
    case ACTOR_STARTING:
    case ACTOR_ALIVE:
    case ACTOR_RESTARTING:
    case ACTOR_REMOTE_STARTING:
    case ACTOR_REMOTE_UNSURE:
    case ACTOR_REMOTE:
        break;
    }
    return true;
}

/* Replies to one call with a message actor_found about the actor; `arg` is the entry. */
static void start_reply_found(void *arg, struct tdm__incoming_call *incoming)
{
    const struct actor_entry *entry = arg;
    const struct tdm__actor_spec *spec = entry->spec;
    char id[TDM__ID_TEXT_BYTES];
    struct tdm__actor_found_message found = {.id = tdm__id_text(&spec->id, id),
                                             .class_name = spec->class_name,
                                             .holds_name = entry->lifecycle.state != ACTOR_WAITING};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    if (entry->lifecycle.state == ACTOR_ALIVE) {
        actor_entry_describe(entry, writer);
        found.description.packed = tdm_writer_bytes(writer);
    } else {
        found.metadata = (struct tdm_bytes){spec->metadata, spec->metadata_bytes};
    }
    tdm__incoming_reply_message(incoming, tdm__actor_found_table(), &found);
    tdm_writer_destroy(writer);
}

void tdm__actor_entry_identify(struct actor_entry *entry, struct tdm__incoming_call *incoming)
{
    if (state_can_be_found(entry->lifecycle.state)) {
        start_reply_found(entry, incoming);
    } else {
        tdm__actor_entry_add_waiter(entry, WAITER_FOR_NAME, incoming);
    }
}

void tdm__actor_entry_answer_name_waiters(struct actor_entry *entry)
{
    if (state_can_be_found(entry->lifecycle.state)) {
        tdm__actor_entry_reply_waiters(entry, WAITER_FOR_NAME, start_reply_found, entry);
    }
}

void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address)
{
    char whole[TDM__ERROR_DETAIL_BYTES + 64];
    char text[sizeof(entry->failure)];

    entry->pid = pid;
    if (status != TDM_OK) {
        (void)snprintf(whole, sizeof(whole), "%s: %s", tdm_strerror(status), detail);
        tdm__text_shorten(whole, text, sizeof(text));
        tdm__actor_entry_report(
            entry, (struct actor_event){.kind = ACTOR_ON_CONSTRUCTOR_FAILED, .detail = text});
        return;
    }
    (void)snprintf(entry->unix_address, sizeof(entry->unix_address), "%s", unix_address);
    (void)snprintf(entry->tcp_address, sizeof(entry->tcp_address), "%s",
                   tcp_address == NULL ? "" : tcp_address);
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_CONSTRUCTED});
}
