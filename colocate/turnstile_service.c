/* turnstile_service.c - the daemon's service "turn": one turnstile per GPU of the node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/turnstile_service.h"

#include "colocate/turnstile.h"
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
struct wish {
    struct wish *next;
    uint64_t request_id;
    uint32_t gpu;
    struct tdm__incoming *incoming; /* owned */
};

/* A process that is gone, but whose blocks others still map: their bytes are still on the card,
 * and its line stays until the broker has no row of it any more. */
struct departed {
    struct departed *next;
    struct tdm__id id;
};

struct service {
    struct tdm__loop *loop;     /* borrowed */
    struct tdm__broker *broker; /* borrowed */
    struct tdm__timer *timer;   /* runs while somebody waits, or has departed */
    struct wish *wishes;
    struct departed *departed;
    uint64_t last_request_id;
    uint32_t gpus_count;
    struct tdm__turnstile *turnstiles; /* owned, one per GPU */
};

/* ---- verdicts --------------------------------------------------------------------------- */

static struct wish *take_wish(struct service *service, uint64_t request_id)
{
    for (struct wish **place = &service->wishes; *place != NULL; place = &(*place)->next) {
        struct wish *wish = *place;

        if (wish->request_id == request_id) {
            *place = wish->next;
            return wish;
        }
    }
    return NULL;
}

/* What is in the way and is not its owner's any more: who could let go of it. */
static void describe_others(const struct service *service, uint32_t gpu, struct tdm__text *text)
{
    struct tdm__broker_row rows[ROWS_MAX];
    uint32_t count = tdm__broker_rows(service->broker, gpu, rows, ROWS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].releasing_bytes > 0) {
            tdm__text_add(text, "; %s still maps %.1f MiB of %s's %s", rows[i].holder,
                          (double)rows[i].releasing_bytes / (1 << 20), rows[i].owner.name,
                          rows[i].tag);
        }
    }
}

static void refuse(const struct service *service, const struct wish *wish,
                   const struct tdm__turnstile_action *action)
{
    char detail[TDM__TURNSTILE_TEXT_BYTES];
    struct tdm__text text = tdm__text_in(detail, sizeof(detail));

    tdm__text_add(&text, "%s", action->text);
    describe_others(service, wish->gpu, &text);
    tdm__incoming_fail(wish->incoming, action->status, detail);
}

static void carry_out(struct service *service, const struct tdm__turnstile_action *action)
{
    struct wish *wish;

    if (action->verdict == TDM__TURNSTILE_WAIT) {
        (void)tdm__timer_set(service->timer, tdm__deadline_in(TICK_MS));
        return;
    }
    wish = take_wish(service, action->request_id);
    if (wish == NULL) {
        return;
    }
    if (action->verdict == TDM__TURNSTILE_GRANT) {
        tdm__incoming_reply_pack(wish->incoming, "");
    } else {
        refuse(service, wish, action);
    }
    free(wish);
}

static tdm_status step(struct service *service, uint32_t gpu,
                       const struct tdm__turnstile_event *event)
{
    /* 17 KiB, and never two steps at once: nothing that a verdict does steps again. */
    static struct tdm__turnstile_actions actions;

    TDM_TRY(tdm__turnstile_step(&service->turnstiles[gpu], event, &actions));
    for (uint32_t i = 0; i < actions.count; i++) {
        carry_out(service, &actions.entries[i]);
    }
    return TDM_OK;
}

static bool holds_anything(const struct service *service, uint32_t gpu,
                           const struct tdm__id *id)
{
    struct tdm__broker_row rows[ROWS_MAX];
    uint32_t count = tdm__broker_rows(service->broker, gpu, rows, ROWS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (tdm__id_equal(&rows[i].owner.id, id)) {
            return true;
        }
    }
    return false;
}

/* Strikes it from the turnstiles of the GPUs where it holds nothing; true when from all. */
static bool strike(struct service *service, const struct tdm__id *id)
{
    struct tdm__turnstile_event gone = {
        .kind = TDM__TURNSTILE_GONE, .tenant = *id, .now_ms = tdm__clock_ms()};
    bool all = true;

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        if (holds_anything(service, gpu, id)) {
            all = false;
        } else {
            (void)step(service, gpu, &gone); /* unknown tenants are no error */
        }
    }
    return all;
}

static void strike_departed(struct service *service)
{
    struct departed **place = &service->departed;

    while (*place != NULL) {
        struct departed *departed = *place;

        if (strike(service, &departed->id)) {
            *place = departed->next;
            free(departed);
        } else {
            place = &departed->next;
        }
    }
}

