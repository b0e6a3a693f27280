/* host.c - the device "host": virtual GPUs made of memfd blocks in ordinary memory. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This is the reference implementation of struct tdm__device_ops; tests compare other devices
 * with it. A block is a memfd of the node's broker. Addresses are reserved with mmap(PROT_NONE),
 * and mapping a block replaces the reservation. mapping_cache.c keeps unmapped blocks mapped
 * elsewhere, so that mapping them again only moves page tables.
 *
 * Copies are plain memcpy and complete at once. An exchange that fails in the middle is undone.
 *
 * The actor's thread enters; `move` may run on any thread. device.h specifies the functions. */

#include "colocate/device/host/host.h"

#include "colocate/broker/broker_client.h"
#include "colocate/device/host/mapping_cache.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert((int)TDM__DEVICE_BLOCKS_MAX == (int)TDM__BLOCKS_MAX, "one call of the broker");

/* A virtual GPU. */
struct host_device {
    struct tdm__device base;
    struct tdm__broker_client *client;       /* Borrowed. */
    struct tdm__mapping_cache mapping_cache; /* Mappings of this process on the device. */
};

/* A block of a virtual GPU. */
struct host_block {
    struct tdm__block base;
    int fd; /* Owned descriptor of the memfd. */
};

/* Returns the mapping cache of the device. */
static struct tdm__mapping_cache *mapping_cache_of(struct tdm__device *device)
{
    return &((struct host_device *)device)->mapping_cache;
}

/* Implements close of struct tdm__device_ops. */
static void host_close(struct tdm__device *device)
{
    tdm__mapping_cache_fini(mapping_cache_of(device));
    free(device);
}

/* ---- addresses -------------------------------------------------------------------------- */

/* Implements reserve of struct tdm__device_ops. */
static tdm_status host_reserve(struct tdm__device *device, size_t size_bytes, void **address_out)
{
    size_t unit = device->granularity_bytes;

    if (size_bytes == 0 || size_bytes % unit != 0 || size_bytes > SIZE_MAX - unit) {
        return tdm__fail(TDM_E_INVAL, "%zu bytes of addresses: a multiple of %zu is needed",
                         size_bytes, unit);
    }
    return tdm__address_range_reserve(size_bytes, address_out);
}

/* Implements unreserve of struct tdm__device_ops. */
static void host_unreserve(struct tdm__device *device, void *address, size_t size_bytes)
{
    tdm__mapping_cache_forget(mapping_cache_of(device), address, size_bytes);
    (void)munmap(address, size_bytes);
}

/* Implements map of struct tdm__device_ops. */
static tdm_status host_map(struct tdm__device *device, void *address, struct tdm__block *block,
                           enum tdm__access access)
{
    return tdm__mapping_cache_map(mapping_cache_of(device), address, block->size_bytes,
                                  ((struct host_block *)block)->fd, access);
}

/* Implements unmap of struct tdm__device_ops: the mapping cache may keep the blocks mapped
 * elsewhere. */
static tdm_status host_unmap(struct tdm__device *device, void *address, size_t size_bytes)
{
    return tdm__mapping_cache_unmap(mapping_cache_of(device), address, size_bytes);
}

/* ---- blocks ----------------------------------------------------------------------------- */

/* Releases blocks at the broker and logs a failure. */
static void release_keys(struct host_device *host, const struct tdm__id *keys, uint32_t count)
{
    if (host->client->ops->release(host->client, keys, count) != TDM_OK) {
        tdm__log(TDM__WARN, "device", "%u blocks of %s could not be released: %s", count,
                 host->base.uuid, tdm_error_detail());
    }
}

/* Creates a block from the broker's handle. Takes the handle's descriptor on TDM_OK. */
static tdm_status host_block_create(const struct tdm__block_handle *handle,
                                    struct tdm__block **block_out)
{
    struct host_block *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a block");
    }
    block->base.key = handle->key;
    block->base.size_bytes = handle->size_bytes;
    block->fd = handle->fd;
    *block_out = &block->base;
    return TDM_OK;
}

/* Implements release of struct tdm__device_ops, in batches of keys. */
static void host_release(struct tdm__device *device, struct tdm__block *const *blocks,
                         uint32_t count)
{
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    uint32_t filled = 0;

    for (uint32_t i = 0; i < count; i++) {
        keys[filled++] = blocks[i]->key;
        (void)close(((struct host_block *)blocks[i])->fd);
        free(blocks[i]);
        if (filled == TDM__DEVICE_BLOCKS_MAX || i + 1 == count) {
            release_keys((struct host_device *)device, keys, filled);
            filled = 0;
        }
    }
}

