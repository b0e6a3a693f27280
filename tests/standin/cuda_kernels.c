/* cuda_kernels.c - the stand-in for the CUDA driver: Tandem's kernels, by their names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/kernels_api.h"
#include "tests/standin/cuda.h"

#include <stdlib.h>
#include <string.h>

/* Copies and casts; quantizing is left to real GPUs, as its reference is not in here. */
enum work { COPY = 1, CAST };

static const char *const names[] = {"", "tandem_copy", "tandem_cast", "tandem_quantize"};

struct standin_kernel {
    enum work work;
    unsigned count;
    struct tdm__cuda_batch batch;
};

static uint64_t at(const void *base, uint64_t offset)
{
    return (uint64_t)(uintptr_t)base + offset;
}

static int cast_row(const struct tdm__cuda_rectangle *r, uint64_t to, uint64_t from)
{
    uint32_t *bits = malloc(r->columns * sizeof(uint32_t));
    uint16_t *cast = malloc(r->columns * sizeof(uint16_t));
    int result = CU_OUT_OF_MEMORY;

    if (bits != NULL && cast != NULL) {
        result = standin_copy((uint64_t)(uintptr_t)bits, from, r->columns * sizeof(*bits));
        for (unsigned i = 0; i < r->columns; i++) {
            cast[i] = (uint16_t)((bits[i] + 0x7fff + (bits[i] >> 16 & 1)) >> 16);
        }
    }
    if (result == CU_SUCCESS) {
        result = standin_copy(to, (uint64_t)(uintptr_t)cast, r->columns * sizeof(*cast));
    }
    free(bits);
    free(cast);
    return result;
}

static int run_rectangle(enum work work, const struct tdm__cuda_rectangle *r)
{
    size_t from_unit = work == CAST ? 4 : r->unit_bytes;
    size_t to_unit = work == CAST ? 2 : r->unit_bytes;
    int result = CU_SUCCESS;

    for (uint64_t row = 0; row < r->rows && result == CU_SUCCESS; row++) {
        uint64_t to = at(r->to, row * r->to_pitch * to_unit);
        uint64_t from = at(r->from, row * r->from_pitch * from_unit);

        result = work == CAST ? cast_row(r, to, from)
                              : standin_copy(to, from, r->columns * from_unit);
    }
    return result;
}

int standin_kernel_run(struct standin_kernel *kernel)
{
    int result = CU_SUCCESS;

    for (unsigned i = 0; i < kernel->count && result == CU_SUCCESS; i++) {
        result = run_rectangle(kernel->work, &kernel->batch.rectangles[i]);
    }
    free(kernel);
    return result;
}

/* An image begins with its format's mark: nvcc's fat binary, an ELF, or PTX text. */
int cuModuleLoadData(void **module, const void *image)
{
    static int loaded;

    ENTER();
    if (memcmp(image, "\x50\xed\x55\xba", 4) != 0 &&
        memcmp(image,
               "\x7f"
               "ELF",
               4) != 0 &&
        memcmp(image, "//", 2) != 0) {
        return CU_NO_BINARY_FOR_GPU;
    }
    *module = &loaded;
    return CU_SUCCESS;
}

int cuModuleUnload(void *module)
{
    ENTER();
    return module != NULL ? CU_SUCCESS : CU_INVALID_HANDLE;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    ENTER();
    if (module == NULL) {
        return CU_INVALID_HANDLE;
    }
    for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            *function = (void *)(uintptr_t)&names[i];
            return CU_SUCCESS;
        }
    }
    return CU_NOT_FOUND;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **arguments, void **extra)
{
    size_t index = (size_t)((const char *const *)function - names);
    struct standin_kernel *kernel;

    ENTER();
    if (grid_x == 0 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
        block_z != 1 || shared_bytes != 0 || extra != NULL || grid_y > TDM__CUDA_BATCH_MAX) {
        return CU_INVALID_VALUE;
    }
    if (index != COPY && index != CAST) {
        return CU_NOT_SUPPORTED;
    }
    kernel = malloc(sizeof(*kernel));
    if (kernel == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    kernel->work = (enum work)index;
    kernel->count = grid_y;
    memcpy(&kernel->batch, arguments[0], sizeof(kernel->batch));
    return standin_submit_kernel(stream, kernel);
}
