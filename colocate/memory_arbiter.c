/* memory_arbiter.c - the memory arbiter of one GPU: which tenant may allocate how much memory,
 * and when. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file is a pure state machine. It owns no memory and no thread: the caller owns the struct
 * tdm__memory_arbiter, and memory_arbiter_service.c drives one per GPU on the daemon's loop.
 *
 * A request is open in one of two states. It waits in the queue, or it is granted until the
 * tenant has allocated its bytes, cancels it, or the grant expires. Invariants:
 *
 * - Resident bytes plus granted bytes never exceed the capacity because of a grant.
 *
 * - Requests are granted in order of arrival; a waiting request blocks all requests behind it.
 *
 * - An event that fails leaves the state as it was: tdm__arbiter_handle_event() works on a copy.
 *
 * - Entries of the arrays beyond their counts are all zeros, so that states compare byte by byte.
 *
 * The rules are specified in memory_arbiter.h; memory_arbiter_test.c explores all states of two
 * tenants. */

#include "colocate/memory_arbiter.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <string.h>

/* Most bytes of outside memory of one tag, so that no sum overflows. */
#define OUTSIDE_BYTES_MAX ((uint64_t)1 << 48)

/* ---- the ledger ------------------------------------------------------------------------- */

/* Returns the tenant (process) of the GPU with this ID, or NULL if the GPU has no such tenant. */
static struct tdm__arbiter_tenant *arbiter_find_tenant(struct tdm__memory_arbiter *state,
                                                       const struct tdm__id *id)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        if (tdm__id_equal(&state->tenants[i].id, id)) {
            return &state->tenants[i];
        }
    }
    return NULL;
}

/* Returns the usage entry of the tenant for `tag`, or NULL if none exists. */
static struct tdm__arbiter_tag_usage *
arbiter_find_tag_usage(struct tdm__memory_arbiter *state, const struct tdm__id *id, const char *tag)
{
    struct tdm__arbiter_tenant *tenant = arbiter_find_tenant(state, id);

    for (uint32_t i = 0; tenant != NULL && i < tenant->tag_usages_count; i++) {
        if (strcmp(tenant->tag_usages[i].tag, tag) == 0) {
            return &tenant->tag_usages[i];
        }
    }
    return NULL;
}

/* Fails with TDM_E_INVAL if `text` is NULL, empty or does not fit into `size_bytes` with its NUL.
 */
static tdm_status arbiter_check_text(const char *what, const char *text, size_t size_bytes)
{
    size_t length = text == NULL ? 0 : strnlen(text, size_bytes);

    if (length == 0 || length == size_bytes) {
        return tdm__fail(TDM_E_INVAL, "a tenant's %s has 1 to %zu bytes", what, size_bytes - 1);
    }
    return TDM_OK;
}

/* Finds the tenant of the event, or adds it to the GPU's tenants. Fails with TDM_E_LIMIT if the GPU
 * has too many tenants. */
static tdm_status arbiter_add_tenant(struct tdm__memory_arbiter *state,
                                     const struct tdm__arbiter_event *event,
                                     struct tdm__arbiter_tenant **tenant_out)
{
    struct tdm__arbiter_tenant *tenant = arbiter_find_tenant(state, &event->tenant);

    if (tenant == NULL) {
        if (state->tenants_count == TDM__ARBITER_TENANTS_MAX) {
            return tdm__fail(TDM_E_LIMIT, "GPU %u has %d tenants already: cannot add %s",
                             state->gpu, TDM__ARBITER_TENANTS_MAX, event->name);
        }
        tenant = &state->tenants[state->tenants_count++];
        tenant->id = event->tenant;
        memcpy(tenant->name, event->name, strlen(event->name));
    }
    *tenant_out = tenant;
    return TDM_OK;
}

