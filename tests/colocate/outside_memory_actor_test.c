/* outside_memory_actor_test.c - memory that the processes of an actor allocate themselves takes
 * turns with the regions of another actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/one_node.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB       ((uint64_t)1 << 20)
#define GPU_BYTES (128 * MIB)
#define TRY(x)    assert_int_equal((x), TDM_OK)

enum { CALL_MS = 20000, WAIT_MS = 10000, DECLARED_MIB = 40 };

/* ---- the actors ------------------------------------------------------------------------- */

/* An actor whose child process has the memory, as that of an engine's server. */
struct outside_tenant {
    tdm_outside_memory *memory;
    pid_t child; /* The child that has the memory; 0: none. */
};

/* Starts a child that uses that much memory, in a session of its own. */
static tdm_status start_child(struct outside_tenant *tenant, uint64_t mib)
{
    int ready[2];
    char byte;

    if (pipe2(ready, O_CLOEXEC) < 0) {
        return tdm_fail(TDM_E_IO, "pipe");
    }
    tenant->child = fork();
    if (tenant->child == 0) {
        char *used =
            mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        memset(used, 1, mib * MIB);
        (void)setsid();
        if (write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    if (tenant->child < 0 || read(ready[0], &byte, 1) != 1) {
        return tdm_fail(TDM_E_IO, "no child");
    }
    (void)close(ready[0]);
    (void)close(ready[1]);
    return TDM_OK;
}

/* (MiB) Resumes: a child takes that much.  Replies what the device reports, and the child's pid. */
static tdm_status outside_tenant_resume(tdm_call *call, void *self)
{
    static const struct tdm_outside_memory_options options = {
        .tag = "torch", .size_bytes = DECLARED_MIB * MIB, .policy = TDM_REGION_DROP};
    struct outside_tenant *tenant = self;
    uint64_t reported;
    uint64_t mib;

    TDM_TRY(tdm_call_unpack(call, "u", &mib));
    if (tenant->memory == NULL) {
        TDM_TRY(tdm_outside_memory_create(tdm_runtime_current(), &options, &tenant->memory));
    }
    TDM_TRY(tdm_outside_memory_begin_resume(tenant->memory, 0));
    TDM_TRY(start_child(tenant, mib));
    TDM_TRY(tdm_outside_memory_end_resume(tenant->memory, &reported));
    return tdm_call_reply(call, "ui", reported, (int64_t)tenant->child);
}

/* (whether to free) Pauses.  Replies what is left. */
static tdm_status outside_tenant_pause(tdm_call *call, void *self)
{
    struct outside_tenant *tenant = self;
    uint64_t left;
    int frees;

    TDM_TRY(tdm_call_unpack(call, "?", &frees));
    TDM_TRY(tdm_outside_memory_begin_pause(tenant->memory));
    if (frees) {
        (void)kill(tenant->child, SIGKILL);
        (void)waitpid(tenant->child, NULL, 0);
    }
    TDM_TRY(tdm_outside_memory_end_pause(tenant->memory, 100, &left));
    return tdm_call_reply(call, "u", left);
}

TDM_ACTOR_CLASS(outside_tenant, .state_bytes = sizeof(struct outside_tenant),
                .methods = {{"resume", outside_tenant_resume}, {"pause", outside_tenant_pause}});

struct region_tenant {
    tdm_region *region;
};

/* (MiB, milliseconds) Takes that much in a region, and gives it back at once. */
static tdm_status region_tenant_take(tdm_call *call, void *self)
{
    struct tdm_region_options options = {.tag = "kv_cache", .policy = TDM_REGION_DROP, .paused = 1};
    struct region_tenant *tenant = self;
    tdm_status status;
    int64_t timeout_ms;
    uint64_t mib;

    TDM_TRY(tdm_call_unpack(call, "ui", &mib, &timeout_ms));
    options.size_bytes = mib * MIB;
    TDM_TRY(tdm_region_create(tdm_runtime_current(), &options, &tenant->region));
    status = tdm_region_resume(tenant->region, timeout_ms);
    tdm_region_destroy(tenant->region);
    return status;
}

TDM_ACTOR_CLASS(region_tenant, .state_bytes = sizeof(struct region_tenant),
                .methods = {{"take", region_tenant_take}});

/* ---- the driver ------------------------------------------------------------------------- */

static tdm_runtime *runtime;

struct fixture {
    tdm_actor *trainer;
    tdm_actor *engine;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    static int count;
    char name[32];

    count++;
    (void)snprintf(name, sizeof(name), "trainer-%d", count);
    fixture.trainer = one_node_actor(runtime, "outside_tenant", name, 0.5);
    (void)snprintf(name, sizeof(name), "engine-%d", count);
    fixture.engine = one_node_actor(runtime, "region_tenant", name, 0.5);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    (void)tdm_actor_kill(fixture->trainer, CALL_MS);
    (void)tdm_actor_kill(fixture->engine, CALL_MS);
    tdm_actor_destroy(fixture->trainer);
    tdm_actor_destroy(fixture->engine);
    return 0;
}

static uint64_t resume(const struct fixture *fixture, uint64_t mib, int64_t *child_out)
{
    uint64_t reported;
    tdm_ref *ref;

    TRY(tdm_actor_call(fixture->trainer, "resume", &ref, "u", mib));
    TRY(tdm_get(ref, CALL_MS, "ui", &reported, child_out));
    tdm_ref_release(ref);
    return reported;
}

static uint64_t pause_tenant(const struct fixture *fixture, int frees)
{
    uint64_t left;
    tdm_ref *ref;

    TRY(tdm_actor_call(fixture->trainer, "pause", &ref, "?", frees));
    TRY(tdm_get(ref, CALL_MS, "u", &left));
    tdm_ref_release(ref);
    return left;
}

static tdm_status take(const struct fixture *fixture, uint64_t mib, int64_t timeout_ms)
{
    tdm_status status;
    tdm_ref *ref;

    TRY(tdm_actor_call(fixture->engine, "take", &ref, "ui", mib, timeout_ms));
    status = tdm_get(ref, CALL_MS, "n");
    tdm_ref_release(ref);
    return status;
}

static void memory_of_a_child_process_takes_turns_with_regions(void **state)
{
    const struct fixture *fixture = *state;
    int64_t child;

    assert_in_range(resume(fixture, DECLARED_MIB, &child), 40 * MIB, 50 * MIB);
    assert_int_equal(take(fixture, 90, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "90.0 MiB wanted, 88.0 MiB free"));
    assert_non_null(strstr(tdm_error_detail(), "still holds torch 40.0 MiB (paused"));
    TRY(take(fixture, 88, 0));
    assert_true(pause_tenant(fixture, 1) == 0);
    TRY(take(fixture, 128, 0));
}

static void more_than_declared_is_not_granted(void **state)
{
    const struct fixture *fixture = *state;
    int64_t child;
    double held = 0;

    assert_in_range(resume(fixture, 2 * DECLARED_MIB, &child), 80 * MIB, 90 * MIB);
    assert_int_equal(take(fixture, 60, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "MiB (40.0 declared)"));
    assert_int_equal(sscanf(strstr(tdm_error_detail(), "holds torch"), "holds torch %lf", &held),
                     1);
    assert_true(held >= 80 && held <= 90);
    assert_true(pause_tenant(fixture, 1) == 0);
    TRY(take(fixture, 128, 0));
}

static void what_a_pause_does_not_free_is_not_granted(void **state)
{
    const struct fixture *fixture = *state;
    int64_t child;

    (void)resume(fixture, DECLARED_MIB, &child);
    assert_in_range(pause_tenant(fixture, 0), 38 * MIB, 50 * MIB);
    assert_int_equal(take(fixture, 128, WAIT_MS), TDM_E_DEVICE_FULL); /* It does not wait. */
    assert_non_null(strstr(tdm_error_detail(), "(0.0 declared)"));
}

/* A traced process that was killed is not reaped before its tracer, this process, waits for it. */
static void memory_is_granted_after_the_last_process_of_the_actor(void **state)
{
    const struct fixture *fixture = *state;
    int64_t child;
    tdm_ref *ref;

    (void)resume(fixture, DECLARED_MIB, &child);
    assert_int_equal(ptrace(PTRACE_SEIZE, (pid_t)child, NULL, NULL), 0);
    one_node_kill_actor(fixture->trainer);
    TRY(tdm_actor_call(fixture->trainer, "pause", &ref, "?", 1));
    assert_int_equal(tdm_get(ref, CALL_MS, "u", &(uint64_t){0}), TDM_E_ACTOR_DIED);
    tdm_ref_release(ref);
    /* The end of the actor is known, and the child exists. The request waits for it. */
    TRY(tdm_actor_call(fixture->engine, "take", &ref, "ui", (uint64_t)128, (int64_t)WAIT_MS));
    assert_int_equal(tdm_get(ref, 300, "n"), TDM_E_TIMEOUT);
    assert_int_equal(waitpid((pid_t)child, NULL, __WALL), child);
    TRY(tdm_get(ref, CALL_MS, "n"));
    tdm_ref_release(ref);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(memory_of_a_child_process_takes_turns_with_regions),
        TEST(more_than_declared_is_not_granted),
        TEST(what_a_pause_does_not_free_is_not_granted),
        TEST(memory_is_granted_after_the_last_process_of_the_actor),
    };
    int failed;

    runtime = one_node_start(GPU_BYTES); /* A worker never returns from here. */
    failed = cmocka_run_group_tests_name("outside_memory_actor", tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
