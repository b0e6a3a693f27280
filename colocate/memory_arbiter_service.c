/* memory_arbiter_service.c - the daemon's RPC service "arbiter": one memory arbiter per GPU of
 * the node. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The service owns one arbiter (memory_arbiter.h) per GPU, the calls that wait for a decision,
 * and the list of tenants that exited while other processes still map their blocks, or while
 * processes that they started have not ended.
 *
 * It learns from three sources: calls of tenants (requests, announcements, canceled grants),
 * callbacks of the broker (blocks charged and released), and the exit of peers. A timer ticks
 * every TICK_MS while a call waits or an exited tenant still has blocks.
 *
 * Invariants: every waiting call has an open request in exactly one arbiter, under its
 * request_id. A tenant leaves an arbiter only when the broker charges it nothing on that GPU.
 *
 * All functions run on the daemon's loop thread. The methods are specified in
 * memory_arbiter_service.h. */

#include "colocate/memory_arbiter_service.h"

#include "colocate/device/kinds.h"
#include "colocate/memory/outside_slack.h"
#include "colocate/memory_arbiter.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICK_MS = 50,     /* Milliseconds between two ticks of the arbiters. */
    USAGES_MAX = 128, /* Number of usage records that are searched for a text. */
    /* Milliseconds after the exit of a process in which a GPU may still report its memory as used.
     */
    SETTLE_MS = 5000
};

/* A call of arbiter.request that waits for the decision of an arbiter. The service owns it. */
struct waiting_request {
    struct waiting_request *next; /* Next waiting request of the service; NULL for the last one. */
    uint64_t request_id;          /* Number of the request in the arbiter of its GPU. */
    uint32_t gpu;                 /* Index of the GPU whose memory is requested, on this node. */
    /* Incoming call of arbiter.request, which waits for the reply; owned. */
    struct tdm__incoming_call *incoming;
};

/* A tenant that exited while other processes, or its own child processes, still map its blocks. The
 * bytes are still on the
 * GPU, so its usage stays in the arbiter until the broker has no record of it any more. */
struct departed_tenants {
    /* Next exited tenant in the service's list; NULL for the last one. */
    struct departed_tenants *next;
    struct tdm__id id;   /* ID under which the daemon knew the process that exited. */
    bool tree_has_ended; /* True if no process is left that the tenant had started. */
};

/* State of the daemon's service "arbiter"; the daemon owns it. */
struct service {
    struct tdm__loop *loop;     /* Loop of the daemon; borrowed. */
    struct tdm__broker *broker; /* Memory broker of the node; borrowed. */
    /* Timer that runs while a request waits or departed_tenants is not empty. */
    struct tdm__timer *timer;
    struct waiting_request *requests; /* List of calls that wait for a decision; owned. */
    /* List of tenants that have exited and are still charged for memory; owned. */
    struct departed_tenants *departed_tenants;
    /* Number of the newest request; numbers are unique in this service. */
    uint64_t last_request_id;
    /* Until this time a GPU may report the memory of exited processes as used; 0 before the first
     * exit. */
    int64_t settles_at_ms;
    uint64_t *unmanaged_before_exit; /* Array with the unmanaged bytes of each GPU then; owned. */
    uint32_t gpus_count;             /* Number of GPUs of the node. */
    struct tdm__memory_arbiter *arbiters; /* Array with the arbiter of each GPU; owned. */
};

/* ---- verdicts --------------------------------------------------------------------------- */

/* Removes the waiting request with this number from the service's list and returns the request, or
 * NULL if absent. */
static struct waiting_request *take_waiting_request(struct service *service, uint64_t request_id)
{
    for (struct waiting_request **link = &service->requests; *link != NULL; link = &(*link)->next) {
        struct waiting_request *waiting_request = *link;

        if (waiting_request->request_id == request_id) {
            *link = waiting_request->next;
            return waiting_request;
        }
    }
    return NULL;
}

/* Appends to `text` the memory blocks of the GPU that their owner has released and another process
 * still maps. */
