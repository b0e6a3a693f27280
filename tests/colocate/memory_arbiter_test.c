/* memory_arbiter_test.c - the memory arbiter keeps its rules in every state that two tenants can
 * reach. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory_arbiter.h"

#include "tests/support/state_explorer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

enum { NOW = 0, SOON = 1, MUCH_LATER = TDM__ARBITER_GRANT_LIFETIME_MS + 1 };

static const char *const tenant_names[] = {"engine 0", "trainer rank 1"};
static const char *const tag_names[] = {"weights", "kv_cache"};

static uint64_t request_of(int tenant, int tag)
{
    return 2 * (uint64_t)tenant + (uint64_t)tag;
}

static struct tdm__arbiter_event event_of(enum tdm__arbiter_event_kind kind, int tenant, int tag,
                                          uint64_t bytes)
{
    return (struct tdm__arbiter_event){.kind = kind,
                                       .request_id = request_of(tenant, tag),
                                       .tenant.bytes = {(uint8_t)(tenant + 1)},
                                       .name = tenant_names[tenant],
                                       .tag = tag_names[tag],
                                       .bytes = bytes,
                                       .now_ms = NOW,
                                       .deadline_ms = SOON};
}

/* ---- examples --------------------------------------------------------------------------- */

static struct tdm__memory_arbiter gpu;
static struct tdm__arbiter_actions actions;

static int open_gpu(void **state)
{
    (void)state;
    tdm__arbiter_init(&gpu, 1, 256 * MIB);
    return 0;
}

static tdm_status send(enum tdm__arbiter_event_kind kind, int tenant, int tag, uint64_t mib)
{
    struct tdm__arbiter_event event = event_of(kind, tenant, tag, mib * MIB);

    return tdm__arbiter_handle_event(&gpu, &event, &actions);
}

static void says(enum tdm__arbiter_verdict verdict, uint64_t request_id)
{
    assert_int_equal(actions.count, 1);
    assert_int_equal(actions.entries[0].verdict, verdict);
    assert_int_equal(actions.entries[0].request_id, request_id);
}

static void holds(int tenant, int tag, uint64_t mib)
{
    assert_int_equal(send(TDM__ARBITER_CHARGED, tenant, tag, mib), TDM_OK);
}

static void refusal_names_the_holders_of_the_memory(void **state)
{
    (void)state;
    holds(1, 0, 80);
    holds(0, 0, 100);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 1, 96), TDM_OK);
    says(TDM__ARBITER_REFUSE, 1);
    assert_int_equal(actions.entries[0].status, TDM_E_DEVICE_FULL);
    assert_string_equal(actions.entries[0].text,
                        "GPU 1 cannot hold engine 0's kv_cache: 96.0 MiB wanted, 76.0 MiB free; "
                        "trainer rank 1 still holds weights 80.0 MiB (paused regions: none); "
                        "engine 0 still holds weights 100.0 MiB (paused regions: kv_cache)");
}

static void request_larger_than_the_gpu_is_refused_even_if_it_may_wait(void **state)
{
    struct tdm__arbiter_event event = event_of(TDM__ARBITER_REQUESTED, 0, 0, 257 * MIB);

    (void)state;
    event.may_wait = true;
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
    says(TDM__ARBITER_REFUSE, 0);
    assert_string_equal(actions.entries[0].text, "GPU 1 cannot hold engine 0's weights: "
                                                 "257.0 MiB wanted, 256.0 MiB in all");
}

static void wish_waits_for_an_announced_release_and_is_granted_by_it(void **state)
{
    (void)state;
    holds(1, 0, 200);
    assert_int_equal(send(TDM__ARBITER_RELEASE_ANNOUNCED, 1, 0, 200), TDM_OK);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 256), TDM_OK);
    says(TDM__ARBITER_WAIT, 0);
    assert_int_equal(send(TDM__ARBITER_RELEASED, 1, 0, 150), TDM_OK);
    assert_int_equal(actions.count, 0);
    assert_int_equal(send(TDM__ARBITER_RELEASED, 1, 0, 50), TDM_OK);
    says(TDM__ARBITER_GRANT, 0);
}

