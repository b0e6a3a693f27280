/* device_cuda_test.c - the CUDA device passes the conformance suite of devices, and tests of its
 * own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/driver_api.h"
#include "colocate/memory/region.h"
#include "runtime/error.h"
#include "tests/conformance/device_suite.h"
#include "tests/support/cuda_gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIT     ((size_t)2 << 20)
#define CAPACITY ((size_t)64 << 20)
/* On a real GPU free memory is compared with a tolerance, so there regions are large. */
#define REAL_CAPACITY  ((size_t)1 << 30)
#define REAL_REGION    ((size_t)256 << 20)
#define REAL_TOLERANCE ((size_t)8 << 20)
#define TRY(x)         assert_int_equal((x), TDM_OK)

/* ---- every device's promises ------------------------------------------------------------ */

static void *open_with(bool faulty, bool defer, struct tdm__device **owner_out,
                       struct tdm__device **importer_out)
{
    struct cuda_gpu *gpu = cuda_gpu_open(CAPACITY, faulty);

    if (!cuda_gpu_is_real()) {
        cuda_gpu_fake.defer(defer);
    }
    *owner_out = gpu->devices[0];
    *importer_out = gpu->devices[1];
    return gpu;
}

static void *open_cuda(struct tdm__device **owner_out, struct tdm__device **importer_out)
{
    return open_with(false, false, owner_out, importer_out);
}

static void *open_deferring(struct tdm__device **owner_out, struct tdm__device **importer_out)
{
    return open_with(false, true, owner_out, importer_out);
}

static void *open_faulty(struct tdm__device **owner_out, struct tdm__device **importer_out)
{
    return open_with(true, false, owner_out, importer_out);
}

static void close_gpu(void *gpu)
{
    if (cuda_gpu_used_bytes(gpu) != 0 || (!cuda_gpu_is_real() && cuda_gpu_fake.things() != 0)) {
        abort(); /* A test did not release everything. */
    }
    cuda_gpu_close(gpu);
}

/* ---- its own ---------------------------------------------------------------------------- */

struct world {
    struct cuda_gpu *gpu;
    struct tdm__arena *arena;
    struct tdm__regions *regions;
};

static int set_up(void **state)
{
    static struct world world;

    world.gpu = cuda_gpu_open(cuda_gpu_is_real() ? REAL_CAPACITY : CAPACITY, false);
    TRY(tdm__arena_create(world.gpu->devices[0], SIZE_MAX, &world.arena));
    TRY(tdm__regions_create(world.gpu->devices[0], world.arena, &world.regions));
    if (!cuda_gpu_is_real()) {
        cuda_gpu_fake.defer(true);
    }
    *state = &world;
    return 0;
}

static int end(void **state)
{
    struct world *world = *state;

    tdm__regions_destroy(world->regions);
    tdm__arena_destroy(world->arena);
    cuda_gpu_close(world->gpu);
    return 0;
}

static int tear_down(void **state)
{
    if (!cuda_gpu_is_real()) {
        tdm__regions_destroy(((struct world *)*state)->regions);
        ((struct world *)*state)->regions = NULL;
        assert_int_equal(cuda_gpu_fake.things(), 0);
    }
    return end(state);
}

static tdm_region *make_region(struct world *world, size_t size_bytes)
{
    const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = size_bytes, .policy = TDM_REGION_KEEP};
    tdm_region *region;

    TRY(tdm__region_create_shared(world->regions, &options, &region));
    return region;
}

static void fill(struct tdm__device *device, void *address, int byte, size_t size_bytes)
{
    char *bytes = malloc(size_bytes);

    memset(bytes, byte, size_bytes);
    TRY(device->ops->copy(device, address, bytes, size_bytes));
    TRY(device->ops->copy_flush(device));
    free(bytes);
}

static void assert_filled(struct tdm__device *device, const void *address, int byte,
                          size_t size_bytes)
{
    char *bytes = calloc(1, size_bytes);

    TRY(device->ops->copy(device, bytes, address, size_bytes));
    TRY(device->ops->copy_flush(device));
    assert_int_equal(bytes[0], byte);
    assert_memory_equal(bytes, bytes + 1, size_bytes - 1); /* All bytes are equal. */
    free(bytes);
}

static size_t region_bytes(void)
{
    return cuda_gpu_is_real() ? REAL_REGION : 8 * UNIT;
}

