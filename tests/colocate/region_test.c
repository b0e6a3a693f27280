/* region_test.c - regions are paused and resumed as a whole, even if calls fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/region.h"
#include "tests/support/faulty_device.h"
#include "tests/support/host_gpu.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

struct fixture {
    struct host_gpu *gpu;
    struct tdm__arena *arena;
    struct tdm__regions *regions;
};

/* A GPU of 256 MiB; a region of 130 MiB has three blocks. */
static int set_up(void **state)
{
    static struct fixture fixture;

    fixture.gpu = host_gpu_open(256 * MIB, true);
    TRY(tdm__arena_create(fixture.gpu->devices[0], 512 * MIB, &fixture.arena));
    TRY(tdm__regions_create(fixture.gpu->devices[0], fixture.arena, &fixture.regions));
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    tdm__regions_destroy(f->regions);
    assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
    tdm__arena_destroy(f->arena);
    host_gpu_close(f->gpu);
    return 0;
}

static tdm_region *region_of(struct fixture *f, const char *tag, size_t bytes,
                             enum tdm_region_policy policy)
{
    const struct tdm_region_options options = {.tag = tag, .size_bytes = bytes, .policy = policy};
    tdm_region *region;

    TRY(tdm__region_create(f->regions, &options, &region));
    return region;
}

static void fill(tdm_region *region, uint64_t seed)
{
    uint64_t *words = tdm_region_address(region);

    for (size_t i = 0; i < tdm_region_size(region) / sizeof(*words); i += 64) {
        words[i] = seed + i;
    }
}

static void assert_filled(const tdm_region *region, uint64_t seed)
{
    const uint64_t *words = tdm_region_contents(region);

    assert_non_null(words);
    for (size_t i = 0; i < tdm_region_size(region) / sizeof(*words); i += 64) {
        if (words[i] != seed + i) {
            fail_msg("word %zu differs", i);
        }
    }
}

static void pause_frees_and_resume_brings_back(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "weights", 130 * MIB - 5, TDM_REGION_KEEP);
    void *address = tdm_region_address(region);

    assert_int_equal(tdm_region_size(region), 130 * MIB);
    fill(region, 1);
    assert_int_equal(tdm_region_resume(region, 0), TDM_E_STATE);
    TRY(tdm_region_pause(region));
    assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
    assert_false(tdm_region_is_resident(region));
    assert_int_equal(tdm_region_pause(region), TDM_E_STATE);
    assert_filled(region, 1);
    TRY(tdm_region_resume(region, 0));
    assert_ptr_equal(tdm_region_address(region), address);
    assert_ptr_equal(tdm_region_contents(region), address);
    assert_filled(region, 1);
}

static void retained_region_outlives_its_owner(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "weights", 4 * MIB, TDM_REGION_KEEP);
    char *address = tdm_region_address(region);

    tdm_region_retain(region);
    tdm_region_retain(region);
    tdm_region_destroy(region);
    address[4 * MIB - 1] = 7; /* The memory is still there, and can be paused. */
    assert_ptr_equal(tdm__regions_find_by_address(f->regions, address), region);
    TRY(tdm_region_pause(region));
    TRY(tdm_region_resume(region, 0));
    assert_int_equal(address[4 * MIB - 1], 7);
    tdm_region_release(region);
    assert_int_equal(host_gpu_used_bytes(f->gpu), 4 * MIB);
    tdm_region_release(region);
    assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
    assert_null(tdm__regions_find_by_address(f->regions, address));
    tdm_region_release(NULL);
}

/* Maps bytes of a region by its descriptor, and asserts that they are the region's. */
static void assert_same_bytes(const tdm_region *region, size_t begin, size_t size_bytes)
{
    char *address = (char *)tdm_region_address(region) + begin;
    uint64_t offset = 0;
    int descriptor = -1;
    char *mapped;

    TRY(tdm__region_descriptor_at(region, address, size_bytes, &descriptor, &offset));
    mapped = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)offset);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    address[size_bytes - 1] = 11;
    assert_memory_equal(mapped, address, size_bytes);
    address[0] = 12; /* No copy. */
    assert_int_equal(mapped[0], 12);
    (void)munmap(mapped, size_bytes);
}

