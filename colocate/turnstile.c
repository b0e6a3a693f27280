/* turnstile.c - one GPU's turnstile: who may take how much of its memory, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/turnstile.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <string.h>

/* ---- the ledger ------------------------------------------------------------------------- */

static struct tdm__turnstile_tenant *find_tenant(struct tdm__turnstile *state,
                                                 const struct tdm__id *id)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        if (tdm__id_equal(&state->tenants[i].id, id)) {
            return &state->tenants[i];
        }
    }
    return NULL;
}

static struct tdm__turnstile_line *find_line(struct tdm__turnstile *state,
                                             const struct tdm__id *id, const char *tag)
{
    struct tdm__turnstile_tenant *tenant = find_tenant(state, id);

    for (uint32_t i = 0; tenant != NULL && i < tenant->lines_count; i++) {
        if (strcmp(tenant->lines[i].tag, tag) == 0) {
            return &tenant->lines[i];
        }
    }
    return NULL;
}

static tdm_status check_text(const char *what, const char *text, size_t size_bytes)
{
    size_t length = text == NULL ? 0 : strnlen(text, size_bytes);

    if (length == 0 || length == size_bytes) {
        return tdm__fail(TDM_E_INVAL, "a tenant's %s has 1 to %zu bytes", what, size_bytes - 1);
    }
    return TDM_OK;
}

static tdm_status add_tenant(struct tdm__turnstile *state,
                             const struct tdm__turnstile_event *event,
                             struct tdm__turnstile_tenant **tenant_out)
{
    struct tdm__turnstile_tenant *tenant = find_tenant(state, &event->tenant);

    if (tenant == NULL) {
        if (state->tenants_count == TDM__TURNSTILE_TENANTS_MAX) {
            return tdm__fail(TDM_E_LIMIT, "GPU %u has %d tenants already, no room for %s",
                             state->gpu, TDM__TURNSTILE_TENANTS_MAX, event->name);
        }
        tenant = &state->tenants[state->tenants_count++];
        tenant->id = event->tenant;
        memcpy(tenant->name, event->name, strlen(event->name));
    }
    *tenant_out = tenant;
    return TDM_OK;
}

/* Makes the tenant and the line of the event, if they are new. */
static tdm_status add_line(struct tdm__turnstile *state,
                           const struct tdm__turnstile_event *event,
                           struct tdm__turnstile_line **line_out)
{
    struct tdm__turnstile_tenant *tenant = NULL;
    struct tdm__turnstile_line *line;

    TDM_TRY(check_text("name", event->name, TDM__TURNSTILE_NAME_BYTES));
    TDM_TRY(check_text("tag", event->tag, TDM_REGION_TAG_BYTES_MAX));
    TDM_TRY(add_tenant(state, event, &tenant));
    TDM_ASSERT(tenant != NULL);
    line = find_line(state, &event->tenant, event->tag);
    if (line == NULL) {
        if (tenant->lines_count == TDM__TURNSTILE_TAGS_MAX) {
            return tdm__fail(TDM_E_LIMIT, "%s has %d tags on GPU %u already, no room for %s",
                             tenant->name, TDM__TURNSTILE_TAGS_MAX, state->gpu, event->tag);
        }
        line = &tenant->lines[tenant->lines_count++];
        memcpy(line->tag, event->tag, strlen(event->tag));
    }
    *line_out = line;
    return TDM_OK;
}

static uint64_t leaving_bytes(const struct tdm__turnstile *state)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < state->tenants_count; i++) {
        for (uint32_t k = 0; k < state->tenants[i].lines_count; k++) {
            sum += state->tenants[i].lines[k].leaving_bytes;
        }
    }
    return sum;
}

uint64_t tdm__turnstile_free_bytes(const struct tdm__turnstile *state)
{
    uint64_t used = state->foreign_bytes;

    for (uint32_t i = 0; i < state->tenants_count; i++) {
        for (uint32_t k = 0; k < state->tenants[i].lines_count; k++) {
            used += state->tenants[i].lines[k].resident_bytes;
        }
    }
    for (uint32_t i = 0; i < state->wishes_count; i++) {
        used += state->wishes[i].is_granted ? state->wishes[i].bytes : 0;
    }
    return used < state->capacity_bytes ? state->capacity_bytes - used : 0;
}

/* Unused entries are all zeros, so that equal states are equal bytes. */
static void remove_wish(struct tdm__turnstile *state, uint32_t index)
{
    uint32_t after = --state->wishes_count - index;

    memmove(&state->wishes[index], &state->wishes[index + 1], after * sizeof(state->wishes[0]));
    memset(&state->wishes[state->wishes_count], 0, sizeof(state->wishes[0]));
}

