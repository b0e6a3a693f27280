/* driver.h - the CUDA driver's library, opened at run time, and its errors in words. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_DRIVER_H
#define TDM_COLOCATE_DEVICE_CUDA_DRIVER_H

#include "colocate/device/cuda/driver_api.h"
#include "colocate/device/device.h"

/* The calls, by their names. */
struct tdm__cuda_driver {
/* NOLINTNEXTLINE(bugprone-macro-parentheses) a declaration cannot have them */
#define X(name, arguments) int(*name) arguments;
    CU_CALLS(X)
#undef X
};

/* Opens libcuda.so.1, or what the environment's TANDEM_CUDA_LIBRARY says instead (another path
 * of the driver's library), and initialises it; once per process, any thread.  Makes no
 * context.  TDM_E_UNSUPPORTED where there is no driver or no GPU, and why. */
tdm_status tdm__cuda_driver(const struct tdm__cuda_driver **driver_out);

/* What a failed call means: `result` by the driver's own name and text after "the call and its
 * numbers".  CU_SUCCESS is TDM_OK. */
__attribute__((format(printf, 2, 3))) tdm_status tdm__cuda_check(int result, const char *format,
                                                                 ...);

/* A GPU of this process, as it is known everywhere. */
struct tdm__cuda_gpu {
    char uuid[TDM__UUID_BYTES]; /* "GPU-" and 32 hexadecimal digits in five groups */
    char name[64];
    size_t total_bytes;
    int device; /* the driver's number: means nothing outside this process */
};

tdm_status tdm__cuda_gpus_count(uint32_t *count_out);
/* `index` is the driver's order; for lists only. */
tdm_status tdm__cuda_gpu_at(uint32_t index, struct tdm__cuda_gpu *gpu_out);
/* TDM_E_NOT_FOUND names what there is. */
tdm_status tdm__cuda_gpu_find(const char *uuid, struct tdm__cuda_gpu *gpu_out);

#endif
