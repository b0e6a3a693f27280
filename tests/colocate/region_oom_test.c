/* region_oom_test.c - a resume runs out of memory at each of its allocations, one after the
 * other.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/region.h"
#include "tests/colocate/starving.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/host_gpu.h"

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

enum { REGIONS = 3, PAGE_BYTES = 4096, TAKEN = 4, CU_NO_MEMORY = 2 };

/* The second has two blocks: of 64 MiB, and what is left. */
static const struct tdm_region_options specs[REGIONS] = {
    {.tag = "weights", .size_bytes = 2 * MIB, .policy = TDM_REGION_KEEP},
    {.tag = "kv_cache", .size_bytes = 66 * MIB, .policy = TDM_REGION_DROP},
    {.tag = "optimizer", .size_bytes = 4 * MIB, .policy = TDM_REGION_KEEP},
};

enum { ALL_BYTES = 72 << 20, GPU_BYTES = 2 * ALL_BYTES };

static uint64_t broken; /* Number of the driver call that fails; 0 if none fails. */

/* One of the two devices, with functions that the test needs of both. */
struct world {
    struct host_gpu *host; /* NULL for the CUDA device. */
    struct cuda_gpu *cuda;
    struct tdm__device *device;
    struct tdm__arena *arena;
    struct tdm__regions *regions;
    tdm_region *all[REGIONS];
    void *addresses[REGIONS];
    struct tdm__block *taken[TAKEN]; /* Blocks that another tenant holds. */
    size_t used_bytes;               /* of the broker, while all are paused */
    size_t free_bytes;               /* of the device */
    unsigned asked;
    unsigned forgone;
};

static const struct tdm__broker *broker_of(const struct world *world)
{
    return world->host != NULL ? world->host->broker : world->cuda->broker;
}

static size_t used_bytes(const struct world *world)
{
    return world->host != NULL ? host_gpu_used_bytes(world->host)
                               : cuda_gpu_used_bytes(world->cuda);
}

/* Returns the free bytes of the device; for the host device those of its broker. */
static size_t free_bytes(const struct world *world)
{
    return world->host != NULL ? GPU_BYTES - used_bytes(world) : cuda_gpu_free_bytes(world->cuda);
}

static tdm_status ask(void *arg, const char *tag, size_t bytes, int64_t timeout_ms)
{
    (void)tag;
    (void)bytes;
    (void)timeout_ms;
    ((struct world *)arg)->asked++;
    return TDM_OK;
}

static void forgo(void *arg, const char *tag)
{
    (void)tag;
    ((struct world *)arg)->forgone++;
}

static void fill(struct world *world, int index)
{
    size_t size_bytes = tdm_region_size(world->all[index]);
    unsigned char *bytes = malloc(size_bytes);

    assert_non_null(bytes);
    for (size_t i = 0; i < size_bytes; i += PAGE_BYTES) {
        bytes[i] = (unsigned char)(i / PAGE_BYTES * 7 + (size_t)index);
    }
    TRY(world->device->ops->copy(world->device, world->addresses[index], bytes, size_bytes));
    TRY(world->device->ops->copy_flush(world->device));
    free(bytes);
}

static void assert_filled(const struct world *world, int index)
{
    size_t size_bytes = tdm_region_size(world->all[index]);
    const unsigned char *contents = tdm_region_contents(world->all[index]);
    unsigned char *copy = NULL;

    if (tdm_region_is_resident(world->all[index]) && world->cuda != NULL) {
        copy = malloc(size_bytes);
        assert_non_null(copy);
        TRY(world->device->ops->copy(world->device, copy, contents, size_bytes));
        TRY(world->device->ops->copy_flush(world->device));
        contents = copy;
    }
    for (size_t i = 0; i < size_bytes; i += PAGE_BYTES) {
        if (contents[i] != (unsigned char)(i / PAGE_BYTES * 7 + (size_t)index)) {
            fail_msg("%s differs at %zu", specs[index].tag, i);
        }
    }
    free(copy);
}

/* What the regions gave back stays faulted in for the next one who wants it: another tenant. */
static void empty_the_pool(struct world *world)
{
    const size_t sizes[] = {64 * MIB, 2 * MIB, 2 * MIB, 4 * MIB};
    struct tdm__device *other = world->host->devices[1];

    TRY(other->ops->create(other, "kv_cache", sizes, TAKEN, world->taken));
}

static struct world *actor_fixture_open(bool cuda)
{
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    if (cuda) {
        world->cuda = cuda_gpu_open(GPU_BYTES, false);
        world->device = world->cuda->devices[0];
    } else {
        world->host = host_gpu_open(GPU_BYTES, false);
        world->device = world->host->devices[0];
    }
    TRY(tdm__arena_create(world->device, 512 * MIB, &world->arena));
    TRY(tdm__regions_create(world->device, world->arena, &world->regions));
    for (int i = 0; i < REGIONS; i++) {
        TRY(tdm__region_create(world->regions, &specs[i], &world->all[i]));
        world->addresses[i] = tdm_region_address(world->all[i]);
    }
    fill(world, 0);
    fill(world, 2);
    TRY(tdm__regions_pause(world->regions, NULL));
    if (world->host != NULL) {
        empty_the_pool(world);
    }
    tdm__regions_set_grant_request(world->regions, ask, world);
    tdm__regions_set_grant_cancel(world->regions, forgo, world);
    world->used_bytes = used_bytes(world);
    world->free_bytes = free_bytes(world);
    return world;
}

