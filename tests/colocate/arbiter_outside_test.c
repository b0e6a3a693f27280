/* arbiter_outside_test.c - the memory arbiter counts what processes allocate themselves, in every
 * state that a tenant with such memory and one with a region can reach. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory_arbiter.h"

#include "tests/support/state_explorer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

enum { NOW = 0, SOON = 1, MUCH_LATER = TDM__ARBITER_GRANT_LIFETIME_MS + 1 };
enum { TORCH, REGION }; /* The tenants: one has outside memory, the other a region. */

static const char *const names[] = {"trainer", "engine"};
static const char *const tags[] = {"torch", "kv_cache"};
static const uint64_t wanted_bytes[] = {3 * MIB, 4 * MIB};
static const uint64_t gpu_bytes = 7 * MIB;

static struct tdm__arbiter_event event_of(enum tdm__arbiter_event_kind kind, int tenant,
                                          uint64_t bytes)
{
    return (struct tdm__arbiter_event){.kind = kind,
                                       .request_id = (uint64_t)tenant,
                                       .tenant.bytes = {(uint8_t)(tenant + 1)},
                                       .name = names[tenant],
                                       .tag = tags[tenant],
                                       .bytes = bytes,
                                       .declared_bytes = bytes,
                                       .now_ms = NOW,
                                       .deadline_ms = SOON};
}

/* ---- examples --------------------------------------------------------------------------- */

static struct tdm__memory_arbiter gpu;
static struct tdm__arbiter_actions actions;

static int open_gpu(void **state)
{
    (void)state;
    tdm__arbiter_init(&gpu, 1, gpu_bytes);
    return 0;
}

static void send(enum tdm__arbiter_event_kind kind, int tenant, uint64_t mib)
{
    struct tdm__arbiter_event event = event_of(kind, tenant, mib * MIB);

    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
}

static void uses(uint64_t declared_mib, uint64_t mib)
{
    struct tdm__arbiter_event event = event_of(TDM__ARBITER_OUTSIDE_USAGE, TORCH, mib * MIB);

    event.declared_bytes = declared_mib * MIB;
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_OK);
}

static void a_refusal_names_both_numbers(void **state)
{
    (void)state;
    send(TDM__ARBITER_REQUESTED, TORCH, 3);
    uses(3, 3);
    assert_true(tdm__arbiter_free_bytes(&gpu) == 4 * MIB); /* The grant is used up. */
    uses(3, 5);
    send(TDM__ARBITER_REQUESTED, REGION, 4);
    assert_int_equal(actions.entries[0].verdict, TDM__ARBITER_REFUSE);
    assert_string_equal(
        actions.entries[0].text,
        "GPU 1 cannot hold engine's kv_cache: 4.0 MiB wanted, 2.0 MiB free; trainer "
        "still holds torch 5.0 MiB (3.0 declared) (paused regions: none)");
    assert_true(tdm__arbiter_tenant_outside_bytes(&gpu, NULL) == 5 * MIB);
}

static void more_than_the_gpu_has_is_counted_and_ends(void **state)
{
    (void)state;
    uses(3, 100);
    assert_true(tdm__arbiter_free_bytes(&gpu) == 0);
    uses(0, 0);
    assert_true(tdm__arbiter_free_bytes(&gpu) == gpu_bytes);
}

static void what_is_left_of_a_pause_is_not_waited_for(void **state)
{
    (void)state;
    uses(3, 5);
    send(TDM__ARBITER_RELEASE_ANNOUNCED, TORCH, 3);
    send(TDM__ARBITER_REQUESTED, REGION, 4);
    assert_int_equal(actions.entries[0].verdict, TDM__ARBITER_WAIT);
    uses(0, 4);
    assert_int_equal(actions.count, 1);
    assert_int_equal(actions.entries[0].verdict, TDM__ARBITER_REFUSE);
    assert_non_null(strstr(actions.entries[0].text, "torch 4.0 MiB (0.0 declared)"));
}

static void impossible_numbers_change_nothing(void **state)
{
    struct tdm__arbiter_event event = event_of(TDM__ARBITER_OUTSIDE_USAGE, TORCH, UINT64_MAX);
    struct tdm__memory_arbiter before;

    (void)state;
    uses(3, 3);
    before = gpu;
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_E_INVAL);
    /* The broker cannot release what it has not made. */
    event = event_of(TDM__ARBITER_RELEASED, TORCH, 1 * MIB);
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_E_STATE);
    event = event_of(TDM__ARBITER_OUTSIDE_USAGE, TORCH, 1 * MIB);
    event.tag = "";
    assert_int_equal(tdm__arbiter_handle_event(&gpu, &event, &actions), TDM_E_INVAL);
    assert_memory_equal(&before, &gpu, sizeof(gpu));
}

