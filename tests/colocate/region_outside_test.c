/* region_outside_test.c - what CUDA contexts and other libraries take of a GPU is known to the
 * memory arbiter. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "tests/support/cuda_gpu.h"
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

enum { CALL_MS = 20000 };

/* ---- the actor: owns a region, and memory that Tandem does not know ------------------------ */

struct tenant {
    tdm_region *region;
    tdm_outside_memory *declared;
    uint64_t other; /* Device memory of the driver itself, as PyTorch allocates it; 0: none. */
};

/* Creates a region of that many bytes. */
static tdm_status outside_tenant_make(tdm_call *call, void *self)
{
    struct tdm_region_options options = {.tag = "weights", .policy = TDM_REGION_DROP};
    uint64_t bytes;

    TDM_TRY(tdm_call_unpack(call, "u", &bytes));
    options.size_bytes = bytes;
    return tdm_region_create(tdm_runtime_current(), &options, &((struct tenant *)self)->region);
}

/* Takes that many bytes of the GPU without Tandem, or gives them back for 0. */
static tdm_status take_or_free(struct tenant *tenant, uint64_t bytes)
{
    const struct tdm__cuda_driver *driver;
    void *context;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_driver(&driver));
    if (driver->cuDevicePrimaryCtxRetain(&context, 0) != CU_SUCCESS) {
        return tdm_fail(TDM_E_DEVICE, "no context");
    }
    TDM_TRY(tdm__cuda_scope_enter(driver, context, &scope));
    if (bytes == 0) {
        return tdm__cuda_check(driver->cuMemFree_v2(tenant->other), "cuMemFree");
    }
    return tdm__cuda_check(driver->cuMemAlloc_v2(&tenant->other, bytes), "cuMemAlloc");
}

static tdm_status outside_tenant_take(tdm_call *call, void *self)
{
    uint64_t bytes;

    TDM_TRY(tdm_call_unpack(call, "u", &bytes));
    return take_or_free(self, bytes);
}

/* Declares and takes that many bytes without Tandem, or gives them back for 0.  Fails unless the
 * device reports exactly that. */
static tdm_status outside_tenant_declare(tdm_call *call, void *self)
{
    struct tdm_outside_memory_options options = {.tag = "torch", .policy = TDM_REGION_KEEP};
    struct tenant *tenant = self;
    uint64_t wrong = 0;
    uint64_t bytes;

    TDM_TRY(tdm_call_unpack(call, "u", &bytes));
    if (bytes == 0) {
        TDM_TRY(tdm_outside_memory_begin_pause(tenant->declared));
        TDM_TRY(take_or_free(tenant, 0));
        TDM_TRY(tdm_outside_memory_end_pause(tenant->declared, 1000, &wrong));
    } else {
        options.size_bytes = bytes;
        TDM_TRY(tdm_outside_memory_create(tdm_runtime_current(), &options, &tenant->declared));
        TDM_TRY(tdm_outside_memory_begin_resume(tenant->declared, 0));
        TDM_TRY(take_or_free(tenant, bytes));
        TDM_TRY(tdm_outside_memory_end_resume(tenant->declared, &wrong));
        wrong -= bytes;
    }
    return wrong == 0 ? TDM_OK : tdm_fail(TDM_E_METHOD, "%lld bytes too many", (long long)wrong);
}

TDM_ACTOR_CLASS(outside_tenant, .state_bytes = sizeof(struct tenant),
                .methods = {{"make", outside_tenant_make},
                            {"take", outside_tenant_take},
                            {"declare", outside_tenant_declare}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

static tdm_status call(tdm_actor *actor, const char *method, uint64_t bytes)
{
    const tdm_value *value;
    tdm_status status;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, "u", bytes));
    status = tdm_get_value(ref, CALL_MS, &value);
    tdm_ref_release(ref);
    return status;
}

static void end(tdm_actor *actor)
{
    TRY(tdm_actor_kill(actor, CALL_MS));
    tdm_actor_destroy(actor);
}

/* The node offers all 64 MiB, of which each context takes 4. Before this was counted, the request
 * was granted and failed in the driver. */
static void context_of_a_process_is_not_granted(void **state)
{
    tdm_actor *actor = one_node_actor(runtime, "outside_tenant", "trainer-a", 1);

    (void)state;
    assert_int_equal(call(actor, "make", 62 * MIB), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "62.0 MiB wanted, 60.0 MiB free"));
    assert_non_null(strstr(tdm_error_detail(), "other processes use 4.0 MiB"));
    TRY(call(actor, "make", 60 * MIB));
    end(actor);
}

/* Memory of PyTorch's allocator in one actor is not granted to another one, and is when it is
 * free again. */
static void memory_of_other_allocators_is_not_granted(void **state)
{
    tdm_actor *torch = one_node_actor(runtime, "outside_tenant", "torch-b", 0.5);
    tdm_actor *actor = one_node_actor(runtime, "outside_tenant", "engine-b", 0.5);

    (void)state;
    TRY(call(torch, "take", 40 * MIB));
    assert_int_equal(call(actor, "make", 20 * MIB), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "other processes use 48.0 MiB"));
    TRY(call(torch, "take", 0));
    TRY(call(actor, "make", 20 * MIB));
    end(torch);
    end(actor);
}

/* Declared memory is the actor's own in messages, and is not counted once more as that of other
 * processes. */
static void declared_memory_is_counted_once(void **state)
{
    tdm_actor *torch = one_node_actor(runtime, "outside_tenant", "torch-c", 0.5);
    tdm_actor *actor = one_node_actor(runtime, "outside_tenant", "engine-c", 0.5);

    (void)state;
    TRY(call(torch, "declare", 40 * MIB));
    assert_int_equal(call(actor, "make", 20 * MIB), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "torch-c still holds torch 40.0 MiB (paused"));
    assert_non_null(strstr(tdm_error_detail(), "other processes use 8.0 MiB"));
    TRY(call(actor, "make", 16 * MIB));
    TRY(call(torch, "declare", 0));
    TRY(call(torch, "make", 40 * MIB));
    end(torch);
    end(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_of_a_process_is_not_granted),
        cmocka_unit_test(memory_of_other_allocators_is_not_granted),
        cmocka_unit_test(declared_memory_is_counted_once),
    };
    int failed;

    if (cuda_gpu_is_real()) {
        (void)printf("skipped: the numbers are those of the fake library\n");
        return 77;
    }
    /* A worker inherits the directory of its parent. */
    if (getenv("FAKE_CUDA_DIRECTORY") == NULL) {
        (void)setenv("FAKE_CUDA_CONTEXT_BYTES", "4194304", 1);
        cuda_gpu_choose(64 * MIB);
    }
    (void)setenv("TANDEM_DEVICE", "cuda", 1);
    runtime = one_node_start(64 * MIB); /* A worker never comes back from here. */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    cuda_gpu_forget();
    return failed;
}
