/* memory_arbiter_service.c - the daemon's service "arbiter": one memory_arbiter per GPU of the
 * node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory_arbiter_service.h"

#include "colocate/memory_arbiter.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 50, ROWS_MAX = 128 };

/* A call that waits for its verdict. */
struct waiting_request {
    struct waiting_request *next;
    uint64_t request_id;
    uint32_t gpu;
    struct tdm__incoming_call *incoming; /* owned */
};

/* A process that is gone, but whose blocks others still map: their bytes are still on the card,
 * and its line stays until the broker has no row of it any more. */
struct departed_tenants {
    struct departed_tenants *next;
    struct tdm__id id;
};

struct service {
    struct tdm__loop *loop;     /* borrowed */
    struct tdm__broker *broker; /* borrowed */
    struct tdm__timer *timer;   /* runs while somebody waits, or has departed_tenants */
    struct waiting_request *requests;
    struct departed_tenants *departed_tenants;
    uint64_t last_request_id;
    uint32_t gpus_count;
    struct tdm__memory_arbiter *arbiters; /* owned, one per GPU */
};

/* ---- verdicts --------------------------------------------------------------------------- */

static struct waiting_request *take_pending_request(struct service *service, uint64_t request_id)
{
    for (struct waiting_request **place = &service->requests; *place != NULL;
         place = &(*place)->next) {
        struct waiting_request *waiting_request = *place;

        if (waiting_request->request_id == request_id) {
            *place = waiting_request->next;
            return waiting_request;
        }
    }
    return NULL;
}

/* What is in the way and is not its owner's any more: who could let go of it. */
static void describe_other_tenants(const struct service *service, uint32_t gpu,
                                   struct tdm__text *text)
{
    struct tdm__broker_usage rows[ROWS_MAX];
    uint32_t count = tdm__broker_list_usage(service->broker, gpu, rows, ROWS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].releasing_bytes > 0) {
            tdm__text_add(text, "; %s still maps %.1f MiB of %s's %s", rows[i].holder,
                          (double)rows[i].releasing_bytes / (1 << 20), rows[i].owner.name,
                          rows[i].tag);
        }
    }
}

static void reply_refused(const struct service *service,
                          const struct waiting_request *waiting_request,
                          const struct tdm__arbiter_action *action)
{
    char detail[TDM__ARBITER_TEXT_BYTES];
    struct tdm__text text = tdm__text_init(detail, sizeof(detail));

    tdm__text_add(&text, "%s", action->text);
    describe_other_tenants(service, waiting_request->gpu, &text);
    tdm__incoming_fail(waiting_request->incoming, action->status, detail);
}

static void carry_out_decisions(struct service *service, const struct tdm__arbiter_action *action)
{
    struct waiting_request *waiting_request;

    if (action->verdict == TDM__ARBITER_WAIT) {
        (void)tdm__timer_set(service->timer, tdm__deadline_after(TICK_MS));
        return;
    }
    waiting_request = take_pending_request(service, action->request_id);
    if (waiting_request == NULL) {
        return;
    }
    if (action->verdict == TDM__ARBITER_GRANT) {
        tdm__incoming_reply_pack(waiting_request->incoming, "");
    } else {
        reply_refused(service, waiting_request, action);
    }
    free(waiting_request);
}

static tdm_status arbiter_step(struct service *service, uint32_t gpu,
                               const struct tdm__arbiter_event *event)
{
    /* 17 KiB, and never two steps at once: nothing that a verdict does steps again. */
    static struct tdm__arbiter_actions actions;

    TDM_TRY(tdm__arbiter_handle_event(&service->arbiters[gpu], event, &actions));
    for (uint32_t i = 0; i < actions.count; i++) {
        carry_out_decisions(service, &actions.entries[i]);
    }
    return TDM_OK;
}

