/* cuda_library.h - the CUDA driver and cuBLAS, opened at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_CUDA_LIBRARY_H
#define COLOCATED_RL_CUDA_LIBRARY_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* What is used of the two, with their binary interfaces, which do not change: so no toolkit is
 * needed to build this.  Both answer 0 where all is well. */
enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUBLAS_NO_TRANSPOSE = 0,
    CUBLAS_TRANSPOSE = 1,
    CUBLAS_PEDANTIC_MATH = 2, /* float32 as it is written: no TF32 */
};

struct cuda_uuid {
    uint8_t bytes[16];
};

/* clang-format off */
#define CUDA_CALLS(X)                                                                          \
    X(cuInit, (unsigned flags))                                                                \
    X(cuGetErrorName, (int result, const char **name))                                         \
    X(cuDeviceGetCount, (int *count))                                                          \
    X(cuDeviceGet, (int *device, int ordinal))                                                 \
    X(cuDeviceGetUuid_v2, (struct cuda_uuid *uuid, int device))                                \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                  \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                              \
    X(cuCtxSetCurrent, (void *context))                                                        \
    X(cuStreamCreate, (void **stream, unsigned flags))                                         \
    X(cuStreamDestroy_v2, (void *stream))                                                      \
    X(cuStreamSynchronize, (void *stream))                                                     \
    X(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t bytes, void *stream))                 \
    X(cuModuleLoadData, (void **module, const void *image))                                    \
    X(cuModuleUnload, (void *module))                                                          \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                  \
    X(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                       unsigned block_x, unsigned block_y, unsigned block_z,                   \
                       unsigned shared_bytes, void *stream, void **arguments, void **extra))

#define CUBLAS_CALLS(X)                                                                        \
    X(cublasCreate_v2, (void **handle))                                                        \
    X(cublasDestroy_v2, (void *handle))                                                        \
    X(cublasSetStream_v2, (void *handle, void *stream))                                        \
    X(cublasSetMathMode, (void *handle, int mode))                                             \
    X(cublasSnrm2_v2, (void *handle, int count, const float *x, int step, float *result))      \
    X(cublasSgemm_v2, (void *handle, int a_form, int b_form, int rows, int columns, int inner, \
                       const float *alpha, const float *a, int a_pitch, const float *b,        \
                       int b_pitch, const float *beta, float *c, int c_pitch))
/* clang-format on */

struct cuda_library {
/* NOLINTBEGIN(bugprone-macro-parentheses) declarations cannot have them */
#define X(name, arguments) int(*name) arguments;
    CUDA_CALLS(X)
    CUBLAS_CALLS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* Opens libcuda.so.1 and libcublas.so, or what the environment says instead
 * (TANDEM_CUDA_LIBRARY, COLOCATED_RL_CUBLAS_LIBRARY), once per process, on any thread; they
 * stay open.  TDM_E_UNSUPPORTED says what is missing. */
tdm_status cuda_library_open(const struct cuda_library **library_out);

#endif
