/* region_api_test.c - actors share one GPU: its capacity is enforced, and requests keep their
 * order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/region_api.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB       ((uint64_t)1 << 20)
#define GPU_BYTES (32 * MIB)
#define TRY(x)    assert_int_equal((x), TDM_OK)

enum { CALL_MS = 20000, LONG_MS = 10000, AT_ONCE_MS = 3000, REGIONS_MAX = 4 };

/* ---- the actor: a tenant with a few regions --------------------------------------------- */

struct tenant {
    tdm_region *regions[REGIONS_MAX];
    uint64_t count;
};

static tdm_status tenant_region(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    struct tdm_region_options options = {.tag = NULL};
    int64_t policy;
    uint64_t bytes;
    int paused;

    TDM_TRY(tdm_call_unpack(call, "sui?", &options.tag, &bytes, &policy, &paused));
    options.size_bytes = (size_t)bytes;
    options.policy = policy == TDM_REGION_KEEP ? TDM_REGION_KEEP : TDM_REGION_DROP;
    options.paused = paused;
    TDM_TRY(tdm_region_create(tdm_runtime_current(), &options, &tenant->regions[tenant->count]));
    if (strcmp(tdm_region_device(tenant->regions[tenant->count]), "host") != 0 ||
        tdm_region_device_number(tenant->regions[tenant->count]) != 0) {
        return tdm_fail(TDM_E_DEVICE, "a region of a virtual GPU is not on the host");
    }
    if (tdm_region_find((char *)tdm_region_address(tenant->regions[tenant->count]) + bytes - 1) !=
            tenant->regions[tenant->count] ||
        tdm_region_find(tenant) != NULL) {
        return tdm_fail(TDM_E_NOT_FOUND, "a region is not found by its address, or where none is");
    }
    return tdm_call_reply(call, "u", tenant->count++);
}

static tdm_status tenant_fill(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    uint64_t index;
    uint64_t seed;
    uint64_t *words;

    TDM_TRY(tdm_call_unpack(call, "uu", &index, &seed));
    words = tdm_region_address(tenant->regions[index]);
    for (size_t i = 0; i < tdm_region_size(tenant->regions[index]) / sizeof(*words); i += 64) {
        words[i] = seed + i;
    }
    return TDM_OK;
}

/* Replies how many words differ, in device memory or in the host copy. */
static tdm_status tenant_differ(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    uint64_t differing = 0;
    uint64_t index;
    uint64_t seed;
    const uint64_t *words;

    TDM_TRY(tdm_call_unpack(call, "uu", &index, &seed));
    words = tdm_region_contents(tenant->regions[index]);
    for (size_t i = 0; i < tdm_region_size(tenant->regions[index]) / sizeof(*words); i += 64) {
        differing += words[i] != seed + i ? 1 : 0;
    }
    return tdm_call_reply(call, "u", differing);
}

static tdm_status tenant_pause(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    uint64_t index;

    TDM_TRY(tdm_call_unpack(call, "u", &index));
    return tdm_region_pause(tenant->regions[index]);
}

static tdm_status tenant_resume(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    uint64_t index;
    int64_t timeout_ms;

    TDM_TRY(tdm_call_unpack(call, "ui", &index, &timeout_ms));
    return tdm_region_resume(tenant->regions[index], timeout_ms);
}

static tdm_status tenant_pause_all(tdm_call *call, void *self)
{
    struct tdm__regions *regions;

    (void)call;
    (void)self;
    TDM_TRY(tdm__runtime_regions_of_gpu(tdm_runtime_current(), 0, &regions));
    return tdm__regions_pause(regions, NULL);
}

/* Announces a release and does not release anything. */
static tdm_status tenant_announce(tdm_call *call, void *self)
{
    const char *tag;
    uint64_t bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "su", &tag, &bytes));
    return one_node_call(tdm_runtime_current(), "arbiter.announce_release", NULL, "usu",
                         (uint64_t)0, tag, bytes);
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant),
                .methods = {{"region", tenant_region},
                            {"fill", tenant_fill},
                            {"differ", tenant_differ},
                            {"pause", tenant_pause},
                            {"resume", tenant_resume},
                            {"pause_all", tenant_pause_all},
                            {"announce", tenant_announce}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

struct fixture {
    tdm_actor *trainer;
    tdm_actor *engine;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    static uint32_t count; /* A name becomes free a little after its actor's death. */
    char name[32];

    count++;
    (void)snprintf(name, sizeof(name), "trainer %u", count);
    fixture.trainer = one_node_actor(runtime, "tenant", name, 0.5);
    (void)snprintf(name, sizeof(name), "engine %u", count);
    fixture.engine = one_node_actor(runtime, "tenant", name, 0.5);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    TRY(tdm_actor_kill(f->trainer, CALL_MS));
    TRY(tdm_actor_kill(f->engine, CALL_MS));
    tdm_actor_destroy(f->trainer);
    tdm_actor_destroy(f->engine);
    one_node_wait_used(runtime, 0);
    return 0;
}

static tdm_status finish(tdm_ref *ref)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, CALL_MS, &value);

    tdm_ref_release(ref);
    return status;
}

