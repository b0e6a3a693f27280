/* streams.h - copies to and from a GPU, and pinned host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_STREAMS_H
#define TDM_COLOCATE_DEVICE_CUDA_STREAMS_H

#include "colocate/device/cuda/cuda_device.h"

/* Creates the streams of a device. */
tdm_status tdm__cuda_streams_open(struct tdm__cuda_device *cuda);
/* Destroys the streams of a device. */
void tdm__cuda_streams_close(struct tdm__cuda_device *cuda);

/* The functions `copy`, `copy_flush`, `synchronize`, `host_alloc` and `host_free` of struct
 * tdm__device_ops for a CUDA device. */
tdm_status tdm__cuda_copy(struct tdm__device *device, void *destination, const void *source,
                          size_t size_bytes);
tdm_status tdm__cuda_copy_flush(struct tdm__device *device);
tdm_status tdm__cuda_synchronize(struct tdm__device *device);
tdm_status tdm__cuda_host_alloc(struct tdm__device *device, size_t size_bytes, void **address_out);
void tdm__cuda_host_free(struct tdm__device *device, void *address, size_t size_bytes);

#endif
