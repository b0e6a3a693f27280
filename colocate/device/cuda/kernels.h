/* kernels.h - the compiled CUDA kernels that copy, convert and checksum tensors on the GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_KERNELS_H
#define TDM_COLOCATE_DEVICE_CUDA_KERNELS_H

#include "colocate/device/cuda/kernels_api.h"
#include "colocate/device/device.h"

#include <stdint.h>

/* The loaded kernels of one device. They are built in if nvcc was present when Tandem was built;
 * the environment variable TANDEM_CUDA_KERNELS names another compiled file. */
struct tdm__cuda_kernels;

/* What a kernel does with a copy operation. */
enum tdm__cuda_kernel_kind {
    TDM__CUDA_KERNEL_COPY, /* Copies without conversion, or writes zeros. */
    TDM__CUDA_KERNEL_CAST, /* Casts float32 to bfloat16. */
    /* Quantizes to e4m3 in blocks of 128 x 128 (colocate/transfer/casts.h). */
    TDM__CUDA_KERNEL_QUANTIZE,
    TDM__CUDA_KERNEL_SCALES, /* Computes the scales of those blocks. */
    TDM__CUDA_KERNELS_COUNT  /* Number of kernels. */
};

/* Loads the kernels on a CUDA device (borrowed). Fails with TDM_E_UNSUPPORTED if none exist;
 * the error detail says why. */
tdm_status tdm__cuda_kernels_open(struct tdm__device *device,
                                  struct tdm__cuda_kernels **kernels_out);
/* Unloads the kernels. NULL is allowed. */
void tdm__cuda_kernels_close(struct tdm__cuda_kernels *kernels);

/* Queues a launch of the kernel `work` for the first `count` copy operations of the batch, with
 * `blocks` thread blocks per operation, in `stream`. The GPU's context must be current. Does not
 * wait. */
tdm_status tdm__cuda_kernels_launch(struct tdm__cuda_kernels *kernels,
                                    enum tdm__cuda_kernel_kind work, struct tdm__cuda_batch *batch,
                                    uint32_t count, uint32_t blocks, void *stream);

#endif
