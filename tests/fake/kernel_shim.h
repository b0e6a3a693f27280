/* kernel_shim.h - CUDA's words for a C compiler: kernels' own source, run on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FAKE_KERNEL_SHIM_H
#define TDM_TESTS_FAKE_KERNEL_SHIM_H

/* Include this, then a .cu file, in one source of the fake library; call its kernels by
 * SHIM_LAUNCH.  A kernel must be
 *
 *   C that is C++ too, declared by KERNEL, which it defines only where nobody has;
 *   right in any shape of the grid: threads stride by blockDim.x, blocks by gridDim.x, and only
 *   blockIdx.y may stand for something (a part, a head), of which gridDim.y were asked for.
 *
 * For here each block has one thread, which is all that a barrier waits for, and blocks run one
 * after the other; so shared memory is static, and atomics are plain.  The caller sees to it
 * that device memory can be touched (fake_memory_open). */

#include <stddef.h>
#include <string.h>

struct shim_index {
    unsigned x;
    unsigned y;
    unsigned z;
};

static struct shim_index threadIdx;
static struct shim_index blockIdx;
static struct shim_index blockDim = {1, 1, 1};
static struct shim_index gridDim = {1, 1, 1};

/* Blocks in a row of the grid: not a power of two, and a multiple of four as on a GPU, where
 * kernels rely on it for the number of threads. */
enum { SHIM_BLOCKS = 12 };

#define SHIM_LAUNCH(rows, call)                                                                    \
    do {                                                                                           \
        gridDim = (struct shim_index){SHIM_BLOCKS, (rows), 1};                                     \
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++) {                               \
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {                           \
                call;                                                                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#define KERNEL          static
#define __device__      inline __attribute__((unused))
#define __forceinline__ __attribute__((always_inline))
#define __restrict__ restrict
#define __shared__          static
#define __syncthreads()     ((void)0)
#define atomicAdd(at, more) ((void)(*(at) += (more)))
#define atomicMax(at, more) ((void)(*(at) = *(at) > (more) ? *(at) : (more)))

typedef struct {
    unsigned long long x;
    unsigned long long y;
} __attribute__((aligned(16))) ulonglong2;

static inline unsigned __float_as_uint(float value)
{
    unsigned bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

#endif
