/* copy_engine_test.c - copy operations on a GPU give the same bits and checksums as on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/driver_api.h"
#include "colocate/transfer/copy_op.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIT   ((size_t)2 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

enum { ROOM_BYTES = 1 << 20, PARTS_MAX = 1500, ROUNDS = 12, SCALES = 64 };

/* The same bytes twice: on the GPU, in two half blocks, and in host memory. */
struct world {
    struct test_random chance;
    struct cuda_gpu *gpu;
    struct tdm__device *device;
    struct tdm__block *block;
    unsigned char *gpu_from;
    unsigned char *gpu_to;
    unsigned char *pinned; /* Copy of the source in pinned host memory. */
    float *scales;         /* Given scales in pinned host memory. */
    unsigned char *from;
    unsigned char *to;
    struct tdm__copy_op parts[PARTS_MAX];
    struct tdm__copy_op gpu_parts[PARTS_MAX];
    uint64_t sums[PARTS_MAX];
    uint64_t gpu_sums[PARTS_MAX];
    uint32_t count;
    size_t to_used;
};

static void copy(const struct world *world, void *to, const void *from, size_t size_bytes)
{
    TRY(world->device->ops->copy(world->device, to, from, size_bytes));
    TRY(world->device->ops->copy_flush(world->device));
}

/* Fills memory with numbers of all magnitudes, signs and special values, as float32 and bfloat16.
 */
static void fill_sources(struct world *world)
{
    for (size_t i = 0; i < ROOM_BYTES; i += sizeof(uint32_t)) {
        uint32_t bits = (uint32_t)test_random_next(&world->chance);

        if (test_random_below(&world->chance, 4) != 0) { /* Magnitude of typical weights. */
            bits = (bits & 0x83ffffff) | 0x38000000;
        }
        memcpy(world->from + i, &bits, sizeof(bits));
    }
    for (uint32_t i = 0; i < SCALES; i++) {
        world->scales[i] = 1e-6f * (float)(1 + test_random_below(&world->chance, 1000));
    }
    memcpy(world->pinned, world->from, ROOM_BYTES);
    copy(world, world->gpu_from, world->from, ROOM_BYTES);
}

static void start_round(struct world *world)
{
    memset(world->to, 0xab, ROOM_BYTES);
    copy(world, world->gpu_to, world->to, ROOM_BYTES);
    world->count = 0;
    world->to_used = 0;
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    const size_t size_bytes = UNIT;
    void *address;

    assert_non_null(world);
    world->chance = test_random_init("move", 7);
    world->gpu = cuda_gpu_open(64 * UNIT, false);
    world->device = world->gpu->devices[0];
    if (!cuda_gpu_is_real()) {
        cuda_gpu_fake.defer(true);
    }
    TRY(world->device->ops->reserve(world->device, size_bytes, &address));
    TRY(world->device->ops->create(world->device, "weights", &size_bytes, 1, &world->block));
    TRY(world->device->ops->map(world->device, address, world->block, TDM__READ_WRITE));
    world->gpu_from = address;
    world->gpu_to = world->gpu_from + ROOM_BYTES;
    TRY(world->device->ops->host_alloc(world->device, ROOM_BYTES, &address));
    world->pinned = address;
    TRY(world->device->ops->host_alloc(world->device, SCALES * sizeof(*world->scales), &address));
    world->scales = address;
    world->from = malloc(ROOM_BYTES);
    world->to = malloc(ROOM_BYTES);
    fill_sources(world);
    start_round(world);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    TRY(world->device->ops->unmap(world->device, world->gpu_from, UNIT));
    world->device->ops->release(world->device, &world->block, 1);
    world->device->ops->unreserve(world->device, world->gpu_from, UNIT);
    world->device->ops->host_free(world->device, world->pinned, ROOM_BYTES);
    world->device->ops->host_free(world->device, world->scales, SCALES * sizeof(*world->scales));
    cuda_gpu_close(world->gpu);
    if (!cuda_gpu_is_real()) {
        assert_int_equal(cuda_gpu_fake.things(), 0);
    }
    free(world->from);
    free(world->to);
    free(world);
    return 0;
}

/* ---- parts ------------------------------------------------------------------------------ */

struct kind {
    enum tdm__conversion conversion;
    enum tdm_dtype from;
    enum tdm_dtype to;
};

static struct kind choose_kind(struct world *world)
{
    static const struct kind kinds[] = {
        {TDM__CONVERT_NONE, TDM_U8, TDM_U8},       {TDM__CONVERT_NONE, TDM_BF16, TDM_BF16},
        {TDM__CONVERT_NONE, TDM_F32, TDM_F32},     {TDM__CONVERT_NONE, TDM_I64, TDM_I64},
        {TDM__CONVERT_BF16, TDM_F32, TDM_BF16},    {TDM__CONVERT_FP8, TDM_F32, TDM_F8_E4M3},
        {TDM__CONVERT_FP8, TDM_BF16, TDM_F8_E4M3}, {TDM__CONVERT_SCALES, TDM_F32, TDM_F32},
        {TDM__CONVERT_SCALES, TDM_BF16, TDM_F32},
    };