static void outside_memory_of_tenants_is_not_unmanaged(void **state)
{
    struct tdm__arbiter_report report = {.total_bytes = 20 * MIB,
                                         .free_bytes = 6 * MIB,
                                         .offered_bytes = 16 * MIB,
                                         .charged_bytes = 2 * MIB,
                                         .counted_bytes = 5 * MIB,
                                         .sharing_count = 1};

    (void)state;
    assert_true(tdm__arbiter_outside_bytes(&report) == 12 * MIB);
    assert_true(tdm__arbiter_unmanaged_bytes(&report) == 3 * MIB);
    report.counted_bytes = 30 * MIB; /* It is declared, and not allocated yet. */
    assert_true(tdm__arbiter_unmanaged_bytes(&report) == 0);
}

/* ---- every state ------------------------------------------------------------------------ */

enum tenant_status { PAUSED, WISHED, GRANTED, LATE, RESUMING, RESIDENT, LEAVING };

/* The true state, and the arbiter's. */
struct place {
    struct tdm__memory_arbiter gpu;
    uint8_t status[2];
    uint8_t used_mib; /* What the processes of TORCH use: also after a pause, if it left some. */
};

enum violation {
    OVERFULL = 1 << 0, /* A grant exceeds what is free. */
    UNTRUE = 1 << 1,   /* The arbiter's usage differs from the true state. */
    REFUSED = 1 << 2,  /* An event that happened was refused. */
    IDLE = 1 << 3,     /* A request waits although its memory is free or cannot become free. */
    STUCK = 1 << 4,    /* A request outlived its deadline. */
    EVERYTHING = (1 << 5) - 1
};

typedef tdm_status step_function(struct tdm__memory_arbiter *state,
                                 const struct tdm__arbiter_event *event,
                                 struct tdm__arbiter_actions *actions_out);

struct exploration {
    struct state_explorer explorer;
    step_function *step;
    unsigned violations;
};

static void key_of(const struct place *place, uint8_t key[64])
{
    uint32_t at = 0;

    memset(key, 0, 64);
    key[at++] = place->status[0];
    key[at++] = place->status[1];
    key[at++] = place->used_mib;
    for (uint32_t i = 0; i < place->gpu.requests_count; i++) {
        const struct tdm__arbiter_request *request = &place->gpu.requests[i];

        key[at++] = (uint8_t)(request->request_id + 1);
        key[at++] = (uint8_t)(request->is_granted | request->may_wait << 1);
        key[at++] = (uint8_t)(request->bytes / MIB);
    }
    for (uint32_t i = 0; i < place->gpu.tenants_count; i++) {
        const struct tdm__arbiter_tag_usage *usage = &place->gpu.tenants[i].tag_usages[0];

        key[at++] = place->gpu.tenants[i].id.bytes[0];
        key[at++] = (uint8_t)(usage->resident_bytes / MIB);
        key[at++] = (uint8_t)(usage->outside_bytes / MIB);
        key[at++] = (uint8_t)(usage->declared_bytes / MIB);
        key[at++] = (uint8_t)(usage->announced_release_bytes / MIB);
    }
    assert_in_range(at, 3, 64);
}

static const struct tdm__arbiter_request *request_of(const struct place *place, int tenant)
{
    for (uint32_t i = 0; i < place->gpu.requests_count; i++) {
        if (place->gpu.requests[i].request_id == (uint64_t)tenant) {
            return &place->gpu.requests[i];
        }
    }
    return NULL;
}

/* What the arbiter must count for the tenant. */
static uint64_t true_bytes(const struct place *place, int tenant)
{
    uint8_t status = place->status[tenant];

    if (tenant == REGION) {
        return status == RESIDENT || status == LEAVING ? wanted_bytes[REGION] : 0;
    }
    return status == RESUMING ? wanted_bytes[TORCH] : place->used_mib * MIB;
}

