/* cuda_library.h - the functions of the CUDA driver and cuBLAS, loaded at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_CUDA_LIBRARY_H
#define COLOCATED_RL_CUDA_LIBRARY_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* The part of the binary interfaces of both libraries that this program uses. The interfaces are
 * stable, so that no CUDA toolkit is needed to build this. All functions return 0 on success. */
enum {
    /* CU_STREAM_NON_BLOCKING: the stream does not synchronise with the default stream. */
    CUDA_STREAM_NON_BLOCKING = 1,
    CUBLAS_NO_TRANSPOSE = 0,  /* CUBLAS_OP_N: the matrix is used as it is. */
    CUBLAS_TRANSPOSE = 1,     /* CUBLAS_OP_T: the matrix is transposed. */
    CUBLAS_PEDANTIC_MATH = 2, /* CUBLAS_PEDANTIC_MATH: products in float32, without TF32. */
};

/* The UUID of a GPU, as CUuuid. */
struct cuda_uuid {
    uint8_t bytes[16];
};

/* Pointers to the functions, named as in the libraries. */
struct cuda_library {
    int (*cuInit)(unsigned flags);
    int (*cuGetErrorName)(int result, const char **name);
    int (*cuDeviceGetCount)(int *count);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetUuid_v2)(struct cuda_uuid *uuid, int device);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease_v2)(int device);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuMemcpyAsync)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleUnload)(void *module);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void *stream, void **arguments, void **extra);

    int (*cublasCreate_v2)(void **handle);
    int (*cublasDestroy_v2)(void *handle);
    int (*cublasSetStream_v2)(void *handle, void *stream);
    int (*cublasSetMathMode)(void *handle, int mode);
    int (*cublasSnrm2_v2)(void *handle, int count, const float *x, int step, float *result);
    int (*cublasSgemm_v2)(void *handle, int a_form, int b_form, int rows, int columns, int inner,
                          const float *alpha, const float *a, int a_pitch, const float *b,
                          int b_pitch, const float *beta, float *c, int c_pitch);
};

/* Opens libcuda.so.1 and libcublas.so once per process and returns their functions, which stay
 * valid until the process exits. The environment variables TANDEM_CUDA_LIBRARY and
 * COLOCATED_RL_CUBLAS_LIBRARY name other files. Any thread may call this. TDM_E_UNSUPPORTED says
 * what is missing. */
tdm_status cuda_library_open(const struct cuda_library **library_out);

#endif