static void actor_fixture_close(struct world *world)
{
    tdm__regions_destroy(world->regions);
    tdm__arena_destroy(world->arena);
    if (world->host != NULL) {
        world->host->devices[1]->ops->release(world->host->devices[1], world->taken, TAKEN);
        host_gpu_close(world->host);
    } else {
        cuda_gpu_close(world->cuda);
    }
    free(world);
}

static void assert_all_are(const struct world *world, bool resident)
{
    for (int i = 0; i < REGIONS; i++) {
        assert_int_equal(tdm_region_is_resident(world->all[i]), resident);
        assert_ptr_equal(tdm_region_address(world->all[i]), world->addresses[i]);
    }
    assert_filled(world, 0);
    assert_filled(world, 2);
}

/* Nothing is resident, nothing is charged, and the device says the same. */
static void assert_nothing_changed(const struct world *world)
{
    struct tdm__broker_usage rows[4];

    assert_all_are(world, false);
    assert_null(tdm_region_contents(world->all[1]));
    assert_int_equal(used_bytes(world), world->used_bytes);
    assert_int_equal(tdm__broker_list_usage(broker_of(world), 0, rows, 4),
                     world->used_bytes == 0 ? 0 : 1);
    assert_int_equal(free_bytes(world), world->free_bytes);
}

/* The region that it happened to, the bytes it wanted, and the device's where it was that. */
static void assert_told(const struct world *world, const char *call)
{
    const char *detail = tdm_error_detail();
    char wanted[64];
    bool named = false;

    if (world->asked == 0) {
        return; /* the list of the regions itself, before any of them */
    }
    for (int i = 0; i < REGIONS; i++) {
        (void)snprintf(wanted, sizeof(wanted), "%.1f MiB wanted",
                       (double)specs[i].size_bytes / (double)MIB);
        named = named || (strstr(detail, specs[i].tag) != NULL && strstr(detail, wanted) != NULL);
    }
    if (!named || strstr(detail, "MiB wanted") == NULL) {
        fail_msg("after %s: \"%s\" does not say what was wanted", call, detail);
    }
    if (strncmp(call, "memfd", 5) == 0 || strcmp(call, "fallocate") == 0 ||
        (strstr(detail, "cuMem") != NULL && strstr(detail, "cuMemcpy") == NULL)) {
        if (strstr(detail, "MiB free of") == NULL) {
            fail_msg("\"%s\" does not say what is free", detail);
        }
    }
}

static void assert_resumes(struct world *world)
{
    TRY(tdm__regions_resume(world->regions, NULL, 0));
    assert_all_are(world, true);
    assert_int_equal(used_bytes(world), world->used_bytes + ALL_BYTES);
}

/* How a run is made to fail, and what it then was that failed; NULL when nothing did. */
typedef void start_fn(uint64_t nth);
typedef const char *stop_fn(void);

static void starve_once(uint64_t nth)
{
    starving_start(nth, false);
}

static void each_failure(bool cuda, start_fn *start, stop_fn *stop, uint64_t at_least)
{
    struct world *world = actor_fixture_open(cuda);
    const char *failed = "";
    uint64_t failures = 0;

    while (failed != NULL) {
        tdm_status status;

        world->asked = 0;
        world->forgone = 0;
        start(failures + 1);
        status = tdm__regions_resume(world->regions, NULL, 0);
        failed = stop();
        if (status != TDM_OK) {
            assert_non_null(failed);
            assert_told(world, failed);
            assert_nothing_changed(world);
            assert_resumes(world);
        }
        assert_all_are(world, true);
        if (failed != NULL) {
            failures++;
            TRY(tdm__regions_pause(world->regions, NULL));
            if (start == starve_once && !cuda) {
                actor_fixture_close(
                    world); /* its broker has the blocks in its pool: make them anew */
                world = actor_fixture_open(cuda);
            }
        }
    }
    print_message("%llu allocations\n", (unsigned long long)failures);
    assert_true(failures >= at_least || !STARVES_HEAP);
    actor_fixture_close(world);
}

static void starve_from_then_on(uint64_t nth)
{
    starving_start(nth, true);
}

static const char *stop_starving(void)
{
    (void)starving_stop();
    return starving.call;
}

static void any_allocation_of_a_resume_may_fail(void **state)
{
    (void)state;
    each_failure(false, starve_once, stop_starving, 12);
}

static void resume_without_any_more_memory_is_undone(void **state)
{
    (void)state;
    each_failure(false, starve_from_then_on, stop_starving, 12);
}

static void any_allocation_of_a_resume_on_cuda_may_fail(void **state)
{
    (void)state;
    each_failure(true, starve_once, stop_starving, 12);
}

static void break_driver(uint64_t nth)
{
    cuda_gpu_fake.break_call("*", nth, CU_NO_MEMORY);
    broken = nth;
}

static const char *mend_driver(void)
{
    bool failed = cuda_gpu_fake.calls() >= broken;

    cuda_gpu_fake.break_call("*", 0, 0);
    return failed ? "a call of the driver" : NULL;
}

static void any_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        print_message("skipped: a real driver fails when it likes\n");
        skip();
    }
    each_failure(true, break_driver, mend_driver, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_of_a_resume_may_fail),
        cmocka_unit_test(resume_without_any_more_memory_is_undone),
        cmocka_unit_test(any_allocation_of_a_resume_on_cuda_may_fail),
        cmocka_unit_test(any_call_of_the_driver_may_fail),
    };
    int failed;

    cuda_gpu_choose((size_t)256 * MIB);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