static void describe_other_tenants(const struct service *service, uint32_t gpu,
                                   struct tdm__text *text)
{
    struct tdm__broker_usage usages[USAGES_MAX];
    uint32_t count = tdm__broker_list_usage(service->broker, gpu, usages, USAGES_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (usages[i].releasing_bytes > 0) {
            tdm__text_add(text, "; %s still maps %.1f MiB of %s's %s", usages[i].holder,
                          (double)usages[i].releasing_bytes / (1 << 20), usages[i].owner.name,
                          usages[i].tag);
        }
    }
}

/* Fails the waiting call with the text of the refusal and the processes that still map memory. */
static void fail_refused_request(const struct service *service,
                                 const struct waiting_request *waiting_request,
                                 const struct tdm__arbiter_action *action)
{
    char detail[TDM__ARBITER_TEXT_BYTES];
    struct tdm__text text = tdm__text_init(detail, sizeof(detail));

    tdm__text_add(&text, "%s", action->text);
    describe_other_tenants(service, waiting_request->gpu, &text);
    tdm__incoming_fail(waiting_request->incoming, action->status, detail);
}

/* Carries out one decision of an arbiter: replies to the call that waits for it, or starts the
 * timer if the request has to wait. */
static void carry_out_decision(struct service *service, const struct tdm__arbiter_action *action)
{
    struct waiting_request *waiting_request;

    if (action->verdict == TDM__ARBITER_WAIT) {
        (void)tdm__timer_set(service->timer, tdm__deadline_after(TICK_MS));
        return;
    }
    waiting_request = take_waiting_request(service, action->request_id);
    if (waiting_request == NULL) {
        return;
    }
    if (action->verdict == TDM__ARBITER_GRANT) {
        tdm__log(TDM__INFO, "memory_arbiter", "GPU %u: memory is granted to %s",
                 waiting_request->gpu, tdm__incoming_peer(waiting_request->incoming)->name);
        tdm__incoming_reply_pack(waiting_request->incoming, "");
    } else {
        fail_refused_request(service, waiting_request, action);
    }
    free(waiting_request);
}

/* Gives one event to the arbiter of a GPU and carries out the arbiter's decisions. */
static tdm_status arbiter_step(struct service *service, uint32_t gpu,
                               const struct tdm__arbiter_event *event)
{
    /* The array has 17 KiB and is static to save stack. This is safe because carrying out a
     * decision never starts another step. */
    static struct tdm__arbiter_actions actions;

    TDM_TRY(tdm__arbiter_handle_event(&service->arbiters[gpu], event, &actions));
    for (uint32_t i = 0; i < actions.count; i++) {
        carry_out_decision(service, &actions.entries[i]);
    }
    return TDM_OK;
}

/* Removes the exited tenant from the arbiters of all GPUs where it holds no memory. The processes
 * that it has started hold its outside memory until the last one has ended. Returns true if it was
 * removed from all of them. */
static bool report_departed_tenant(struct service *service, const struct tdm__id *id,
                                   bool tree_has_ended)
{
    struct tdm__arbiter_event gone = {
        .kind = TDM__ARBITER_TENANT_GONE, .tenant = *id, .now_ms = tdm__clock_ms()};
    bool all = true;

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        if (tdm__broker_is_charged(service->broker, gpu, id) ||
            (!tree_has_ended &&
             tdm__arbiter_tenant_outside_bytes(&service->arbiters[gpu], id) > 0)) {
            all = false;
        } else {
            (void)arbiter_step(service, gpu, &gone); /* An unknown tenant is no error. */
        }
    }
    return all;
}

/* Removes the exited tenants that are no longer charged, from the arbiters and from the list. */
static void report_departed_tenants(struct service *service)
{
    struct departed_tenants **link = &service->departed_tenants;

    while (*link != NULL) {
        struct departed_tenants *departed_tenants = *link;

        if (report_departed_tenant(service, &departed_tenants->id,
                                   departed_tenants->tree_has_ended)) {
            *link = departed_tenants->next;
            free(departed_tenants);
        } else {
            link = &departed_tenants->next;
        }
    }
}

/* Callback of the timer: tells all arbiters that time has passed, removes exited tenants, and sets
 * the timer again if it is needed. */