    return kinds[test_random_below(&world->chance, sizeof(kinds) / sizeof(kinds[0]))];
}

/* Where there is room for it, if there is: ends at any byte, if nothing is converted. */
static bool place(struct world *world, const struct tdm__copy_op *shape)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(shape);
    uint32_t least = shape->conversion == TDM__CONVERT_NONE ? 0 : 2;
    size_t align = (size_t)1 << (least + test_random_below(&world->chance, 5 - least));
    size_t from_bytes =
        shape->rows * shape->from_pitch * tdm_dtype_bytes((enum tdm_dtype)shape->from_dtype);
    size_t to = (world->to_used + align - 1) / align * align;
    struct tdm__copy_op part = *shape;
    size_t from;

    if (from_bytes + align > ROOM_BYTES || to + rows.count * rows.to_pitch > ROOM_BYTES ||
        world->count == PARTS_MAX) {
        return false;
    }
    from = test_random_below(&world->chance, (uint32_t)(ROOM_BYTES - from_bytes)) / align * align;
    part.from = world->from + from;
    part.to = world->to + to;
    world->parts[world->count] = part;
    part.from =
        test_random_below(&world->chance, 2) == 0 ? world->pinned + from : world->gpu_from + from;
    part.to = world->gpu_to + to;
    world->gpu_parts[world->count++] = part;
    world->to_used = to + rows.count * rows.to_pitch;
    return true;
}

static void drop_end(struct tdm__copy_op *part, bool from)
{
    if (from) {
        part->from = NULL;
    } else {
        part->to = NULL;
    }
}

/* Half of the conversions to FP8 use given scales, of up to four blocks in each direction or all
 * that exist. */
static void give_scales(struct world *world, struct tdm__copy_op *part)
{
    if (part->conversion == TDM__CONVERT_FP8 && test_random_below(&world->chance, 2) == 0) {
        part->scales = world->scales + test_random_below(&world->chance, SCALES / 4);
        part->scales_pitch = 4 + test_random_below(&world->chance, 8);
    }
}

/* Sometimes nothing is written, or zeros are written. */
static bool add_part(struct world *world, uint32_t rows_max, uint32_t columns_max)
{
    const struct kind kind = choose_kind(world);
    struct tdm__copy_op part = {.rows = test_random_below(&world->chance, rows_max + 1),
                                .columns = test_random_below(&world->chance, columns_max + 1),
                                .conversion = (uint8_t)kind.conversion,
                                .from_dtype = (uint8_t)kind.from,
                                .to_dtype = (uint8_t)kind.to};
    uint32_t choice = test_random_below(&world->chance, 8);

    part.from_pitch = part.columns + (uint64_t)test_random_below(&world->chance, 3) * 8;
    part.to_pitch = part.columns + (uint64_t)test_random_below(&world->chance, 3) * 8;
    give_scales(world, &part);
    if (!place(world, &part)) {
        return false;
    }
    if (choice == 0 || (choice == 1 && kind.conversion == TDM__CONVERT_NONE)) {
        drop_end(&world->parts[world->count - 1], choice == 1);
        drop_end(&world->gpu_parts[world->count - 1], choice == 1);
    }
    return true;
}

static tdm_status move(struct world *world)
{
    return world->device->ops->move(world->device, world->gpu_parts, world->count, world->gpu_sums);
}

static void assert_moved(struct world *world)
{
    unsigned char *there = malloc(ROOM_BYTES);

    for (uint32_t i = 0; i < world->count; i++) {
        TRY(tdm__copy_op_execute(&world->parts[i], &world->sums[i]));
        if (world->gpu_sums[i] != world->sums[i]) {
            const struct tdm__copy_op *part = &world->parts[i];

            fail_msg("part %u, conversion %d, %llu x %llu: another sum", i, part->conversion,
                     (unsigned long long)part->rows, (unsigned long long)part->columns);
        }
    }
    copy(world, there, world->gpu_to, ROOM_BYTES);
    for (size_t i = 0; i < ROOM_BYTES; i++) {
        if (there[i] != world->to[i]) {
            fail_msg("byte %zu is %d, not %d", i, there[i], world->to[i]);
        }
    }
    free(there);
}

/* ---- promises --------------------------------------------------------------------------- */

static void any_parts_have_the_bits_and_sums_of_the_host(void **state)
{
    struct world *world = *state;

    for (int round = 0; round < ROUNDS; round++) {
        start_round(world);
        while (add_part(world, 300, 400)) {
        }
        TRY(move(world));
        assert_moved(world);
    }
}

