/* cuda.c - the device "cuda": opening a GPU, and its blocks. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file implements struct tdm__device_ops for a GPU: opening, blocks and the table of
 * functions. cuda_mappings.c has addresses and mappings, streams.c copies, copy_engine.c the
 * kernels.
 *
 * A block is created in two steps: the driver allocates it, then the broker registers its
 * descriptor and charges it. A failure of the second step releases the first. A release does the
 * reverse, so that memory that the broker counts as free is free on the GPU.
 *
 * The actor's thread enters; only `move` may run on any thread. device.h specifies the functions.
 */

#include "colocate/device/cuda/cuda.h"

#include "colocate/device/cuda/copy_engine.h"
#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/cuda_mappings.h"
#include "colocate/device/cuda/streams.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the implementation of the device. */
static struct tdm__cuda_device *cuda_device_of(struct tdm__device *device)
{
    return (struct tdm__cuda_device *)device;
}

/* Returns the driver's description of exportable memory on the GPU. */
static struct cu_allocation allocation_on(const struct tdm__cuda_device *cuda)
{
    return (struct cu_allocation){.type = CU_ALLOCATION_PINNED,
                                  .handle_types = CU_HANDLE_POSIX_FD,
                                  .location = {CU_LOCATION_DEVICE, cuda->device}};
}

/* ---- blocks ----------------------------------------------------------------------------- */

/* Releases an allocation of the driver and logs a failure. */
static void release_handle(struct tdm__cuda_device *cuda, uint64_t handle)
{
    if (tdm__cuda_check(cuda->driver->cuMemRelease(handle), "cuMemRelease") != TDM_OK) {
        tdm__log(TDM__WARN, "device", "a block of %s stays until this process ends: %s",
                 cuda->base.uuid, tdm_error_detail());
    }
}

/* Releases blocks at the broker and logs a failure. */
static void release_keys(struct tdm__cuda_device *cuda, const struct tdm__id *keys, uint32_t count)
{
    if (cuda->client->ops->release(cuda->client, keys, count) != TDM_OK) {
        tdm__log(TDM__WARN, "device", "%u blocks of %s could not be released: %s", count,
                 cuda->base.uuid, tdm_error_detail());
    }
}

/* Implements release of struct tdm__device_ops. */
static void cuda_release(struct tdm__device *device, struct tdm__block *const *blocks,
                         uint32_t count)
{
    struct tdm__cuda_device *cuda = cuda_device_of(device);
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    uint32_t filled = 0;

    for (uint32_t i = 0; i < count; i++) {
        keys[filled++] = blocks[i]->key;
        /* The memory is released before the broker learns of it, so that what the broker counts
         * as free is free. */
        release_handle(cuda, ((struct tdm__cuda_block *)blocks[i])->handle);
        free(blocks[i]);
        if (filled == TDM__DEVICE_BLOCKS_MAX || i + 1 == count) {
            release_keys(cuda, keys, filled);
            filled = 0;
        }
    }
}

/* Allocates a block that the broker does not know yet, and exports its descriptor, which the
 * caller must close. */
static tdm_status cuda_block_create(struct tdm__cuda_device *cuda, size_t size_bytes,
                                    struct tdm__cuda_block **block_out, int *fd_out)
{
    const struct cu_allocation allocation = allocation_on(cuda);
    struct tdm__cuda_block *block = calloc(1, sizeof(*block));
    tdm_status status;

    if (block == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a block");
    }
    block->base.size_bytes = size_bytes;
    status = tdm__cuda_check(cuda->driver->cuMemCreate(&block->handle, size_bytes, &allocation, 0),
                             "cuMemCreate of %zu bytes", size_bytes);
    if (status != TDM_OK) {
        free(block);
        return status;
    }
    status = tdm__cuda_check(
        cuda->driver->cuMemExportToShareableHandle(fd_out, block->handle, CU_HANDLE_POSIX_FD, 0),
        "cuMemExportToShareableHandle of %zu bytes as a descriptor", size_bytes);
    if (status != TDM_OK) {
        release_handle(cuda, block->handle);
        free(block);
        return status;
    }
    *block_out = block;
    return TDM_OK;
}