/* Implements create of struct tdm__device_ops: the broker allocates all blocks or none. */
static tdm_status host_create(struct tdm__device *device, const char *tag,
                              const size_t *sizes_bytes, uint32_t count,
                              struct tdm__block **blocks_out)
{
    struct host_device *host = (struct host_device *)device;
    struct tdm__block_request request = {.gpu = device->gpu, .tag = tag, .count = count};
    struct tdm__block_handle handles[TDM__BLOCKS_MAX];
    struct tdm__block *blocks[TDM__BLOCKS_MAX];
    tdm_status status = TDM_OK;
    uint32_t wrapped = 0;

    if (count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u blocks at once: at most %d", count,
                         TDM__DEVICE_BLOCKS_MAX);
    }
    memcpy(request.sizes_bytes, sizes_bytes, count * sizeof(sizes_bytes[0]));
    TDM_TRY(host->client->ops->make(host->client, &request, handles));
    while (wrapped < count && status == TDM_OK) {
        status = host_block_create(&handles[wrapped], &blocks[wrapped]);
        wrapped += status == TDM_OK ? 1 : 0;
    }
    if (status != TDM_OK) {
        host_release(device, blocks, wrapped);
        for (uint32_t i = wrapped; i < count; i++) {
            (void)close(handles[i].fd);
            release_keys(host, &handles[i].key, 1);
        }
        return status;
    }
    memcpy(blocks_out, blocks, count * sizeof(blocks[0]));
    return TDM_OK;
}

/* Implements import of struct tdm__device_ops. */
static tdm_status host_import(struct tdm__device *device, const struct tdm__id *key,
                              struct tdm__block **block_out)
{
    struct host_device *host = (struct host_device *)device;
    struct tdm__block_handle handle;
    tdm_status status;

    TDM_TRY(host->client->ops->open(host->client, key, &handle));
    status = host_block_create(&handle, block_out);
    if (status != TDM_OK) {
        (void)close(handle.fd);
        release_keys(host, key, 1);
    }
    return status;
}

/* Implements descriptor of struct tdm__device_ops. */
static tdm_status host_descriptor(struct tdm__device *device, const struct tdm__block *block,
                                  int *descriptor_out)
{
    (void)device;
    *descriptor_out = ((const struct host_block *)block)->fd;
    return TDM_OK;
}

/* ---- exchange --------------------------------------------------------------------------- */

/* Exchanges the mappings of one pair of blocks, at `offset` from both addresses. */
static tdm_status exchange_block(struct tdm__device *device, const struct tdm__mapping *a,
                                 const struct tdm__mapping *b, size_t offset, uint32_t index)
{
    char *address_a = (char *)a->address + offset;
    char *address_b = (char *)b->address + offset;
    size_t size_bytes = a->blocks[index]->size_bytes;
    tdm_status status = TDM_OK;
    void *aside = NULL;
    int error_number;

    TDM_TRY(host_reserve(device, size_bytes, &aside));
    error_number = tdm__page_tables_move(aside, address_a, size_bytes);
    if (error_number == 0) {
        error_number = tdm__page_tables_move(address_a, address_b, size_bytes);
        if (error_number == 0) {
            error_number = tdm__page_tables_move(address_b, aside, size_bytes);
            if (error_number != 0) {
                /* Mapping from the descriptor is slower, but possible at any time. */
                status =
                    tdm__pages_map(address_b, size_bytes,
                                   ((struct host_block *)a->blocks[index])->fd, TDM__READ_WRITE);
                error_number = 0;
            }
            tdm__mapping_cache_exchange(mapping_cache_of(device), address_a, address_b);
        }
    }
    (void)munmap(aside, size_bytes);
    return error_number != 0 ? tdm__fail_errno(error_number, "mremap: %zu bytes", size_bytes)
                             : status;
}

/* Undoes the first `count` exchanges by exchanging them once more. */
static void exchange_back(struct tdm__device *device, const struct tdm__mapping *a,
                          const struct tdm__mapping *b, uint32_t count)
{
    const struct tdm__mapping now_a = {a->address, b->blocks, a->blocks_count};
    const struct tdm__mapping now_b = {b->address, a->blocks, a->blocks_count};
    size_t offset = 0;

    for (uint32_t i = 0; i < count; i++) {
        tdm_status status = exchange_block(device, &now_a, &now_b, offset, i);

        TDM_ASSERT(status == TDM_OK); /* A half exchanged mapping cannot be repaired. */
        offset += a->blocks[i]->size_bytes;
    }
}

