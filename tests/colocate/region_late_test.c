/* region_late_test.c - a GPU returns the memory of a dead process late, and the next actor waits
 * for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "runtime/clock.h"
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

/* FREE_MS: milliseconds from the first look at the memory of a dead process until it is free. */
enum { CALL_MS = 20000, FREE_MS = 800 };

/* ---- the actor: owns a region ----------------------------------------------------------- */

struct tenant {
    tdm_region *region;
};

/* Creates a paused region of that many bytes. */
static tdm_status late_tenant_plan(tdm_call *call, void *self)
{
    struct tdm_region_options options = {.tag = "weights", .policy = TDM_REGION_DROP, .paused = 1};
    uint64_t bytes;

    TDM_TRY(tdm_call_unpack(call, "u", &bytes));
    options.size_bytes = bytes;
    return tdm_region_create(tdm_runtime_current(), &options, &((struct tenant *)self)->region);
}

/* Waits for the memory of the region for at most so many milliseconds. */
static tdm_status late_tenant_resume(tdm_call *call, void *self)
{
    uint64_t timeout_ms;

    TDM_TRY(tdm_call_unpack(call, "u", &timeout_ms));
    return tdm_region_resume(((struct tenant *)self)->region, (int64_t)timeout_ms);
}

TDM_ACTOR_CLASS(late_tenant, .state_bytes = sizeof(struct tenant),
                .methods = {{"plan", late_tenant_plan}, {"resume", late_tenant_resume}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

static tdm_status call(tdm_actor *actor, const char *method, uint64_t number)
{
    const tdm_value *value;
    tdm_status status;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, "u", number));
    status = tdm_get_value(ref, CALL_MS, &value);
    tdm_ref_release(ref);
    return status;
}

static void end(tdm_actor *actor)
{
    TRY(tdm_actor_kill(actor, CALL_MS));
    tdm_actor_destroy(actor);
}

/* Goal: memory is granted when the GPU reports it free, not when its owner is dead. A request for
 * it is not refused meanwhile.
 * Method: two actors have a region each, for which the GPU has space once. The first is killed
 * while its region is resident. */
static void memory_of_a_dead_actor_is_awaited(void **state)
{
    tdm_actor *first = one_node_actor(runtime, "late_tenant", "trainer-a", 0.5);
    tdm_actor *second = one_node_actor(runtime, "late_tenant", "engine-a", 0.5);
    int64_t begin_ms;

    (void)state;
    TRY(call(first, "plan", 12 * MIB));
    TRY(call(second, "plan", 12 * MIB));
    TRY(call(first, "resume", 0));
    one_node_kill_actor(first);
    one_node_wait_used(runtime, 0); /* The broker has released the blocks of the dead actor. */
    begin_ms = tdm__clock_ms();
    TRY(call(second, "resume", CALL_MS / 2));
    assert_true(tdm__clock_ms() - begin_ms >= FREE_MS - 1);
    tdm_actor_destroy(first);
    end(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_dead_actor_is_awaited),
    };
    int failed;

    if (cuda_gpu_is_real()) {
        (void)printf("skipped: the numbers are those of the fake library\n");
        return 77;
    }
    /* A worker inherits the directory of its parent. */
    if (getenv("FAKE_CUDA_DIRECTORY") == NULL) {
        char free_ms[16];

        (void)snprintf(free_ms, sizeof(free_ms), "%d", FREE_MS);
        (void)setenv("FAKE_CUDA_FREE_MS", free_ms, 1);
        cuda_gpu_choose(16 * MIB);
    }
    (void)setenv("TANDEM_DEVICE", "cuda", 1);
    runtime = one_node_start(16 * MIB); /* A worker never comes back from here. */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    cuda_gpu_forget();
    return failed;
}
