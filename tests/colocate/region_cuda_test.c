/* region_cuda_test.c - actors share a GPU through the daemon; free memory is read from the
 * device. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "colocate/memory/region_api.h"
#include "runtime/clock.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/one_node.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

enum { CALL_MS = 20000, SETTLE_MS = 5000, WHILE_MS = 100, REGION_BYTES = 8 << 20 };

/* ---- the actor: owns a region, or maps another's ---------------------------------------- */

struct tenant {
    tdm_region *region;
    struct tdm__block *block;
    void *address;
};

static tdm_status device_of(struct tdm__device **device_out)
{
    struct tdm__regions *regions;

    TDM_TRY(tdm__runtime_regions_of_gpu(tdm_runtime_current(), 0, &regions));
    *device_out = tdm__regions_device(regions);
    return TDM_OK;
}

/* Creates a region filled with one byte and replies the key of its block. */
static tdm_status tenant_make(tdm_call *call, void *self)
{
    const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = REGION_BYTES, .policy = TDM_REGION_KEEP};
    struct tenant *tenant = self;
    struct tdm__regions *regions;
    struct tdm__device *device;
    const struct tdm__block *block;
    char *bytes;

    TDM_TRY(tdm__runtime_regions_of_gpu(tdm_runtime_current(), 0, &regions));
    TDM_TRY(tdm__region_create_shared(regions, &options, &tenant->region));
    if (strcmp(tdm_region_device(tenant->region), "cuda") != 0) {
        return tdm_fail(TDM_E_DEVICE, "a region of a CUDA GPU is not on it");
    }
    device = tdm__regions_device(regions);
    bytes = malloc(REGION_BYTES);
    memset(bytes, 7, REGION_BYTES);
    TDM_TRY(device->ops->copy(device, tdm_region_address(tenant->region), bytes, REGION_BYTES));
    TDM_TRY(device->ops->copy_flush(device));
    free(bytes);
    block = tdm__region_block(tenant->region);
    return tdm_call_reply(call, "b", block->key.bytes, sizeof(block->key.bytes));
}

/* Creates a paused region. */
static tdm_status tenant_plan(tdm_call *call, void *self)
{
    const struct tdm_region_options options = {
        .tag = "kv_cache", .size_bytes = REGION_BYTES, .policy = TDM_REGION_DROP, .paused = 1};

    (void)call;
    return tdm_region_create(tdm_runtime_current(), &options, &((struct tenant *)self)->region);
}

static tdm_status tenant_pause(tdm_call *call, void *self)
{
    (void)call;
    return tdm_region_pause(((struct tenant *)self)->region);
}

static tdm_status tenant_resume(tdm_call *call, void *self)
{
    (void)call;
    return tdm_region_resume(((struct tenant *)self)->region, CALL_MS / 2);
}

static tdm_status reply_byte(tdm_call *call, const void *address)
{
    struct tdm__device *device;
    unsigned char last;

    TDM_TRY(device_of(&device));
    TDM_TRY(device->ops->copy(device, &last, (const char *)address + REGION_BYTES - 1, 1));
    TDM_TRY(device->ops->copy_flush(device));
    return tdm_call_reply(call, "u", (uint64_t)last);
}

static tdm_status tenant_resume_soon(tdm_call *call, void *self)
{
    (void)call;
    return tdm_region_resume(((struct tenant *)self)->region, WHILE_MS);
}

/* Makes the next call of a function of the driver fail. */
static tdm_status break_driver(const char *name, int error)
{
    void *library = dlopen(getenv("TANDEM_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void (*break_call)(const char *name, uint64_t nth, int error);

    *(void **)&break_call = library == NULL ? NULL : dlsym(library, "fake_cuda_fail");
    if (break_call == NULL) {
        return tdm_fail(TDM_E_STATE, "not the fake library");
    }
    break_call(name, 1, error);
    return TDM_OK;
}

/* Makes the next allocation of the driver fail. */
static tdm_status tenant_starve(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return break_driver("cuMemCreate", CU_OUT_OF_MEMORY);
}

/* Does as if a kernel of the actor had written to a wrong address, and pauses its region. */
static tdm_status tenant_fault(tdm_call *call, void *self)
{
    (void)call;
    TDM_TRY(break_driver("cuMemcpyAsync", CU_ILLEGAL_ADDRESS));
    return tdm_region_pause(((struct tenant *)self)->region);
}

static tdm_status tenant_read(tdm_call *call, void *self)
{
    return reply_byte(call, tdm_region_address(((struct tenant *)self)->region));
}

/* Replies the last byte of the other's region. */
static tdm_status tenant_map(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    struct tdm__device *device;
    const void *key_bytes;
    size_t size_bytes;
    struct tdm__id key;

    TDM_TRY(tdm_call_unpack(call, "b", &key_bytes, &size_bytes));
    memcpy(key.bytes, key_bytes, sizeof(key.bytes));
    TDM_TRY(device_of(&device));
    TDM_TRY(device->ops->import(device, &key, &tenant->block));
    TDM_TRY(device->ops->reserve(device, REGION_BYTES, &tenant->address));
    TDM_TRY(device->ops->map(device, tenant->address, tenant->block, TDM__READ_ONLY));
    return reply_byte(call, tenant->address);
}

static tdm_status tenant_drop(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    struct tdm__device *device;

    (void)call;
    TDM_TRY(device_of(&device));
    TDM_TRY(device->ops->unmap(device, tenant->address, REGION_BYTES));
    device->ops->release(device, &tenant->block, 1);
    device->ops->unreserve(device, tenant->address, REGION_BYTES);
    return TDM_OK;
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant),
                .methods = {{"make", tenant_make},
                            {"plan", tenant_plan},
                            {"pause", tenant_pause},
                            {"resume", tenant_resume},
                            {"resume_soon", tenant_resume_soon},
                            {"starve", tenant_starve},
                            {"fault", tenant_fault},
                            {"read", tenant_read},
                            {"map", tenant_map},
                            {"drop", tenant_drop}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

static size_t free_bytes(void)
{
    const struct tdm__cuda_driver *driver;
    size_t bytes = 0;
    size_t total;
    void *context;

    TRY(tdm__cuda_driver(&driver));
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, 0), CU_SUCCESS);
    assert_int_equal(driver->cuCtxSetCurrent(context), CU_SUCCESS);
    assert_int_equal(driver->cuMemGetInfo_v2(&bytes, &total), CU_SUCCESS);
    assert_int_equal(driver->cuDevicePrimaryCtxRelease_v2(0), CU_SUCCESS);
    return bytes;
}

static void call_plain(tdm_actor *actor, const char *method)
{
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, ""));
    TRY(tdm_get_value(ref, CALL_MS, &value));
    tdm_ref_release(ref);
}

