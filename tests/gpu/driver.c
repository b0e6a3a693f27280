/* driver.c - the driver's library opened, and blocks of its virtual memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct driver driver;
static char failure[DRIVER_TEXT_BYTES];

const char *driver_failure(void)
{
    return failure;
}

bool driver_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(failure, sizeof(failure), format, args);
    va_end(args);
    return false;
}

const char *driver_error_name(int result)
{
    const char *name = NULL;

    if (result == 0) {
        return "ok";
    }
    if (driver.cuGetErrorName(result, &name) != 0 || name == NULL) {
        return "an error without a name";
    }
    return name;
}

bool driver_check(int result, const char *name)
{
    return result == 0 || driver_fail("%s: %s", name, driver_error_name(result));
}

double driver_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- opening ---------------------------------------------------------------------------- */

static bool load(void)
{
    const char *path = getenv("TANDEM_CUDA_LIBRARY");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        return driver_fail("%s", dlerror());
    }
    /* POSIX keeps functions in void pointers; C does not know how. */
#define X(name, arguments)                                                                         \
    *(void **)&driver.name = dlsym(library, #name);                                                \
    if (driver.name == NULL) {                                                                     \
        return driver_fail("libcuda.so.1: has no " #name);                                         \
    }
    CU_CALLS(X)
#undef X
    return true;
}

bool driver_open(void)
{
    void *context;
    int device;

    TRY(load());
    CU(cuInit, 0);
    CU(cuDeviceGet, &device, 0);
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
    return true;
}

static struct cu_allocation allocation_of(int handle_types)
{
    return (struct cu_allocation){.type = CU_ALLOCATION_PINNED,
                                  .handle_types = handle_types,
                                  .location = {CU_LOCATION_DEVICE, 0}};
}

bool driver_describe(char *text, size_t room, size_t *granularity_out)
{
    struct cu_allocation allocation = allocation_of(CU_HANDLE_POSIX_FD);
    char name[DRIVER_TEXT_BYTES / 2];
    size_t free_bytes;
    size_t total_bytes;
    int version;

    CU(cuDriverGetVersion, &version);
    CU(cuDeviceGetName, name, (int)sizeof(name), 0);
    CU(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    CU(cuMemGetAllocationGranularity, granularity_out, &allocation, 0);
    (void)snprintf(text, room, "%s, %zu MiB, %zu MiB free, driver %d.%d", name, total_bytes >> 20,
                   free_bytes >> 20, version / 1000, version % 1000 / 10);
    return true;
}

/* ---- blocks ----------------------------------------------------------------------------- */

bool driver_create(size_t size_bytes, int handle_types, uint64_t *handle_out)
{
    struct cu_allocation allocation = allocation_of(handle_types);

    CU(cuMemCreate, handle_out, size_bytes, &allocation, 0);
    return true;
}

bool driver_access(uint64_t address, size_t size_bytes)
{
    struct cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};

    CU(cuMemSetAccess, address, size_bytes, &access, 1);
    return true;
}

static bool block_reserve(struct driver_block *block, size_t size_bytes)
{
    *block = (struct driver_block){.size_bytes = size_bytes};
    CU(cuMemAddressReserve, &block->address, size_bytes, 0, 0, 0);
    return true;
}

bool driver_block_create(struct driver_block *block, size_t size_bytes, int handle_types)
{
    TRY(block_reserve(block, size_bytes));
    return driver_create(size_bytes, handle_types, &block->handle);
}

bool driver_block_import(struct driver_block *block, size_t size_bytes, int fd)
{
    TRY(block_reserve(block, size_bytes));
    /* The driver takes the number itself for a pointer. */
    CU(cuMemImportFromShareableHandle, &block->handle, (void *)(uintptr_t)fd, CU_HANDLE_POSIX_FD);
    return true;
}

bool driver_block_map(struct driver_block *block)
{
    CU(cuMemMap, block->address, block->size_bytes, 0, block->handle, 0);
    block->mapped = true;
    return driver_access(block->address, block->size_bytes);
}

bool driver_block_unmap(struct driver_block *block)
{
    CU(cuMemUnmap, block->address, block->size_bytes);
    block->mapped = false;
    return true;
}

bool driver_block_release(struct driver_block *block)
{
    CU(cuMemRelease, block->handle);
    block->handle = 0;
    return true;
}

bool driver_block_destroy(struct driver_block *block)
{
    if (block->mapped) {
        TRY(driver_block_unmap(block));
    }
    if (block->handle != 0) {
        TRY(driver_block_release(block));
    }
    if (block->address != 0) {
        CU(cuMemAddressFree, block->address, block->size_bytes);
    }
    *block = (struct driver_block){0};
    return true;
}

/* ---- contents --------------------------------------------------------------------------- */

static uint32_t *pattern_make(size_t size_bytes)
{
    uint32_t *words = malloc(size_bytes);

    for (size_t i = 0; words != NULL && i < size_bytes / sizeof(*words); i++) {
        words[i] = (uint32_t)i * 2654435761u + 1;
    }
    if (words == NULL) {
        (void)driver_fail("no memory for %zu bytes of contents", size_bytes);
    }
    return words;
}

bool driver_pattern_write(uint64_t address, size_t size_bytes)
{
    uint32_t *words = pattern_make(size_bytes);
    int result;

    TRY(words != NULL);
    result = driver.cuMemcpyHtoD_v2(address, words, size_bytes);
    free(words);
    return driver_check(result, "cuMemcpyHtoD");
}

bool driver_pattern_check(uint64_t address, size_t size_bytes)
{
    uint32_t *wanted = pattern_make(size_bytes);
    void *found = malloc(size_bytes);
    bool same = false;

    if (wanted != NULL && found != NULL &&
        driver_check(driver.cuMemcpyDtoH_v2(found, address, size_bytes), "cuMemcpyDtoH")) {
        same = memcmp(wanted, found, size_bytes) == 0 ||
               driver_fail("the contents are not those that were written");
    }
    free(wanted);
    free(found);
    return same;
}