/* Finds the usage entry for the event's tenant and tag, and appends both if they are new. */
static tdm_status arbiter_add_tag_usage(struct tdm__memory_arbiter *state,
                                        const struct tdm__arbiter_event *event,
                                        struct tdm__arbiter_tag_usage **tag_usage_out)
{
    struct tdm__arbiter_tenant *tenant = NULL;
    struct tdm__arbiter_tag_usage *tag_usage;

    TDM_TRY(arbiter_check_text("name", event->name, TDM__ARBITER_NAME_BYTES));
    TDM_TRY(arbiter_check_text("tag", event->tag, TDM_REGION_TAG_BYTES_MAX));
    TDM_TRY(arbiter_add_tenant(state, event, &tenant));
    TDM_ASSERT(tenant != NULL);
    tag_usage = arbiter_find_tag_usage(state, &event->tenant, event->tag);
    if (tag_usage == NULL) {
        if (tenant->tag_usages_count == TDM__ARBITER_TAGS_MAX) {
            return tdm__fail(TDM_E_LIMIT, "%s has %d tags on GPU %u already: cannot add %s",
                             tenant->name, TDM__ARBITER_TAGS_MAX, state->gpu, event->tag);
        }
        tag_usage = &tenant->tag_usages[tenant->tag_usages_count++];
        memcpy(tag_usage->tag, event->tag, strlen(event->tag));
    }
    *tag_usage_out = tag_usage;
    return TDM_OK;
}

/* Returns the number of bytes that all tenants of the GPU have announced to release. */
static uint64_t announced_release_bytes(const struct tdm__memory_arbiter *state)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < state->tenants_count; i++) {
        for (uint32_t k = 0; k < state->tenants[i].tag_usages_count; k++) {
            sum += state->tenants[i].tag_usages[k].announced_release_bytes;
        }
    }
    return sum;
}

uint64_t tdm__arbiter_free_bytes(const struct tdm__memory_arbiter *state)
{
    uint64_t used = state->unmanaged_bytes;

    for (uint32_t i = 0; i < state->tenants_count; i++) {
        for (uint32_t k = 0; k < state->tenants[i].tag_usages_count; k++) {
            used += state->tenants[i].tag_usages[k].resident_bytes;
        }
    }
    for (uint32_t i = 0; i < state->requests_count; i++) {
        used += state->requests[i].is_granted ? state->requests[i].bytes : 0;
    }
    return used < state->capacity_bytes ? state->capacity_bytes - used : 0;
}

/* Removes the open request at `index` and zeroes the array entry that becomes unused. */
static void arbiter_remove_request(struct tdm__memory_arbiter *state, uint32_t index)
{
    uint32_t after = --state->requests_count - index;

    memmove(&state->requests[index], &state->requests[index + 1],
            after * sizeof(state->requests[0]));
    memset(&state->requests[state->requests_count], 0, sizeof(state->requests[0]));
}

/* Removes the tenant at `index` with its usage and zeroes the array entry that becomes unused. */
static void arbiter_remove_tenant(struct tdm__memory_arbiter *state, uint32_t index)
{
    uint32_t after = --state->tenants_count - index;

    memmove(&state->tenants[index], &state->tenants[index + 1], after * sizeof(state->tenants[0]));
    memset(&state->tenants[state->tenants_count], 0, sizeof(state->tenants[0]));
}

/* ---- the words of a refusal ------------------------------------------------------------- */

/* Converts bytes to MiB for messages. */
static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* Returns the name of the tenant for messages. */
static const char *tenant_name(const struct tdm__memory_arbiter *state, const struct tdm__id *id)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        if (tdm__id_equal(&state->tenants[i].id, id)) {
            return state->tenants[i].name;
        }
    }
    return "an unknown tenant";
}

/* Appends to `text` the tags that the tenant holds with their sizes, and the tags whose regions are
 * paused. */