/* Registers new blocks with the broker, which charges this process, and sets their keys. */
static tdm_status cuda_register_blocks(struct tdm__cuda_device *cuda, const char *tag,
                                       struct tdm__cuda_block *const *blocks, const int *fds,
                                       uint32_t count)
{
    struct tdm__block_request request = {.gpu = cuda->base.gpu, .tag = tag, .count = count};
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];

    for (uint32_t i = 0; i < count; i++) {
        request.sizes_bytes[i] = blocks[i]->base.size_bytes;
    }
    TDM_TRY(cuda->client->ops->adopt(cuda->client, &request, fds, keys));
    for (uint32_t i = 0; i < count; i++) {
        blocks[i]->base.key = keys[i];
    }
    return TDM_OK;
}

/* Implements create of struct tdm__device_ops: allocates all blocks, then registers them with the
 * broker. */
static tdm_status cuda_create(struct tdm__device *device, const char *tag,
                              const size_t *sizes_bytes, uint32_t count,
                              struct tdm__block **blocks_out)
{
    struct tdm__cuda_device *cuda = cuda_device_of(device);
    struct tdm__cuda_block *blocks[TDM__DEVICE_BLOCKS_MAX];
    int fds[TDM__DEVICE_BLOCKS_MAX] = {0};
    size_t wanted_bytes = 0;
    uint32_t made = 0;
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    if (count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u blocks at once: at most %d", count,
                         TDM__DEVICE_BLOCKS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        wanted_bytes += sizes_bytes[i];
    }
    status = tdm__cuda_enter(cuda, &scope);
    while (made < count && status == TDM_OK) {
        status = cuda_block_create(cuda, sizes_bytes[made], &blocks[made], &fds[made]);
        made += status == TDM_OK ? 1 : 0;
    }
    status = status == TDM_OK ? cuda_register_blocks(cuda, tag, blocks, fds, count)
                              : tdm__cuda_describe_oom(cuda, status, tag, wanted_bytes);
    for (uint32_t i = 0; i < made; i++) {
        (void)close(fds[i]);
        if (status == TDM_OK) {
            blocks_out[i] = &blocks[i]->base;
        } else {
            release_handle(cuda, blocks[i]->handle);
            free(blocks[i]);
        }
    }
    return status;
}

/* Imports the memory behind the handle's descriptor, which stays the caller's. */
static tdm_status cuda_block_open(struct tdm__cuda_device *cuda,
                                  const struct tdm__block_handle *handle,
                                  struct tdm__block **block_out)
{
    struct tdm__cuda_block *block = calloc(1, sizeof(*block));
    tdm_status status;

    if (block == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a block");
    }
    block->base.key = handle->key;
    block->base.size_bytes = handle->size_bytes;
    /* The driver's interface passes the descriptor itself as the pointer. */
    status = tdm__cuda_check(
        cuda->driver->cuMemImportFromShareableHandle(
            &block->handle, (void *)(uintptr_t)(unsigned)handle->fd, CU_HANDLE_POSIX_FD),
        "cuMemImportFromShareableHandle of %zu bytes from descriptor %d", handle->size_bytes,
        handle->fd);
    if (status != TDM_OK) {
        free(block);
        return status;
    }
    *block_out = &block->base;
    return TDM_OK;
}

/* Implements import of struct tdm__device_ops. */
static tdm_status cuda_import(struct tdm__device *device, const struct tdm__id *key,
                              struct tdm__block **block_out)
{
    struct tdm__cuda_device *cuda = cuda_device_of(device);
    struct tdm__block_handle handle;
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(cuda->client->ops->open(cuda->client, key, &handle));
    status = cuda_block_open(cuda, &handle, block_out);
    (void)close(handle.fd);
    if (status != TDM_OK) {
        release_keys(cuda, key, 1);
    }
    return status;
}

