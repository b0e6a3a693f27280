/* memory.h - finds out whether the data of an operation lies on a GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_GPU_MEMORY_H
#define TDM_COLOCATE_COMM_GPU_MEMORY_H

#include "colocate/comm/collective_op.h"
#include "colocate/device/cuda/driver.h"

/* Finds out in which kind of memory the data of an operation lies. `in` is what this rank gives,
 * `out` is where it receives; NULL if the operation has no such data here. Fails with TDM_E_INVAL
 * if `in` and `out` lie in different kinds, because a kernel can reach GPU memory only. A context
 * must be current on the calling thread. */
tdm_status tdm__gpu_memory_of(const struct tdm__cuda_driver *driver, const void *in,
                              const void *out, enum tdm__comm_memory *memory_out);

#endif