/* Free memory of the device once a first region was made and paused, so that page tables,
 * lazily loaded modules and the pinned memory of the arena are there already. */
static size_t free_bytes_after_first_use(struct world *world)
{
    tdm_region *region = make_region(world, region_bytes());

    fill(world->gpu->devices[0], tdm_region_address(region), 1, region_bytes());
    TRY(tdm_region_pause(region));
    tdm_region_destroy(region);
    return cuda_gpu_free_bytes(world->gpu);
}

/* The driver itself takes and returns some memory of a real GPU, so a tolerance is allowed. */
static void assert_free_bytes(struct world *world, size_t wanted)
{
    size_t found = cuda_gpu_free_bytes(world->gpu);
    size_t difference = found > wanted ? found - wanted : wanted - found;

    if (difference > (cuda_gpu_is_real() ? REAL_TOLERANCE : 0)) {
        fail_msg("%zu bytes are free, not %zu\n", found, wanted);
    }
}

/* Reads the free memory of the device, not of the broker. */
static void pause_frees_what_it_says(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    const size_t size_bytes = region_bytes();
    size_t before = free_bytes_after_first_use(world);
    tdm_region *region = make_region(world, size_bytes);

    fill(device, tdm_region_address(region), 5, size_bytes);
    assert_free_bytes(world, before - size_bytes);
    TRY(tdm_region_pause(region));
    assert_free_bytes(world, before);
    TRY(tdm_region_resume(region, 0));
    assert_filled(device, tdm_region_address(region), 5, size_bytes);
}

/* Goal: what an importer still maps is nobody's free memory, neither by the device nor by the
 * ledger, and becomes free with its unmapping. */
static void imported_block_is_free_only_after_its_importer_releases_it(void **state)
{
    struct world *world = *state;
    struct tdm__device *importer = world->gpu->devices[1];
    const size_t size_bytes = region_bytes();
    size_t before = free_bytes_after_first_use(world);
    tdm_region *region = make_region(world, size_bytes);
    struct tdm__broker_usage row;
    struct tdm__block *block;
    void *there;

    TRY(importer->ops->import(importer, &tdm__region_block(region)->key, &block));
    TRY(importer->ops->reserve(importer, size_bytes, &there));
    TRY(importer->ops->map(importer, there, block, TDM__READ_WRITE));
    TRY(tdm_region_pause(region));
    assert_free_bytes(world, before - size_bytes);
    assert_int_equal(tdm__broker_list_usage(world->gpu->broker, 0, &row, 1), 1);
    assert_int_equal(row.releasing_bytes, size_bytes);
    TRY(importer->ops->unmap(importer, there, size_bytes));
    importer->ops->release(importer, &block, 1);
    assert_free_bytes(world, before);
    assert_int_equal(cuda_gpu_used_bytes(world->gpu), 0);
    importer->ops->unreserve(importer, there, size_bytes);
}

/* The process ended: its handles are closed, and the broker learns of the exit. */
static void dead_importers_memory_comes_back(void **state)
{
    struct world *world = *state;
    size_t before = free_bytes_after_first_use(world);
    tdm_region *region = make_region(world, region_bytes());
    struct tdm__block_handle handle;

    TRY(tdm__broker_open_block(world->gpu->broker, &tdm__region_block(region)->key,
                               &world->gpu->tenants[1], &handle));
    TRY(tdm_region_pause(region));
    assert_free_bytes(world, before - region_bytes());
    tdm__broker_remove_tenant(world->gpu->broker, &world->gpu->tenants[1].id);
    assert_free_bytes(world, before);
}

static void full_device_is_named_with_its_numbers(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    const size_t size_bytes = UNIT;
    struct tdm__block *block;

    if (cuda_gpu_is_real()) {
        skip();
    }
    cuda_gpu_fake.break_call("cuMemCreate", 1, CU_OUT_OF_MEMORY);
    assert_int_equal(device->ops->create(device, "kv_cache", &size_bytes, 1, &block),
                     TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), world->gpu->uuid));
    assert_non_null(strstr(tdm_error_detail(), "cannot hold kv_cache: 2.0 MiB wanted"));
    assert_non_null(strstr(tdm_error_detail(), "CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)"));
}