/* Implements memory_info of struct tdm__device_ops. */
static tdm_status cuda_memory_info(struct tdm__device *device, uint64_t *total_bytes_out,
                                   uint64_t *free_bytes_out)
{
    struct tdm__cuda_device *cuda = cuda_device_of(device);
    size_t free_bytes;
    size_t total_bytes;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_check(cuda->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes),
                            "cuMemGetInfo of %s", device->uuid));
    *total_bytes_out = total_bytes;
    *free_bytes_out = free_bytes;
    return TDM_OK;
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Destroys what the device has in its context. */
static void close_streams(struct tdm__cuda_device *cuda)
{
    TDM__CUDA_SCOPE(scope);

    if (tdm__cuda_enter(cuda, &scope) == TDM_OK) {
        tdm__cuda_copy_engine_close(cuda);
        tdm__cuda_streams_close(cuda);
    }
}

/* Implements close of struct tdm__device_ops. */
static void cuda_close(struct tdm__device *device)
{
    struct tdm__cuda_device *cuda = cuda_device_of(device);

    TDM_ASSERT(cuda->block_mappings == NULL);
    close_streams(cuda);
    (void)cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
    (void)pthread_mutex_destroy(&cuda->copy_engine_lock);
    free(cuda);
}

/* Fails with TDM_E_UNSUPPORTED if the GPU does not support the feature `what`. */
static tdm_status check_attribute(const struct tdm__cuda_device *cuda, int attribute,
                                  const char *what)
{
    int supported = 0;

    TDM_TRY(tdm__cuda_check(cuda->driver->cuDeviceGetAttribute(&supported, attribute, cuda->device),
                            "cuDeviceGetAttribute %d of %s", attribute, cuda->base.uuid));
    return supported
               ? TDM_OK
               : tdm__fail(TDM_E_UNSUPPORTED, "%s does not support %s", cuda->base.uuid, what);
}

