/* abi_cuda.cc - driver_api.h says what CUDA's own cuda.h says; a difference does not compile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>

#include "tests/gpu/abi.h"

/* Names of values and structs of both headers are alike. */
namespace own {
#include "colocate/device/cuda/driver_api.h"

#define X(name, arguments)                                                                         \
    static_assert(abi::same_function<decltype(&::name), int(*) arguments>::value, #name);
CU_CALLS(X)
#undef X
} // namespace own

#define SAME(name, vendors) static_assert((int)own::name == (int)(vendors), #name)
SAME(CU_SUCCESS, CUDA_SUCCESS);
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(CU_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
SAME(CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_POINTER_LEGACY_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(CU_POINTER_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SAME(CU_MEMORY_IS_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CU_DEVICE_VMM_SUPPORTED, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_DEVICE_POSIX_FD_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CU_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CU_STREAM_NON_BLOCKING, ::CU_STREAM_NON_BLOCKING);
SAME(CU_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

static_assert(sizeof(own::cu_allocation) == sizeof(CUmemAllocationProp), "cu_allocation");
SAME_FIELD(own::cu_allocation, type, CUmemAllocationProp, type);
SAME_FIELD(own::cu_allocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(own::cu_allocation, location, CUmemAllocationProp, location);
SAME_FIELD(own::cu_allocation, windows_only, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(own::cu_allocation, flags, CUmemAllocationProp, allocFlags);
SAME_FIELD(own::cu_allocation, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(own::cu_allocation, flags.direct_rdma, CUmemAllocationProp,
           allocFlags.gpuDirectRDMACapable);
SAME_FIELD(own::cu_allocation, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_FIELD(own::cu_allocation, flags.reserved, CUmemAllocationProp, allocFlags.reserved);
static_assert(sizeof(own::cu_access) == sizeof(CUmemAccessDesc), "cu_access");
SAME_FIELD(own::cu_access, location, CUmemAccessDesc, location);
SAME_FIELD(own::cu_access, flags, CUmemAccessDesc, flags);
static_assert(sizeof(own::cu_location) == sizeof(CUmemLocation), "cu_location");
SAME_FIELD(own::cu_location, type, CUmemLocation, type);
SAME_FIELD(own::cu_location, id, CUmemLocation, id);
static_assert(sizeof(own::cu_uuid) == sizeof(CUuuid), "cu_uuid");
static_assert(sizeof(own::cu_ipc_handle) == sizeof(CUipcMemHandle), "cu_ipc_handle");
static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t), "addresses");
static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(uint64_t), "allocation handles");
static_assert(sizeof(CUdevice) == sizeof(int), "device numbers");