static void error_has_the_drivers_name_and_the_calls_numbers(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    void *address;

    if (cuda_gpu_is_real()) {
        skip();
    }
    cuda_gpu_fake.break_call("cuMemAddressReserve", 1, CU_INVALID_VALUE);
    assert_int_equal(device->ops->reserve(device, UNIT, &address), TDM_E_DEVICE);
    assert_string_equal(tdm_error_detail(), "cuMemAddressReserve of 2097152 bytes: "
                                            "CUDA_ERROR_INVALID_VALUE (1: invalid argument)");
}

static void memory_of_a_gpu_has_no_descriptor(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    size_t size_bytes = device->granularity_bytes;
    struct tdm__block *block;
    int descriptor = -7;

    TRY(device->ops->create(device, "weights", &size_bytes, 1, &block));
    assert_int_equal(device->ops->descriptor(device, block, &descriptor), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), world->gpu->uuid));
    assert_int_equal(descriptor, -7);
    device->ops->release(device, &block, 1);
}

static void block_cannot_be_cut_in_two(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    tdm_region *region = make_region(world, 4 * UNIT);

    assert_int_equal(device->ops->unmap(device, (char *)tdm_region_address(region) + UNIT, UNIT),
                     TDM_E_INVAL);
    assert_int_equal(device->ops->unmap(device, tdm_region_address(region), UNIT), TDM_E_INVAL);
    fill(device, tdm_region_address(region), 1, 4 * UNIT);
}

/* ---- streams of other libraries ---------------------------------------------------------- */

/* Copies in front of the last one, which keep a real GPU busy for some tenths of a second. */
enum { COPIES_IN_FRONT = 1000 };

/* A stream that Tandem does not know, as PyTorch has them. */
static void *open_foreign_stream(struct world *world)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)world->gpu->devices[0];
    void *stream;
    TDM__CUDA_SCOPE(scope);

    TRY(tdm__cuda_enter(cuda, &scope));
    assert_int_equal(cuda->driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CU_SUCCESS);
    return stream;
}

/* Queues a long piece of work in the stream, whose last act writes the bytes of `from` to `to`. */
static void write_late(struct world *world, void *stream, tdm_region *to, tdm_region *from)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)world->gpu->devices[0];
    uint64_t target = (uint64_t)(uintptr_t)tdm_region_address(to);
    uint64_t source = (uint64_t)(uintptr_t)tdm_region_address(from);
    size_t half_bytes = tdm_region_size(from) / 2;
    TDM__CUDA_SCOPE(scope);

    TRY(tdm__cuda_enter(cuda, &scope));
    for (int i = 0; i < (cuda_gpu_is_real() ? COPIES_IN_FRONT : 2); i++) {
        assert_int_equal(
            cuda->driver->cuMemcpyAsync(source + half_bytes, source, half_bytes, stream),
            CU_SUCCESS);
    }
    assert_int_equal(cuda->driver->cuMemcpyAsync(target, source, 2 * half_bytes, stream),
                     CU_SUCCESS);
}

static void close_foreign_stream(struct world *world, void *stream)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)world->gpu->devices[0];
    TDM__CUDA_SCOPE(scope);

    TRY(tdm__cuda_enter(cuda, &scope));
    assert_int_equal(cuda->driver->cuStreamDestroy_v2(stream), CU_SUCCESS);
}

/* Goal: a paused region holds what the last kernel wrote, although the kernel was only queued. */
static void pause_keeps_what_is_queued_in_other_streams(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    const size_t size_bytes = region_bytes();
    tdm_region *source = make_region(world, size_bytes);
    tdm_region *target = make_region(world, size_bytes);
    void *stream = open_foreign_stream(world);

    fill(device, tdm_region_address(source), 9, size_bytes);
    fill(device, tdm_region_address(target), 1, size_bytes);
    write_late(world, stream, target, source);
    TRY(tdm_region_pause(target));
    TRY(tdm_region_resume(target, 0));
    assert_filled(device, tdm_region_address(target), 9, size_bytes);
    close_foreign_stream(world, stream);
}

