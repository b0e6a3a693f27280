/* cuda_kernels.c - the fake library for the CUDA driver: modules, and Tandem's own kernels. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"
#include "tests/fake/kernel_shim.h"

#include "colocate/device/cuda/kernels.cu"

#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 8 };

/* Most blocks in a row of the grid. It is also the least number of threads of a row, because
 * kernels rely on a multiple of four threads. */
enum { BLOCKS_MAX = 4 };

/* A kernel by its name: the sizes of its arguments, and what each thread executes; NULL if it
 * writes to a wrong address. */
struct entry {
    const char *name;
    size_t arguments_bytes[ARGUMENTS_MAX];
    fake_kernel_body *body;
};

/* The copy of the argument is not watched. */
#define BATCH_KERNEL(name)                                                                         \
    __attribute__((no_sanitize("thread"))) static void body_of_##name(const void *argument)        \
    {                                                                                              \
        name(*(const struct tdm__cuda_batch *)argument);                                           \
    }

BATCH_KERNEL(tandem_copy)
BATCH_KERNEL(tandem_cast)
BATCH_KERNEL(tandem_quantize)
BATCH_KERNEL(tandem_scales)

static const struct entry entries[] = {
    {"tandem_copy", {sizeof(struct tdm__cuda_batch)}, body_of_tandem_copy},
    {"tandem_cast", {sizeof(struct tdm__cuda_batch)}, body_of_tandem_cast},
    {"tandem_quantize", {sizeof(struct tdm__cuda_batch)}, body_of_tandem_quantize},
    {"tandem_scales", {sizeof(struct tdm__cuda_batch)}, body_of_tandem_scales},
    {"tandem_fault", {0}, NULL}, /* of tests/gpu/sticky.c */
};

enum { ENTRIES = sizeof(entries) / sizeof(entries[0]) };

struct fake_kernel {
    const struct entry *entry;
    struct fake_shape shape;
    void *arguments[ARGUMENTS_MAX]; /* owned copies */
};

static void free_kernel(struct fake_kernel *kernel)
{
    for (int i = 0; i < ARGUMENTS_MAX; i++) {
        free(kernel->arguments[i]);
    }
    free(kernel);
}

static struct fake_kernel *make_kernel(const struct entry *entry, const struct fake_shape *shape,
                                       void *const *arguments)
{
    struct fake_kernel *kernel = calloc(1, sizeof(*kernel));

    if (kernel == NULL) {
        abort();
    }
    kernel->entry = entry;
    kernel->shape = *shape;
    for (int i = 0; i < ARGUMENTS_MAX && entry->arguments_bytes[i] > 0; i++) {
        kernel->arguments[i] = malloc(entry->arguments_bytes[i]);
        if (kernel->arguments[i] == NULL) {
            abort();
        }
        memcpy(kernel->arguments[i], arguments[i], entry->arguments_bytes[i]);
    }
    return kernel;
}

/* An address at which a kernel begins, and what it reads or writes there at once. */
struct first_access {
    const void *address;
    unsigned unit_bytes;
};

/* Returns CU_SUCCESS if the GPU knows the first addresses of all that the kernel uses, and they are
 * aligned. */
static int check_addresses(const struct fake_kernel *kernel)
{
    const struct tdm__cuda_batch *batch = kernel->arguments[0];

    for (unsigned row = 0; row < kernel->shape.rows; row++) {
        const struct tdm__cuda_copy_op *op = &batch->copy_ops[row];
        const struct first_access accesses[] = {{op->from, op->from_unit},
                                                {op->to, op->to_unit},
                                                {op->lanes, sizeof(*op->lanes)},
                                                {op->scales, sizeof(*op->scales)}};

        for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
            if (accesses[i].address != NULL && !fake_kernel_may_use(accesses[i].address)) {
                return CU_ILLEGAL_ADDRESS;
            }
            if ((uintptr_t)accesses[i].address % accesses[i].unit_bytes != 0) {
                return CU_MISALIGNED_ADDRESS;
            }
        }
    }
    return CU_SUCCESS;
}

int fake_kernel_run(struct fake_kernel *kernel)
{
    int result = kernel->entry->body != NULL ? check_addresses(kernel) : CU_ILLEGAL_ADDRESS;

    if (result == CU_SUCCESS) {
        result = fake_memory_open(true);
    }
    if (result == CU_SUCCESS) {
        int error = fake_grid_run(&kernel->shape, kernel->entry->body, kernel->arguments[0]);

        result = fake_memory_open(false);
        result = error != CU_SUCCESS ? error : result;
    }
    free_kernel(kernel);
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
    for (size_t i = 0; i < ENTRIES; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            *function = (void *)(uintptr_t)&entries[i];
            return CU_SUCCESS;
        }
    }
    return fake_ops_find(function, name);
}

/* Returns the shape that a kernel gets, which has fewer blocks and threads than it is launched
 * with. */
static struct fake_shape shape_of(unsigned grid_x, unsigned grid_y, unsigned block_x)
{
    struct fake_shape shape = {.rows = grid_y, .threads = fake_block_threads(block_x)};
    bool all = grid_x > BLOCKS_MAX || shape.threads < BLOCKS_MAX;

    shape.blocks = all ? BLOCKS_MAX : grid_x;
    return shape;
}

/* Takes any shape that a GPU takes. */
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **arguments, void **extra)
{
    const struct entry *entry = function;
    const struct fake_shape shape = shape_of(grid_x, grid_y, block_x);

    ENTER();
    if (grid_x == 0 || grid_y == 0 || grid_y > UINT16_MAX || grid_z != 1 || block_x == 0 ||
        block_x > 1024 || block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != NULL) {
        return CU_INVALID_VALUE;
    }
    if (entry < entries || entry >= entries + ENTRIES) {
        return fake_ops_launch(function, stream, arguments);
    }
    return fake_submit_kernel(stream, make_kernel(entry, &shape, arguments));
}