/* Exchanges all blocks of two mappings; see struct tdm__device_ops. */
static tdm_status host_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                                const struct tdm__mapping *b)
{
    size_t offset = 0;

    TDM_ASSERT(a->blocks_count == b->blocks_count);
    for (uint32_t i = 0; i < a->blocks_count; i++) {
        tdm_status status;

        TDM_ASSERT(a->blocks[i]->size_bytes == b->blocks[i]->size_bytes);
        status = exchange_block(device, a, b, offset, i);
        if (status != TDM_OK) {
            exchange_back(device, a, b, i);
            return status;
        }
        offset += a->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

/* ---- copies ----------------------------------------------------------------------------- */

/* Implements copy of struct tdm__device_ops; complete when it returns. */
static tdm_status host_copy(struct tdm__device *device, void *destination, const void *source,
                            size_t size_bytes)
{
    (void)device;
    memcpy(destination, source, size_bytes);
    return TDM_OK;
}

/* Implements copy_flush of struct tdm__device_ops: no copy is ever pending. */
static tdm_status host_copy_flush(struct tdm__device *device)
{
    (void)device;
    return TDM_OK;
}

/* Implements move of struct tdm__device_ops, one operation after the other. */
static tdm_status host_move(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                            uint32_t count, uint64_t *sums_out)
{
    (void)device;
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(tdm__copy_op_execute(&copy_ops[i], &sums_out[i]));
    }
    return TDM_OK;
}

/* Implements host_alloc of struct tdm__device_ops. */
static tdm_status host_host_alloc(struct tdm__device *device, size_t size_bytes, void **address_out)
{
    void *address =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)device;
    if (address == MAP_FAILED) {
        return tdm__fail_errno(errno, "mmap: %zu bytes of host memory", size_bytes);
    }
    /* If the kernel refuses, small pages are used. */
    (void)madvise(address, size_bytes, MADV_HUGEPAGE);
    *address_out = address;
    return TDM_OK;
}

/* Implements memory_info of struct tdm__device_ops. */
static tdm_status host_memory_info(struct tdm__device *device, uint64_t *total_bytes_out,
                                   uint64_t *free_bytes_out)
{
    (void)device;
    *total_bytes_out = 0;
    *free_bytes_out = 0;
    return TDM_OK;
}

/* Implements host_free of struct tdm__device_ops. */
static void host_host_free(struct tdm__device *device, void *address, size_t size_bytes)
{
    (void)device;
    (void)munmap(address, size_bytes);
}

/* ---- the kind --------------------------------------------------------------------------- */

/* Lists virtual GPUs: their number is not limited. */
static tdm_status host_list(struct tdm__device_list *list_out)
{
    memset(list_out, 0, sizeof(*list_out));
    return TDM_OK;
}

/* Opens a virtual GPU, which has no UUID; see struct tdm__device_kind. */
static tdm_status host_open(struct tdm__broker_client *client, uint32_t gpu, const char *uuid,
                            struct tdm__device **device_out)
{
    static const struct tdm__device_ops ops = {
        .name = "host",
        .close = host_close,
        .reserve = host_reserve,
        .unreserve = host_unreserve,
        .create = host_create,
        .import = host_import,
        .release = host_release,
        .descriptor = host_descriptor,
        .map = host_map,
        .unmap = host_unmap,
        .exchange = host_exchange,
        .copy = host_copy,
        .copy_flush = host_copy_flush,
        .synchronize =
            host_copy_flush, /* Nothing runs on a virtual GPU but its process's threads. */
        .memory_info = host_memory_info,
        .move = host_move,
        .host_alloc = host_host_alloc,
        .host_free = host_host_free,
    };
    struct host_device *host = calloc(1, sizeof(*host));

    (void)uuid;
    if (host == NULL) {
        return tdm__fail(TDM_E_NOMEM, "host device %u", gpu);
    }
    host->base.ops = &ops;
    host->base.gpu = gpu;
    host->base.granularity_bytes = TDM__BLOCK_BYTES_UNIT;
    _Static_assert((int)TDM__PAGE_TABLE_UNIT_BYTES == (int)TDM__BLOCK_BYTES_UNIT, "of both");
    (void)snprintf(host->base.uuid, sizeof(host->base.uuid), "GPU-host-%u", gpu);
    host->client = client;
    *device_out = &host->base;
    return TDM_OK;
}

const struct tdm__device_kind tdm__device_host_kind = {
    .name = "host",
    .gpus_name = "virtual GPUs",
    /* Ray's variable, with the numbers of the virtual GPUs. */
    .visible_devices_variable = "CUDA_VISIBLE_DEVICES",
    .collective = TDM__DEVICE_COLLECTIVE_HOST,
    .list = host_list,
    .open = host_open,
};
