/* cuda_ipc.c - shares GPU memory that other libraries (PyTorch, an engine) allocated, between
 * processes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file owns no state: the caller owns the exported and the mapped memory. An export asks the
 * driver which kind of sharing the allocation supports, without touching its bytes. An open maps
 * the whole allocation, and close waits for the GPU before it unmaps. The actor's thread
 * enters. cuda_ipc.h specifies the functions. */

#include "colocate/device/cuda/cuda_ipc.h"

#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/streams.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <string.h>
#include <tandem/region.h>

/* ---- export ------------------------------------------------------------------------------- */

/* Exports the allocation at `base` as a legacy IPC handle. */
static tdm_status export_by_handle(struct tdm__cuda_device *cuda, uint64_t base,
                                   struct tdm__cuda_ipc_memory *shared)
{
    shared->ipc_kind = TDM__CUDA_IPC_HANDLE;
    return tdm__cuda_check(cuda->driver->cuIpcGetMemHandle(&shared->handle, base),
                           "cuIpcGetMemHandle of %zu bytes at 0x%llx", shared->allocation_bytes,
                           (unsigned long long)base);
}

/* Exports the allocation at `base` as a descriptor. */
static tdm_status export_by_descriptor(struct tdm__cuda_device *cuda, uint64_t base,
                                       struct tdm__cuda_ipc_memory *shared)
{
    uint64_t block;
    tdm_status status;

    shared->ipc_kind = TDM__CUDA_IPC_DESCRIPTOR;
    TDM_TRY(
        tdm__cuda_check(cuda->driver->cuMemRetainAllocationHandle(&block, (void *)(uintptr_t)base),
                        "cuMemRetainAllocationHandle at 0x%llx", (unsigned long long)base));
    status = tdm__cuda_check(
        cuda->driver->cuMemExportToShareableHandle(&shared->fd, block, CU_HANDLE_POSIX_FD, 0),
        "cuMemExportToShareableHandle of %zu bytes at 0x%llx", shared->allocation_bytes,
        (unsigned long long)base);
    (void)cuda->driver->cuMemRelease(block);
    return status;
}

/* Reads an attribute of a device address from the driver. */
static tdm_status get_pointer_attribute(struct tdm__cuda_device *cuda, void *value, int attribute,
                                        uint64_t address)
{
    return tdm__cuda_check(cuda->driver->cuPointerGetAttribute(value, attribute, address),
                           "cuPointerGetAttribute %d of 0x%llx", attribute,
                           (unsigned long long)address);
}

/* Fails unless `size_bytes` bytes from the shared address on lie in the shared allocation.
 * PyTorch's expandable segments are many allocations at adjacent addresses, and the driver exports
 * one. */
static tdm_status check_one_allocation(const struct tdm__cuda_ipc_memory *shared,
                                       const void *address, size_t size_bytes)
{
    size_t left_bytes = shared->allocation_bytes - shared->offset_bytes;

    if (size_bytes == 0) {
        return tdm__fail(TDM_E_INVAL, "0 bytes at %p are to be shared", address);
    }
    return size_bytes <= left_bytes
               ? TDM_OK
               : tdm__fail(TDM_E_UNSUPPORTED,
                           "%zu bytes at %p cannot be shared as one: the allocation of %zu bytes "
                           "there ends after %zu of them. Memory of PyTorch's expandable segments "
                           "is like that; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, "
                           "or share each allocation by itself",
                           size_bytes, address, shared->allocation_bytes, left_bytes);
}

tdm_status tdm__cuda_ipc_export(struct tdm__device *device, const void *address, size_t size_bytes,
                                struct tdm__cuda_ipc_memory *shared_out)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    struct tdm__cuda_ipc_memory shared = {.fd = -1};
    uint64_t at = (uint64_t)(uintptr_t)address;
    uint64_t handle_types = 0;
    unsigned legacy = 0;
    uint64_t base;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(
        tdm__cuda_check(cuda->driver->cuMemGetAddressRange_v2(&base, &shared.allocation_bytes, at),
                        "cuMemGetAddressRange of %p", address));
    TDM_TRY(get_pointer_attribute(cuda, &legacy, CU_POINTER_LEGACY_IPC_CAPABLE, at));
    TDM_TRY(get_pointer_attribute(cuda, &handle_types, CU_POINTER_ALLOWED_HANDLE_TYPES, at));
    shared.offset_bytes = (size_t)(at - base);
    TDM_TRY(check_one_allocation(&shared, address, size_bytes));
    (void)snprintf(shared.uuid, sizeof(shared.uuid), "%s", device->uuid);
    if (legacy) {
        TDM_TRY(export_by_handle(cuda, base, &shared));
    } else if ((handle_types & CU_HANDLE_POSIX_FD) != 0) {
        TDM_TRY(export_by_descriptor(cuda, base, &shared));
    } else {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "%zu bytes at %p can be shared neither by handle nor by descriptor: "
                         "their allocator must ask for CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR "
                         "when it creates them, or use cuMemAlloc",
                         shared.allocation_bytes, address);
    }
    *shared_out = shared;
    return TDM_OK;
}