static void describe_tenant(const struct tdm__arbiter_tenant *tenant, struct tdm__text *text)
{
    bool holds = false;
    bool pauses = false;

    for (uint32_t i = 0; i < tenant->tag_usages_count; i++) {
        const struct tdm__arbiter_tag_usage *tag_usage = &tenant->tag_usages[i];

        if (tag_usage->resident_bytes > 0) {
            tdm__text_add(text, holds ? ", %s %.1f MiB" : " still holds %s %.1f MiB",
                          tag_usage->tag, mib(tag_usage->resident_bytes));
            if (tag_usage->outside_bytes > tag_usage->declared_bytes) {
                tdm__text_add(text, " (%.1f declared)", mib(tag_usage->declared_bytes));
            }
            holds = true;
        }
    }
    tdm__text_add(text, " (paused regions:");
    for (uint32_t i = 0; i < tenant->tag_usages_count; i++) {
        if (tenant->tag_usages[i].resident_bytes == 0) {
            tdm__text_add(text, "%s %s", pauses ? "," : "", tenant->tag_usages[i].tag);
            pauses = true;
        }
    }
    tdm__text_add(text, "%s)", pauses ? "" : " none");
}

/* Appends to `text` every tenant that holds memory of the GPU, and the memory that unknown
 * processes use. */
static void describe_holders(const struct tdm__memory_arbiter *state, struct tdm__text *text)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        const struct tdm__arbiter_tenant *tenant = &state->tenants[i];
        uint64_t held = 0;

        for (uint32_t k = 0; k < tenant->tag_usages_count; k++) {
            held += tenant->tag_usages[k].resident_bytes;
        }
        if (held > 0) {
            tdm__text_add(text, "; %s", tenant->name);
            describe_tenant(tenant, text);
        }
    }
    if (state->unmanaged_bytes > 0) {
        tdm__text_add(text, "; other processes use %.1f MiB", mib(state->unmanaged_bytes));
    }
}

/* Appends to `text` the requests that are served before the request at `index`: granted ones and
 * waiting ones. */
static void describe_queue(const struct tdm__memory_arbiter *state, uint32_t index,
                           struct tdm__text *text)
{
    for (uint32_t i = 0; i < state->requests_count; i++) {
        const struct tdm__arbiter_request *request = &state->requests[i];

        if (i != index && (request->is_granted || i < index)) {
            tdm__text_add(text, "; %.1f MiB %s %s's %s", mib(request->bytes),
                          request->is_granted ? "are promised to" : "go first to",
                          tenant_name(state, &request->tenant), request->tag);
        }
    }
}

/* Writes to `text` why the request at `index` cannot be granted, with the numbers. */
static void describe_refusal(const struct tdm__memory_arbiter *state, uint32_t index,
                             struct tdm__text *text)
{
    const struct tdm__arbiter_request *request = &state->requests[index];

    tdm__text_add(text, "GPU %u cannot hold %s's %s: %.1f MiB wanted, ", state->gpu,
                  tenant_name(state, &request->tenant), request->tag, mib(request->bytes));
    if (request->bytes > state->capacity_bytes) {
        tdm__text_add(text, "%.1f MiB in all", mib(state->capacity_bytes));
        return;
    }
    tdm__text_add(text, "%.1f MiB free", mib(tdm__arbiter_free_bytes(state)));
    describe_holders(state, text);
    describe_queue(state, index, text);
}

/* ---- the queue -------------------------------------------------------------------------- */

/* Appends a decision about a request to `actions` and returns the new entry. */
static struct tdm__arbiter_action *arbiter_append_action(struct tdm__arbiter_actions *actions,
                                                         enum tdm__arbiter_verdict verdict,
                                                         uint64_t request_id)
{
    struct tdm__arbiter_action *action = &actions->entries[actions->count++];

    TDM_ASSERT(actions->count <= TDM__ARBITER_REQUESTS_MAX);
    action->verdict = verdict;
    action->request_id = request_id;
    action->status = TDM_OK;
    action->text[0] = '\0';
    return action;
}

