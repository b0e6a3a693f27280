/* faulty_device.c - any device, but the n-th call fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/faulty_device.h"

#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct faulty {
    struct tdm__device base;
    struct tdm__device *inner; /* Device that does the work (owned). */
    uint64_t calls_count;      /* Number of calls since it was armed. */
    uint64_t nth;              /* Number of the call that fails; 0: no call fails. */
};

static struct tdm__device *faulty_inner(struct tdm__device *device)
{
    return ((struct faulty *)device)->inner;
}

/* Counts a call; fails the chosen one before it reaches the inner device. */
static tdm_status count_call(struct tdm__device *device, const char *entry)
{
    struct faulty *faulty = (struct faulty *)device;

    faulty->calls_count++;
    if (faulty->calls_count == faulty->nth) {
        return tdm__fail(TDM_E_DEVICE, "%s: fault injected into call %llu (%s)", faulty->base.uuid,
                         (unsigned long long)faulty->nth, entry);
    }
    return TDM_OK;
}

static void faulty_close(struct tdm__device *device)
{
    tdm__device_close(faulty_inner(device));
    free(device);
}

static tdm_status faulty_reserve(struct tdm__device *device, size_t size_bytes, void **address_out)
{
    TDM_TRY(count_call(device, "reserve"));
    return faulty_inner(device)->ops->reserve(faulty_inner(device), size_bytes, address_out);
}

static void faulty_unreserve(struct tdm__device *device, void *address, size_t size_bytes)
{
    faulty_inner(device)->ops->unreserve(faulty_inner(device), address, size_bytes);
}

static tdm_status faulty_create(struct tdm__device *device, const char *tag,
                                const size_t *sizes_bytes, uint32_t count,
                                struct tdm__block **blocks_out)
{
    TDM_TRY(count_call(device, "create"));
    return faulty_inner(device)->ops->create(faulty_inner(device), tag, sizes_bytes, count,
                                             blocks_out);
}

static tdm_status faulty_import(struct tdm__device *device, const struct tdm__id *key,
                                struct tdm__block **block_out)
{
    TDM_TRY(count_call(device, "import"));
    return faulty_inner(device)->ops->import(faulty_inner(device), key, block_out);
}

static void faulty_release(struct tdm__device *device, struct tdm__block *const *blocks,
                           uint32_t count)
{
    faulty_inner(device)->ops->release(faulty_inner(device), blocks, count);
}

static tdm_status faulty_map(struct tdm__device *device, void *address, struct tdm__block *block,
                             enum tdm__access access)
{
    TDM_TRY(count_call(device, "map"));
    return faulty_inner(device)->ops->map(faulty_inner(device), address, block, access);
}

static tdm_status faulty_unmap(struct tdm__device *device, void *address, size_t size_bytes)
{
    TDM_TRY(count_call(device, "unmap"));
    return faulty_inner(device)->ops->unmap(faulty_inner(device), address, size_bytes);
}

static tdm_status faulty_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                                  const struct tdm__mapping *b)
{
    TDM_TRY(count_call(device, "exchange"));
    return faulty_inner(device)->ops->exchange(faulty_inner(device), a, b);
}

static tdm_status faulty_copy(struct tdm__device *device, void *destination, const void *source,
                              size_t size_bytes)
{
    TDM_TRY(count_call(device, "copy"));
    return faulty_inner(device)->ops->copy(faulty_inner(device), destination, source, size_bytes);
}

static tdm_status faulty_copy_flush(struct tdm__device *device)
{
    TDM_TRY(count_call(device, "copy_flush"));
    return faulty_inner(device)->ops->copy_flush(faulty_inner(device));
}

static tdm_status faulty_synchronize(struct tdm__device *device)
{
    TDM_TRY(count_call(device, "synchronize"));
    return faulty_inner(device)->ops->synchronize(faulty_inner(device));
}

static tdm_status faulty_memory_info(struct tdm__device *device, uint64_t *total_bytes_out,
                                     uint64_t *free_bytes_out)
{
    TDM_TRY(count_call(device, "memory_info"));
    return faulty_inner(device)->ops->memory_info(faulty_inner(device), total_bytes_out,
                                                  free_bytes_out);
}

static tdm_status faulty_move(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                              uint32_t count, uint64_t *sums_out)
{
    TDM_TRY(count_call(device, "move"));
    return faulty_inner(device)->ops->move(faulty_inner(device), copy_ops, count, sums_out);
}

static tdm_status faulty_host_alloc(struct tdm__device *device, size_t size_bytes,
                                    void **address_out)
{
    TDM_TRY(count_call(device, "host_alloc"));
    return faulty_inner(device)->ops->host_alloc(faulty_inner(device), size_bytes, address_out);
}

static void faulty_host_free(struct tdm__device *device, void *address, size_t size_bytes)
{
    faulty_inner(device)->ops->host_free(faulty_inner(device), address, size_bytes);
}

static tdm_status faulty_descriptor(struct tdm__device *device, const struct tdm__block *block,
                                    int *descriptor_out)
{
    TDM_TRY(count_call(device, "descriptor"));
    return faulty_inner(device)->ops->descriptor(faulty_inner(device), block, descriptor_out);
}

tdm_status tdm__device_faulty_open(struct tdm__device *inner, struct tdm__device **device_out)
{
    static const struct tdm__device_ops ops = {
        .name = "faulty",
        .close = faulty_close,
        .reserve = faulty_reserve,
        .unreserve = faulty_unreserve,
        .create = faulty_create,
        .import = faulty_import,
        .release = faulty_release,
        .descriptor = faulty_descriptor,
        .map = faulty_map,
        .unmap = faulty_unmap,
        .exchange = faulty_exchange,
        .copy = faulty_copy,
        .copy_flush = faulty_copy_flush,
        .synchronize = faulty_synchronize,
        .memory_info = faulty_memory_info,
        .move = faulty_move,
        .host_alloc = faulty_host_alloc,
        .host_free = faulty_host_free,
    };
    struct faulty *faulty = calloc(1, sizeof(*faulty));

    if (faulty == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a faulty device");
    }
    faulty->base = *inner;
    faulty->base.ops = &ops;
    faulty->inner = inner;
    *device_out = &faulty->base;
    return TDM_OK;
}

void tdm__device_faulty_arm(struct tdm__device *faulty, uint64_t nth)
{
    ((struct faulty *)faulty)->calls_count = 0;
    ((struct faulty *)faulty)->nth = nth;
}