/* Returns what memory that has no legacy handle is called, by the handles that the driver allows
 * for it. */
static const char *kind_without_handle(uint64_t handle_types)
{
    return (handle_types & CU_HANDLE_POSIX_FD) != 0
               ? "memory of cuMemCreate that has a descriptor, like Tandem's regions"
               : "memory of cuMemCreate without a descriptor, like PyTorch's expandable segments "
                 "and "
                 "torch_memory_saver's, or memory of a pool or managed memory";
}

tdm_status tdm__cuda_ipc_check_handle(const struct tdm__cuda_driver *driver, const void *address,
                                      size_t size_bytes)
{
    struct tdm__cuda_ipc_memory memory = {.fd = -1};
    uint64_t at = (uint64_t)(uintptr_t)address;
    uint64_t handle_types = 0;
    unsigned memory_type = 0;
    unsigned legacy = 0;
    uint64_t base;

    if (driver->cuPointerGetAttribute(&memory_type, CU_POINTER_MEMORY_TYPE, at) != CU_SUCCESS ||
        memory_type != CU_MEMORY_IS_DEVICE) {
        return tdm__fail(TDM_E_INVAL,
                         "%zu bytes at %p are not memory of a GPU, and cudaIpc exports no other: "
                         "share memory of the CPU by its descriptor",
                         size_bytes, address);
    }
    TDM_TRY(
        tdm__cuda_check(driver->cuPointerGetAttribute(&legacy, CU_POINTER_LEGACY_IPC_CAPABLE, at),
                        "cuPointerGetAttribute %d of %p", CU_POINTER_LEGACY_IPC_CAPABLE, address));
    if (!legacy) {
        (void)driver->cuPointerGetAttribute(&handle_types, CU_POINTER_ALLOWED_HANDLE_TYPES, at);
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "%zu bytes at %p are %s: cudaIpc cannot export them. Copy the tensors "
                         "into memory of cudaMalloc, which torch.empty() gives with "
                         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
                         size_bytes, address, kind_without_handle(handle_types));
    }
    TDM_TRY(tdm__cuda_check(driver->cuMemGetAddressRange_v2(&base, &memory.allocation_bytes, at),
                            "cuMemGetAddressRange of %p", address));
    memory.offset_bytes = (size_t)(at - base);
    return check_one_allocation(&memory, address, size_bytes);
}

tdm_status tdm_gpu_memory_check_ipc(const void *address, size_t size_bytes)
{
    TDM__REQUIRE(address);

    const struct tdm__cuda_driver *driver;

    TDM_TRY(tdm__cuda_driver(&driver));
    return tdm__cuda_ipc_check_handle(driver, address, size_bytes);
}

/* ---- open and close ----------------------------------------------------------------------- */

/* Reserves addresses for an imported allocation and maps it there. */
static tdm_status map_ipc_block(struct tdm__cuda_device *cuda, struct tdm__cuda_ipc_mapping *opened)
{
    const struct cu_access access = {{CU_LOCATION_DEVICE, cuda->device}, CU_ACCESS_READ_WRITE};
    const struct tdm__cuda_driver *driver = cuda->driver;
    size_t size_bytes = opened->allocation_bytes;
    tdm_status status;

    TDM_TRY(tdm__cuda_check(driver->cuMemAddressReserve(&opened->base, size_bytes, 0, 0, 0),
                            "cuMemAddressReserve of %zu bytes", size_bytes));
    status = tdm__cuda_check(driver->cuMemMap(opened->base, size_bytes, 0, opened->block, 0),
                             "cuMemMap of %zu shared bytes", size_bytes);
    if (status == TDM_OK) {
        status = tdm__cuda_check(driver->cuMemSetAccess(opened->base, size_bytes, &access, 1),
                                 "cuMemSetAccess of %zu shared bytes", size_bytes);
        if (status != TDM_OK) {
            (void)driver->cuMemUnmap(opened->base, size_bytes);
        }
    }
    if (status != TDM_OK) {
        (void)driver->cuMemAddressFree(opened->base, size_bytes);
    }
    return status;
}

