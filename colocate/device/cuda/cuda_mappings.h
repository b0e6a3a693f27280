/* cuda_mappings.h - address ranges on a GPU, and which blocks are mapped there. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_MAPPINGS_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_MAPPINGS_H

#include "colocate/device/device.h"

/* Functions of struct tdm__device_ops. */
tdm_status tdm__cuda_reserve(struct tdm__device *device, size_t size_bytes, void **address_out);
void tdm__cuda_unreserve(struct tdm__device *device, void *address, size_t size_bytes);
tdm_status tdm__cuda_map(struct tdm__device *device, void *address, struct tdm__block *block,
                         enum tdm__access access);
tdm_status tdm__cuda_unmap(struct tdm__device *device, void *address, size_t size_bytes);
tdm_status tdm__cuda_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                              const struct tdm__mapping *b);

#endif