/* Checks the features of the GPU and reads its granularity; needs no context. */
static tdm_status query_device(struct tdm__cuda_device *cuda)
{
    const struct cu_allocation allocation = allocation_on(cuda);
    size_t unit;

    TDM_TRY(check_attribute(cuda, CU_DEVICE_VMM_SUPPORTED, "virtual memory management"));
    TDM_TRY(
        check_attribute(cuda, CU_DEVICE_POSIX_FD_SUPPORTED, "memory shared by file descriptors"));
    TDM_TRY(tdm__cuda_check(
        cuda->driver->cuMemGetAllocationGranularity(&unit, &allocation, CU_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity of %s", cuda->base.uuid));
    /* The broker requires multiples of TDM__BLOCK_BYTES_UNIT. */
    cuda->base.granularity_bytes = unit > TDM__BLOCK_BYTES_UNIT ? unit : TDM__BLOCK_BYTES_UNIT;
    return TDM_OK;
}

/* Creates the streams in the retained context. */
static tdm_status open_streams(struct tdm__cuda_device *cuda)
{
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    return tdm__cuda_streams_open(cuda);
}

/* Retains the primary context and creates the streams. */
static tdm_status open_primary_context(struct tdm__cuda_device *cuda)
{
    tdm_status status;
    int result;

    TDM_TRY(query_device(cuda));
    result = cuda->driver->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device);
    status = tdm__cuda_check(result, "cuDevicePrimaryCtxRetain of %s", cuda->base.uuid);
    if (result == CU_DEVICE_UNAVAILABLE) {
        return tdm__fail(
            status,
            "%s. If its compute mode is EXCLUSIVE_PROCESS, another process has the "
            "only context; actors that share a GPU need DEFAULT: nvidia-smi -c DEFAULT",
            tdm_error_detail());
    }
    TDM_TRY(status);
    status = open_streams(cuda);
    if (status != TDM_OK) {
        (void)cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
    }
    return status;
}

/* Implements descriptor of struct tdm__device_ops: memory of a GPU is no file. */
static tdm_status cuda_descriptor(struct tdm__device *device, const struct tdm__block *block,
                                  int *descriptor_out)
{
    (void)block;
    (void)descriptor_out;
    return tdm__fail(TDM_E_UNSUPPORTED,
                     "the memory of %s is no file that another process can map: export memory of "
                     "cudaMalloc by cudaIpc",
                     device->uuid);
}

/* The functions of the device "cuda". */
static const struct tdm__device_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .reserve = tdm__cuda_reserve,
    .unreserve = tdm__cuda_unreserve,
    .create = cuda_create,
    .import = cuda_import,
    .release = cuda_release,
    .descriptor = cuda_descriptor,
    .map = tdm__cuda_map,
    .unmap = tdm__cuda_unmap,
    .exchange = tdm__cuda_exchange,
    .copy = tdm__cuda_copy,
    .copy_flush = tdm__cuda_copy_flush,
    .synchronize = tdm__cuda_synchronize,
    .memory_info = cuda_memory_info,
    .move = tdm__cuda_run_copy_ops,
    .host_alloc = tdm__cuda_host_alloc,
    .host_free = tdm__cuda_host_free,
};

/* ---- the kind --------------------------------------------------------------------------- */

/* Lists the GPUs that the CUDA driver reports. */
static tdm_status cuda_list(struct tdm__device_list *list_out)
{
    struct tdm__device_list list = {.bytes = SIZE_MAX};

    TDM_TRY(tdm__cuda_gpus_count(&list.count));
    if (list.count == 0 || list.count > TDM__DEVICE_GPUS_MAX) {
        return tdm__fail(TDM_E_UNSUPPORTED, "the driver shows %u GPUs: 1 to %d can be offered",
                         list.count, TDM__DEVICE_GPUS_MAX);
    }
    for (uint32_t i = 0; i < list.count; i++) {
        struct tdm__cuda_gpu gpu;

        TDM_TRY(tdm__cuda_gpu_at(i, &gpu));
        memcpy(list.uuids[i], gpu.uuid, sizeof(list.uuids[i]));
        list.bytes = gpu.total_bytes < list.bytes ? gpu.total_bytes : list.bytes;
    }
    *list_out = list;
    return TDM_OK;
}

/* Opens the GPU with this UUID; see struct tdm__device_kind. */
static tdm_status cuda_open(struct tdm__broker_client *client, uint32_t gpu, const char *uuid,
                            struct tdm__device **device_out)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_device *cuda;
    struct tdm__cuda_gpu found;
    tdm_status status;

    TDM_TRY(tdm__cuda_driver(&driver));
    TDM_TRY(tdm__cuda_gpu_find(uuid, &found));
    cuda = calloc(1, sizeof(*cuda));
    if (cuda == NULL) {
        return tdm__fail(TDM_E_NOMEM, "CUDA device %s", uuid);
    }
    cuda->base.ops = &cuda_ops;
    cuda->base.gpu = gpu;
    (void)snprintf(cuda->base.uuid, sizeof(cuda->base.uuid), "%s", found.uuid);
    cuda->driver = driver;
    cuda->client = client;
    cuda->device = found.device;
    cuda->base.visible_number = found.device; /* The driver's numbers are the CUDA runtime's. */
    (void)pthread_mutex_init(&cuda->copy_engine_lock, NULL);
    status = open_primary_context(cuda);
    if (status != TDM_OK) {
        (void)pthread_mutex_destroy(&cuda->copy_engine_lock);
        free(cuda);
        return status;
    }
    *device_out = &cuda->base;
    return TDM_OK;
}

const struct tdm__device_kind tdm__device_cuda_kind = {
    .name = "cuda",
    .gpus_name = "GPUs",
    .visible_devices_variable = "CUDA_VISIBLE_DEVICES",
    .collective = TDM__DEVICE_COLLECTIVE_NCCL,
    .list = cuda_list,
    .open = cuda_open,
};