static void on_timer(void *arg)
{
    struct service *service = arg;
    struct tdm__turnstile_event tick = {.kind = TDM__TURNSTILE_TICK, .now_ms = tdm__clock_ms()};

    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        (void)step(service, gpu, &tick); /* a tick cannot be wrong */
    }
    strike_departed(service);
    if (service->wishes != NULL || service->departed != NULL) {
        (void)tdm__timer_set(service->timer, tdm__deadline_in(TICK_MS));
    }
}

/* ---- what the broker sees --------------------------------------------------------------- */

static void observed(struct service *service, uint32_t gpu, struct tdm__turnstile_event *event)
{
    event->now_ms = tdm__clock_ms();
    if (step(service, gpu, event) != TDM_OK) {
        /* The broker's word stands: it has the memory.  Its rows are what is true. */
        tdm__log(TDM__WARN, "turnstile", "GPU %u: ledger and memory differ: %s", gpu,
                 tdm_error_detail());
    }
}

static void on_charged(void *arg, uint32_t gpu, const struct tdm__tenant *owner,
                       const char *tag, size_t bytes)
{
    struct tdm__turnstile_event event = {.kind = TDM__TURNSTILE_CHARGED,
                                         .tenant = owner->id,
                                         .name = owner->name,
                                         .tag = tag,
                                         .bytes = bytes};

    observed(arg, gpu, &event);
}

static void on_released(void *arg, uint32_t gpu, const struct tdm__tenant *owner,
                        const char *tag, size_t bytes)
{
    struct tdm__turnstile_event event = {
        .kind = TDM__TURNSTILE_RELEASED, .tenant = owner->id, .tag = tag, .bytes = bytes};

    observed(arg, gpu, &event);
}

/* ---- calls ------------------------------------------------------------------------------ */

static tdm_status fail_no_gpu(const struct service *service, uint64_t gpu)
{
    return tdm__fail(TDM_E_INVAL, "GPU %llu of a node with %u", (unsigned long long)gpu,
                     service->gpus_count);
}

/* Fills in the rest of a wish or an announcement. */
static tdm_status set_event(const struct service *service, const struct tdm__incoming *incoming,
                            const struct tdm__turn_wish_message *message, uint32_t *gpu_out,
                            struct tdm__turnstile_event *event)
{
    if (message->gpu >= service->gpus_count) {
        return fail_no_gpu(service, message->gpu);
    }
    event->tag = message->tag;
    event->bytes = message->bytes;
    event->tenant = tdm__incoming_peer(incoming)->id;
    event->name = tdm__incoming_peer(incoming)->name;
    event->now_ms = tdm__clock_ms();
    event->deadline_ms = tdm__deadline_in(message->timeout_ms);
    *gpu_out = (uint32_t)message->gpu;
    return TDM_OK;
}

static tdm_status read_wish(const struct service *service, struct tdm__incoming *incoming,
                            uint32_t *gpu_out, struct tdm__turnstile_event *event)
{
    struct tdm__turn_wish_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__turn_wish_table(), &message));
    return set_event(service, incoming, &message, gpu_out, event);
}

static tdm_status read_leaving(const struct service *service, struct tdm__incoming *incoming,
                               uint32_t *gpu_out, struct tdm__turnstile_event *event)
{
    struct tdm__turn_leaving_message message;
    struct tdm__turn_wish_message wish;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__turn_leaving_table(), &message));
    wish = (struct tdm__turn_wish_message){
        .gpu = message.gpu, .tag = message.tag, .bytes = message.bytes};
    return set_event(service, incoming, &wish, gpu_out, event);
}

/* Takes `incoming`, also on failure. */
static void serve_wish(struct service *service, struct tdm__incoming *incoming)
{
    struct tdm__turnstile_event event = {.kind = TDM__TURNSTILE_WISH,
                                         .request_id = ++service->last_request_id};
    struct wish *wish = calloc(1, sizeof(*wish));
    uint32_t gpu;
    tdm_status status = wish == NULL ? tdm__fail(TDM_E_NOMEM, "a wish")
                                     : read_wish(service, incoming, &gpu, &event);

    if (status == TDM_OK) {
        *wish = (struct wish){service->wishes, event.request_id, gpu, incoming};
        service->wishes = wish;
        status = step(service, gpu, &event);
        if (status != TDM_OK) {
            wish = take_wish(service, event.request_id);
        }
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        free(wish);
    }
}