static bool tenant_holds_memory(const struct service *service, uint32_t gpu,
                                const struct tdm__id *id)
{
    struct tdm__broker_usage rows[ROWS_MAX];
    uint32_t count = tdm__broker_list_usage(service->broker, gpu, rows, ROWS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (tdm__id_equal(&rows[i].owner.id, id)) {
            return true;
        }
    }
    return false;
}

/* Strikes it from the arbiters of the GPUs where it holds nothing; true when from all. */
static bool report_departed_tenant(struct service *service, const struct tdm__id *id)
{
    struct tdm__arbiter_event gone = {
        .kind = TDM__ARBITER_TENANT_GONE, .tenant = *id, .now_ms = tdm__clock_ms()};
    bool all = true;

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        if (tenant_holds_memory(service, gpu, id)) {
            all = false;
        } else {
            (void)arbiter_step(service, gpu, &gone); /* unknown tenants are no error */
        }
    }
    return all;
}

static void report_departed_tenants(struct service *service)
{
    struct departed_tenants **place = &service->departed_tenants;

    while (*place != NULL) {
        struct departed_tenants *departed_tenants = *place;

        if (report_departed_tenant(service, &departed_tenants->id)) {
            *place = departed_tenants->next;
            free(departed_tenants);
        } else {
            place = &departed_tenants->next;
        }
    }
}

static void on_timer(void *arg)
{
    struct service *service = arg;
    struct tdm__arbiter_event tick = {.kind = TDM__ARBITER_TICK, .now_ms = tdm__clock_ms()};

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        (void)arbiter_step(service, gpu, &tick); /* a tick cannot be wrong */
    }
    report_departed_tenants(service);
    if (service->requests != NULL || service->departed_tenants != NULL) {
        (void)tdm__timer_set(service->timer, tdm__deadline_after(TICK_MS));
    }
}

/* ---- what the broker sees --------------------------------------------------------------- */

static void on_unmanaged_usage(struct service *service, uint32_t gpu,
                               struct tdm__arbiter_event *event)
{
    event->now_ms = tdm__clock_ms();
    if (arbiter_step(service, gpu, event) != TDM_OK) {
        /* The broker's word stands: it has the memory.  Its rows are what is true. */
        tdm__log(TDM__WARN, "memory_arbiter", "GPU %u: ledger and memory differ: %s", gpu,
                 tdm_error_detail());
    }
}

static void on_charged(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                       size_t bytes)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_CHARGED,
                                       .tenant = owner->id,
                                       .name = owner->name,
                                       .tag = tag,
                                       .bytes = bytes};

    on_unmanaged_usage(arg, gpu, &event);
}

static void on_released(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                        size_t bytes)
{
    struct tdm__arbiter_event event = {
        .kind = TDM__ARBITER_RELEASED, .tenant = owner->id, .tag = tag, .bytes = bytes};

    on_unmanaged_usage(arg, gpu, &event);
}

/* ---- calls ------------------------------------------------------------------------------ */

static tdm_status fail_no_gpu(const struct service *service, uint64_t gpu)
{
    return tdm__fail(TDM_E_INVAL, "GPU %llu of a node with %u", (unsigned long long)gpu,
                     service->gpus_count);
}

/* Fills in the rest of a waiting_request or an announcement. */
static tdm_status set_event(const struct service *service,
                            const struct tdm__incoming_call *incoming,
                            const struct tdm__turn_wish_message *message, uint32_t *gpu_out,
                            struct tdm__arbiter_event *event)
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

static tdm_status read_wish(const struct service *service, struct tdm__incoming_call *incoming,
                            uint32_t *gpu_out, struct tdm__arbiter_event *event)
{
    struct tdm__turn_wish_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__turn_wish_table(), &message));
    return set_event(service, incoming, &message, gpu_out, event);
}

