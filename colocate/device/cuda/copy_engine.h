/* copy_engine.h - executes copy operations on a GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_COPY_ENGINE_H
#define TDM_COLOCATE_DEVICE_CUDA_COPY_ENGINE_H

#include "colocate/device/cuda/cuda_device.h"

/* Executes copy operations with the GPU's kernels: the function `move` of the device. */
tdm_status tdm__cuda_run_copy_ops(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                                  uint32_t count, uint64_t *sums_out);
/* Destroys the copy engine of the device, if it has one. The GPU's context must be current. */
void tdm__cuda_copy_engine_close(struct tdm__cuda_device *cuda);

#endif