static void serve_leaving(struct service *service, struct tdm__incoming *incoming)
{
    struct tdm__turnstile_event event = {.kind = TDM__TURNSTILE_LEAVING};
    uint32_t gpu;
    tdm_status status = read_leaving(service, incoming, &gpu, &event);

    if (status == TDM_OK) {
        status = step(service, gpu, &event);
    }
    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* An open grant of the tenant for that tag; 0 if there is none. */
static uint64_t find_grant(const struct tdm__turnstile *turnstile, const struct tdm__id *tenant,
                           const char *tag)
{
    for (uint32_t i = 0; i < turnstile->wishes_count; i++) {
        const struct tdm__turnstile_wish *wish = &turnstile->wishes[i];

        if (wish->is_granted && tdm__id_equal(&wish->tenant, tenant) &&
            strcmp(wish->tag, tag) == 0) {
            return wish->request_id;
        }
    }
    return 0;
}

/* The tenant does not take what it was granted. */
static tdm_status forgo(struct service *service, struct tdm__incoming *incoming)
{
    const struct tdm__id *tenant = &tdm__incoming_peer(incoming)->id;
    struct tdm__turnstile_event event = {.kind = TDM__TURNSTILE_WITHDRAWN};
    struct tdm__turn_forgo_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__turn_forgo_table(), &message));
    if (message.gpu >= service->gpus_count) {
        return fail_no_gpu(service, message.gpu);
    }
    event.now_ms = tdm__clock_ms();
    while ((event.request_id =
                find_grant(&service->turnstiles[message.gpu], tenant, message.tag)) != 0) {
        TDM_TRY(step(service, (uint32_t)message.gpu, &event));
    }
    return TDM_OK;
}

static void serve_forgo(struct service *service, struct tdm__incoming *incoming)
{
    tdm_status status = forgo(service, incoming);

    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

static void serve(void *self, struct tdm__incoming *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "turn.wish") == 0) {
        serve_wish(self, incoming);
    } else if (strcmp(method, "turn.leaving") == 0) {
        serve_leaving(self, incoming);
    } else if (strcmp(method, "turn.forgo") == 0) {
        serve_forgo(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

/* Its wishes vanish from the turnstiles; here they are answered to nobody. */
static void peer_gone(void *self, const struct tdm__identity *peer)
{
    struct service *service = self;
    struct wish **place = &service->wishes;
    struct departed *departed;

    while (*place != NULL) {
        struct wish *wish = *place;

        if (tdm__id_equal(&tdm__incoming_peer(wish->incoming)->id, &peer->id)) {
            *place = wish->next;
            tdm__incoming_fail(wish->incoming, TDM_E_CLOSED, "the process is gone");
            free(wish);
        } else {
            place = &wish->next;
        }
    }
    if (strike(service, &peer->id)) {
        return;
    }
    departed = calloc(1, sizeof(*departed));
    if (departed == NULL) {
        return; /* its line stays: too little is granted rather than too much */
    }
    *departed = (struct departed){service->departed, peer->id};
    service->departed = departed;
    (void)tdm__timer_set(service->timer, tdm__deadline_in(TICK_MS));
}

static void destroy(void *self)
{
    struct service *service = self;

    tdm__broker_set_hook(service->broker, NULL);
    while (service->wishes != NULL) {
        struct wish *wish = service->wishes;

        service->wishes = wish->next;
        tdm__incoming_fail(wish->incoming, TDM_E_CLOSED, "the node stops");
        free(wish);
    }
    while (service->departed != NULL) {
        struct departed *departed = service->departed;

        service->departed = departed->next;
        free(departed);
    }
    tdm__timer_destroy(service->timer);
    free(service->turnstiles);
    free(service);
}

const struct tdm__service_ops tdm__turnstile_service = {
    .prefix = "turn", .serve = serve, .peer_gone = peer_gone, .destroy = destroy};

tdm_status tdm__turnstile_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                         void **self_out)
{
    struct service *service = calloc(1, sizeof(*service));
    struct tdm__broker_hook hook = {on_charged, on_released, service};
    tdm_status status;

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the turnstiles");
    }
    service->loop = loop;
    service->broker = broker;
    service->gpus_count = tdm__broker_gpus_count(broker);
    service->turnstiles = calloc(service->gpus_count + 1, sizeof(*service->turnstiles));
    status = service->turnstiles == NULL
                 ? tdm__fail(TDM_E_NOMEM, "the turnstiles")
                 : tdm__timer_create(loop, on_timer, service, &service->timer);
    if (status != TDM_OK) {
        free(service->turnstiles);
        free(service);
        return status;
    }
    for (uint32_t gpu = 0; gpu < service->gpus_count; gpu++) {
        struct tdm__broker_gpu about;

        tdm__broker_describe(broker, gpu, &about);
        tdm__turnstile_init(&service->turnstiles[gpu], gpu, about.capacity_bytes);
    }
    tdm__broker_set_hook(broker, &hook);
    *self_out = service;
    return TDM_OK;
}