static void announcement_taken_back_ends_the_hope(void **state)
{
    (void)state;
    holds(1, 0, 200);
    assert_int_equal(send(TDM__ARBITER_RELEASE_ANNOUNCED, 1, 0, 200), TDM_OK);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 100), TDM_OK);
    says(TDM__ARBITER_WAIT, 0);
    assert_int_equal(send(TDM__ARBITER_RELEASE_ANNOUNCED, 1, 0, 0), TDM_OK);
    says(TDM__ARBITER_REFUSE, 0);
}

static void the_deadline_refuses_with_the_numbers(void **state)
{
    struct tdm__arbiter_event tick = {.kind = TDM__ARBITER_TICK, .now_ms = SOON};

    (void)state;
    holds(1, 0, 200);
    assert_int_equal(send(TDM__ARBITER_RELEASE_ANNOUNCED, 1, 0, 200), TDM_OK);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 100), TDM_OK);
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &tick, &actions), TDM_OK);
    says(TDM__ARBITER_REFUSE, 0);
    assert_non_null(strstr(actions.entries[0].text, "100.0 MiB wanted, 56.0 MiB free"));
    assert_non_null(strstr(actions.entries[0].text, "deadline passed"));
}

static void blocks_made_in_pieces_use_up_one_grant(void **state)
{
    (void)state;
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 200), TDM_OK);
    says(TDM__ARBITER_GRANT, 0);
    for (uint64_t left = 200; left > 0; left -= 50) {
        assert_int_equal(tdm__arbiter_free_bytes(&gpu), 56 * MIB);
        holds(0, 0, 50);
    }
    assert_int_equal(gpu.requests_count, 0);
    assert_int_equal(send(TDM__ARBITER_CHARGED, 0, 0, 57), TDM_E_DEVICE_FULL);
    holds(0, 0, 56);
}

static void withdrawn_grant_gives_back_what_was_not_made(void **state)
{
    (void)state;
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 200), TDM_OK);
    holds(0, 0, 50);
    assert_int_equal(send(TDM__ARBITER_REQUEST_CANCELED, 0, 0, 0), TDM_OK);
    assert_int_equal(tdm__arbiter_free_bytes(&gpu), 206 * MIB);
    assert_int_equal(send(TDM__ARBITER_REQUEST_CANCELED, 0, 0, 0), TDM_OK);
}

static void usage_of_other_processes_is_not_free(void **state)
{
    struct tdm__arbiter_event event = {.kind = TDM__ARBITER_UNMANAGED_USAGE, .bytes = 200 * MIB};

    (void)state;
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 57), TDM_OK);
    says(TDM__ARBITER_REFUSE, 0);
    assert_non_null(strstr(actions.entries[0].text, "other processes use 200.0 MiB"));
}

static void report_tells_what_is_used_outside(void **state)
{
    struct tdm__arbiter_report report = {.total_bytes = 100,
                                         .free_bytes = 60,
                                         .offered_bytes = 90,
                                         .charged_bytes = 25,
                                         .sharing_count = 1};

    (void)state;
    assert_int_equal(tdm__arbiter_outside_bytes(&report), 15);
    assert_int_equal(tdm__arbiter_unmanaged_bytes(&report), 5); /* 10 are not offered anyway. */
    report.sharing_count = 2;
    report.free_bytes = 56;
    assert_int_equal(tdm__arbiter_unmanaged_bytes(&report), 4);
    report.free_bytes = 70;
    assert_int_equal(tdm__arbiter_outside_bytes(&report), 5);
    assert_int_equal(tdm__arbiter_unmanaged_bytes(&report), 0);
    /* Memory that the device has back and the broker has not heard of. */
    report.free_bytes = 90;
    assert_int_equal(tdm__arbiter_outside_bytes(&report), 0);
    report.free_bytes = 101;
    assert_int_equal(tdm__arbiter_unmanaged_bytes(&report), 0);
}