static void on_timer(void *arg)
{
    struct service *service = arg;
    struct tdm__arbiter_event tick = {.kind = TDM__ARBITER_TICK, .now_ms = tdm__clock_ms()};

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        (void)arbiter_step(service, gpu, &tick); /* A tick never fails. */
    }
    report_departed_tenants(service);
    if (service->requests != NULL || service->departed_tenants != NULL) {
        (void)tdm__timer_set(service->timer, tdm__deadline_after(TICK_MS));
    }
}

/* ---- what the broker sees --------------------------------------------------------------- */

/* Gives an allocation or a release of the broker to the arbiter as an event. A failure is only
 * logged. */
static void report_broker_change(struct service *service, uint32_t gpu,
                                 struct tdm__arbiter_event *event)
{
    event->now_ms = tdm__clock_ms();
    if (arbiter_step(service, gpu, event) != TDM_OK) {
        /* The broker's record is authoritative, because the broker has the memory. */
        tdm__log(TDM__WARN, "memory_arbiter", "GPU %u: ledger and memory differ: %s", gpu,
                 tdm_error_detail());
    }
}

/* Broker callback: blocks of `owner` were allocated. */
static void on_charged(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                       size_t bytes)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_CHARGED,
                                       .tenant = owner->id,
                                       .name = owner->name,
                                       .tag = tag,
                                       .bytes = bytes};

    report_broker_change(arg, gpu, &event);
}

/* Broker callback: blocks of `owner` were released. */
static void on_released(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                        size_t bytes)
{
    struct tdm__arbiter_event event = {
        .kind = TDM__ARBITER_RELEASED, .tenant = owner->id, .tag = tag, .bytes = bytes};

    report_broker_change(arg, gpu, &event);
}

/* ---- calls ------------------------------------------------------------------------------ */

/* Fails with TDM_E_INVAL for a GPU index that the node does not have. */
static tdm_status fail_no_gpu(const struct service *service, uint64_t gpu)
{
    return tdm__fail(TDM_E_INVAL, "GPU %llu of a node with %u", (unsigned long long)gpu,
                     service->gpus_count);
}

/* Fills `event` from the message and the calling peer. Fails if the node does not have the GPU. */
static tdm_status set_event_from_message(const struct service *service,
                                         const struct tdm__incoming_call *incoming,
                                         const struct tdm__arbiter_request_message *message,
                                         uint32_t *gpu_out, struct tdm__arbiter_event *event)
{
    if (message->gpu >= service->gpus_count) {
        return fail_no_gpu(service, message->gpu);
    }
    event->tag = message->tag;
    event->bytes = message->bytes;
    event->tenant = tdm__incoming_peer(incoming)->id;
    event->name = tdm__incoming_peer(incoming)->name;
    event->now_ms = tdm__clock_ms();
    event->deadline_ms = tdm__deadline_after(message->timeout_ms);
    *gpu_out = (uint32_t)message->gpu;
    return TDM_OK;
}

/* Decodes the arguments of arbiter.request into `event`. */
static tdm_status read_request_arguments(const struct service *service,
                                         struct tdm__incoming_call *incoming, uint32_t *gpu_out,
                                         struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__arbiter_request_table(), &message));
    return set_event_from_message(service, incoming, &message, gpu_out, event);
}

/* Decodes the arguments of arbiter.announce_release into `event`. */
static tdm_status read_announcement_arguments(const struct service *service,
                                              struct tdm__incoming_call *incoming,
                                              uint32_t *gpu_out, struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_announce_release_message message;
    struct tdm__arbiter_request_message waiting_request;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__arbiter_announce_release_table(), &message));
    waiting_request = (struct tdm__arbiter_request_message){
        .gpu = message.gpu, .tag = message.tag, .bytes = message.bytes};
    return set_event_from_message(service, incoming, &waiting_request, gpu_out, event);
}

/* Handles arbiter.request: the arbiter grants, refuses or queues the request. Takes ownership of
 * `incoming`, also on failure. */