/* Imports an allocation by its descriptor and maps it. */
static tdm_status open_ipc_descriptor(struct tdm__cuda_device *cuda,
                                      const struct tdm__cuda_ipc_memory *shared,
                                      struct tdm__cuda_ipc_mapping *opened)
{
    tdm_status status;

    /* The driver's interface passes the descriptor itself as the pointer. */
    TDM_TRY(tdm__cuda_check(
        cuda->driver->cuMemImportFromShareableHandle(
            &opened->block, (void *)(uintptr_t)(unsigned)shared->fd, CU_HANDLE_POSIX_FD),
        "cuMemImportFromShareableHandle of descriptor %d", shared->fd));
    status = map_ipc_block(cuda, opened);
    if (status != TDM_OK) {
        (void)cuda->driver->cuMemRelease(opened->block);
    }
    return status;
}

tdm_status tdm__cuda_ipc_open(struct tdm__device *device, const struct tdm__cuda_ipc_memory *shared,
                              struct tdm__cuda_ipc_mapping *opened_out)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    TDM__CUDA_SCOPE(scope);
    struct tdm__cuda_ipc_mapping opened = {.ipc_kind = shared->ipc_kind,
                                           .allocation_bytes = shared->allocation_bytes};

    if (strcmp(shared->uuid, device->uuid) != 0) {
        return tdm__fail(TDM_E_DEVICE, "the memory is on %s, this is %s", shared->uuid,
                         device->uuid);
    }
    if (shared->offset_bytes >= shared->allocation_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "offset %zu in an allocation of %zu bytes",
                         shared->offset_bytes, shared->allocation_bytes);
    }
    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    if (shared->ipc_kind == TDM__CUDA_IPC_HANDLE) {
        TDM_TRY(tdm__cuda_check(cuda->driver->cuIpcOpenMemHandle_v2(&opened.base, shared->handle,
                                                                    CU_IPC_LAZY_PEER_ACCESS),
                                "cuIpcOpenMemHandle of %zu bytes", shared->allocation_bytes));
    } else {
        TDM_TRY(open_ipc_descriptor(cuda, shared, &opened));
    }
    opened.address = (void *)(uintptr_t)(opened.base + shared->offset_bytes);
    *opened_out = opened;
    return TDM_OK;
}

/* Waits until the GPU has done all that this process has queued, and unmaps the memory. */
static tdm_status close_ipc_mapping(struct tdm__cuda_device *cuda,
                                    const struct tdm__cuda_ipc_mapping *opened)
{
    const struct tdm__cuda_driver *driver = cuda->driver;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_synchronize(&cuda->base));
    if (opened->ipc_kind == TDM__CUDA_IPC_HANDLE) {
        return tdm__cuda_check(driver->cuIpcCloseMemHandle(opened->base),
                               "cuIpcCloseMemHandle of %zu bytes", opened->allocation_bytes);
    }
    TDM_TRY(tdm__cuda_check(driver->cuMemUnmap(opened->base, opened->allocation_bytes),
                            "cuMemUnmap of %zu shared bytes", opened->allocation_bytes));
    TDM_TRY(tdm__cuda_check(driver->cuMemAddressFree(opened->base, opened->allocation_bytes),
                            "cuMemAddressFree of %zu shared bytes", opened->allocation_bytes));
    return tdm__cuda_check(driver->cuMemRelease(opened->block), "cuMemRelease of %zu shared bytes",
                           opened->allocation_bytes);
}

void tdm__cuda_ipc_close(struct tdm__device *device, struct tdm__cuda_ipc_mapping *opened)
{
    if (close_ipc_mapping((struct tdm__cuda_device *)device, opened) != TDM_OK) {
        tdm__log(TDM__WARN, "device", "shared memory stays mapped: %s", tdm_error_detail());
    }
}
