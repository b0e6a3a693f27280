/* actor_start.c - an actor's process: started, constructed, described. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_bootstrap.h"
#include "actors/daemon/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_VARIABLE "CUDA_VISIBLE_DEVICES"

/* The `index`-th of the devices that this daemon itself may see: "GPU-3f2a" of
 * "GPU-77,GPU-3f2a". By its number where there is no such list. */
static void write_device(uint32_t index, char *text, size_t room)
{
    const char *visible = getenv(DEVICES_VARIABLE);

    for (uint32_t i = 0; visible != NULL && *visible != '\0'; i++) {
        size_t length = strcspn(visible, ",");

        if (i == index) {
            (void)snprintf(text, room, "%.*s", (int)length, visible);
            return;
        }
        visible += length + (visible[length] == ',' ? 1 : 0);
    }
    (void)snprintf(text, room, "%u", index);
}

/* "CUDA_VISIBLE_DEVICES=0,2": what the actor was given, and nothing for one without GPUs. */
static void write_devices(const struct tdm__grant *grant, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, DEVICES_VARIABLE "=");

    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        char device[64];
        int added;

        write_device(grant->gpu_indices[i], device, sizeof(device));
        added = snprintf(text + used, room - used, "%s%s", i == 0 ? "" : ",", device);
        used += (size_t)added < room - used ? (size_t)added : 0;
    }
}

static tdm_status start_process(struct actor_entry *entry)
{
    char devices[1280];
    const struct tdm__node *node = entry->node;
    struct tdm__bootstrap bootstrap = {.node = node->record.id,
                                       .gpus_count = entry->record.grant.gpus_count,
                                       .incarnation = entry->lifecycle.incarnation,
                                       .spec = entry->spec};
    struct tdm__worker_start_options order;
    int fd;
    tdm_status status;

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
    write_devices(&entry->record.grant, devices, sizeof(devices));
    order = (struct tdm__worker_start_options){
        .spec = entry->spec,
        .incarnation = entry->lifecycle.incarnation,
        .devices = entry->spec->keep_visible_devices ? NULL : devices,
        .bootstrap_fd = fd};
    status = tdm__workers_start(node->workers, &order, tdm__actor_entry_worker_ended, entry,
                                &entry->worker);
    (void)close(fd);
    return status;
}

void tdm__actor_entry_start(struct actor_entry *entry)
{
    char text[512];
    tdm_status status;

    entry->started_ms = tdm__clock_ms();
    entry->ping = NULL;
    entry->failure[0] = '\0';
    status = start_process(entry);
    if (status != TDM_OK) {
        (void)snprintf(text, sizeof(text), "actor %s cannot be started on node %s: %s",
                       entry->label, entry->node->record.name, tdm_error_detail());
        tdm__actor_entry_handle(
            entry, (struct actor_event){.kind = ACTOR_ON_WORKER_FAILED, .detail = text});
    }
}

void tdm__actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer)
{
    char node_id[TDM__ID_TEXT_BYTES];

    const struct tdm__actor_description_message message = {
        .pid = entry->pid,
        .node_id = tdm__id_text(&entry->node->record.id, node_id),
        .gpu_indices = {.count = entry->record.grant.gpus_count,
                        .items = entry->record.grant.gpu_indices},
        .unix_address = entry->unix_address,
        .tcp_address = entry->tcp_address[0] == '\0' ? NULL : entry->tcp_address,
        .incarnation = entry->lifecycle.incarnation};

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
    tdm__actor_entry_describe(entry, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

static void start_reply_description(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__actor_entry_reply_description(arg, incoming);
}

void tdm__actor_entry_answer_waiters(struct actor_entry *entry)
{
    tdm__actor_entry_reply_waiters(entry, start_reply_description, entry);
}

void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address)
{
    char text[sizeof(entry->failure)];

    entry->pid = pid;
    if (status != TDM_OK) {
        (void)snprintf(text, sizeof(text), "%s: %s", tdm_strerror(status), detail);
        tdm__actor_entry_handle(
            entry, (struct actor_event){.kind = ACTOR_ON_CONSTRUCTOR_FAILED, .detail = text});
        return;
    }
    (void)snprintf(entry->unix_address, sizeof(entry->unix_address), "%s", unix_address);
    (void)snprintf(entry->tcp_address, sizeof(entry->tcp_address), "%s",
                   tcp_address == NULL ? "" : tcp_address);
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_CONSTRUCTED});
}