static void serve_request(struct service *service, struct tdm__incoming_call *incoming)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_REQUESTED,
                                       .request_id = ++service->last_request_id};
    struct waiting_request *waiting_request = calloc(1, sizeof(*waiting_request));
    uint32_t gpu;
    tdm_status status = waiting_request == NULL
                            ? tdm__fail(TDM_E_NOMEM, "a request")
                            : read_request_arguments(service, incoming, &gpu, &event);

    if (status == TDM_OK) {
        *waiting_request =
            (struct waiting_request){service->requests, event.request_id, gpu, incoming};
        service->requests = waiting_request;
        status = arbiter_step(service, gpu, &event);
        if (status != TDM_OK) {
            waiting_request = take_waiting_request(service, event.request_id);
        }
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        free(waiting_request);
    }
}

/* Handles arbiter.announce_release: tells the arbiter how many bytes the caller will release. */
static void serve_announce_release(struct service *service, struct tdm__incoming_call *incoming)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_RELEASE_ANNOUNCED};
    uint32_t gpu;
    tdm_status status = read_announcement_arguments(service, incoming, &gpu, &event);

    if (status == TDM_OK) {
        status = arbiter_step(service, gpu, &event);
    }
    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Returns the number of a granted request of the tenant for that tag, or 0 if absent. */
static uint64_t find_granted_request(const struct tdm__memory_arbiter *memory_arbiter,
                                     const struct tdm__id *tenant, const char *tag)
{
    for (uint32_t i = 0; i < memory_arbiter->requests_count; i++) {
        const struct tdm__arbiter_request *waiting_request = &memory_arbiter->requests[i];

        if (waiting_request->is_granted && tdm__id_equal(&waiting_request->tenant, tenant) &&
            strcmp(waiting_request->tag, tag) == 0) {
            return waiting_request->request_id;
        }
    }
    return 0;
}

/* Cancels all grants of the calling tenant for the GPU and tag of the call. */
static tdm_status cancel_tenant_grants(struct service *service, struct tdm__incoming_call *incoming)
{
    const struct tdm__id *tenant = &tdm__incoming_peer(incoming)->id;
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_REQUEST_CANCELED};
    struct tdm__arbiter_cancel_grant_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__arbiter_cancel_grant_table(), &message));
    if (message.gpu >= service->gpus_count) {
        return fail_no_gpu(service, message.gpu);
    }
    event.now_ms = tdm__clock_ms();
    while ((event.request_id =
                find_granted_request(&service->arbiters[message.gpu], tenant, message.tag)) != 0) {
        TDM_TRY(arbiter_step(service, (uint32_t)message.gpu, &event));
    }
    return TDM_OK;
}

