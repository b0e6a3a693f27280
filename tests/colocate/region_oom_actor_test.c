/* region_oom_actor_test.c - an actor without memory for a resume: it lives, and its node's
 * ledgers are as before.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/region_api.h"
#include "tests/colocate/starving.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

/* Both regions fit, and no grant that nobody uses beside them. */
enum { CALL_MS = 20000, RESUME_MS = 200, REGIONS = 2, GPU_BYTES = 8 << 20, ALL_BYTES = 6 << 20 };

/* ---- the actor -------------------------------------------------------------------------- */

struct tenant {
    tdm_region *all[REGIONS];
};

static tdm_status tenant_make(tdm_call *call, void *self)
{
    static const struct tdm_region_options options[REGIONS] = {
        {.tag = "weights", .size_bytes = 4 * MIB, .policy = TDM_REGION_KEEP},
        {.tag = "optimizer", .size_bytes = 2 * MIB, .policy = TDM_REGION_KEEP}};
    struct tenant *tenant = self;

    (void)call;
    for (int i = 0; i < REGIONS; i++) {
        TDM_TRY(tdm_region_create(tdm_runtime_current(), &options[i], &tenant->all[i]));
        memset(tdm_region_address(tenant->all[i]), 7 + i, options[i].size_bytes);
    }
    return TDM_OK;
}

/* A third of the GPU and more, for good. */
static tdm_status tenant_crowd(tdm_call *call, void *self)
{
    static const struct tdm_region_options options = {
        .tag = "kv_cache", .size_bytes = 4 * MIB, .policy = TDM_REGION_DROP};

    (void)call;
    return tdm_region_create(tdm_runtime_current(), &options, &((struct tenant *)self)->all[0]);
}

static tdm_status tenant_pause(tdm_call *call, void *self)
{
    struct tdm__regions *regions;

    (void)call;
    (void)self;
    TDM_TRY(tdm__runtime_regions_of_gpu(tdm_runtime_current(), 0, &regions));
    return tdm__regions_pause(regions, NULL);
}

/* (which allocation fails; 0: none) → status, how many there were, the reason */
static tdm_status tenant_resume(tdm_call *call, void *self)
{
    struct tdm__regions *regions;
    uint64_t nth;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &nth));
    TDM_TRY(tdm__runtime_regions_of_gpu(tdm_runtime_current(), 0, &regions));
    starving_start(nth, false);
    status = tdm__regions_resume(regions, NULL, RESUME_MS);
    return tdm_call_reply(call, "ius", (int64_t)status, starving_stop(),
                          status == TDM_OK ? "" : tdm_error_detail());
}

/* → how many regions are resident and whole, how many paused and whole */
static tdm_status tenant_look(tdm_call *call, void *self)
{
    const struct tenant *tenant = self;
    uint64_t resident = 0;
    uint64_t paused = 0;

    for (int i = 0; i < REGIONS; i++) {
        const unsigned char *bytes = tdm_region_contents(tenant->all[i]);
        size_t same = 0;

        while (same < tdm_region_size(tenant->all[i]) && bytes[same] == 7 + i) {
            same++;
        }
        if (same == tdm_region_size(tenant->all[i])) {
            *(tdm_region_is_resident(tenant->all[i]) ? &resident : &paused) += 1;
        }
    }
    return tdm_call_reply(call, "uu", resident, paused);
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant),
                .methods = {{"make", tenant_make},
                            {"crowd", tenant_crowd},
                            {"pause", tenant_pause},
                            {"resume", tenant_resume},
                            {"look", tenant_look}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

static void call_plain(tdm_actor *actor, const char *method)
{
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, ""));
    TRY(tdm_get_value(ref, CALL_MS, &value));
    tdm_ref_release(ref);
}

static char told[256]; /* why the last resume failed */

static tdm_status resume(tdm_actor *actor, uint64_t nth, uint64_t *count_out)
{
    const char *detail;
    int64_t status;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "resume", &ref, "u", nth));
    TRY(tdm_get(ref, CALL_MS, "ius", &status, count_out, &detail));
    (void)snprintf(told, sizeof(told), "%s", detail);
    if (status != TDM_OK &&
        (strstr(detail, "weights") == NULL && strstr(detail, "optimizer") == NULL) && nth > 1) {
        fail_msg("allocation %llu: \"%s\" names no region", (unsigned long long)nth, detail);
    }
    tdm_ref_release(ref);
    return (tdm_status)status;
}

static void assert_whole(tdm_actor *actor, uint64_t resident_wanted)
{
    uint64_t resident;
    uint64_t paused;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "look", &ref, ""));
    TRY(tdm_get(ref, CALL_MS, "uu", &resident, &paused));
    tdm_ref_release(ref);
    assert_int_equal(resident, resident_wanted);
    assert_int_equal(paused, REGIONS - resident_wanted);
}

static void actor_survives_any_failed_allocation_of_a_resume(void **state)
{
    tdm_actor *actor = one_node_actor(runtime, "tenant", "starving", 0.5);
    uint64_t count = 1;

    (void)state;
    call_plain(actor, "make");
    call_plain(actor, "pause");
    for (uint64_t nth = 1; nth <= count; nth++) {
        if (resume(actor, nth, &count) != TDM_OK) {
            assert_true(one_node_used_bytes(runtime) == 0);
            assert_whole(actor, 0);
            TRY(resume(actor, 0, &count));
        }
        assert_true(one_node_used_bytes(runtime) == ALL_BYTES);
        assert_whole(actor, REGIONS);
        call_plain(actor, "pause");
        assert_true(one_node_used_bytes(runtime) == 0);
    }
    print_message("%llu allocations\n", (unsigned long long)count);
    assert_true(count >=
                (STARVES_HEAP ? 7 : 2)); /* a list, and three for each block: calls need none */
    TRY(tdm_actor_kill(actor, CALL_MS));
    tdm_actor_destroy(actor);
}

/* Goal: the device itself is full for the second region; the first goes back. */
static void actor_survives_a_full_device(void **state)
{
    tdm_actor *actor = one_node_actor(runtime, "tenant", "squeezed", 0.5);
    tdm_actor *other = one_node_actor(runtime, "tenant", "crowding", 0.5);
    uint64_t count;

    (void)state;
    call_plain(actor, "make");
    call_plain(actor, "pause");
    call_plain(other, "crowd");
    assert_int_equal(resume(actor, 0, &count), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(told, "optimizer"));
    assert_non_null(strstr(told, "2.0 MiB"));
    assert_non_null(strstr(told, "0.0 MiB free"));
    assert_non_null(strstr(told, "crowding"));
    assert_true(one_node_used_bytes(runtime) == 4 * MIB);
    assert_whole(actor, 0);
    TRY(tdm_actor_kill(other, CALL_MS));
    one_node_wait_used(runtime, 0);
    TRY(resume(actor, 0, &count));
    assert_whole(actor, REGIONS);
    TRY(tdm_actor_kill(actor, CALL_MS));
    tdm_actor_destroy(other);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_survives_any_failed_allocation_of_a_resume),
        cmocka_unit_test(actor_survives_a_full_device),
    };
    int failed;

    runtime = one_node_start(GPU_BYTES); /* a worker never comes back from here */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
