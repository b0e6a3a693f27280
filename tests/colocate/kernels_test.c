/* kernels_test.c - rectangles, casts and FP8 on the GPU: the same bits as on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/kernels.h"
#include "colocate/plan/fp8.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

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

enum { ROWS = 200, COLUMNS = 300, PITCH = 320, ELEMENTS = ROWS * PITCH };

struct world {
    struct cuda_gpu *gpu;
    struct tdm__device *device;
    struct tdm__cuda_kernels *kernels;
    struct tdm__block *block;
    char *from; /* on the GPU: half of a block each */
    char *to;
};

static int set_up(void **state)
{
    static struct world world;
    const size_t size_bytes = UNIT;
    void *address;

    world.gpu = cuda_gpu_open(64 * UNIT, false);
    world.device = world.gpu->devices[0];
    if (!cuda_gpu_is_real()) {
        cuda_gpu_standin.defer(true);
    }
    TRY(tdm__cuda_kernels_open(world.device, &world.kernels));
    TRY(world.device->ops->reserve(world.device, size_bytes, &address));
    TRY(world.device->ops->create(world.device, "weights", &size_bytes, 1, &world.block));
    TRY(world.device->ops->map(world.device, address, world.block, TDM__READ_WRITE));
    world.from = address;
    world.to = world.from + UNIT / 2;
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    TRY(world->device->ops->unmap(world->device, world->from, UNIT));
    world->device->ops->release(world->device, &world->block, 1);
    world->device->ops->unreserve(world->device, world->from, UNIT);
    tdm__cuda_kernels_close(world->kernels);
    cuda_gpu_close(world->gpu);
    return 0;
}

static void put(const struct world *world, char *address, const void *bytes, size_t size_bytes)
{
    TRY(world->device->ops->copy(world->device, address, bytes, size_bytes));
    TRY(world->device->ops->copy_flush(world->device));
}

static void get(const struct world *world, void *bytes, const char *address, size_t size_bytes)
{
    TRY(world->device->ops->copy(world->device, bytes, address, size_bytes));
    TRY(world->device->ops->copy_flush(world->device));
}

/* Numbers of all sizes, signs and special kinds; the same in every run. */
static float number(uint32_t i)
{
    uint32_t bits = i * 2654435761u;
    float value;

    bits = i % 97 == 0 ? bits | 0x7f000000u : bits;  /* large, infinite, no number */
    bits = i % 101 == 0 ? bits & 0x80ffffffu : bits; /* tiny */
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Of the size that weights have. */
static float weight(uint32_t i)
{
    return (float)(int32_t)(i * 2654435761u) * 0x1p-31f * (i % 7 == 0 ? 1e-4f : 0.1f);
}

static void rectangles_are_copied_in_units_of_every_size(void **state)
{
    const struct world *world = *state;
    unsigned char *before = malloc(UNIT / 2);
    unsigned char *after = malloc(UNIT / 2);

    for (size_t i = 0; i < UNIT / 2; i++) {
        before[i] = (unsigned char)(i * 7 + i / 251);
    }
    for (unsigned unit = 1; unit <= 16; unit *= 2) {
        const struct tdm__cuda_rectangle r = {.from = world->from,
                                              .to = world->to + (size_t)16 * unit,
                                              .rows = 50,
                                              .columns = 33,
                                              .from_pitch = 64,
                                              .to_pitch = 40,
                                              .unit_bytes = unit};

        put(world, world->from, before, UNIT / 2);
        memset(after, 0, UNIT / 2);
        put(world, world->to, after, UNIT / 2);
        TRY(tdm__cuda_kernels_run(world->kernels, TDM__CUDA_COPY, &r, 1));
        TRY(world->device->ops->copy_flush(world->device)); /* the way back is another stream */
        get(world, after, world->to, UNIT / 2);
        for (size_t row = 0; row < 50; row++) {
            assert_memory_equal(after + (16 + row * 40) * unit, before + row * 64 * unit,
                                (size_t)33 * unit);
            assert_int_equal(after[(16 + row * 40 + 33) * unit], 0); /* nothing beside it */
        }
    }
    free(before);
    free(after);
}

/* More than one launch takes. */
static void many_rectangles_go_in_batches(void **state)
{
    const struct world *world = *state;
    struct tdm__cuda_rectangle rectangles[150];
    unsigned char bytes[150 * 8];
    unsigned char back[150 * 8];

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i * 13);
    }
    put(world, world->from, bytes, sizeof(bytes));
    for (uint32_t i = 0; i < 150; i++) { /* in the reverse order */
        rectangles[i] = (struct tdm__cuda_rectangle){.from = world->from + (size_t)i * 8,
                                                     .to = world->to + (size_t)(149 - i) * 8,
                                                     .rows = 1,
                                                     .columns = 1,
                                                     .unit_bytes = 8};
    }
    TRY(tdm__cuda_kernels_run(world->kernels, TDM__CUDA_COPY, rectangles, 150));
    TRY(world->device->ops->copy_flush(world->device));
    get(world, back, world->to, sizeof(back));
    for (size_t i = 0; i < 150; i++) {
        assert_memory_equal(back + i * 8, bytes + (149 - i) * 8, 8);
    }
}