/* Handles arbiter.cancel_grant: cancels the calling tenant's grants for a tag. */
static void serve_cancel_grant(struct service *service, struct tdm__incoming_call *incoming)
{
    tdm_status status = cancel_tenant_grants(service, incoming);

    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Returns true if two GPUs of the node are one real GPU, which also a GPU and itself are. */
static bool is_same_real_gpu(uint32_t a, uint32_t b)
{
    const struct tdm__device_kind *kind;
    char uuids[2][TDM__UUID_BYTES];

    return a == b || (tdm__device_of_process(a, &kind, uuids[0]) == TDM_OK &&
                      tdm__device_of_process(b, &kind, uuids[1]) == TDM_OK && uuids[0][0] != '\0' &&
                      strcmp(uuids[0], uuids[1]) == 0);
}

/* Adds what Tandem knows of a real GPU to the report about it, which `gpu` is on. Returns false if
 * a grant is open there, so that the report must not be used. */
static bool complete_report(const struct service *service, uint32_t gpu,
                            struct tdm__arbiter_report *report)
{
    for (uint32_t i = 0; i < service->gpus_count; i++) {
        struct tdm__broker_gpu usage;

        if (!is_same_real_gpu(i, gpu)) {
            continue;
        }
        if (tdm__arbiter_has_open_grant(&service->arbiters[i])) {
            return false;
        }
        tdm__broker_gpu_usage(service->broker, i, &usage);
        report->offered_bytes += usage.capacity_bytes;
        report->charged_bytes += usage.used_bytes;
        report->counted_bytes += tdm__arbiter_tenant_outside_bytes(&service->arbiters[i], NULL);
        report->sharing_count++;
    }
    return true;
}

/* Returns true if a GPU may soon report less memory of processes that are unknown to its arbiter: a
 * process has exited, and they seem to use more than before its exit. */
static bool usage_settles(const struct service *service, uint32_t gpu)
{
    return tdm__clock_ms() < service->settles_at_ms &&
           service->arbiters[gpu].unmanaged_bytes > service->unmanaged_before_exit[gpu];
}

/* Remembers the unmanaged usage of all GPUs before a process exited. */
static void note_exit(struct service *service)
{
    int64_t now_ms = tdm__clock_ms();

    for (uint32_t gpu = 0; gpu < service->gpus_count && now_ms >= service->settles_at_ms; gpu++) {
        service->unmanaged_before_exit[gpu] = service->arbiters[gpu].unmanaged_bytes;
    }
    service->settles_at_ms = now_ms + SETTLE_MS;
}

/* Takes over what a real GPU reports into the arbiters of the GPUs that share it. Writes the GPU
 * that the caller means. */
static tdm_status take_report(struct service *service, struct tdm__incoming_call *incoming,
                              uint32_t *gpu_out)
{
    struct tdm__arbiter_report_message message;
    struct tdm__arbiter_report report;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__arbiter_report_table(), &message));
    if (message.gpu >= service->gpus_count) {
        return fail_no_gpu(service, message.gpu);
    }
    *gpu_out = (uint32_t)message.gpu;
    report = (struct tdm__arbiter_report){.total_bytes = message.total_bytes,
                                          .free_bytes = message.free_bytes};
    if (!complete_report(service, (uint32_t)message.gpu, &report)) {
        return TDM_OK;
    }
    for (uint32_t i = 0; i < service->gpus_count; i++) {
        const struct tdm__arbiter_event event = {.kind = TDM__ARBITER_UNMANAGED_USAGE,
                                                 .bytes = tdm__arbiter_unmanaged_bytes(&report),
                                                 .now_ms = tdm__clock_ms()};

        if (is_same_real_gpu(i, (uint32_t)message.gpu)) {
            tdm__broker_set_outside_usage(service->broker, i, tdm__arbiter_outside_bytes(&report));
            TDM_TRY(arbiter_step(service, i, &event));
        }
    }
    return TDM_OK;
}