static void open_grants_are_known(void **state)
{
    (void)state;
    assert_false(tdm__arbiter_has_open_grant(&gpu));
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 20), TDM_OK);
    assert_true(tdm__arbiter_has_open_grant(&gpu));
    holds(0, 0, 20);
    assert_false(tdm__arbiter_has_open_grant(&gpu));
}

static void impossible_events_change_nothing(void **state)
{
    struct tdm__memory_arbiter before;
    struct tdm__arbiter_event nameless = event_of(TDM__ARBITER_REQUESTED, 0, 0, MIB);

    (void)state;
    holds(0, 0, 10);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 1, 0, 10), TDM_OK);
    before = gpu;
    nameless.name = "";
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &nameless, &actions), TDM_E_INVAL);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 0, 0, 0), TDM_E_INVAL);
    assert_int_equal(send(TDM__ARBITER_REQUESTED, 1, 0, 10), TDM_E_EXISTS);
    assert_int_equal(send(TDM__ARBITER_RELEASED, 0, 0, 11), TDM_E_STATE);
    assert_int_equal(send(TDM__ARBITER_RELEASE_ANNOUNCED, 0, 1, 1), TDM_E_STATE);
    assert_int_equal(send(TDM__ARBITER_CHARGED, 0, 0, 300), TDM_E_DEVICE_FULL);
    assert_memory_equal(&gpu, &before, sizeof(gpu));
}

static void every_table_has_its_limit(void **state)
{
    struct tdm__arbiter_event event = event_of(TDM__ARBITER_CHARGED, 0, 0, 0);
    char tag[] = "a";

    (void)state;
    for (int i = 0; i < TDM__ARBITER_TENANTS_MAX; i++) {
        event.tenant.bytes[1] = (uint8_t)i;
        assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
    }
    event.tenant.bytes[1] = TDM__ARBITER_TENANTS_MAX;
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_E_LIMIT);
    event.tenant.bytes[1] = 0;
    event.tag = tag;
    for (int i = 1; i < TDM__ARBITER_TAGS_MAX; i++, tag[0]++) {
        assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
    }
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_E_LIMIT);
    event.tag = "a";
    event.kind = TDM__ARBITER_REQUESTED;
    event.bytes = 1;
    for (event.request_id = 0; event.request_id < TDM__ARBITER_REQUESTS_MAX; event.request_id++) {
        assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
    }
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_E_LIMIT);
}

/* ---- every state ------------------------------------------------------------------------ */

/* The true state of the tenants and the GPU, independent of the arbiter's state. */
enum region_status {
    PAUSED,
    WISHED,  /* The tenant has requested memory and waits. */
    GRANTED, /* The tenant may allocate blocks now. */
    LATE,    /* The grant expired before the tenant used it. */
    RESIDENT,
    LEAVING
};

struct place {
    struct tdm__memory_arbiter gpu;
    uint8_t status[2][2]; /* Status by tenant and tag. */
};

static const uint64_t region_bytes[2][2] = {{3 * MIB, 1 * MIB}, {3 * MIB, 4 * MIB}};
static const uint64_t card_bytes = 7 * MIB;

enum violation {
    OVERFULL = 1 << 0,  /* The blocks exceed the GPU's capacity. */
    UNTRUE = 1 << 1,    /* The arbiter's usage differs from the true state. */
    UNMADE = 1 << 2,    /* A charge within a grant was refused. */
    OVERTAKEN = 1 << 3, /* a later request was granted before an earlier one */
    IDLE = 1 << 4,      /* A request waits although its memory is free or cannot become free. */
    STUCK = 1 << 5,     /* a request outlived its deadline */
    EVERYTHING = (1 << 6) - 1
};

typedef tdm_status step_function(struct tdm__memory_arbiter *state,
                                 const struct tdm__arbiter_event *event,
                                 struct tdm__arbiter_actions *actions_out);

struct arbiter_exploration {
    struct state_explorer walk;
    step_function *step;
    unsigned checked;
    unsigned violations;
};