/* Goal: queued work writes the memory that was at its address when it was queued. */
static void exchange_waits_for_other_streams(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    const size_t size_bytes = region_bytes();
    tdm_region *source = make_region(world, size_bytes);
    tdm_region *weights = make_region(world, size_bytes);
    tdm_region *shadow = make_region(world, size_bytes);
    void *stream = open_foreign_stream(world);

    fill(device, tdm_region_address(source), 9, size_bytes);
    fill(device, tdm_region_address(weights), 1, size_bytes);
    fill(device, tdm_region_address(shadow), 2, size_bytes);
    write_late(world, stream, weights, source);
    TRY(tdm__region_swap(weights, shadow));
    close_foreign_stream(world, stream);
    assert_filled(device, tdm_region_address(weights), 2, size_bytes);
    assert_filled(device, tdm_region_address(shadow), 9, size_bytes);
}

/* Goal: no kernel loses its memory, after which the process could use the GPU no more. */
static void unmapping_waits_for_other_streams(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    const struct tdm_region_options options = {
        .tag = "kv_cache", .size_bytes = region_bytes(), .policy = TDM_REGION_DROP};
    tdm_region *source = make_region(world, region_bytes());
    void *stream = open_foreign_stream(world);
    tdm_region *cache;

    fill(device, tdm_region_address(source), 9, region_bytes());
    TRY(tdm__region_create(world->regions, &options, &cache));
    write_late(world, stream, cache, source);
    TRY(tdm_region_pause(cache));
    TRY(tdm_region_resume(cache, 0));
    write_late(world, stream, cache, source);
    tdm_region_destroy(cache);
    close_foreign_stream(world, stream);
    assert_filled(device, tdm_region_address(source), 9, region_bytes());
}

/* Creates, fills, exchanges, pauses, resumes and reads two regions. */
static tdm_status live(struct world *world, tdm_region **regions)
{
    struct tdm__device *device = world->gpu->devices[0];
    const struct tdm_region_options options = {
        .tag = "weights", .size_bytes = 2 * UNIT, .policy = TDM_REGION_KEEP};
    static char bytes[2 * UNIT];

    for (int i = 0; i < 2; i++) {
        TDM_TRY(tdm__region_create(world->regions, &options, &regions[i]));
        memset(bytes, i + 1, sizeof(bytes));
        TDM_TRY(device->ops->copy(device, tdm_region_address(regions[i]), bytes, sizeof(bytes)));
        TDM_TRY(device->ops->copy_flush(device));
    }
    TDM_TRY(tdm__region_swap(regions[0], regions[1]));
    TDM_TRY(tdm__regions_pause(world->regions, NULL));
    return tdm__regions_resume(world->regions, NULL, 0);
}

/* The calling thread's current context by the driver itself. */
static void *current_context(void)
{
    const char *path = getenv("TANDEM_CUDA_LIBRARY");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*get_current)(void **context);
    void *context;

    assert_non_null(library);
    *(void **)&get_current = dlsym(library, "cuCtxGetCurrent");
    assert_non_null(get_current);
    assert_int_equal(get_current(&context), CU_SUCCESS);
    (void)dlclose(library);
    return context;
}

static void calls_leave_the_current_context_as_it_was(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    tdm_region *regions[2];

    assert_true(current_context() == NULL);
    TRY(live(world, regions));
    assert_true(current_context() == NULL);
    assert_filled(device, tdm_region_address(regions[0]), 2, 2 * UNIT);
    TRY(device->ops->synchronize(device));
    tdm_region_destroy(regions[0]);
    tdm_region_destroy(regions[1]);
    assert_true(current_context() == NULL);
}

/* Goal: a driver call that fails leaves nothing in the ledger, and what is resident keeps its
 * bytes.  Method: each call of a life fails once, in a life of its own.  What cannot be
 * released because the release itself fails stays in the process; nothing else does. */
static void every_driver_call_may_fail(void **state)
{
    struct world *world = *state;
    struct tdm__device *device = world->gpu->devices[0];
    uint64_t calls = 0;
    uint64_t nth = 0;

    if (cuda_gpu_is_real()) {
        skip();
    }
    do {
        tdm_region *regions[2] = {NULL, NULL};
        tdm_status status;

        nth++;
        cuda_gpu_fake.break_call("*", nth, CU_INVALID_VALUE);
        status = live(world, regions);
        calls = cuda_gpu_fake.calls();
        cuda_gpu_fake.break_call("", 0, 0);
        if (status == TDM_OK) {
            assert_filled(device, tdm_region_address(regions[0]), 2, 2 * UNIT);
            assert_filled(device, tdm_region_address(regions[1]), 1, 2 * UNIT);
        }
        tdm_region_destroy(regions[0]);
        tdm_region_destroy(regions[1]);
        if (cuda_gpu_used_bytes(world->gpu) != 0) {
            fail_msg("call %d left %zu bytes", (int)nth, cuda_gpu_used_bytes(world->gpu));
        }
    } while (calls >= nth); /* In the last run every call of the driver succeeded. */
    assert_true(calls > 60);
    assert_true(cuda_gpu_fake.things() <= 4);
}