/* Replies to arbiter.report. */
static tdm_status reply_to_report(const struct service *service,
                                  struct tdm__incoming_call *incoming, uint32_t gpu)
{
    const struct tdm__arbiter_reported_message reply = {usage_settles(service, gpu)};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__arbiter_reported_encode(&reply, writer);
    if (status == TDM_OK) {
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Handles arbiter.report: how much memory of a real GPU is free. */
static void serve_report(struct service *service, struct tdm__incoming_call *incoming)
{
    uint32_t gpu = 0;
    tdm_status status = take_report(service, incoming, &gpu);

    if (status == TDM_OK) {
        status = reply_to_report(service, incoming, gpu);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Returns true if another GPU of the node is on the same real GPU. */
static bool shares_real_gpu(const struct service *service, uint32_t gpu)
{
    for (uint32_t i = 0; i < service->gpus_count; i++) {
        if (i != gpu && is_same_real_gpu(i, gpu)) {
            return true;
        }
    }
    return false;
}

/* Logs a difference between what a tenant has declared and what the device reports. */
static void log_outside_difference(const struct tdm__peer_identity *peer,
                                   const struct tdm__arbiter_outside_usage_message *message)
{
    uint64_t low =
        message->bytes < message->declared_bytes ? message->bytes : message->declared_bytes;
    uint64_t high = message->bytes + message->declared_bytes - low;

    if (high - low > tdm__outside_slack_bytes(message->declared_bytes)) {
        tdm__log(TDM__WARN, "memory_arbiter",
                 "GPU %llu: %s declares %.1f MiB of %s, and the device reports %.1f MiB",
                 (unsigned long long)message->gpu, peer->name,
                 (double)message->declared_bytes / (1 << 20), message->tag,
                 (double)message->bytes / (1 << 20));
    }
}

/* Takes over what the calling tenant uses of outside memory into the arbiter of the GPU. */
static tdm_status take_outside_usage(struct service *service, struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *peer = tdm__incoming_peer(incoming);
    struct tdm__arbiter_outside_usage_message message;
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_OUTSIDE_USAGE,
                                       .tenant = peer->id,
                                       .name = peer->name,
                                       .now_ms = tdm__clock_ms()};

    TDM_TRY(tdm__incoming_decode(incoming, tdm__arbiter_outside_usage_table(), &message));
    if (message.gpu >= service->gpus_count) {
        return fail_no_gpu(service, message.gpu);
    }
    event.tag = message.tag;
    event.declared_bytes = message.declared_bytes;
    event.bytes =
        message.bytes > message.declared_bytes + tdm__outside_slack_bytes(message.declared_bytes) &&
                !shares_real_gpu(service, (uint32_t)message.gpu)
            ? message.bytes
            : message.declared_bytes;
    TDM_TRY(arbiter_step(service, (uint32_t)message.gpu, &event));
    log_outside_difference(peer, &message);
    return TDM_OK;
}

/* Handles arbiter.outside_usage: memory that processes have allocated without blocks. */
static void serve_outside_usage(struct service *service, struct tdm__incoming_call *incoming)
{
    tdm_status status = take_outside_usage(service, incoming);

    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Handles one call of the service "arbiter". Takes ownership of `incoming`. */
static void serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "arbiter.request") == 0) {
        serve_request(self, incoming);
    } else if (strcmp(method, "arbiter.announce_release") == 0) {
        serve_announce_release(self, incoming);
    } else if (strcmp(method, "arbiter.report") == 0) {
        serve_report(self, incoming);
    } else if (strcmp(method, "arbiter.outside_usage") == 0) {
        serve_outside_usage(self, incoming);
    } else if (strcmp(method, "arbiter.cancel_grant") == 0) {
        serve_cancel_grant(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

/* Announces the release of the outside memory of an exited process, beside the blocks that are
 * announced already. */
static void announce_departed_outside(struct service *service, uint32_t gpu,
                                      const struct tdm__id *id)
{
    const struct tdm__memory_arbiter *arbiter = &service->arbiters[gpu];

    for (uint32_t i = 0; i < arbiter->tenants_count; i++) {
        struct tdm__arbiter_tenant tenant = arbiter->tenants[i];

        for (uint32_t k = 0; tdm__id_equal(&tenant.id, id) && k < tenant.tag_usages_count; k++) {
            const struct tdm__arbiter_tag_usage *usage = &tenant.tag_usages[k];
            struct tdm__arbiter_event event = {.kind = TDM__ARBITER_RELEASE_ANNOUNCED,
                                               .tenant = *id,
                                               .tag = usage->tag,
                                               .bytes = usage->announced_release_bytes +
                                                        usage->outside_bytes,
                                               .now_ms = tdm__clock_ms()};

            if (usage->outside_bytes > 0) {
                (void)arbiter_step(service, gpu, &event);
            }
        }
    }
}

/* Announces the release of the memory that an exited process itself held: it is released when the
 * last of its child processes has ended. Requests for it wait until then. */
static void announce_departed_memory(struct service *service, const struct tdm__id *id)
{
    struct tdm__broker_usage usages[USAGES_MAX];

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        uint32_t count = tdm__broker_list_usage(service->broker, gpu, usages, USAGES_MAX);

        for (uint32_t i = 0; i < count; i++) {
            struct tdm__arbiter_event event = {.kind = TDM__ARBITER_RELEASE_ANNOUNCED,
                                               .tenant = *id,
                                               .tag = usages[i].tag,
                                               .bytes = usages[i].bytes - usages[i].releasing_bytes,
                                               .now_ms = tdm__clock_ms()};

            if (tdm__id_equal(&usages[i].owner.id, id)) {
                (void)arbiter_step(service, gpu, &event);
            }
        }
        announce_departed_outside(service, gpu, id);
    }
}

/* Fails the waiting calls of a process that exited, and removes the process from the arbiters as
 * far as its memory is released. */
static void peer_exited(void *self, const struct tdm__peer_identity *peer)
{
    struct service *service = self;
    struct waiting_request **link = &service->requests;
    struct departed_tenants *departed_tenants;

    while (*link != NULL) {
        struct waiting_request *waiting_request = *link;

        if (tdm__id_equal(&tdm__incoming_peer(waiting_request->incoming)->id, &peer->id)) {
            *link = waiting_request->next;
            tdm__incoming_fail(waiting_request->incoming, TDM_E_CLOSED, "the process is gone");
            free(waiting_request);
        } else {
            link = &waiting_request->next;
        }
    }
    note_exit(service);
    if (report_departed_tenant(service, &peer->id, false)) {
        return;
    }
    departed_tenants = calloc(1, sizeof(*departed_tenants));
    if (departed_tenants == NULL) {
        /* The tenant's usage stays, so that the arbiter grants too little rather than too much. */
        return;
    }
    *departed_tenants = (struct departed_tenants){service->departed_tenants, peer->id, false};
    service->departed_tenants = departed_tenants;
    announce_departed_memory(service, &peer->id);
    (void)tdm__timer_set(service->timer, tdm__deadline_after(TICK_MS));
}

/* Removes an exited process from the arbiters once its child processes have ended, and thus the
 * broker has released its memory. */
static void peer_tree_ended(void *self, const struct tdm__peer_identity *peer)
{
    struct service *service = self;

    for (struct departed_tenants *departed = service->departed_tenants; departed != NULL;
         departed = departed->next) {
        departed->tree_has_ended =
            departed->tree_has_ended || tdm__id_equal(&departed->id, &peer->id);
    }
    report_departed_tenants(service);
}

/* Destroys the state of the service "arbiter" and fails all waiting calls. */
static void destroy(void *self)
{
    struct service *service = self;

    tdm__broker_set_callbacks(service->broker, NULL);
    while (service->requests != NULL) {
        struct waiting_request *waiting_request = service->requests;

        service->requests = waiting_request->next;
        tdm__incoming_fail(waiting_request->incoming, TDM_E_CLOSED, "the node stops");
        free(waiting_request);
    }
    while (service->departed_tenants != NULL) {
        struct departed_tenants *departed_tenants = service->departed_tenants;

        service->departed_tenants = departed_tenants->next;
        free(departed_tenants);
    }
    tdm__timer_destroy(service->timer);
    free(service->unmanaged_before_exit);
    free(service->arbiters);
    free(service);
}

const struct tdm__service_ops tdm__arbiter_service = {.prefix = "arbiter",
                                                      .serve = serve,
                                                      .peer_exited = peer_exited,
                                                      .peer_tree_ended = peer_tree_ended,
                                                      .destroy = destroy};

tdm_status tdm__arbiter_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                       void **self_out)
{
    struct service *service = calloc(1, sizeof(*service));
    struct tdm__broker_callbacks hook = {on_charged, on_released, service};
    tdm_status status;

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the memory arbiters");
    }
    service->loop = loop;
    service->broker = broker;
    service->gpus_count = tdm__broker_gpus_count(broker);
    service->arbiters = calloc(service->gpus_count + 1, sizeof(*service->arbiters));
    service->unmanaged_before_exit =
        calloc(service->gpus_count + 1, sizeof(*service->unmanaged_before_exit));
    status = service->arbiters == NULL || service->unmanaged_before_exit == NULL
                 ? tdm__fail(TDM_E_NOMEM, "the memory arbiters")
                 : tdm__timer_create(loop, on_timer, service, &service->timer);
    if (status != TDM_OK) {
        free(service->unmanaged_before_exit);
        free(service->arbiters);
        free(service);
        return status;
    }
    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        struct tdm__broker_gpu about;

        tdm__broker_gpu_usage(broker, gpu, &about);
        tdm__arbiter_init(&service->arbiters[gpu], gpu, about.capacity_bytes);
    }
    tdm__broker_set_callbacks(broker, &hook);
    *self_out = service;
    return TDM_OK;
}