/* Appends a refusal for the request at `index`, ending with the text `why`, and removes the
 * request. */
static void arbiter_refuse_request(struct tdm__memory_arbiter *state, uint32_t index,
                                   const char *why, struct tdm__arbiter_actions *actions)
{
    struct tdm__arbiter_action *action =
        arbiter_append_action(actions, TDM__ARBITER_REFUSE, state->requests[index].request_id);
    struct tdm__text text = tdm__text_init(action->text, sizeof(action->text));

    action->status = TDM_E_DEVICE_FULL;
    describe_refusal(state, index, &text);
    tdm__text_add(&text, "%s", why);
    arbiter_remove_request(state, index);
}

/* Removes grants that have expired unused, and refuses waiting requests whose deadline has
 * passed. */
static void arbiter_expire_requests(struct tdm__memory_arbiter *state, int64_t now_ms,
                                    struct tdm__arbiter_actions *actions)
{
    uint32_t i = 0;

    while (i < state->requests_count) {
        if (state->requests[i].deadline_ms > now_ms) {
            i++;
        } else if (state->requests[i].is_granted) {
            arbiter_remove_request(state,
                                   /* The tenant was told of the grant long ago and did not use
                                    * it. */
                                   i);
        } else {
            arbiter_refuse_request(state, i, "; the deadline passed while it waited", actions);
        }
    }
}

/* Returns true if the request may wait: it fits into the free and announced memory after the
 * requests in front of it (`bytes_before`), or it allows any wait and fits the GPU. */
static bool request_may_fit_later(const struct tdm__memory_arbiter *state,
                                  const struct tdm__arbiter_request *request, uint64_t bytes_before)
{
    uint64_t usable = state->unmanaged_bytes < state->capacity_bytes
                          ? state->capacity_bytes - state->unmanaged_bytes
                          : 0;
    uint64_t coming = tdm__arbiter_free_bytes(state) + announced_release_bytes(state);

    if (request->bytes > state->capacity_bytes) {
        return false;
    }
    if (request->may_wait) {
        return true;
    }
    return request->bytes <= usable && bytes_before <= coming &&
           request->bytes <= coming - bytes_before;
}

/* Decides about all waiting requests in their order: grants from the front, and refuses each
 * request that may not wait. */
static void arbiter_settle_queue(struct tdm__memory_arbiter *state, int64_t now_ms,
                                 struct tdm__arbiter_actions *actions)
{
    uint64_t bytes_before = 0; /* Sum of the bytes of the waiting requests before this one. */
    uint32_t i = 0;

    while (i < state->requests_count) {
        struct tdm__arbiter_request *request = &state->requests[i];

        if (request->is_granted) {
            i++;
        } else if (bytes_before == 0 && request->bytes <= tdm__arbiter_free_bytes(state)) {
            request->is_granted = true;
            request->deadline_ms = now_ms + TDM__ARBITER_GRANT_LIFETIME_MS;
            (void)arbiter_append_action(actions, TDM__ARBITER_GRANT, request->request_id);
            i++;
        } else if (!request_may_fit_later(state, request, bytes_before)) {
            arbiter_refuse_request(state, i, "", actions);
        } else {
            bytes_before += request->bytes;
            i++;
        }
    }
}

/* ---- the events ------------------------------------------------------------------------- */

