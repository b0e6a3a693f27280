/* kernel_shim.h - CUDA's words for a C compiler: kernels' own source, run on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FAKE_KERNEL_SHIM_H
#define TDM_TESTS_FAKE_KERNEL_SHIM_H

/* Include this, then a .cu file, in one source of the fake library; run its kernels by
 * fake_grid_run(). A kernel must be
 *
 *   C that is C++ too, declared by KERNEL, which the file defines only where it is undefined;
 *   right in any shape of the grid: threads stride by blockDim.x, blocks by gridDim.x, and only
 *   blockIdx.y may stand for something (a part, a head), of which gridDim.y were asked for.
 *
 * kernel_threads.h says how the threads run and what is checked. Blocks run one after the other,
 * so shared memory is static. The caller sees to it that device memory can be touched
 * (fake_memory_open). */

#include "tests/fake/kernel_threads.h"

#include <stddef.h>
#include <string.h>

#define threadIdx fake_thread_index
#define blockIdx  fake_block_index
#define blockDim  fake_block_size
#define gridDim   fake_grid_size

#define KERNEL          static
#define __device__      inline __attribute__((unused))
#define __forceinline__ __attribute__((always_inline))
#define __restrict__ restrict
#define __shared__      static __attribute__((section("fake_shared")))
#define __syncthreads() fake_barrier(__LINE__)
#define atomicAdd       fake_atomic_add
#define atomicMax       fake_atomic_max

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