static void violate(struct arbiter_exploration *walk, unsigned violation)
{
    walk->violations |= violation & walk->checked;
}

static void key_of(const struct place *place, uint8_t key[64])
{
    uint32_t at = 0;

    memset(key, 0, 64);
    for (int i = 0; i < 4; i++) {
        key[at++] = place->status[i / 2][i % 2];
    }
    for (uint32_t i = 0; i < place->gpu.requests_count; i++) {
        const struct tdm__arbiter_request *request = &place->gpu.requests[i];

        key[at++] = (uint8_t)(request->request_id + 1);
        key[at++] = (uint8_t)(request->is_granted | request->may_wait << 1);
        key[at++] = (uint8_t)(request->bytes / MIB);
    }
    for (uint32_t i = 0; i < place->gpu.tenants_count; i++) {
        const struct tdm__arbiter_tenant *tenant = &place->gpu.tenants[i];

        key[at++] = tenant->id.bytes[0];
        for (uint32_t k = 0; k < tenant->tag_usages_count; k++) {
            key[at++] = (uint8_t)tenant->tag_usages[k].tag[0];
            key[at++] = (uint8_t)(tenant->tag_usages[k].resident_bytes / MIB);
            key[at++] = (uint8_t)(tenant->tag_usages[k].announced_release_bytes / MIB);
        }
    }
    assert_in_range(at, 4, 64);
}

static uint64_t ledger_bytes(const struct tdm__memory_arbiter *state, int tenant, int tag)
{
    for (uint32_t i = 0; i < state->tenants_count; i++) {
        const struct tdm__arbiter_tenant *entry = &state->tenants[i];

        for (uint32_t k = 0; k < entry->tag_usages_count && entry->id.bytes[0] == tenant + 1; k++) {
            if (strcmp(entry->tag_usages[k].tag, tag_names[tag]) == 0) {
                return entry->tag_usages[k].resident_bytes;
            }
        }
    }
    return 0;
}

/* -1: no such request; 0: waits; 1: granted. */
static int wish_status(const struct tdm__memory_arbiter *state, int tenant, int tag)
{
    for (uint32_t i = 0; i < state->requests_count; i++) {
        if (state->requests[i].request_id == request_of(tenant, tag)) {
            return state->requests[i].is_granted;
        }
    }
    return -1;
}

static bool is_there(uint8_t status)
{
    return status == RESIDENT || status == LEAVING;
}

static void check_world(struct arbiter_exploration *walk, const struct place *place)
{
    uint64_t resident = 0;

    for (int i = 0; i < 4; i++) {
        int tenant = i / 2;
        int tag = i % 2;
        uint8_t status = place->status[tenant][tag];
        int request = wish_status(&place->gpu, tenant, tag);
        uint64_t bytes = is_there(status) ? region_bytes[tenant][tag] : 0;

        resident += bytes;
        if (ledger_bytes(&place->gpu, tenant, tag) != bytes ||
            request != (status == WISHED    ? 0
                        : status == GRANTED ? 1
                                            : -1)) {
            violate(walk, UNTRUE);
        }
    }
    if (resident > card_bytes) {
        violate(walk, OVERFULL);
    }
}

/* The first in the queue must not fit; each must have something to wait for. */
static void check_queue(struct arbiter_exploration *walk, const struct place *place)
{
    uint64_t free_bytes = tdm__arbiter_free_bytes(&place->gpu);
    uint64_t coming = free_bytes;
    uint64_t before = 0;

    for (int i = 0; i < 4; i++) {
        coming += place->status[i / 2][i % 2] == LEAVING ? region_bytes[i / 2][i % 2] : 0;
    }
    for (uint32_t i = 0; i < place->gpu.requests_count; i++) {
        const struct tdm__arbiter_request *request = &place->gpu.requests[i];

        if (request->is_granted) {
            continue;
        }
        if ((before == 0 && request->bytes <= free_bytes) ||
            (!request->may_wait && before + request->bytes > coming)) {
            violate(walk, IDLE);
        }
        before += request->bytes;
    }
}