static void remove_tenant(struct tdm__turnstile *state, uint32_t index)
{
    uint32_t after = --state->tenants_count - index;

    memmove(&state->tenants[index], &state->tenants[index + 1],
            after * sizeof(state->tenants[0]));
    memset(&state->tenants[state->tenants_count], 0, sizeof(state->tenants[0]));
}

/* ---- the words of a refusal ------------------------------------------------------------- */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static const char *name_of(const struct tdm__turnstile *state, const struct tdm__id *id)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        if (tdm__id_equal(&state->tenants[i].id, id)) {
            return state->tenants[i].name;
        }
    }
    return "somebody";
}

static void describe_tenant(const struct tdm__turnstile_tenant *tenant, struct tdm__text *text)
{
    bool holds = false;
    bool pauses = false;

    for (uint32_t i = 0; i < tenant->lines_count; i++) {
        const struct tdm__turnstile_line *line = &tenant->lines[i];

        if (line->resident_bytes > 0) {
            tdm__text_add(text, holds ? ", %s %.1f MiB" : " still holds %s %.1f MiB", line->tag,
                          mib(line->resident_bytes));
            holds = true;
        }
    }
    tdm__text_add(text, " (paused regions:");
    for (uint32_t i = 0; i < tenant->lines_count; i++) {
        if (tenant->lines[i].resident_bytes == 0) {
            tdm__text_add(text, "%s %s", pauses ? "," : "", tenant->lines[i].tag);
            pauses = true;
        }
    }
    tdm__text_add(text, "%s)", pauses ? "" : " none");
}

static void describe_holders(const struct tdm__turnstile *state, struct tdm__text *text)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        const struct tdm__turnstile_tenant *tenant = &state->tenants[i];
        uint64_t held = 0;

        for (uint32_t k = 0; k < tenant->lines_count; k++) {
            held += tenant->lines[k].resident_bytes;
        }
        if (held > 0) {
            tdm__text_add(text, "; %s", tenant->name);
            describe_tenant(tenant, text);
        }
    }
    if (state->foreign_bytes > 0) {
        tdm__text_add(text, "; strangers use %.1f MiB", mib(state->foreign_bytes));
    }
}

/* Those before `index`: granted to others, or waiting in front. */
static void describe_queue(const struct tdm__turnstile *state, uint32_t index,
                           struct tdm__text *text)
{
    for (uint32_t i = 0; i < state->wishes_count; i++) {
        const struct tdm__turnstile_wish *wish = &state->wishes[i];

        if (i != index && (wish->is_granted || i < index)) {
            tdm__text_add(text, "; %.1f MiB %s %s's %s", mib(wish->bytes),
                          wish->is_granted ? "are promised to" : "go first to",
                          name_of(state, &wish->tenant), wish->tag);
        }
    }
}

static void describe_refusal(const struct tdm__turnstile *state, uint32_t index,
                             struct tdm__text *text)
{
    const struct tdm__turnstile_wish *wish = &state->wishes[index];

    tdm__text_add(text, "GPU %u cannot hold %s's %s: %.1f MiB wanted, ", state->gpu,
                  name_of(state, &wish->tenant), wish->tag, mib(wish->bytes));
    if (wish->bytes > state->capacity_bytes) {
        tdm__text_add(text, "%.1f MiB in all", mib(state->capacity_bytes));
        return;
    }
    tdm__text_add(text, "%.1f MiB free", mib(tdm__turnstile_free_bytes(state)));
    describe_holders(state, text);
    describe_queue(state, index, text);
}

/* ---- the queue -------------------------------------------------------------------------- */

static struct tdm__turnstile_action *say(struct tdm__turnstile_actions *actions,
                                         enum tdm__turnstile_verdict verdict,
                                         uint64_t request_id)
{
    struct tdm__turnstile_action *action = &actions->entries[actions->count++];

    TDM_ASSERT(actions->count <= TDM__TURNSTILE_WISHES_MAX);
    action->verdict = verdict;
    action->request_id = request_id;
    action->status = TDM_OK;
    action->text[0] = '\0';
    return action;
}

static void refuse(struct tdm__turnstile *state, uint32_t index, const char *why,
                   struct tdm__turnstile_actions *actions)
{
    struct tdm__turnstile_action *action =
        say(actions, TDM__TURNSTILE_REFUSE, state->wishes[index].request_id);
    struct tdm__text text = tdm__text_in(action->text, sizeof(action->text));

    action->status = TDM_E_DEVICE_FULL;
    describe_refusal(state, index, &text);
    tdm__text_add(&text, "%s", why);
    remove_wish(state, index);
}

static void expire(struct tdm__turnstile *state, int64_t now_ms,
                   struct tdm__turnstile_actions *actions)
{
    uint32_t i = 0;