/* Handles the event TDM__ARBITER_REQUESTED: appends the request to the waiting requests. */
static tdm_status on_request(struct tdm__memory_arbiter *state,
                             const struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_tag_usage *tag_usage = NULL;
    struct tdm__arbiter_request *request;

    if (event->bytes == 0) {
        return tdm__fail(TDM_E_INVAL, "a request for 0 bytes");
    }
    for (uint32_t i = 0; i < state->requests_count; i++) {
        if (state->requests[i].request_id == event->request_id) {
            return tdm__fail(TDM_E_EXISTS, "request %llu is open already",
                             (unsigned long long)event->request_id);
        }
    }
    if (state->requests_count == TDM__ARBITER_REQUESTS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "GPU %u has %d requests open already", state->gpu,
                         TDM__ARBITER_REQUESTS_MAX);
    }
    TDM_TRY(arbiter_add_tag_usage(state, event, &tag_usage));
    TDM_ASSERT(tag_usage != NULL);
    request = &state->requests[state->requests_count++];
    request->request_id = event->request_id;
    request->tenant = event->tenant;
    memcpy(request->tag, tag_usage->tag, sizeof(request->tag));
    request->bytes = event->bytes;
    request->deadline_ms = event->deadline_ms;
    request->may_wait = event->may_wait;
    return TDM_OK;
}

/* Reduces the tenant's grants for the event's tag by the charged bytes, the oldest grant first.
 * Returns the bytes that no grant covered. */
static uint64_t arbiter_use_grants(struct tdm__memory_arbiter *state,
                                   const struct tdm__arbiter_event *event)
{
    uint64_t left = event->bytes;
    uint32_t i = 0;

    while (i < state->requests_count && left > 0) {
        struct tdm__arbiter_request *request = &state->requests[i];
        uint64_t used = request->bytes < left ? request->bytes : left;

        if (!request->is_granted || !tdm__id_equal(&request->tenant, &event->tenant) ||
            strcmp(request->tag, event->tag) != 0) {
            i++;
            continue;
        }
        left -= used;
        request->bytes -= used;
        if (request->bytes == 0) {
            arbiter_remove_request(state, i);
        }
    }
    return left;
}

/* Handles TDM__ARBITER_CHARGED: adds the bytes to the resident bytes of the tenant's tag. */
static tdm_status on_charged(struct tdm__memory_arbiter *state,
                             const struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_tag_usage *tag_usage = NULL;
    uint64_t without_grant;

    TDM_TRY(arbiter_add_tag_usage(state, event, &tag_usage));
    TDM_ASSERT(tag_usage != NULL);
    without_grant = arbiter_use_grants(state, event);
    if (without_grant > tdm__arbiter_free_bytes(state)) {
        return tdm__fail(TDM_E_DEVICE_FULL,
                         "GPU %u: %s made %.1f MiB of %s without a grant, %.1f MiB free",
                         state->gpu, event->name, mib(without_grant), event->tag,
                         mib(tdm__arbiter_free_bytes(state)));
    }
    tag_usage->resident_bytes += event->bytes;
    return TDM_OK;
}

/* Finds the usage entry of a release or an announcement. Fails with TDM_E_STATE if the tenant
 * holds fewer bytes than the event says. */
static tdm_status arbiter_find_held_usage(struct tdm__memory_arbiter *state,
                                          const struct tdm__arbiter_event *event,
                                          struct tdm__arbiter_tag_usage **tag_usage_out)
{
    struct tdm__arbiter_tag_usage *tag_usage;

    TDM_TRY(arbiter_check_text("tag", event->tag, TDM_REGION_TAG_BYTES_MAX));
    tag_usage = arbiter_find_tag_usage(state, &event->tenant, event->tag);
    if (tag_usage == NULL || tag_usage->resident_bytes < event->bytes ||
        (event->kind == TDM__ARBITER_RELEASED &&
         tag_usage->resident_bytes - tag_usage->outside_bytes < event->bytes)) {
        return tdm__fail(TDM_E_STATE, "GPU %u: %.1f MiB of %s's %s leave, but it holds %.1f MiB",
                         state->gpu, mib(event->bytes), tenant_name(state, &event->tenant),
                         event->tag, tag_usage == NULL ? 0.0 : mib(tag_usage->resident_bytes));
    }
    *tag_usage_out = tag_usage;
    return TDM_OK;
}

