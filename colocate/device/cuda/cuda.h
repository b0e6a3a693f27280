/* cuda.h - the kind of device "cuda": GPUs under the CUDA driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_H

#include "colocate/device/kind.h"

/* Blocks are physical memory of the GPU that can be exported as a descriptor. The node's broker
 * keeps the descriptor open and charges the owner. A block is created only if both the driver and
 * the broker accept it.
 *
 * Copies run in two streams, one per direction. The device uses the primary context, like all other
 * CUDA libraries of the process, whose streams it does not know. So it waits for the whole context
 * before it changes a mapping. Each call leaves the thread's current context as it was. */

/* The kind "cuda". Its GPUs have UUIDs ("GPU-…"). */
extern const struct tdm__device_kind tdm__device_cuda_kind;

#endif
