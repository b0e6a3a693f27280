/* kernels.h - the compiled kernels: what a GPU does itself on the way of weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_KERNELS_H
#define TDM_COLOCATE_DEVICE_CUDA_KERNELS_H

#include "colocate/device/cuda/kernels_api.h"
#include "colocate/device/device.h"

#include <stdint.h>

/* Compiled only where nvcc was there when Tandem was built; the environment's
 * TANDEM_CUDA_KERNELS names a file with the same, compiled elsewhere. */
struct tdm__cuda_kernels;

enum tdm__cuda_kernel_kind {
    TDM__CUDA_KERNEL_COPY,     /* same dtype, or zeros */
    TDM__CUDA_KERNEL_CAST,     /* float32 to bfloat16 */
    TDM__CUDA_KERNEL_QUANTIZE, /* to e4m3 in blocks of 128 x 128 (colocate/transfer/casts.h) */
    TDM__CUDA_KERNEL_SCALES,   /* those blocks' scales */
    TDM__CUDA_KERNELS_COUNT    /* how many there are */
};

/* On a CUDA device (borrowed).  TDM_E_UNSUPPORTED where there are none, and why. */
tdm_status tdm__cuda_kernels_open(struct tdm__device *device,
                                  struct tdm__cuda_kernels **kernels_out);
void tdm__cuda_kernels_close(struct tdm__cuda_kernels *kernels); /* NULL is allowed */

/* Queues a launch for the first `count` copy_ops, with so many blocks of threads for each, in the
 * thread's context. */
tdm_status tdm__cuda_kernels_launch(struct tdm__cuda_kernels *kernels,
                                    enum tdm__cuda_kernel_kind work, struct tdm__cuda_batch *batch,
                                    uint32_t count, uint32_t blocks, void *stream);

#endif