static uint64_t finish_number(tdm_ref *ref)
{
    uint64_t number = 99;

    TRY(tdm_get(ref, CALL_MS, "u", &number));
    tdm_ref_release(ref);
    return number;
}

/* The reference that is made of a region's key. */
static tdm_ref *make_region(tdm_actor *actor)
{
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "make", &ref, ""));
    TRY(tdm_get_value(ref, CALL_MS, &value));
    return ref;
}

static uint64_t map_region(tdm_actor *actor, tdm_ref *made)
{
    const void *key;
    size_t size_bytes;
    tdm_ref *ref;

    TRY(tdm_get(made, CALL_MS, "b", &key, &size_bytes));
    TRY(tdm_actor_call(actor, "map", &ref, "b", key, size_bytes));
    tdm_ref_release(made);
    return finish_number(ref);
}

static void end(tdm_actor *actor)
{
    TRY(tdm_actor_kill(actor, CALL_MS));
    tdm_actor_destroy(actor);
}

static void region_of_an_actor_leaves_the_gpu_and_returns(void **state)
{
    tdm_actor *trainer = one_node_actor(runtime, "tenant", "trainer-a", 0.5);
    size_t before = free_bytes();
    tdm_ref *ref;

    (void)state;
    tdm_ref_release(make_region(trainer));
    assert_int_equal(free_bytes(), before - REGION_BYTES);
    call_plain(trainer, "pause");
    assert_int_equal(free_bytes(), before);
    call_plain(trainer, "resume");
    TRY(tdm_actor_call(trainer, "read", &ref, ""));
    assert_int_equal(finish_number(ref), 7);
    end(trainer);
}

/* Goal: another process's mapping defeats a pause, the ledger says so, and its unmapping ends
 * that. */
static void imported_memory_is_freed_when_the_importer_releases_it(void **state)
{
    tdm_actor *trainer = one_node_actor(runtime, "tenant", "trainer-b", 0.4);
    tdm_actor *engine = one_node_actor(runtime, "tenant", "engine-b", 0.4);
    size_t before = free_bytes();

    (void)state;
    assert_int_equal(map_region(engine, make_region(trainer)), 7);
    call_plain(trainer, "pause");
    assert_int_equal(free_bytes(), before - REGION_BYTES);
    assert_true(one_node_used_bytes(runtime) == REGION_BYTES);
    call_plain(engine, "drop");
    assert_int_equal(free_bytes(), before);
    assert_true(one_node_used_bytes(runtime) == 0);
    end(trainer);
    end(engine);
}

/* Goal: who needs memory that was paused waits for all who map it, not for its owner alone; at
 * the deadline it is told who that is.
 * That a call would never return cannot be shown; a while must do. */
static void resume_waits_until_every_holder_has_released(void **state)
{
    tdm_actor *trainer = one_node_actor(runtime, "tenant", "trainer-d", 0.3);
    tdm_actor *engine = one_node_actor(runtime, "tenant", "engine-d", 0.3);
    tdm_actor *other = one_node_actor(runtime, "tenant", "other-d", 0.3);
    const tdm_value *value;
    tdm_ref *resuming;

    (void)state;
    call_plain(other, "plan");
    assert_int_equal(map_region(engine, make_region(trainer)), 7);
    call_plain(trainer, "pause");
    TRY(tdm_actor_call(other, "resume_soon", &resuming, ""));
    assert_int_equal(tdm_get_value(resuming, CALL_MS, &value), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "engine-d still maps 8.0 MiB of trainer-d's"));
    tdm_ref_release(resuming);
    TRY(tdm_actor_call(other, "resume", &resuming, ""));
    assert_int_equal(tdm_get_value(resuming, WHILE_MS, &value), TDM_E_TIMEOUT);
    call_plain(engine, "drop");
    TRY(tdm_get_value(resuming, CALL_MS, &value));
    tdm_ref_release(resuming);
    end(trainer);
    end(engine);
    end(other);
}