static tdm_status make(tdm_actor *actor, const char *tag, uint64_t bytes,
                       enum tdm_region_policy policy, int paused)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "region", &ref, "sui?", tag, bytes, (int64_t)policy, paused));
    return finish(ref);
}

static tdm_status on_region(tdm_actor *actor, const char *method, uint64_t index)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, "u", index));
    return finish(ref);
}

static tdm_ref *start_resume(tdm_actor *actor, uint64_t index, int64_t timeout_ms)
{
    tdm_ref *ref = NULL;

    TRY(tdm_actor_call(actor, "resume", &ref, "ui", index, timeout_ms));
    return ref;
}

static tdm_status resume(tdm_actor *actor, uint64_t index, int64_t timeout_ms)
{
    return finish(start_resume(actor, index, timeout_ms));
}

static void fill(tdm_actor *actor, uint64_t index, uint64_t seed)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "fill", &ref, "uu", index, seed));
    TRY(finish(ref));
}

static void assert_filled(tdm_actor *actor, uint64_t index, uint64_t seed)
{
    uint64_t differing = 1;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "differ", &ref, "uu", index, seed));
    TRY(tdm_get(ref, CALL_MS, "u", &differing));
    tdm_ref_release(ref);
    assert_true(differing == 0);
}

static void announce(tdm_actor *actor, const char *tag, uint64_t bytes)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "announce", &ref, "su", tag, bytes));
    TRY(finish(ref));
}

/* That a call never returns cannot be shown; the test waits for a while. */
static void assert_waits(tdm_ref *ref)
{
    uint8_t done;

    assert_int_equal(tdm_wait(&ref, 1, 1, 200, &done), TDM_E_TIMEOUT);
}

static void pause_frees_what_the_ledger_charged_and_resume_brings_it_back(void **state)
{
    struct fixture *f = *state;

    TRY(make(f->trainer, "weights", 12 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->trainer, "gradients", 4 * MIB, TDM_REGION_DROP, 0));
    assert_true(one_node_used_bytes(runtime) == 16 * MIB);
    fill(f->trainer, 0, 17);
    TRY(on_region(f->trainer, "pause", 0));
    assert_true(one_node_used_bytes(runtime) == 4 * MIB);
    assert_filled(f->trainer, 0, 17);
    assert_int_equal(on_region(f->trainer, "pause", 0), TDM_E_STATE);
    TRY(resume(f->trainer, 0, 0));
    assert_true(one_node_used_bytes(runtime) == 16 * MIB);
    assert_filled(f->trainer, 0, 17);
}

static void resume_before_the_pause_of_the_holder_fails_and_names_it(void **state)
{
    struct fixture *f = *state;
    int64_t begun_ms;

    TRY(make(f->trainer, "weights", 24 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->engine, "kv_cache", 16 * MIB, TDM_REGION_DROP, 1));
    begun_ms = tdm__clock_ms();
    assert_int_equal(resume(f->engine, 0, LONG_MS), TDM_E_DEVICE_FULL);
    assert_true(tdm__clock_ms() - begun_ms < AT_ONCE_MS);
    assert_non_null(strstr(tdm_error_detail(), "trainer"));
    assert_non_null(strstr(tdm_error_detail(), "weights 24.0 MiB"));
    assert_non_null(strstr(tdm_error_detail(), "8.0 MiB free"));
    assert_int_equal(make(f->engine, "weights", 16 * MIB, TDM_REGION_KEEP, 0), TDM_E_DEVICE_FULL);
    assert_true(one_node_used_bytes(runtime) == 24 * MIB);
}

