/* driver_api.h - the part of the CUDA driver's interface that Tandem uses, so that no toolkit is
 * needed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_DRIVER_API_H
#define TDM_COLOCATE_DEVICE_CUDA_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

/* Results of driver calls (CUresult) that Tandem uses. */
enum cu_result {
    CU_SUCCESS = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEVICE_UNAVAILABLE = 46,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_LAUNCH_TIMEOUT = 702,
    CU_ASSERT = 710,
    /* The values from here to CU_LAUNCH_FAILED are errors of a kernel, too: 715 an illegal
     * instruction, 716 a misaligned address, 717 an address in a wrong space, 718 an invalid
     * program counter. */
    CU_HARDWARE_STACK_ERROR = 714,
    CU_LAUNCH_FAILED = 719,
    CU_NOT_SUPPORTED = 801,
    CU_SYSTEM_NOT_READY = 802,
};

enum {
    CU_HANDLE_NONE = 0,
    CU_HANDLE_POSIX_FD = 1,
    CU_ALLOCATION_PINNED = 1,
    CU_LOCATION_DEVICE = 1,
    CU_ACCESS_READ = 1,
    CU_ACCESS_READ_WRITE = 3,
    CU_GRANULARITY_MINIMUM = 0,
    /* Attributes of a pointer (CUpointer_attribute). */
    CU_POINTER_MEMORY_TYPE = 2,
    CU_POINTER_LEGACY_IPC_CAPABLE = 10,
    CU_POINTER_ALLOWED_HANDLE_TYPES = 14,
    /* Value of CU_POINTER_MEMORY_TYPE for device memory. */
    CU_MEMORY_IS_DEVICE = 2,
    /* Attributes of a device (CUdevice_attribute). */
    CU_DEVICE_VMM_SUPPORTED = 102,
    CU_DEVICE_POSIX_FD_SUPPORTED = 103,
    /* Flags of the functions that create host memory and streams, and open memory handles. */
    CU_HOST_ALLOC_PORTABLE = 1,
    CU_STREAM_NON_BLOCKING = 1,
    CU_IPC_LAZY_PEER_ACCESS = 1,
};

/* UUID of a GPU (CUuuid). */
struct cu_uuid {
    uint8_t bytes[16];
};

/* Handle of memory for another process (CUipcMemHandle). */
struct cu_ipc_handle {
    char bytes[64];
};

/* Location of memory (CUmemLocation). */
struct cu_location {
    int type; /* Kind of location: CU_LOCATION_DEVICE. */
    int id;   /* The driver's device number. */
};

/* Properties of an allocation of physical memory (CUmemAllocationProp). */
struct cu_allocation {
    int type; /* Kind of memory: CU_ALLOCATION_PINNED. */
    /* Kinds of handle for export: CU_HANDLE_POSIX_FD. */
    int handle_types;
    struct cu_location location; /* Device that has the memory. */
    void *windows_only;          /* NULL; used on Windows only. */
    struct {
        uint8_t compression;
        uint8_t direct_rdma;
        uint16_t usage;
        uint8_t reserved[4];
    } flags;
};

/* Access of one device to a range of addresses (CUmemAccessDesc). */
struct cu_access {
    struct cu_location location; /* Device that gets access. */
    int flags;                   /* CU_ACCESS_READ or CU_ACCESS_READ_WRITE. */
};

_Static_assert(sizeof(struct cu_allocation) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(struct cu_access) == 12, "CUmemAccessDesc");

/* Addresses (CUdeviceptr) and allocation handles are 64-bit numbers; contexts, streams, modules
 * and functions are pointers; every call returns a CUresult, 0 for success. */