static uint64_t counted_bytes(const struct place *place, int tenant)
{
    for (uint32_t i = 0; i < place->gpu.tenants_count; i++) {
        if (place->gpu.tenants[i].id.bytes[0] == tenant + 1 &&
            place->gpu.tenants[i].tag_usages_count > 0) {
            return place->gpu.tenants[i].tag_usages[0].resident_bytes;
        }
    }
    return 0;
}

static void check(struct exploration *walk, const struct place *place)
{
    uint64_t free_bytes = tdm__arbiter_free_bytes(&place->gpu);
    uint64_t coming = free_bytes;
    uint64_t before = 0;

    for (int tenant = 0; tenant < 2; tenant++) {
        uint8_t status = place->status[tenant];
        const struct tdm__arbiter_request *request = request_of(place, tenant);

        if (counted_bytes(place, tenant) != true_bytes(place, tenant) ||
            (request != NULL) != (status == WISHED || status == GRANTED) ||
            (request != NULL && request->is_granted != (status == GRANTED))) {
            walk->violations |= UNTRUE;
        }
        coming += status == LEAVING ? wanted_bytes[tenant] : 0;
    }
    for (uint32_t i = 0; i < place->gpu.requests_count; i++) {
        const struct tdm__arbiter_request *request = &place->gpu.requests[i];

        if (!request->is_granted && ((before == 0 && request->bytes <= free_bytes) ||
                                     (!request->may_wait && before + request->bytes > coming))) {
            walk->violations |= IDLE;
        }
        before += request->is_granted ? 0 : request->bytes;
    }
}

/* Carries out the decisions. A grant must fit beside what is truly used and what is granted. */
static void hear(struct exploration *walk, struct place *place,
                 const struct tdm__arbiter_actions *heard)
{
    for (uint32_t i = 0; i < heard->count; i++) {
        const struct tdm__arbiter_action *action = &heard->entries[i];
        uint64_t sum = 0;

        place->status[action->request_id] = action->verdict == TDM__ARBITER_GRANT  ? GRANTED
                                            : action->verdict == TDM__ARBITER_WAIT ? WISHED
                                                                                   : PAUSED;
        for (int tenant = 0; tenant < 2; tenant++) {
            sum += true_bytes(place, tenant);
            sum += place->status[tenant] == GRANTED && request_of(place, tenant) != NULL
                       ? request_of(place, tenant)->bytes
                       : 0;
        }
        walk->violations |= action->verdict == TDM__ARBITER_GRANT && sum > gpu_bytes ? OVERFULL : 0;
    }
}

/* Applies the event to a copy of the state, whose tenant is then in that status and uses that much,
 * and adds the state that results. */
static void go(struct exploration *walk, const struct place *from, int tenant,
               enum tenant_status then, uint8_t used_mib, const struct tdm__arbiter_event *event)
{
    static struct tdm__arbiter_actions heard;
    struct place place = *from;
    uint8_t key[64];

    if (walk->step(&place.gpu, event, &heard) != TDM_OK) {
        walk->violations |= REFUSED;
        return;
    }
    place.status[tenant] = (uint8_t)then;
    place.used_mib = used_mib;
    hear(walk, &place, &heard);
    if (walk->violations == 0) {
        key_of(&place, key);
        (void)state_explorer_add(&walk->explorer, key, &place);
    }
}

static void go_simply(struct exploration *walk, const struct place *from, int tenant,
                      enum tdm__arbiter_event_kind kind, enum tenant_status then, uint64_t bytes)
{
    const struct tdm__arbiter_event event = event_of(kind, tenant, bytes);

    go(walk, from, tenant, then, from->used_mib, &event);
}

/* The processes of TORCH use `mib` afterwards, of which `declared_mib` are declared. */
static void go_using(struct exploration *walk, const struct place *from, enum tenant_status then,
                     uint8_t declared_mib, uint8_t mib, uint8_t told_mib)
{
    struct tdm__arbiter_event event = event_of(TDM__ARBITER_OUTSIDE_USAGE, TORCH, told_mib * MIB);

    event.declared_bytes = declared_mib * MIB;
    go(walk, from, TORCH, then, mib, &event);
}