static void refused_resume_can_be_repeated_with_its_contents(void **state)
{
    struct fixture *f = *state;

    TRY(make(f->engine, "weights", 16 * MIB, TDM_REGION_KEEP, 0));
    fill(f->engine, 0, 5);
    TRY(on_region(f->engine, "pause", 0));
    TRY(make(f->trainer, "weights", 24 * MIB, TDM_REGION_KEEP, 0));
    assert_int_equal(resume(f->engine, 0, 0), TDM_E_DEVICE_FULL);
    assert_filled(f->engine, 0, 5);
    TRY(on_region(f->trainer, "pause", 0));
    TRY(resume(f->engine, 0, 0));
    assert_filled(f->engine, 0, 5);
    assert_true(one_node_used_bytes(runtime) == 16 * MIB);
}

static void resume_waits_for_memory_that_is_on_its_way_out(void **state)
{
    struct fixture *f = *state;
    tdm_ref *waiting;
    tdm_ref *pausing;

    TRY(make(f->trainer, "weights", 14 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->trainer, "weights", 14 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->engine, "kv_cache", 24 * MIB, TDM_REGION_DROP, 1));
    announce(f->trainer, "weights", 28 * MIB);
    waiting = start_resume(f->engine, 0, LONG_MS);
    assert_waits(waiting);
    TRY(tdm_actor_call(f->trainer, "pause_all", &pausing, ""));
    TRY(finish(pausing));
    TRY(finish(waiting));
    assert_true(one_node_used_bytes(runtime) == 24 * MIB);
}

/* The announcement of one region's pause replaces the one before. */
static void resume_is_refused_once_too_little_is_on_its_way_out(void **state)
{
    struct fixture *f = *state;
    int64_t begun_ms;
    tdm_ref *waiting;

    TRY(make(f->trainer, "weights", 14 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->trainer, "weights", 14 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->engine, "kv_cache", 24 * MIB, TDM_REGION_DROP, 1));
    announce(f->trainer, "weights", 28 * MIB);
    waiting = start_resume(f->engine, 0, LONG_MS);
    assert_waits(waiting);
    begun_ms = tdm__clock_ms();
    TRY(on_region(f->trainer, "pause", 0));
    assert_int_equal(finish(waiting), TDM_E_DEVICE_FULL);
    assert_true(tdm__clock_ms() - begun_ms < AT_ONCE_MS);
}

static void wait_ends_at_its_deadline_with_the_numbers(void **state)
{
    struct fixture *f = *state;

    TRY(make(f->trainer, "weights", 24 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->engine, "kv_cache", 16 * MIB, TDM_REGION_DROP, 1));
    announce(f->trainer, "weights", 24 * MIB);
    assert_int_equal(resume(f->engine, 0, 100), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "the deadline passed"));
    assert_non_null(strstr(tdm_error_detail(), "weights 24.0 MiB"));
}

static void memory_of_a_killed_actor_is_given_to_a_waiting_request(void **state)
{
    struct fixture *f = *state;
    tdm_ref *waiting;

    TRY(make(f->trainer, "weights", 24 * MIB, TDM_REGION_KEEP, 0));
    TRY(make(f->engine, "kv_cache", 16 * MIB, TDM_REGION_DROP, 1));
    announce(f->trainer, "weights", 24 * MIB);
    waiting = start_resume(f->engine, 0, LONG_MS);
    assert_waits(waiting);
    one_node_kill_actor(f->trainer);
    TRY(finish(waiting));
    assert_true(one_node_used_bytes(runtime) == 16 * MIB);
    one_node_kill_actor(f->engine);
    one_node_wait_used(runtime, 0);
}

static void gpu_that_the_actor_has_not_is_refused(void **state)
{
    const struct tdm_region_options options = {.tag = "weights", .size_bytes = 2 * MIB, .gpu = 1};
    tdm_region *region;

    (void)state;
    assert_int_equal(tdm_region_create(runtime, &options, &region), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "ask for GPUs"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(pause_frees_what_the_ledger_charged_and_resume_brings_it_back),
        TEST(resume_before_the_pause_of_the_holder_fails_and_names_it),
        TEST(refused_resume_can_be_repeated_with_its_contents),
        TEST(resume_waits_for_memory_that_is_on_its_way_out),
        TEST(resume_is_refused_once_too_little_is_on_its_way_out),
        TEST(wait_ends_at_its_deadline_with_the_numbers),
        TEST(memory_of_a_killed_actor_is_given_to_a_waiting_request),
        cmocka_unit_test(gpu_that_the_actor_has_not_is_refused),
    };
    int failed;

    runtime = one_node_start(GPU_BYTES);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