static void hear(struct arbiter_exploration *walk, struct place *place,
                 const struct tdm__arbiter_action *action)
{
    uint8_t *status = &place->status[action->request_id / 2][action->request_id % 2];

    switch (action->verdict) {
    case TDM__ARBITER_WAIT:
        *status = WISHED;
        return;
    case TDM__ARBITER_REFUSE:
        *status = PAUSED;
        assert_int_equal(action->status, TDM_E_DEVICE_FULL);
        assert_non_null(strstr(action->text, "GPU 1 cannot hold"));
        return;
    case TDM__ARBITER_GRANT:
        *status = GRANTED;
        for (uint32_t i = 0; i < place->gpu.requests_count; i++) {
            if (place->gpu.requests[i].request_id == action->request_id) {
                return;
            }
            if (!place->gpu.requests[i].is_granted) {
                violate(walk, OVERTAKEN);
            }
        }
        return;
    }
}

/* Applies the event to a copy of the state and adds the state that results. */
static void go(struct arbiter_exploration *walk, struct place place,
               const struct tdm__arbiter_event *event)
{
    static struct tdm__arbiter_actions heard;
    uint8_t key[64];
    tdm_status status = walk->step(&place.gpu, event, &heard);

    if (status != TDM_OK) {
        violate(walk, UNMADE);
        return;
    }
    for (uint32_t i = 0; i < heard.count; i++) {
        hear(walk, &place, &heard.entries[i]);
    }
    if (walk->violations == 0) {
        key_of(&place, key);
        (void)state_explorer_add(&walk->walk, key, &place);
    }
}

static void go_as(struct arbiter_exploration *walk, const struct place *from, int tenant, int tag,
                  enum tdm__arbiter_event_kind kind, enum region_status then)
{
    struct place place = *from;
    struct tdm__arbiter_event event = event_of(kind, tenant, tag, region_bytes[tenant][tag]);

    place.status[tenant][tag] = (uint8_t)then;
    event.bytes = kind == TDM__ARBITER_RELEASE_ANNOUNCED && then == RESIDENT ? 0 : event.bytes;
    go(walk, place, &event);
}

/* A tenant whose grant expired allocates its blocks all the same; that may fail and is tried
 * once. */
static void go_late(struct arbiter_exploration *walk, const struct place *from, int tenant, int tag)
{
    static struct tdm__arbiter_actions ignored;
    struct place place = *from;
    struct tdm__arbiter_event event =
        event_of(TDM__ARBITER_CHARGED, tenant, tag, region_bytes[tenant][tag]);

    if (walk->step(&place.gpu, &event, &ignored) == TDM_OK) {
        go_as(walk, from, tenant, tag, TDM__ARBITER_CHARGED, RESIDENT);
    }
    go_as(walk, from, tenant, tag, TDM__ARBITER_REQUEST_CANCELED, PAUSED);
}

static void go_on_with_region(struct arbiter_exploration *walk, const struct place *from,
                              int tenant, int tag)
{
    struct tdm__arbiter_event request =
        event_of(TDM__ARBITER_REQUESTED, tenant, tag, region_bytes[tenant][tag]);

    switch ((enum region_status)from->status[tenant][tag]) {
    case PAUSED:
        go(walk, *from, &request);
        request.may_wait = true;
        go(walk, *from, &request);
        return;
    case WISHED:
        go_as(walk, from, tenant, tag, TDM__ARBITER_REQUEST_CANCELED, PAUSED);
        return;
    case GRANTED:
        go_as(walk, from, tenant, tag, TDM__ARBITER_CHARGED, RESIDENT);
        go_as(walk, from, tenant, tag, TDM__ARBITER_REQUEST_CANCELED, PAUSED);
        return;
    case LATE:
        go_late(walk, from, tenant, tag);
        return;
    case RESIDENT:
        go_as(walk, from, tenant, tag, TDM__ARBITER_RELEASE_ANNOUNCED, LEAVING);
        go_as(walk, from, tenant, tag, TDM__ARBITER_RELEASED, PAUSED);
        return;
    case LEAVING:
        go_as(walk, from, tenant, tag, TDM__ARBITER_RELEASED, PAUSED);
        go_as(walk, from, tenant, tag, TDM__ARBITER_RELEASE_ANNOUNCED, RESIDENT);
        return;
    }
}