static void bytes_of_a_region_can_be_mapped_by_a_descriptor(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "weights", 130 * MIB, TDM_REGION_DROP); /* Three blocks. */
    char *address = tdm_region_address(region);
    uint64_t offset;
    int descriptor;

    assert_same_bytes(region, 0, 64 * MIB);
    assert_same_bytes(region, 68 * MIB, 8 * MIB);
    assert_same_bytes(region, 128 * MIB, 2 * MIB);
    assert_int_equal(
        tdm__region_descriptor_at(region, address + 64 * MIB - 1, 2, &descriptor, &offset),
        TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "lie in two of its blocks"));
    assert_int_equal(
        tdm__region_descriptor_at(region, address + 128 * MIB, 2 * MIB + 1, &descriptor, &offset),
        TDM_E_INVAL);
    TRY(tdm_region_pause(region));
    assert_int_equal(tdm__region_descriptor_at(region, address, 1, &descriptor, &offset),
                     TDM_E_STATE);
}

static void region_that_starts_paused_needs_no_memory(void **state)
{
    struct fixture *f = *state;
    const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = 300 * MIB, .policy = TDM_REGION_KEEP, .paused = 1};
    tdm_region *region;

    TRY(tdm__region_create(f->regions, &options, &region));
    assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
    assert_int_equal(tdm_region_resume(region, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "300.0 MiB wanted, 256.0 MiB free"));
}

static void dropped_region_has_no_contents_while_paused(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "kv_cache", 4 * MIB, TDM_REGION_DROP);
    const void *contents;

    TRY(tdm_region_pause(region));
    assert_null(tdm_region_contents(region));
    assert_int_equal(tdm__region_contents_at(f->regions, tdm_region_address(region), 1, &contents),
                     TDM_E_STATE);
    assert_int_equal(tdm__arena_used_bytes(f->arena), 0);
}

static void touching_a_paused_region_is_a_fault(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "weights", 2 * MIB, TDM_REGION_DROP);
    int wait_status;
    pid_t child;

    TRY(tdm_region_pause(region));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* the test runner's handler would go on testing */
        *(volatile char *)tdm_region_address(region) = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSEGV);
}

/* Goal: a failure at any device call leaves the region as it was, and the call can be repeated.
 * Method: fail the n-th call for every n until one passes untouched. */
static void any_failure_in_resume_or_pause_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct tdm__device *device = f->gpu->devices[0];
    tdm_region *region = region_of(f, "weights", 130 * MIB, TDM_REGION_KEEP);
    tdm_status status = TDM_E_DEVICE;
    uint64_t n = 0;

    fill(region, 5);
    while (status != TDM_OK) {
        n++;
        tdm__device_faulty_arm(device, n);
        status = tdm_region_pause(region);
        if (status != TDM_OK) {
            assert_int_equal(status, TDM_E_DEVICE);
            assert_non_null(strstr(tdm_error_detail(), "fault injected"));
            assert_true(tdm_region_is_resident(region));
            assert_filled(region, 5);
            assert_int_equal(host_gpu_used_bytes(f->gpu), 130 * MIB);
        }
    }
    assert_true(n > 3);
    status = TDM_E_DEVICE;
    for (n = 1; status != TDM_OK; n++) {
        tdm__device_faulty_arm(device, n);
        status = tdm_region_resume(region, 0);
        if (status != TDM_OK) {
            assert_int_equal(status, TDM_E_DEVICE);
            assert_non_null(strstr(tdm_error_detail(), "fault injected"));
            assert_false(tdm_region_is_resident(region));
            assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
        }
        assert_filled(region, 5);
    }
    assert_true(n > 6);
    tdm__device_faulty_arm(device, 0);
    assert_int_equal(host_gpu_used_bytes(f->gpu), 130 * MIB);
}

static void any_failure_in_create_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = 130 * MIB, .policy = TDM_REGION_KEEP};
    tdm_status status = TDM_E_DEVICE;
    tdm_region *region;

    for (uint64_t n = 1; status != TDM_OK; n++) {
        tdm__device_faulty_arm(f->gpu->devices[0], n);
        status = tdm__region_create(f->regions, &options, &region);
        if (status != TDM_OK) {
            assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
            assert_int_equal(tdm__arena_used_bytes(f->arena), 0);
        }
    }
}