    while (i < state->wishes_count) {
        if (state->wishes[i].deadline_ms > now_ms) {
            i++;
        } else if (state->wishes[i].is_granted) {
            remove_wish(state, i); /* answered long ago, and not used: the asker gave up */
        } else {
            refuse(state, i, "; the deadline passed while it waited", actions);
        }
    }
}

/* Can this wish come true from what is free and what is announced, those before it first? */
static bool has_hope(const struct tdm__turnstile *state, const struct tdm__turnstile_wish *wish,
                     uint64_t bytes_before)
{
    uint64_t usable = state->foreign_bytes < state->capacity_bytes
                          ? state->capacity_bytes - state->foreign_bytes
                          : 0;
    uint64_t coming = tdm__turnstile_free_bytes(state) + leaving_bytes(state);

    if (wish->bytes > state->capacity_bytes) {
        return false;
    }
    if (wish->may_wait) {
        return true;
    }
    return wish->bytes <= usable && bytes_before <= coming &&
           wish->bytes <= coming - bytes_before;
}

/* Goes through the queue once, in order: grants from the front, refuses what has no hope. */
static void settle(struct tdm__turnstile *state, int64_t now_ms,
                   struct tdm__turnstile_actions *actions)
{
    uint64_t bytes_before = 0; /* of those that wait in front */
    uint32_t i = 0;

    while (i < state->wishes_count) {
        struct tdm__turnstile_wish *wish = &state->wishes[i];

        if (wish->is_granted) {
            i++;
        } else if (bytes_before == 0 && wish->bytes <= tdm__turnstile_free_bytes(state)) {
            wish->is_granted = true;
            wish->deadline_ms = now_ms + TDM__TURNSTILE_GRANT_MS;
            (void)say(actions, TDM__TURNSTILE_GRANT, wish->request_id);
            i++;
        } else if (!has_hope(state, wish, bytes_before)) {
            refuse(state, i, "", actions);
        } else {
            bytes_before += wish->bytes;
            i++;
        }
    }
}

/* ---- the events ------------------------------------------------------------------------- */

static tdm_status on_wish(struct tdm__turnstile *state,
                          const struct tdm__turnstile_event *event)
{
    struct tdm__turnstile_line *line = NULL;
    struct tdm__turnstile_wish *wish;

    if (event->bytes == 0) {
        return tdm__fail(TDM_E_INVAL, "a wish for 0 bytes");
    }
    for (uint32_t i = 0; i < state->wishes_count; i++) {
        if (state->wishes[i].request_id == event->request_id) {
            return tdm__fail(TDM_E_EXISTS, "request %llu is open already",
                             (unsigned long long)event->request_id);
        }
    }
    if (state->wishes_count == TDM__TURNSTILE_WISHES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "GPU %u has %d wishes open already", state->gpu,
                         TDM__TURNSTILE_WISHES_MAX);
    }
    TDM_TRY(add_line(state, event, &line));
    TDM_ASSERT(line != NULL);
    wish = &state->wishes[state->wishes_count++];
    wish->request_id = event->request_id;
    wish->tenant = event->tenant;
    memcpy(wish->tag, line->tag, sizeof(wish->tag));
    wish->bytes = event->bytes;
    wish->deadline_ms = event->deadline_ms;
    wish->may_wait = event->may_wait;
    return TDM_OK;
}

/* Uses up grants of this line, the oldest first; returns the bytes that had none. */
static uint64_t use_grants(struct tdm__turnstile *state,
                           const struct tdm__turnstile_event *event)
{
    uint64_t left = event->bytes;
    uint32_t i = 0;

    while (i < state->wishes_count && left > 0) {
        struct tdm__turnstile_wish *wish = &state->wishes[i];
        uint64_t used = wish->bytes < left ? wish->bytes : left;

        if (!wish->is_granted || !tdm__id_equal(&wish->tenant, &event->tenant) ||
            strcmp(wish->tag, event->tag) != 0) {
            i++;
            continue;
        }
        left -= used;
        wish->bytes -= used;
        if (wish->bytes == 0) {
            remove_wish(state, i);
        }
    }
    return left;
}

static tdm_status on_charged(struct tdm__turnstile *state,
                             const struct tdm__turnstile_event *event)
{
    struct tdm__turnstile_line *line = NULL;
    uint64_t without_grant;

    TDM_TRY(add_line(state, event, &line));
    TDM_ASSERT(line != NULL);
    without_grant = use_grants(state, event);
    if (without_grant > tdm__turnstile_free_bytes(state)) {
        return tdm__fail(TDM_E_DEVICE_FULL,
                         "GPU %u: %s made %.1f MiB of %s without a grant, %.1f MiB free",
                         state->gpu, event->name, mib(without_grant), event->tag,
                         mib(tdm__turnstile_free_bytes(state)));
    }
    line->resident_bytes += event->bytes;
    return TDM_OK;
}