/* Handles TDM__ARBITER_RELEASED: subtracts the bytes from the resident and the announced bytes. */
static tdm_status on_released(struct tdm__memory_arbiter *state,
                              const struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_tag_usage *tag_usage = NULL;

    TDM_TRY(arbiter_find_held_usage(state, event, &tag_usage));
    TDM_ASSERT(tag_usage != NULL);
    tag_usage->resident_bytes -= event->bytes;
    tag_usage->announced_release_bytes -= tag_usage->announced_release_bytes < event->bytes
                                              ? tag_usage->announced_release_bytes
                                              : event->bytes;
    return TDM_OK;
}

/* Handles TDM__ARBITER_RELEASE_ANNOUNCED: replaces the number of bytes that the tenant has
 * announced to release soon of the event's tag. */
static tdm_status on_release_announced(struct tdm__memory_arbiter *state,
                                       const struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_tag_usage *tag_usage = NULL;

    TDM_TRY(arbiter_find_held_usage(state, event, &tag_usage));
    TDM_ASSERT(tag_usage != NULL);
    tag_usage->announced_release_bytes = event->bytes;
    return TDM_OK;
}

/* Returns the smaller number. */
static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Handles TDM__ARBITER_OUTSIDE_USAGE: replaces the outside memory of the tenant's tag. */
static tdm_status on_outside_usage(struct tdm__memory_arbiter *state,
                                   const struct tdm__arbiter_event *event)
{
    struct tdm__arbiter_tag_usage *tag_usage = NULL;
    struct tdm__arbiter_event added = *event;

    if (event->bytes > OUTSIDE_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "GPU %u: %.1f MiB of %s", state->gpu, mib(event->bytes),
                         event->tag);
    }
    TDM_TRY(arbiter_add_tag_usage(state, event, &tag_usage));
    TDM_ASSERT(tag_usage != NULL);
    added.bytes =
        event->bytes > tag_usage->outside_bytes ? event->bytes - tag_usage->outside_bytes : 0;
    (void)arbiter_use_grants(state, &added);
    tag_usage->resident_bytes += event->bytes - tag_usage->outside_bytes; /* May wrap, and back. */
    tag_usage->outside_bytes = event->bytes;
    tag_usage->declared_bytes = event->declared_bytes;
    tag_usage->announced_release_bytes = smaller(
        tag_usage->announced_release_bytes, tag_usage->resident_bytes - tag_usage->outside_bytes);
    return TDM_OK;
}

/* Handles TDM__ARBITER_REQUEST_CANCELED: removes the request if it waits or is granted. */
static void on_request_canceled(struct tdm__memory_arbiter *state, uint64_t request_id)
{
    for (uint32_t i = 0; i < state->requests_count; i++) {
        if (state->requests[i].request_id == request_id) {
            arbiter_remove_request(state, i);
            return;
        }
    }
}

/* Handles TDM__ARBITER_TENANT_GONE: removes the tenant's requests and its usage. */
static void on_tenant_gone(struct tdm__memory_arbiter *state, const struct tdm__id *tenant)
{
    for (uint32_t i = state->requests_count; i > 0; i--) {
        if (tdm__id_equal(&state->requests[i - 1].tenant, tenant)) {
            arbiter_remove_request(state, i - 1);
        }
    }
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        if (tdm__id_equal(&state->tenants[i].id, tenant)) {
            arbiter_remove_tenant(state, i);
            return;
        }
    }
}