static void go_on_in_time(struct arbiter_exploration *walk, const struct place *from)
{
    static struct tdm__arbiter_actions ignored;
    struct tdm__arbiter_event tick = {.kind = TDM__ARBITER_TICK, .now_ms = SOON};
    struct place place = *from;

    go(walk, *from, &tick);
    (void)walk->step(&place.gpu, &tick, &ignored);
    for (uint32_t i = 0; i < place.gpu.requests_count; i++) {
        if (!place.gpu.requests[i].is_granted) {
            violate(walk, STUCK);
        }
    }
    tick.now_ms = MUCH_LATER;
    place = *from;
    for (int i = 0; i < 4; i++) {
        if (place.status[i / 2][i % 2] == GRANTED) {
            place.status[i / 2][i % 2] = LATE;
        }
    }
    go(walk, place, &tick);
}

static void visit(struct arbiter_exploration *walk, const struct place *from)
{
    check_world(walk, from);
    check_queue(walk, from);
    for (int tenant = 0; tenant < 2; tenant++) {
        struct tdm__arbiter_event gone = event_of(TDM__ARBITER_TENANT_GONE, tenant, 0, 0);
        struct place place = *from;

        go_on_with_region(walk, from, tenant, 0);
        go_on_with_region(walk, from, tenant, 1);
        memset(place.status[tenant], PAUSED, sizeof(place.status[tenant]));
        go(walk, place, &gone);
    }
    go_on_in_time(walk, from);
}

/* Returns the violations found among those that are searched for; stops at the first. */
static unsigned walk_all(step_function *step, unsigned checked)
{
    static struct place place;
    struct arbiter_exploration walk = {.step = step, .checked = checked};
    uint8_t key[64];

    state_explorer_init(&walk.walk, sizeof(key), sizeof(place));
    memset(&place, 0, sizeof(place));
    tdm__arbiter_init(&place.gpu, 1, card_bytes);
    key_of(&place, key);
    (void)state_explorer_add(&walk.walk, key, &place);
    while (walk.violations == 0 && state_explorer_next(&walk.walk, &place)) {
        visit(&walk, &place);
    }
    print_message("%u states, %llu transitions, violations %#x\n", walk.walk.seen,
                  (unsigned long long)walk.walk.transitions, walk.violations);
    state_explorer_fini(&walk.walk);
    return walk.violations;
}

static void the_law_holds_in_every_state(void **state)
{
    (void)state;
    assert_int_equal(walk_all(tdm__arbiter_handle_event, EVERYTHING), 0);
}

/* ---- mutations must be found --------------------------------------------------------------- */

/* Mutation: forgets granted memory that is not allocated yet. */
static tdm_status step_without_pending(struct tdm__memory_arbiter *state,
                                       const struct tdm__arbiter_event *event,
                                       struct tdm__arbiter_actions *actions_out)
{
    uint64_t bytes[TDM__ARBITER_REQUESTS_MAX];
    uint32_t count = state->requests_count;
    tdm_status status;

    if (event->kind != TDM__ARBITER_REQUESTED) {
        return tdm__arbiter_handle_event(state, event, actions_out);
    }
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = state->requests[i].bytes;
        state->requests[i].bytes = state->requests[i].is_granted ? 0 : bytes[i];
    }
    status = tdm__arbiter_handle_event(state, event, actions_out);
    for (uint32_t i = 0; i < count && state->requests_count >= count; i++) {
        state->requests[i].bytes = bytes[i];
    }
    return status;
}

/* Mutation: counts a release when it is announced. */
static tdm_status step_books_early(struct tdm__memory_arbiter *state,
                                   const struct tdm__arbiter_event *event,
                                   struct tdm__arbiter_actions *actions_out)
{
    struct tdm__arbiter_event early = *event;