/* The line of a release or an announcement, which must hold that much. */
static tdm_status line_that_holds(struct tdm__turnstile *state,
                                  const struct tdm__turnstile_event *event,
                                  struct tdm__turnstile_line **line_out)
{
    struct tdm__turnstile_line *line;

    TDM_TRY(check_text("tag", event->tag, TDM_REGION_TAG_BYTES_MAX));
    line = find_line(state, &event->tenant, event->tag);
    if (line == NULL || line->resident_bytes < event->bytes) {
        return tdm__fail(TDM_E_STATE,
                         "GPU %u: %.1f MiB of %s's %s leave, but it holds %.1f MiB", state->gpu,
                         mib(event->bytes), name_of(state, &event->tenant), event->tag,
                         line == NULL ? 0.0 : mib(line->resident_bytes));
    }
    *line_out = line;
    return TDM_OK;
}

static tdm_status on_released(struct tdm__turnstile *state,
                              const struct tdm__turnstile_event *event)
{
    struct tdm__turnstile_line *line = NULL;

    TDM_TRY(line_that_holds(state, event, &line));
    TDM_ASSERT(line != NULL);
    line->resident_bytes -= event->bytes;
    line->leaving_bytes -=
        line->leaving_bytes < event->bytes ? line->leaving_bytes : event->bytes;
    return TDM_OK;
}

static tdm_status on_leaving(struct tdm__turnstile *state,
                             const struct tdm__turnstile_event *event)
{
    struct tdm__turnstile_line *line = NULL;

    TDM_TRY(line_that_holds(state, event, &line));
    TDM_ASSERT(line != NULL);
    line->leaving_bytes = event->bytes;
    return TDM_OK;
}

static void on_withdrawn(struct tdm__turnstile *state, uint64_t request_id)
{
    for (uint32_t i = 0; i < state->wishes_count; i++) {
        if (state->wishes[i].request_id == request_id) {
            remove_wish(state, i);
            return;
        }
    }
}

static void on_gone(struct tdm__turnstile *state, const struct tdm__id *tenant)
{
    for (uint32_t i = state->wishes_count; i > 0; i--) {
        if (tdm__id_equal(&state->wishes[i - 1].tenant, tenant)) {
            remove_wish(state, i - 1);
        }
    }
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        if (tdm__id_equal(&state->tenants[i].id, tenant)) {
            remove_tenant(state, i);
            return;
        }
    }
}

static tdm_status apply(struct tdm__turnstile *state, const struct tdm__turnstile_event *event)
{
    switch (event->kind) {
    case TDM__TURNSTILE_WISH:
        return on_wish(state, event);
    case TDM__TURNSTILE_CHARGED:
        return on_charged(state, event);
    case TDM__TURNSTILE_RELEASED:
        return on_released(state, event);
    case TDM__TURNSTILE_LEAVING:
        return on_leaving(state, event);
    case TDM__TURNSTILE_WITHDRAWN:
        on_withdrawn(state, event->request_id);
        return TDM_OK;
    case TDM__TURNSTILE_GONE:
        on_gone(state, &event->tenant);
        return TDM_OK;
    case TDM__TURNSTILE_FOREIGN:
        state->foreign_bytes =
            event->bytes < state->capacity_bytes ? event->bytes : state->capacity_bytes;
        return TDM_OK;
    case TDM__TURNSTILE_TICK:
        return TDM_OK;
    }
    return tdm__fail(TDM_E_INVAL, "turnstile event %d: there is none", (int)event->kind);
}

/* ---- the entries ------------------------------------------------------------------------ */

void tdm__turnstile_init(struct tdm__turnstile *state, uint32_t gpu, uint64_t capacity_bytes)
{
    memset(state, 0, sizeof(*state));
    state->gpu = gpu;
    state->capacity_bytes = capacity_bytes;
}

static bool waits(const struct tdm__turnstile *state, uint64_t request_id)
{
    for (uint32_t i = 0; i < state->wishes_count; i++) {
        if (state->wishes[i].request_id == request_id) {
            return !state->wishes[i].is_granted;
        }
    }
    return false;
}

tdm_status tdm__turnstile_step(struct tdm__turnstile *state,
                               const struct tdm__turnstile_event *event,
                               struct tdm__turnstile_actions *actions_out)
{
    struct tdm__turnstile next = *state;

    TDM_TRY(apply(&next, event));
    actions_out->count = 0;
    /* Grants come before expiry: memory that arrived in time is not refused. */
    settle(&next, event->now_ms, actions_out);
    expire(&next, event->now_ms, actions_out);
    settle(&next, event->now_ms, actions_out);
    if (event->kind == TDM__TURNSTILE_WISH && waits(&next, event->request_id)) {
        (void)say(actions_out, TDM__TURNSTILE_WAIT, event->request_id);
    }
    *state = next;
    return TDM_OK;
}