static void any_failure_among_many_regions_takes_all_back(void **state)
{
    struct fixture *f = *state;
    struct tdm__device *device = f->gpu->devices[0];
    tdm_region *a = region_of(f, "weights", 4 * MIB, TDM_REGION_KEEP);
    tdm_region *cache = region_of(f, "kv_cache", 4 * MIB, TDM_REGION_DROP);
    tdm_region *b = region_of(f, "weights", 66 * MIB, TDM_REGION_KEEP);
    tdm_status status = TDM_E_DEVICE;

    fill(a, 1);
    fill(b, 2);
    for (uint64_t n = 1; status != TDM_OK; n++) {
        tdm__device_faulty_arm(device, n);
        status = tdm__regions_pause(f->regions, "weights");
        assert_int_equal(tdm_region_is_resident(a), status != TDM_OK);
        assert_int_equal(tdm_region_is_resident(b), status != TDM_OK);
        assert_true(tdm_region_is_resident(cache));
    }
    assert_int_equal(host_gpu_used_bytes(f->gpu), 4 * MIB);
    status = TDM_E_DEVICE;
    for (uint64_t n = 1; status != TDM_OK; n++) {
        tdm__device_faulty_arm(device, n);
        status = tdm__regions_resume(f->regions, NULL, 0);
        assert_int_equal(tdm_region_is_resident(a), status == TDM_OK);
        assert_int_equal(tdm_region_is_resident(b), status == TDM_OK);
        assert_filled(a, 1);
        assert_filled(b, 2);
    }
}

static void swapped_regions_show_each_others_bytes(void **state)
{
    struct fixture *f = *state;
    struct tdm__device *device = f->gpu->devices[0];
    tdm_region *live = region_of(f, "weights", 70 * MIB, TDM_REGION_KEEP);
    tdm_region *shadow = region_of(f, "weights", 70 * MIB, TDM_REGION_KEEP);
    tdm_region *small = region_of(f, "weights", 2 * MIB, TDM_REGION_KEEP);

    fill(live, 1);
    fill(shadow, 2);
    tdm__device_faulty_arm(device, 1);
    assert_int_equal(tdm__region_swap(live, shadow), TDM_E_DEVICE);
    assert_filled(live, 1);
    TRY(tdm__region_swap(live, shadow));
    assert_filled(live, 2);
    assert_filled(shadow, 1);
    TRY(tdm_region_pause(shadow));
    assert_filled(live, 2);
    assert_int_equal(tdm__region_swap(live, shadow), TDM_E_STATE);
    assert_int_equal(tdm__region_swap(live, small), TDM_E_INVAL);
    tdm_region_destroy(live);
    TRY(tdm_region_resume(shadow, 0));
    assert_filled(shadow, 1);
}

static void address_is_found_resident_or_paused(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "weights", 4 * MIB, TDM_REGION_KEEP);
    char *address = tdm_region_address(region);
    const void *contents;

    fill(region, 9);
    TRY(tdm_region_pause(region));
    assert_ptr_equal(tdm__regions_find_by_address(f->regions, address + 4 * MIB - 1), region);
    assert_null(tdm__regions_find_by_address(f->regions, address + 4 * MIB));
    TRY(tdm__region_contents_at(f->regions, address + 512, 8, &contents));
    assert_int_equal(*(const uint64_t *)contents, 9 + 64);
    assert_int_equal(tdm__region_contents_at(f->regions, address + 4 * MIB - 4, 8, &contents),
                     TDM_E_INVAL);
    assert_int_equal(tdm__region_contents_at(f->regions, f, 8, &contents), TDM_E_NOT_FOUND);
}

static tdm_status refuse(void *arg, const char *tag, size_t bytes, int64_t timeout_ms)
{
    assert_string_equal(tag, "weights");
    assert_int_equal(bytes, 4 * MIB);
    assert_int_equal(timeout_ms, 77);
    (*(int *)arg)++;
    return *(int *)arg == 1 ? TDM_E_TIMEOUT : TDM_OK;
}

static void resume_asks_the_memory_arbiter_first(void **state)
{
    struct fixture *f = *state;
    tdm_region *region = region_of(f, "weights", 4 * MIB, TDM_REGION_KEEP);
    int asked = 0;

    TRY(tdm_region_pause(region));
    tdm__regions_set_grant_request(f->regions, refuse, &asked);
    assert_int_equal(tdm_region_resume(region, 77), TDM_E_TIMEOUT);
    assert_int_equal(host_gpu_used_bytes(f->gpu), 0);
    TRY(tdm_region_resume(region, 77));
    assert_int_equal(asked, 2);
}

struct told {
    struct host_gpu *gpu;
    uint32_t count;
    char tags[4][16];
    size_t bytes[4];
    size_t used_bytes[4]; /* Bytes used on the GPU at the time of each call. */
};

