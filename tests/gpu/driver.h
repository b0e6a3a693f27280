/* driver.h - the little of the CUDA driver API that the probe needs, found at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_DRIVER_H
#define TDM_TESTS_GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values and layouts are part of the driver's binary interface. */
enum {
    CU_HANDLE_NONE = 0,
    CU_HANDLE_POSIX_FD = 1,
    CU_ATTRIBUTE_LEGACY_IPC_CAPABLE = 10,
    CU_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_ALLOCATION_PINNED = 1,
    CU_LOCATION_DEVICE = 1,
    CU_ACCESS_READ_WRITE = 3,
};

struct cu_ipc_handle {
    char bytes[64];
};

struct cu_location {
    int type;
    int id;
};

struct cu_allocation {
    int type;
    int handle_types;
    struct cu_location location;
    void *windows_only;
    struct {
        uint8_t compression;
        uint8_t direct_rdma;
        uint16_t usage;
        uint8_t reserved[4];
    } flags;
};

struct cu_access {
    struct cu_location location;
    int flags;
};

_Static_assert(sizeof(struct cu_allocation) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(struct cu_access) == 12, "CUmemAccessDesc");

/* Addresses (CUdeviceptr) and allocation handles are 64-bit numbers; contexts and streams are
 * pointers; every function returns a CUresult, 0 for success. */
#define DRIVER_CALLS(X)                                                                        \
    X(cuInit, (unsigned flags))                                                                \
    X(cuDriverGetVersion, (int *version))                                                      \
    X(cuDeviceGet, (int *device, int ordinal))                                                 \
    X(cuDeviceGetName, (char *name, int bytes, int device))                                    \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                  \
    X(cuCtxSetCurrent, (void *context))                                                        \
    X(cuCtxSynchronize, (void))                                                                \
    X(cuGetErrorName, (int result, const char **name))                                         \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                            \
    X(cuMemAlloc_v2, (uint64_t * address, size_t bytes))                                       \
    X(cuMemFree_v2, (uint64_t address))                                                        \
    X(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                          \
    X(cuMemFreeHost, (void *address))                                                          \
    X(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))                          \
    X(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes))                                \
    X(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream))       \
    X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream))             \
    X(cuPointerGetAttribute, (void *value, int attribute, uint64_t address))                   \
    X(cuIpcGetMemHandle, (struct cu_ipc_handle * handle, uint64_t address))                    \
    X(cuMemGetAllocationGranularity,                                                           \
      (size_t * bytes, const struct cu_allocation *allocation, int which))                     \
    X(cuMemCreate, (uint64_t * handle, size_t bytes, const struct cu_allocation *allocation,   \
                    unsigned long long flags))                                                 \
    X(cuMemRelease, (uint64_t handle))                                                         \
    X(cuMemAddressReserve, (uint64_t * address, size_t bytes, size_t alignment,                \
                            uint64_t wanted, unsigned long long flags))                        \
    X(cuMemAddressFree, (uint64_t address, size_t bytes))                                      \
    X(cuMemMap, (uint64_t address, size_t bytes, size_t offset, uint64_t handle,               \
                 unsigned long long flags))                                                    \
    X(cuMemUnmap, (uint64_t address, size_t bytes))                                            \
    X(cuMemSetAccess,                                                                          \
      (uint64_t address, size_t bytes, const struct cu_access *access, size_t count))          \
    X(cuMemExportToShareableHandle,                                                            \
      (void *shareable, uint64_t handle, int type, unsigned long long flags))                  \
    X(cuMemImportFromShareableHandle, (uint64_t * handle, void *shareable, int type))

struct driver {
#define X(name, arguments) int(*name) arguments;
    DRIVER_CALLS(X)
#undef X
};
extern struct driver driver;

enum { DRIVER_TEXT_BYTES = 256 };

/* False from the function around it, with the reason kept, if it fails. */
#define TRY(expression)                                                                        \
    do {                                                                                       \
        if (!(expression)) {                                                                   \
            return false;                                                                      \
        }                                                                                      \
    } while (0)
#define CU(name, ...) TRY(driver_check(driver.name(__VA_ARGS__), #name))

/* Library, first device, its primary context. */
bool driver_open(void);
bool driver_describe(char *text, size_t room, size_t *granularity_out);

/* The last reason; this process's or one that the importer told. */
const char *driver_failure(void);
bool driver_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool driver_check(int result, const char *name);
const char *driver_error_name(int result);

bool driver_create(size_t size_bytes, int handle_types, uint64_t *handle_out);
bool driver_access(uint64_t address, size_t size_bytes);

/* Reserved addresses and, while handle is not 0, physical memory. */
struct driver_block {
    uint64_t address;
    uint64_t handle;
    size_t size_bytes;
    bool mapped;
};
/* Made, not mapped. */
bool driver_block_create(struct driver_block *block, size_t size_bytes, int handle_types);
/* The same of another process's memory. */
bool driver_block_import(struct driver_block *block, size_t size_bytes, int fd);
bool driver_block_map(struct driver_block *block);
bool driver_block_unmap(struct driver_block *block);
bool driver_block_release(struct driver_block *block);
/* Whatever of it is left. */
bool driver_block_destroy(struct driver_block *block);

/* Contents in which every word differs, and whether they are there. */
bool driver_pattern_write(uint64_t address, size_t size_bytes);
bool driver_pattern_check(uint64_t address, size_t size_bytes);

double driver_seconds(void);

#endif