static void go_on_with_torch(struct exploration *walk, const struct place *from)
{
    uint64_t rest =
        wanted_bytes[TORCH] > from->used_mib * MIB ? wanted_bytes[TORCH] - from->used_mib * MIB : 0;
    uint8_t used = from->used_mib;

    switch ((enum tenant_status)from->status[TORCH]) {
    case PAUSED:
        if (rest > 0) {
            go_simply(walk, from, TORCH, TDM__ARBITER_REQUESTED, WISHED, rest);
        } else {
            go_using(walk, from, RESUMING, 3, used, 3);
        }
        return;
    case WISHED:
        go_simply(walk, from, TORCH, TDM__ARBITER_REQUEST_CANCELED, PAUSED, 0);
        return;
    case GRANTED:
        go_using(walk, from, RESUMING, 3, used, 3);
        go_simply(walk, from, TORCH, TDM__ARBITER_REQUEST_CANCELED, PAUSED, 0);
        return;
    case LATE: /* The memory is counted also if the grant has expired. */
        go_using(walk, from, RESUMING, 3, used, 3);
        return;
    case RESUMING:
        go_using(walk, from, RESIDENT, 3, 3, 3);
        go_using(walk, from, RESIDENT, 3, 5, 5);
        go_using(walk, from, PAUSED, 0, 2, 2); /* The program could not allocate all. */
        return;
    case RESIDENT:
        go_simply(walk, from, TORCH, TDM__ARBITER_RELEASE_ANNOUNCED, LEAVING, wanted_bytes[TORCH]);
        go_using(walk, from, PAUSED, 0, 0, 0); /* The announcement was lost. */
        return;
    case LEAVING:
        go_using(walk, from, PAUSED, 0, 0, 0);
        go_using(walk, from, PAUSED, 0, 2, 2);
        go_using(walk, from, PAUSED, 0, used, used); /* Nothing was freed. */
        go_using(walk, from, RESIDENT, 3, used, used);
        return;
    }
}

static void go_on_with_region(struct exploration *walk, const struct place *from)
{
    struct tdm__arbiter_event patient = event_of(TDM__ARBITER_REQUESTED, REGION, 4 * MIB);

    patient.may_wait = true;
    switch ((enum tenant_status)from->status[REGION]) {
    case PAUSED:
        go_simply(walk, from, REGION, TDM__ARBITER_REQUESTED, WISHED, 4 * MIB);
        go(walk, from, REGION, WISHED, from->used_mib, &patient);
        return;
    case GRANTED:
        go_simply(walk, from, REGION, TDM__ARBITER_CHARGED, RESIDENT, 4 * MIB);
        return;
    case RESIDENT:
        go_simply(walk, from, REGION, TDM__ARBITER_RELEASE_ANNOUNCED, LEAVING, 4 * MIB);
        return;
    case LEAVING:
        go_simply(walk, from, REGION, TDM__ARBITER_RELEASED, PAUSED, 4 * MIB);
        return;
    case LATE:
        go_simply(walk, from, REGION, TDM__ARBITER_REQUEST_CANCELED, PAUSED, 0);
        return;
    case WISHED:
    case RESUMING: /* Not a status of a region. */
        return;
    }
}

static void go_on_in_time(struct exploration *walk, const struct place *from)
{
    struct tdm__arbiter_event tick = {.kind = TDM__ARBITER_TICK, .now_ms = SOON};
    static struct tdm__arbiter_actions ignored;
    struct place place = *from;

    go(walk, from, TORCH, from->status[TORCH], from->used_mib, &tick);
    (void)walk->step(&place.gpu, &tick, &ignored);
    for (uint32_t i = 0; i < place.gpu.requests_count; i++) {
        walk->violations |= place.gpu.requests[i].is_granted ? 0 : STUCK;
    }
    tick.now_ms = MUCH_LATER;
    place = *from;
    for (int tenant = 0; tenant < 2; tenant++) {
        place.status[tenant] = place.status[tenant] == GRANTED ? LATE : place.status[tenant];
    }
    go(walk, &place, TORCH, place.status[TORCH], place.used_mib, &tick);
}

/* Returns the violations that are found; stops at the first. */
static unsigned explore(step_function *step)
{
    static struct place place;
    struct exploration walk = {.step = step};
    uint8_t key[64];

    state_explorer_init(&walk.explorer, sizeof(key), sizeof(place));
    memset(&place, 0, sizeof(place));
    tdm__arbiter_init(&place.gpu, 1, gpu_bytes);
    key_of(&place, key);
    (void)state_explorer_add(&walk.explorer, key, &place);
    while (walk.violations == 0 && state_explorer_next(&walk.explorer, &place)) {
        check(&walk, &place);
        go_on_with_torch(&walk, &place);
        go_on_with_region(&walk, &place);
        for (int tenant = 0; tenant < 2; tenant++) {
            struct tdm__arbiter_event gone = event_of(TDM__ARBITER_TENANT_GONE, tenant, 0);

            go(&walk, &place, tenant, PAUSED, tenant == TORCH ? 0 : place.used_mib, &gone);
        }
        go_on_in_time(&walk, &place);
    }
    print_message("%u states, %llu transitions, violations %#x\n", walk.explorer.seen,
                  (unsigned long long)walk.explorer.transitions, walk.violations);
    state_explorer_fini(&walk.explorer);
    return walk.violations;
}

