/* cuda_ipc.h - shares GPU memory that other libraries (PyTorch, an engine) allocated, between
 * processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_IPC_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_IPC_H

#include "colocate/device/cuda/driver.h"
#include "colocate/device/device.h"

/* How memory is shared. Memory of cuMemAlloc has a legacy IPC handle. Memory of cuMemCreate has a
 * descriptor if it was created exportable, and never a legacy handle. The driver reports which
 * kind is possible.
 *
 * The shared object always represents the whole allocation; offset_bytes is the offset of the
 * shared address in it. */
enum tdm__cuda_ipc_kind { TDM__CUDA_IPC_HANDLE, TDM__CUDA_IPC_DESCRIPTOR };

/* GPU memory that one process offers to others. The caller of tdm__cuda_ipc_export() owns it. */
struct tdm__cuda_ipc_memory {
    /* Whether `handle` or `fd` identifies the memory. */
    enum tdm__cuda_ipc_kind ipc_kind;
    char uuid[TDM__UUID_BYTES];  /* UUID of the GPU that has the memory. */
    struct cu_ipc_handle handle; /* Legacy IPC handle, for TDM__CUDA_IPC_HANDLE. */
    /* Descriptor that the holder of this struct must close; -1 for a handle. */
    int fd;
    size_t allocation_bytes; /* Size of the whole allocation. */
    /* Offset of the shared address in the allocation. */
    size_t offset_bytes;
};

/* Offers the allocation around `size_bytes` bytes at `address` to other processes. Fails with
 * TDM_E_UNSUPPORTED, and says what to change, if the memory can be exported in neither way, or if
 * the bytes lie in more than one allocation, as tensors in PyTorch's expandable segments may. */
tdm_status tdm__cuda_ipc_export(struct tdm__device *device, const void *address, size_t size_bytes,
                                struct tdm__cuda_ipc_memory *shared_out);

/* Checks that cudaIpcGetMemHandle can export `size_bytes` bytes at `address` as one, as PyTorch
 * does when it shares a tensor; to be called before such an export. A context of the GPU must be
 * current on the calling thread. TDM_E_INVAL: the memory is not on a GPU. TDM_E_UNSUPPORTED, with
 * the kind of the memory and what to use instead: it is not memory of cudaMalloc, or lies in
 * several allocations. */
tdm_status tdm__cuda_ipc_check_handle(const struct tdm__cuda_driver *driver, const void *address,
                                      size_t size_bytes);

/* Memory of another process that is mapped in this one. The caller of tdm__cuda_ipc_open() owns
 * it. */
struct tdm__cuda_ipc_mapping {
    enum tdm__cuda_ipc_kind ipc_kind; /* How the memory was shared. */
    /* Device address of the whole allocation in this process. */
    uint64_t base;
    /* Owned allocation handle of the driver, for TDM__CUDA_IPC_DESCRIPTOR. */
    uint64_t block;
    size_t allocation_bytes; /* Size of the whole allocation. */
    /* The shared address, as it is valid in this process. */
    void *address;
};

/* Maps memory that another process exported. Fails with TDM_E_DEVICE if the memory is on another
 * GPU. Only the exporter may free the memory, after all other processes have closed it. */
tdm_status tdm__cuda_ipc_open(struct tdm__device *device, const struct tdm__cuda_ipc_memory *shared,
                              struct tdm__cuda_ipc_mapping *opened_out);
/* Unmaps the memory, once the GPU has done all that this process has queued. A failure is
 * logged. */
void tdm__cuda_ipc_close(struct tdm__device *device, struct tdm__cuda_ipc_mapping *opened);

#endif