/* clang-format off */
#define CU_DEVICE_CALLS(X)                                                                     \
    X(cuInit, (unsigned flags))                                                                \
    X(cuDriverGetVersion, (int *version))                                                      \
    X(cuGetErrorName, (int result, const char **name))                                         \
    X(cuGetErrorString, (int result, const char **text))                                       \
    X(cuDeviceGetCount, (int *count))                                                          \
    X(cuDeviceGet, (int *device, int ordinal))                                                 \
    X(cuDeviceGetName, (char *name, int bytes, int device))                                    \
    X(cuDeviceGetUuid_v2, (struct cu_uuid *uuid, int device))                                  \
    X(cuDeviceTotalMem_v2, (size_t *bytes, int device))                                        \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                           \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                  \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                              \
    X(cuCtxSetCurrent, (void *context))                                                        \
    X(cuCtxPushCurrent_v2, (void *context))                                                    \
    X(cuCtxPopCurrent_v2, (void **context))                                                    \
    X(cuCtxSynchronize, (void))

/* Functions of memory: allocation, addresses, mappings and sharing between processes. */
#define CU_MEMORY_CALLS(X)                                                                     \
    X(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))                              \
    X(cuMemAlloc_v2, (uint64_t *address, size_t bytes))                                        \
    X(cuMemFree_v2, (uint64_t address))                                                        \
    X(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                          \
    X(cuMemFreeHost, (void *address))                                                          \
    X(cuPointerGetAttribute, (void *value, int attribute, uint64_t address))                   \
    X(cuMemGetAddressRange_v2, (uint64_t *base, size_t *bytes, uint64_t address))              \
    X(cuIpcGetMemHandle, (struct cu_ipc_handle *handle, uint64_t address))                     \
    X(cuIpcOpenMemHandle_v2, (uint64_t *address, struct cu_ipc_handle handle, unsigned flags)) \
    X(cuIpcCloseMemHandle, (uint64_t address))                                                 \
    X(cuMemGetAllocationGranularity,                                                           \
      (size_t *bytes, const struct cu_allocation *allocation, int which))                      \
    X(cuMemCreate, (uint64_t *handle, size_t bytes, const struct cu_allocation *allocation,    \
                    unsigned long long flags))                                                 \
    X(cuMemRelease, (uint64_t handle))                                                         \
    X(cuMemRetainAllocationHandle, (uint64_t *handle, void *address))                          \
    X(cuMemAddressReserve, (uint64_t *address, size_t bytes, size_t alignment,                 \
                            uint64_t wanted, unsigned long long flags))                        \
    X(cuMemAddressFree, (uint64_t address, size_t bytes))                                      \
    X(cuMemMap, (uint64_t address, size_t bytes, size_t offset, uint64_t handle,               \
                 unsigned long long flags))                                                    \
    X(cuMemUnmap, (uint64_t address, size_t bytes))                                            \
    X(cuMemSetAccess,                                                                          \
      (uint64_t address, size_t bytes, const struct cu_access *access, size_t count))          \
    X(cuMemExportToShareableHandle,                                                            \
      (void *shareable, uint64_t handle, int type, unsigned long long flags))                  \
    X(cuMemImportFromShareableHandle, (uint64_t *handle, void *shareable, int type))

/* Functions of streams, asynchronous copies, modules and kernels. */
#define CU_ORDER_CALLS(X)                                                                      \
    X(cuStreamCreate, (void **stream, unsigned flags))                                         \
    X(cuStreamDestroy_v2, (void *stream))                                                      \
    X(cuStreamSynchronize, (void *stream))                                                     \
    X(cuStreamQuery, (void *stream))                                                           \
    X(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))                          \
    X(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes))                                \
    X(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream))       \
    X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream))             \
    X(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t bytes, void *stream))                 \
    X(cuModuleLoadData, (void **module, const void *image))                                    \
    X(cuModuleUnload, (void *module))                                                          \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                  \
    X(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                       unsigned block_x, unsigned block_y, unsigned block_z,                   \
                       unsigned shared_bytes, void *stream, void **arguments, void **extra))
/* clang-format on */

/* Expands X(name, arguments) for every function of the driver that Tandem uses. */
#define CU_CALLS(X) CU_DEVICE_CALLS(X) CU_MEMORY_CALLS(X) CU_ORDER_CALLS(X)

#endif