static void memory_mapped_by_a_dead_actor_is_freed(void **state)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    tdm_actor *trainer = one_node_actor(runtime, "tenant", "trainer-c", 0.4);
    tdm_actor *engine = one_node_actor(runtime, "tenant", "engine-c", 0.4);
    size_t before = free_bytes();
    int64_t deadline_ms = tdm__deadline_after(SETTLE_MS);

    (void)state;
    assert_int_equal(map_region(engine, make_region(trainer)), 7);
    call_plain(trainer, "pause");
    one_node_kill_actor(engine);
    while (free_bytes() != before && tdm__deadline_remaining_ms(deadline_ms) > 0) {
        (void)nanosleep(&nap, NULL);
    }
    assert_int_equal(free_bytes(), before);
    end(trainer);
    end(engine);
}

/* Goal: what the memory_arbiter granted and the driver refused is not in the way of the next try.
 */
static void resume_that_the_driver_refuses_can_be_repeated(void **state)
{
    tdm_actor *trainer = one_node_actor(runtime, "tenant", "trainer-e", 0.4);
    const tdm_value *value;
    tdm_ref *ref;

    (void)state;
    if (cuda_gpu_is_real()) {
        print_message("skipped: a real driver fails when it likes\n");
        skip();
    }
    tdm_ref_release(make_region(trainer));
    call_plain(trainer, "pause");
    call_plain(trainer, "starve");
    TRY(tdm_actor_call(trainer, "resume", &ref, ""));
    assert_int_equal(tdm_get_value(ref, CALL_MS, &value), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "weights: 8.0 MiB wanted"));
    assert_non_null(strstr(tdm_error_detail(), "MiB free of"));
    tdm_ref_release(ref);
    assert_true(one_node_used_bytes(runtime) == 0);
    call_plain(trainer, "resume");
    TRY(tdm_actor_call(trainer, "read", &ref, ""));
    assert_int_equal(finish_number(ref), 7);
    end(trainer);
}

/* Calls the method "fault" and returns the status of the call. */
static tdm_status break_actor(tdm_actor *actor)
{
    const tdm_value *value;
    tdm_status status;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "fault", &ref, ""));
    status = tdm_get_value(ref, CALL_MS, &value);
    tdm_ref_release(ref);
    return status;
}

/* Goal: an error that sticks to the process ends the actor with that cause, and the process that is
 * started instead of it can use the GPU. */
static void actor_with_a_broken_context_ends_and_comes_back(void **state)
{
    const struct tdm_actor_options options = {
        .num_gpus = 0.4, .name = "trainer-f", .max_restarts = 1};
    tdm_actor *trainer;
    tdm_ref *ref;

    (void)state;
    if (cuda_gpu_is_real()) {
        print_message("skipped: a real driver fails when it likes\n");
        skip();
    }
    TRY(tdm_actor_create(runtime, "tenant", &options, &trainer, ""));
    TRY(tdm_actor_wait_ready(trainer, CALL_MS));
    tdm_ref_release(make_region(trainer));
    assert_int_equal(break_actor(trainer), TDM_E_ACTOR_RESTARTING);
    TRY(tdm_actor_wait_ready(trainer, CALL_MS));
    tdm_ref_release(make_region(trainer));
    TRY(tdm_actor_call(trainer, "read", &ref, ""));
    assert_int_equal(finish_number(ref), 7);
    assert_int_equal(break_actor(trainer), TDM_E_ACTOR_DIED); /* No restart is left. */
    assert_non_null(strstr(tdm_error_detail(), "CUDA_ERROR_ILLEGAL_ADDRESS (700"));
    tdm_actor_destroy(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_of_an_actor_leaves_the_gpu_and_returns),
        cmocka_unit_test(imported_memory_is_freed_when_the_importer_releases_it),
        cmocka_unit_test(resume_waits_until_every_holder_has_released),
        cmocka_unit_test(memory_mapped_by_a_dead_actor_is_freed),
        cmocka_unit_test(resume_that_the_driver_refuses_can_be_repeated),
        cmocka_unit_test(actor_with_a_broken_context_ends_and_comes_back),
    };
    int failed;

    /* A worker inherits the directory of its parent. */
    if (getenv("FAKE_CUDA_DIRECTORY") == NULL) {
        cuda_gpu_choose(64 * MIB);
    }
    (void)setenv("TANDEM_DEVICE", "cuda", 1);
    runtime =
        one_node_start(12 * MIB); /* room for one region; a worker never comes back from here */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    cuda_gpu_forget();
    return failed;
}