static void casts_have_the_bits_of_the_host(void **state)
{
    const struct world *world = *state;
    const struct tdm__cuda_rectangle r = {.from = world->from,
                                          .to = world->to,
                                          .rows = ROWS,
                                          .columns = COLUMNS,
                                          .from_pitch = PITCH,
                                          .to_pitch = COLUMNS};
    float *numbers = malloc(ELEMENTS * sizeof(float));
    uint16_t *cast = malloc(ELEMENTS * sizeof(uint16_t));

    for (uint32_t i = 0; i < ELEMENTS; i++) {
        numbers[i] = cuda_gpu_is_real() ? number(i) : weight(i);
    }
    put(world, world->from, numbers, ELEMENTS * sizeof(float));
    TRY(tdm__cuda_kernels_run(world->kernels, TDM__CUDA_CAST, &r, 1));
    TRY(world->device->ops->copy_flush(world->device));
    get(world, cast, world->to, (size_t)ROWS * COLUMNS * sizeof(uint16_t));
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t column = 0; column < COLUMNS; column++) {
            assert_int_equal(cast[row * COLUMNS + column],
                             tdm__bf16_of(numbers[row * PITCH + column]));
        }
    }
    free(numbers);
    free(cast);
}

static void fp8_blocks_have_the_bits_of_the_host(void **state)
{
    const struct world *world = *state;
    struct tdm__cuda_rectangle r = {.from = world->from,
                                    .to = world->to,
                                    .scales = (float *)(void *)(world->to + UNIT / 4),
                                    .rows = ROWS,
                                    .columns = COLUMNS,
                                    .from_pitch = PITCH,
                                    .to_pitch = COLUMNS,
                                    .scales_pitch = 3,
                                    .unit_bytes = sizeof(float)};
    float *numbers = malloc(ELEMENTS * sizeof(float));
    uint8_t *here = malloc((size_t)ROWS * COLUMNS);
    uint8_t *there = malloc((size_t)ROWS * COLUMNS);
    float scales_here[6];
    float scales_there[6];
    const struct tdm__matrix from = {numbers, TDM_F32, ROWS, COLUMNS, PITCH};
    const struct tdm__fp8_matrix to = {here, scales_here, COLUMNS, 3};

    if (!cuda_gpu_is_real()) {
        assert_int_equal(tdm__cuda_kernels_run(world->kernels, TDM__CUDA_QUANTIZE, &r, 1),
                         TDM_E_DEVICE);
        free(numbers);
        free(here);
        free(there);
        return;
    }
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        numbers[i] = weight(i);
    }
    put(world, world->from, numbers, ELEMENTS * sizeof(float));
    tdm__fp8_quantize(&from, &to);
    TRY(tdm__cuda_kernels_run(world->kernels, TDM__CUDA_QUANTIZE, &r, 1));
    TRY(world->device->ops->copy_flush(world->device));
    get(world, there, world->to, (size_t)ROWS * COLUMNS);
    get(world, scales_there, world->to + UNIT / 4, sizeof(scales_there));
    assert_memory_equal(scales_there, scales_here, sizeof(scales_here));
    assert_memory_equal(there, here, (size_t)ROWS * COLUMNS);
    free(numbers);
    free(here);
    free(there);
}

/* Whether there are kernels to be tried; says why not. */
static bool has_kernels(void)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__cuda_kernels *kernels = NULL;
    tdm_status status = tdm__cuda_kernels_open(gpu->devices[0], &kernels);

    if (status != TDM_OK) {
        (void)printf("skipped: %s\n", tdm_error_detail());
    }
    tdm__cuda_kernels_close(kernels);
    cuda_gpu_close(gpu);
    return status == TDM_OK;
}

/* The stand-in looks only at an image's mark. */
static void make_image(char *path, size_t room)
{
    FILE *file;

    (void)snprintf(path, room, "%s/kernels.ptx", getenv("STANDIN_CUDA_DIRECTORY"));
    file = fopen(path, "we");
    assert_non_null(file);
    (void)fputs("// no kernels\n", file);
    (void)fclose(file);
    (void)setenv("TANDEM_CUDA_KERNELS", path, 1);
}

static void a_file_that_is_no_image_is_refused(void **state)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    const char *path = getenv("TANDEM_CUDA_KERNELS");
    char *kept = path != NULL ? strdup(path) : NULL;
    struct tdm__cuda_kernels *kernels;

    (void)state;
    (void)setenv("TANDEM_CUDA_KERNELS", "/nowhere/kernels", 1);
    assert_int_equal(tdm__cuda_kernels_open(gpu->devices[0], &kernels), TDM_E_IO);
    (void)setenv("TANDEM_CUDA_KERNELS", "/dev/null", 1);
    assert_int_equal(tdm__cuda_kernels_open(gpu->devices[0], &kernels), TDM_E_LIMIT);
    if (kept != NULL) {
        (void)setenv("TANDEM_CUDA_KERNELS", kept, 1);
    } else {
        (void)unsetenv("TANDEM_CUDA_KERNELS");
    }
    free(kept);
    cuda_gpu_close(gpu);
}

int main(void)
{
#define TEST(promise) cmocka_unit_test_setup_teardown(promise, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_no_image_is_refused),
        TEST(rectangles_are_copied_in_units_of_every_size),
        TEST(many_rectangles_go_in_batches),
        TEST(casts_have_the_bits_of_the_host),
        TEST(fp8_blocks_have_the_bits_of_the_host),
    };
    char path[300];
    int failed;

    cuda_gpu_choose(64 * UNIT);
    if (!cuda_gpu_is_real()) {
        make_image(path, sizeof(path));
    } else if (!has_kernels()) {
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