static void outside_memory_is_counted_in_every_state(void **state)
{
    (void)state;
    assert_int_equal(explore(tdm__arbiter_handle_event), 0);
}

/* ---- mutations must be found --------------------------------------------------------------- */

/* Mutation: counts what was declared, not what is used. */
static tdm_status step_believes(struct tdm__memory_arbiter *state,
                                const struct tdm__arbiter_event *event,
                                struct tdm__arbiter_actions *actions_out)
{
    struct tdm__arbiter_event other = *event;

    if (event->kind == TDM__ARBITER_OUTSIDE_USAGE) {
        other.bytes = event->declared_bytes;
    }
    return tdm__arbiter_handle_event(state, &other, actions_out);
}

/* Mutation: counts the memory beside its grant. */
static tdm_status step_counts_twice(struct tdm__memory_arbiter *state,
                                    const struct tdm__arbiter_event *event,
                                    struct tdm__arbiter_actions *actions_out)
{
    struct tdm__arbiter_event other = *event;

    other.tag = event->kind == TDM__ARBITER_OUTSIDE_USAGE ? "other" : event->tag;
    return tdm__arbiter_handle_event(state, &other, actions_out);
}

/* Mutation: a pause that leaves memory does not end the announcement. */
static tdm_status step_keeps_announcing(struct tdm__memory_arbiter *state,
                                        const struct tdm__arbiter_event *event,
                                        struct tdm__arbiter_actions *actions_out)
{
    struct tdm__arbiter_event again = event_of(TDM__ARBITER_RELEASE_ANNOUNCED, TORCH, 0);
    static struct tdm__arbiter_actions ignored;
    tdm_status status = tdm__arbiter_handle_event(state, event, actions_out);

    again.bytes = event->bytes;
    if (status == TDM_OK && event->kind == TDM__ARBITER_OUTSIDE_USAGE && event->bytes > 0 &&
        event->declared_bytes == 0) {
        (void)tdm__arbiter_handle_event(state, &again, &ignored);
    }
    return status;
}

/* Mutation: usage beyond the free memory is refused, as blocks are. */
static tdm_status step_refuses_usage(struct tdm__memory_arbiter *state,
                                     const struct tdm__arbiter_event *event,
                                     struct tdm__arbiter_actions *actions_out)
{
    struct tdm__memory_arbiter next = *state;
    tdm_status status = tdm__arbiter_handle_event(&next, event, actions_out);
    uint64_t used = next.tenants_count > 1 ? next.tenants[0].tag_usages[0].resident_bytes +
                                                 next.tenants[1].tag_usages[0].resident_bytes
                                           : 0;

    if (event->kind == TDM__ARBITER_OUTSIDE_USAGE && used > gpu_bytes) {
        return TDM_E_DEVICE_FULL;
    }
    *state = next;
    return status;
}

static void broken_arbiters_are_found(void **state)
{
    (void)state;
    assert_int_not_equal(explore(step_believes), 0);
    assert_int_not_equal(explore(step_counts_twice), 0);
    assert_int_not_equal(explore(step_keeps_announcing), 0);
    assert_int_not_equal(explore(step_refuses_usage), 0);
}

int main(void)
{
#define EXAMPLE(test) cmocka_unit_test_setup(test, open_gpu)
    const struct CMUnitTest tests[] = {
        EXAMPLE(a_refusal_names_both_numbers),
        EXAMPLE(more_than_the_gpu_has_is_counted_and_ends),
        EXAMPLE(what_is_left_of_a_pause_is_not_waited_for),
        EXAMPLE(impossible_numbers_change_nothing),
        EXAMPLE(outside_memory_of_tenants_is_not_unmanaged),
        cmocka_unit_test(outside_memory_is_counted_in_every_state),
        cmocka_unit_test(broken_arbiters_are_found),
    };

    return cmocka_run_group_tests_name("arbiter_outside", tests, NULL, NULL);
}