    if (event->kind == TDM__ARBITER_RELEASE_ANNOUNCED && event->bytes > 0) {
        early.kind = TDM__ARBITER_RELEASED;
    } else if (event->kind == TDM__ARBITER_RELEASED ||
               event->kind == TDM__ARBITER_RELEASE_ANNOUNCED) {
        early.kind = TDM__ARBITER_TICK;
    }
    return tdm__arbiter_handle_event(state, &early, actions_out);
}

/* Mutation: serves a new request before waiting ones. */
static tdm_status step_overtakes(struct tdm__memory_arbiter *state,
                                 const struct tdm__arbiter_event *event,
                                 struct tdm__arbiter_actions *actions_out)
{
    struct tdm__memory_arbiter next = *state;
    tdm_status status = tdm__arbiter_handle_event(&next, event, actions_out);
    uint32_t last = next.requests_count - 1;

    if (status == TDM_OK && event->kind == TDM__ARBITER_REQUESTED && actions_out->count == 1 &&
        actions_out->entries[0].verdict == TDM__ARBITER_WAIT &&
        event->bytes <= tdm__arbiter_free_bytes(&next)) {
        next.requests[last].is_granted = true;
        actions_out->entries[0].verdict = TDM__ARBITER_GRANT;
    }
    *state = next;
    return status;
}

static tdm_status step_forgets_the_dead(struct tdm__memory_arbiter *state,
                                        const struct tdm__arbiter_event *event,
                                        struct tdm__arbiter_actions *actions_out)
{
    struct tdm__arbiter_event other = *event;

    if (event->kind == TDM__ARBITER_TENANT_GONE) {
        other.kind = TDM__ARBITER_TICK;
    }
    return tdm__arbiter_handle_event(state, &other, actions_out);
}

/* Mutation: ignores the clock. */
static tdm_status step_without_clock(struct tdm__memory_arbiter *state,
                                     const struct tdm__arbiter_event *event,
                                     struct tdm__arbiter_actions *actions_out)
{
    struct tdm__arbiter_event timeless = *event;

    timeless.now_ms = NOW;
    return tdm__arbiter_handle_event(state, &timeless, actions_out);
}

static void broken_memory_arbiters_are_found(void **state)
{
    (void)state;
    assert_int_equal(walk_all(step_without_pending, OVERFULL), OVERFULL);
    assert_int_equal(walk_all(step_books_early, OVERFULL), OVERFULL);
    assert_int_equal(walk_all(step_overtakes, OVERTAKEN), OVERTAKEN);
    assert_int_equal(walk_all(step_forgets_the_dead, UNTRUE), UNTRUE);
    assert_int_equal(walk_all(step_without_clock, STUCK), STUCK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(refusal_names_the_holders_of_the_memory, open_gpu),
        cmocka_unit_test_setup(request_larger_than_the_gpu_is_refused_even_if_it_may_wait,
                               open_gpu),
        cmocka_unit_test_setup(wish_waits_for_an_announced_release_and_is_granted_by_it, open_gpu),
        cmocka_unit_test_setup(announcement_taken_back_ends_the_hope, open_gpu),
        cmocka_unit_test_setup(the_deadline_refuses_with_the_numbers, open_gpu),
        cmocka_unit_test_setup(blocks_made_in_pieces_use_up_one_grant, open_gpu),
        cmocka_unit_test_setup(withdrawn_grant_gives_back_what_was_not_made, open_gpu),
        cmocka_unit_test_setup(usage_of_other_processes_is_not_free, open_gpu),
        cmocka_unit_test_setup(report_tells_what_is_used_outside, open_gpu),
        cmocka_unit_test_setup(open_grants_are_known, open_gpu),
        cmocka_unit_test_setup(impossible_events_change_nothing, open_gpu),
        cmocka_unit_test_setup(every_table_has_its_limit, open_gpu),
        cmocka_unit_test(the_law_holds_in_every_state),
        cmocka_unit_test(broken_memory_arbiters_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