static tdm_status read_leaving(const struct service *service, struct tdm__incoming_call *incoming,
                               uint32_t *gpu_out, struct tdm__arbiter_event *event)
{
    struct tdm__turn_leaving_message message;
    struct tdm__turn_wish_message waiting_request;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__turn_leaving_table(), &message));
    waiting_request = (struct tdm__turn_wish_message){
        .gpu = message.gpu, .tag = message.tag, .bytes = message.bytes};
    return set_event(service, incoming, &waiting_request, gpu_out, event);
}

/* Takes `incoming`, also on failure. */
static void serve_request(struct service *service, struct tdm__incoming_call *incoming)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_REQUESTED,
                                       .request_id = ++service->last_request_id};
    struct waiting_request *waiting_request = calloc(1, sizeof(*waiting_request));
    uint32_t gpu;
    tdm_status status = waiting_request == NULL ? tdm__fail(TDM_E_NOMEM, "a request")
                                                : read_wish(service, incoming, &gpu, &event);

    if (status == TDM_OK) {
        *waiting_request =
            (struct waiting_request){service->requests, event.request_id, gpu, incoming};
        service->requests = waiting_request;
        status = arbiter_step(service, gpu, &event);
        if (status != TDM_OK) {
            waiting_request = take_pending_request(service, event.request_id);
        }
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        free(waiting_request);
    }
}

static void serve_announce_release(struct service *service, struct tdm__incoming_call *incoming)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_RELEASE_ANNOUNCED};
    uint32_t gpu;
    tdm_status status = read_leaving(service, incoming, &gpu, &event);

    if (status == TDM_OK) {
        status = arbiter_step(service, gpu, &event);
    }
    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* An open grant of the tenant for that tag; 0 if there is none. */
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

/* The tenant does not take what it was granted. */
static tdm_status cancel_tenant_grants(struct service *service, struct tdm__incoming_call *incoming)
{
    const struct tdm__id *tenant = &tdm__incoming_peer(incoming)->id;
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_REQUEST_CANCELED};
    struct tdm__turn_forgo_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__turn_forgo_table(), &message));
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

static void serve_cancel_grant(struct service *service, struct tdm__incoming_call *incoming)
{
    tdm_status status = cancel_tenant_grants(service, incoming);

    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

static void serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "arbiter.request") == 0) {
        serve_request(self, incoming);
    } else if (strcmp(method, "arbiter.announce_release") == 0) {
        serve_announce_release(self, incoming);
    } else if (strcmp(method, "arbiter.cancel_grant") == 0) {
        serve_cancel_grant(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

/* Its requests vanish from the arbiters; here they are answered to nobody. */
static void peer_exited(void *self, const struct tdm__peer_identity *peer)
{
    struct service *service = self;
    struct waiting_request **place = &service->requests;
    struct departed_tenants *departed_tenants;

    while (*place != NULL) {
        struct waiting_request *waiting_request = *place;

        if (tdm__id_equal(&tdm__incoming_peer(waiting_request->incoming)->id, &peer->id)) {
            *place = waiting_request->next;
            tdm__incoming_fail(waiting_request->incoming, TDM_E_CLOSED, "the process is gone");
            free(waiting_request);
        } else {
            place = &waiting_request->next;
        }
    }
    if (report_departed_tenant(service, &peer->id)) {
        return;
    }
    departed_tenants = calloc(1, sizeof(*departed_tenants));
    if (departed_tenants == NULL) {
        return; /* its line stays: too little is granted rather than too much */
    }
    *departed_tenants = (struct departed_tenants){service->departed_tenants, peer->id};
    service->departed_tenants = departed_tenants;
    (void)tdm__timer_set(service->timer, tdm__deadline_after(TICK_MS));
}

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
    free(service->arbiters);
    free(service);
}

const struct tdm__service_ops tdm__arbiter_service = {
    .prefix = "arbiter", .serve = serve, .peer_exited = peer_exited, .destroy = destroy};

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
    status = service->arbiters == NULL
                 ? tdm__fail(TDM_E_NOMEM, "the memory arbiters")
                 : tdm__timer_create(loop, on_timer, service, &service->timer);
    if (status != TDM_OK) {
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