/* Maps the block on the device for reading only and returns its last byte. Unmaps it. */
static unsigned char read_through_mapping(struct tdm__device *device, struct tdm__block *block)
{
    unsigned char last = 0;
    void *address;

    TRY(device->ops->reserve(device, region_bytes(), &address));
    TRY(device->ops->map(device, address, block, TDM__READ_ONLY));
    TRY(device->ops->copy(device, &last, (const char *)address + region_bytes() - 1, 1));
    TRY(device->ops->copy_flush(device));
    TRY(device->ops->unmap(device, address, region_bytes()));
    device->ops->unreserve(device, address, region_bytes());
    return last;
}

/* Goal: a driver that refuses mappings for reading only is asked once, and the memory is then
 * mapped for reading and writing. */
static void refused_read_only_mapping_is_made_for_writing(void **state)
{
    struct world *world = *state;
    struct tdm__device *owner = world->gpu->devices[0];
    struct tdm__device *importer = world->gpu->devices[1];
    struct tdm__block *imported;
    tdm_region *region;

    if (cuda_gpu_is_real()) {
        skip();
    }
    region = make_region(world, region_bytes());
    fill(owner, tdm_region_address(region), 5, region_bytes());
    TRY(importer->ops->import(importer, &tdm__region_block(region)->key, &imported));
    (void)setenv("FAKE_CUDA_REFUSE_READ_ONLY", "1", 1);
    cuda_gpu_fake.break_call("cuMemSetAccess", UINT64_MAX, CU_SUCCESS); /* Counts the calls. */
    assert_int_equal(read_through_mapping(importer, imported), 5);
    assert_int_equal(cuda_gpu_fake.calls(), 2);
    assert_int_equal(read_through_mapping(importer, imported), 5);
    assert_int_equal(cuda_gpu_fake.calls(), 3);
    cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
    (void)unsetenv("FAKE_CUDA_REFUSE_READ_ONLY");
    importer->ops->release(importer, &imported, 1);
    tdm_region_destroy(region);
}

static void unknown_gpu_is_refused_with_those_there_are(void **state)
{
    struct world *world = *state;
    struct tdm__device *device;

    assert_int_equal(tdm__device_cuda_kind.open(world->gpu->clients[0], 0,
                                                "GPU-00000000-0000-0000-0000-000000000000",
                                                &device),
                     TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), world->gpu->uuid));
}

int main(void)
{
    static const struct device_suite_maker plain = {open_cuda, close_gpu};
    static const struct device_suite_maker deferring = {open_deferring, close_gpu};
    static const struct device_suite_maker faulty = {open_faulty, close_gpu};
#define TEST(promise) cmocka_unit_test_setup_teardown(promise, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(pause_frees_what_it_says),
        TEST(imported_block_is_free_only_after_its_importer_releases_it),
        TEST(dead_importers_memory_comes_back),
        TEST(full_device_is_named_with_its_numbers),
        TEST(error_has_the_drivers_name_and_the_calls_numbers),
        TEST(memory_of_a_gpu_has_no_descriptor),
        TEST(block_cannot_be_cut_in_two),
        TEST(refused_read_only_mapping_is_made_for_writing),
        TEST(unknown_gpu_is_refused_with_those_there_are),
        TEST(pause_keeps_what_is_queued_in_other_streams),
        TEST(exchange_waits_for_other_streams),
        TEST(unmapping_waits_for_other_streams),
        TEST(calls_leave_the_current_context_as_it_was),
        cmocka_unit_test_setup_teardown(every_driver_call_may_fail, set_up, end), /* last */
    };
    int failed;

    cuda_gpu_choose(2 * CAPACITY);
    failed = device_suite_run("cuda", &plain) + device_suite_run("cuda, late copies", &deferring) +
             device_suite_run("faulty cuda", &faulty) +
             cmocka_run_group_tests_name("of cuda alone", tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