/* The bits and sums do not depend on how many threads a block of the grid has. */
static void any_number_of_threads_gives_the_same(void **state)
{
    static const char *const threads[] = {"1", "4", "64", "256"};
    struct world *world = *state;

    if (cuda_gpu_is_real()) {
        skip();
    }
    for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
        (void)setenv("FAKE_CUDA_THREADS", threads[i], 1);
        start_round(world);
        while (world->count < 24 && add_part(world, 150, 300)) {
        }
        TRY(move(world));
        assert_moved(world);
    }
    (void)unsetenv("FAKE_CUDA_THREADS");
}

/* Uses more operations than a launch takes, and more than the first capacity. */
static void many_parts_go_in_batches(void **state)
{
    struct world *world = *state;

    while (add_part(world, 3, 40)) {
    }
    assert_int_equal(world->count, PARTS_MAX);
    TRY(move(world));
    assert_moved(world);
}

static void no_parts_are_nothing_to_do(void **state)
{
    struct world *world = *state;

    TRY(move(world));
    assert_moved(world);
}

/* Memory that another process created is mapped and used like this process's memory. */
static void importers_mapping_is_written(void **state)
{
    struct world *world = *state;
    struct tdm__device *importer = world->gpu->devices[1];
    struct tdm__block *block;
    unsigned char *there;
    void *address;

    TRY(importer->ops->import(importer, &world->block->key, &block));
    TRY(importer->ops->reserve(importer, UNIT, &address));
    TRY(importer->ops->map(importer, address, block, TDM__READ_WRITE));
    there = address;
    while (add_part(world, 300, 400)) {
        struct tdm__copy_op *part = &world->gpu_parts[world->count - 1];

        part->from = part->from == NULL ? NULL : world->pinned;
        world->parts[world->count - 1].from = part->from;
        part->to = part->to == NULL ? NULL : there + ((unsigned char *)part->to - world->gpu_from);
    }
    TRY(importer->ops->move(importer, world->gpu_parts, world->count, world->gpu_sums));
    assert_moved(world);
    TRY(importer->ops->unmap(importer, address, UNIT));
    importer->ops->unreserve(importer, address, UNIT);
    importer->ops->release(importer, &block, 1);
}

/* Goal: a call that fails is told, whatever it was, and the next try is as good as new.
 * Method: each driver call of a move fails once, in a device of its own. */
static void every_driver_call_may_fail(void **state)
{
    struct world *world = *state;
    uint64_t nth = 0;
    uint64_t calls;

    if (cuda_gpu_is_real()) {
        skip();
    }
    while (add_part(world, 30, 300)) {
    }
    do {
        tdm_status status;

        tdm__device_close(world->gpu->devices[1]);
        TRY(tdm__device_cuda_kind.open(world->gpu->clients[1], 0, world->gpu->uuid,
                                       &world->gpu->devices[1]));
        nth++;
        cuda_gpu_fake.break_call("*", nth, CU_OUT_OF_MEMORY);
        status = world->gpu->devices[1]->ops->move(world->gpu->devices[1], world->gpu_parts,
                                                   world->count, world->gpu_sums);
        calls = cuda_gpu_fake.calls();
        cuda_gpu_fake.break_call("", 0, 0);
        assert_true(status == (calls >= nth ? TDM_E_DEVICE_FULL : TDM_OK) || status == TDM_E_NOMEM);
        TRY(world->gpu->devices[1]->ops->move(world->gpu->devices[1], world->gpu_parts,
                                              world->count, world->gpu_sums));
        assert_moved(world);
    } while (calls >= nth); /* In the last move every call of the driver succeeded. */
    assert_true(nth > 12);
}

/* Returns whether kernels are available; prints why not. */
static bool has_kernels(void)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    const struct tdm__copy_op zeros = {.rows = 1, .columns = 0};
    uint64_t sum;
    tdm_status status = gpu->devices[0]->ops->move(gpu->devices[0], &zeros, 1, &sum);

    if (status != TDM_OK) {
        (void)printf("skipped: %s\n", tdm_error_detail());
    }
    cuda_gpu_close(gpu);
    return status == TDM_OK;
}

int main(void)
{
#define TEST(promise) cmocka_unit_test_setup_teardown(promise, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(any_parts_have_the_bits_and_sums_of_the_host),
        TEST(any_number_of_threads_gives_the_same),
        TEST(many_parts_go_in_batches),
        TEST(no_parts_are_nothing_to_do),
        TEST(importers_mapping_is_written),
        TEST(every_driver_call_may_fail),
    };
    int failed;

    cuda_gpu_choose(64 * UNIT);
    if (!has_kernels()) {
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