/* Applies an event to the arbiter's state, without deciding about requests. */
static tdm_status arbiter_apply_event(struct tdm__memory_arbiter *state,
                                      const struct tdm__arbiter_event *event)
{
    switch (event->kind) {
    case TDM__ARBITER_REQUESTED:
        return on_request(state, event);
    case TDM__ARBITER_CHARGED:
        return on_charged(state, event);
    case TDM__ARBITER_RELEASED:
        return on_released(state, event);
    case TDM__ARBITER_RELEASE_ANNOUNCED:
        return on_release_announced(state, event);
    case TDM__ARBITER_REQUEST_CANCELED:
        on_request_canceled(state, event->request_id);
        return TDM_OK;
    case TDM__ARBITER_TENANT_GONE:
        on_tenant_gone(state, &event->tenant);
        return TDM_OK;
    case TDM__ARBITER_UNMANAGED_USAGE:
        state->unmanaged_bytes =
            event->bytes < state->capacity_bytes ? event->bytes : state->capacity_bytes;
        return TDM_OK;
    case TDM__ARBITER_OUTSIDE_USAGE:
        return on_outside_usage(state, event);
    case TDM__ARBITER_TICK:
        return TDM_OK;
    }
    return tdm__fail(TDM_E_INVAL, "unknown memory arbiter event %d", (int)event->kind);
}

/* ---- what the device reports ------------------------------------------------------------ */

uint64_t tdm__arbiter_outside_bytes(const struct tdm__arbiter_report *report)
{
    uint64_t used =
        report->total_bytes > report->free_bytes ? report->total_bytes - report->free_bytes : 0;

    return used > report->charged_bytes ? used - report->charged_bytes : 0;
}

uint64_t tdm__arbiter_unmanaged_bytes(const struct tdm__arbiter_report *report)
{
    uint64_t outside = tdm__arbiter_outside_bytes(report);
    uint64_t known = report->counted_bytes + (report->total_bytes > report->offered_bytes
                                                  ? report->total_bytes - report->offered_bytes
                                                  : 0);

    return outside > known ? (outside - known) / report->sharing_count : 0;
}

uint64_t tdm__arbiter_tenant_outside_bytes(const struct tdm__memory_arbiter *state,
                                           const struct tdm__id *tenant)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < state->tenants_count; i++) {
        const struct tdm__arbiter_tenant *entry = &state->tenants[i];
        bool is_wanted = tenant == NULL || tdm__id_equal(&entry->id, tenant);

        for (uint32_t k = 0; is_wanted && k < entry->tag_usages_count; k++) {
            sum += entry->tag_usages[k].outside_bytes;
        }
    }
    return sum;
}

bool tdm__arbiter_has_open_grant(const struct tdm__memory_arbiter *state)
{
    for (uint32_t i = 0; i < state->requests_count; i++) {
        if (state->requests[i].is_granted) {
            return true;
        }
    }
    return false;
}

/* ---- the entries ------------------------------------------------------------------------ */

void tdm__arbiter_init(struct tdm__memory_arbiter *state, uint32_t gpu, uint64_t capacity_bytes)
{
    memset(state, 0, sizeof(*state));
    state->gpu = gpu;
    state->capacity_bytes = capacity_bytes;
}

/* Returns true if the request with this number waits for a decision. */
static bool request_waits(const struct tdm__memory_arbiter *state, uint64_t request_id)
{
    for (uint32_t i = 0; i < state->requests_count; i++) {
        if (state->requests[i].request_id == request_id) {
            return !state->requests[i].is_granted;
        }
    }
    return false;
}

tdm_status tdm__arbiter_handle_event(struct tdm__memory_arbiter *state,
                                     const struct tdm__arbiter_event *event,
                                     struct tdm__arbiter_actions *actions_out)
{
    struct tdm__memory_arbiter next = *state;

    TDM_TRY(arbiter_apply_event(&next, event));
    actions_out->count = 0;
    /* The queue is settled before requests expire, so that memory that was released in time still
     * serves them. */
    arbiter_settle_queue(&next, event->now_ms, actions_out);
    arbiter_expire_requests(&next, event->now_ms, actions_out);
    arbiter_settle_queue(&next, event->now_ms, actions_out);
    if (event->kind == TDM__ARBITER_REQUESTED && request_waits(&next, event->request_id)) {
        (void)arbiter_append_action(actions_out, TDM__ARBITER_WAIT, event->request_id);
    }
    *state = next;
    return TDM_OK;
}
