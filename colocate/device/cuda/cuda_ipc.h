/* cuda_ipc.h - memory on a GPU that others allocated (PyTorch, an engine), between processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_IPC_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_IPC_H

#include "colocate/device/cuda/driver_api.h"
#include "colocate/device/device.h"

/* Memory of cuMemAlloc has a legacy handle; memory of cuMemCreate has a descriptor if it was
 * made exportable, and a legacy handle never.  The driver is asked which it is, before a byte
 * is written anywhere.  What travels stands for the whole allocation; `offset_bytes` is where
 * the address lies in it. */
enum tdm__cuda_ipc_kind { TDM__CUDA_IPC_HANDLE, TDM__CUDA_IPC_DESCRIPTOR };

struct tdm__cuda_ipc_memory {
    enum tdm__cuda_ipc_kind ipc_kind;
    char uuid[TDM__UUID_BYTES]; /* of the GPU that has the memory */
    struct cu_ipc_handle handle;
    int fd; /* the holder's to close; -1 for a handle */
    size_t allocation_bytes;
    size_t offset_bytes;
};

/* TDM_E_UNSUPPORTED where the memory can be exported neither ipc_kind, and what to change. */
tdm_status tdm__cuda_ipc_export(struct tdm__device *device, const void *address,
                                struct tdm__cuda_ipc_memory *shared_out);

struct tdm__cuda_ipc_mapping {
    enum tdm__cuda_ipc_kind ipc_kind;
    uint64_t base;
    uint64_t block; /* of a descriptor */
    size_t allocation_bytes;
    void *address; /* the one that was shared, as it is here */
};

/* In another process.  TDM_E_DEVICE if the memory is another GPU's.  Nobody but the exporter
 * may free the memory, and not before everyone has closed it. */
tdm_status tdm__cuda_ipc_open(struct tdm__device *device, const struct tdm__cuda_ipc_memory *shared,
                              struct tdm__cuda_ipc_mapping *opened_out);
void tdm__cuda_ipc_close(struct tdm__device *device, struct tdm__cuda_ipc_mapping *opened);

#endif