static void note(void *arg, const char *tag, size_t bytes)
{
    struct told *told = arg;

    assert_true(told->count < 4);
    (void)snprintf(told->tags[told->count], sizeof(told->tags[0]), "%s", tag);
    told->bytes[told->count] = bytes;
    told->used_bytes[told->count] = host_gpu_used_bytes(told->gpu);
    told->count++;
}

static void pause_tells_all_that_leaves_before_any_does(void **state)
{
    struct fixture *f = *state;
    struct told told = {.gpu = f->gpu};

    (void)region_of(f, "weights", 4 * MIB, TDM_REGION_KEEP);
    (void)region_of(f, "kv_cache", 8 * MIB, TDM_REGION_DROP);
    (void)region_of(f, "weights", 2 * MIB, TDM_REGION_KEEP);
    tdm__regions_set_release_notice(f->regions, note, &told);
    TRY(tdm__regions_pause(f->regions, NULL));
    assert_int_equal(told.count, 2);
    assert_string_equal(told.tags[0], "weights");
    assert_int_equal(told.bytes[0], 6 * MIB);
    assert_string_equal(told.tags[1], "kv_cache");
    assert_int_equal(told.bytes[1], 8 * MIB);
    assert_int_equal(told.used_bytes[1], 14 * MIB);
}

static void failed_pause_takes_its_word_back(void **state)
{
    struct fixture *f = *state;
    struct told told = {.gpu = f->gpu};
    tdm_region *region = region_of(f, "weights", 4 * MIB, TDM_REGION_KEEP);

    tdm__regions_set_release_notice(f->regions, note, &told);
    tdm__device_faulty_arm(f->gpu->devices[0], 1);
    assert_int_equal(tdm_region_pause(region), TDM_E_DEVICE);
    tdm__device_faulty_arm(f->gpu->devices[0], 1);
    assert_int_equal(tdm__regions_pause(f->regions, NULL), TDM_E_DEVICE);
    tdm__device_faulty_arm(f->gpu->devices[0], 0);
    assert_int_equal(told.count, 4);
    assert_int_equal(told.bytes[0], 4 * MIB);
    assert_int_equal(told.bytes[1], 0);
    assert_int_equal(told.bytes[2], 4 * MIB);
    assert_int_equal(told.bytes[3], 0);
}

static void two_tenants_in_the_wrong_order_really_run_out(void **state)
{
    struct fixture *f = *state;
    struct tdm__regions *engines;
    const struct tdm_region_options cache = {
        .tag = "kv_cache", .size_bytes = 200 * MIB, .policy = TDM_REGION_DROP};
    tdm_region *trainer = region_of(f, "weights", 100 * MIB, TDM_REGION_KEEP);
    tdm_region *engine;

    TRY(tdm__regions_create(f->gpu->devices[1], f->arena, &engines));
    assert_int_equal(tdm__region_create(engines, &cache, &engine), TDM_E_DEVICE_FULL);
    assert_string_equal(tdm_error_detail(),
                        "GPU 0 cannot hold engine 0's kv_cache: 200.0 MiB wanted, 156.0 MiB "
                        "free of 256.0; trainer rank 1 holds weights 100.0 MiB");
    TRY(tdm_region_pause(trainer));
    TRY(tdm__region_create(engines, &cache, &engine));
    assert_int_equal(tdm_region_resume(trainer, 0), TDM_E_DEVICE_FULL);
    tdm__regions_destroy(engines);
    TRY(tdm_region_resume(trainer, 0));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(pause_frees_and_resume_brings_back),
        TEST(retained_region_outlives_its_owner),
        TEST(bytes_of_a_region_can_be_mapped_by_a_descriptor),
        TEST(region_that_starts_paused_needs_no_memory),
        TEST(dropped_region_has_no_contents_while_paused),
        TEST(touching_a_paused_region_is_a_fault),
        TEST(any_failure_in_resume_or_pause_changes_nothing),
        TEST(any_failure_in_create_leaves_nothing),
        TEST(any_failure_among_many_regions_takes_all_back),
        TEST(swapped_regions_show_each_others_bytes),
        TEST(address_is_found_resident_or_paused),
        TEST(resume_asks_the_memory_arbiter_first),
        TEST(pause_tells_all_that_leaves_before_any_does),
        TEST(failed_pause_takes_its_word_back),
        TEST(two_tenants_in_the_wrong_order_really_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
