/* faulty_device.c - any device, but the n-th call fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/faulty_device.h"

#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct faulty {
    struct tdm__device base;
    struct tdm__device *inner; /* owned */
    uint64_t calls_count;      /* since it was armed */
    uint64_t nth;              /* this one fails; 0: none */
};

static struct tdm__device *inner_of(struct tdm__device *device)
{
    return ((struct faulty *)device)->inner;
}

/* Counts a call; fails the chosen one before it reaches the inner device. */
static tdm_status pass(struct tdm__device *device, const char *entry)
{
    struct faulty *faulty = (struct faulty *)device;

    faulty->calls_count++;
    if (faulty->calls_count == faulty->nth) {
        return tdm__fail(TDM_E_DEVICE, "%s: fault injected into call %llu (%s)",
                         faulty->base.uuid, (unsigned long long)faulty->nth, entry);
    }
    return TDM_OK;
}

static void faulty_close(struct tdm__device *device)
{
    tdm__device_close(inner_of(device));
    free(device);
}

static tdm_status faulty_reserve(struct tdm__device *device, size_t size_bytes,
                                 void **address_out)
{
    TDM_TRY(pass(device, "reserve"));
    return inner_of(device)->ops->reserve(inner_of(device), size_bytes, address_out);
}

static void faulty_unreserve(struct tdm__device *device, void *address, size_t size_bytes)
{
    inner_of(device)->ops->unreserve(inner_of(device), address, size_bytes);
}

static tdm_status faulty_create(struct tdm__device *device, const char *tag,
                                const size_t *sizes_bytes, uint32_t count,
                                struct tdm__block **blocks_out)
{
    TDM_TRY(pass(device, "create"));
    return inner_of(device)->ops->create(inner_of(device), tag, sizes_bytes, count, blocks_out);
}

static tdm_status faulty_import(struct tdm__device *device, const struct tdm__id *key,
                                struct tdm__block **block_out)
{
    TDM_TRY(pass(device, "import"));
    return inner_of(device)->ops->import(inner_of(device), key, block_out);
}

static tdm_status faulty_accept(struct tdm__device *device, struct tdm__block *block)
{
    TDM_TRY(pass(device, "accept"));
    return inner_of(device)->ops->accept(inner_of(device), block);
}

static void faulty_release(struct tdm__device *device, struct tdm__block *const *blocks,
                           uint32_t count)
{
    inner_of(device)->ops->release(inner_of(device), blocks, count);
}

static tdm_status faulty_map(struct tdm__device *device, void *address,
                             struct tdm__block *block, enum tdm__access access)
{
    TDM_TRY(pass(device, "map"));
    return inner_of(device)->ops->map(inner_of(device), address, block, access);
}

static tdm_status faulty_unmap(struct tdm__device *device, void *address, size_t size_bytes)
{
    TDM_TRY(pass(device, "unmap"));
    return inner_of(device)->ops->unmap(inner_of(device), address, size_bytes);
}

static tdm_status faulty_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                                  const struct tdm__mapping *b)
{
    TDM_TRY(pass(device, "exchange"));
    return inner_of(device)->ops->exchange(inner_of(device), a, b);
}

static tdm_status faulty_copy(struct tdm__device *device, void *destination, const void *source,
                              size_t size_bytes)
{
    TDM_TRY(pass(device, "copy"));
    return inner_of(device)->ops->copy(inner_of(device), destination, source, size_bytes);
}

static tdm_status faulty_copy_flush(struct tdm__device *device)
{
    TDM_TRY(pass(device, "copy_flush"));
    return inner_of(device)->ops->copy_flush(inner_of(device));
}

static tdm_status faulty_event_record(struct tdm__device *device, struct tdm__event *event_out)
{
    TDM_TRY(pass(device, "event_record"));
    return inner_of(device)->ops->event_record(inner_of(device), event_out);
}

static tdm_status faulty_event_wait(struct tdm__device *device, const struct tdm__event *event)
{
    TDM_TRY(pass(device, "event_wait"));
    return inner_of(device)->ops->event_wait(inner_of(device), event);
}

static tdm_status faulty_move(struct tdm__device *device, const struct tdm__part *parts,
                              uint32_t count, uint64_t *sums_out)
{
    TDM_TRY(pass(device, "move"));
    return inner_of(device)->ops->move(inner_of(device), parts, count, sums_out);
}

static tdm_status faulty_host_alloc(struct tdm__device *device, size_t size_bytes,
                                    void **address_out)
{
    TDM_TRY(pass(device, "host_alloc"));
    return inner_of(device)->ops->host_alloc(inner_of(device), size_bytes, address_out);
}

static void faulty_host_free(struct tdm__device *device, void *address, size_t size_bytes)
{
    inner_of(device)->ops->host_free(inner_of(device), address, size_bytes);
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
        .accept = faulty_accept,
        .release = faulty_release,
        .map = faulty_map,
        .unmap = faulty_unmap,
        .exchange = faulty_exchange,
        .copy = faulty_copy,
        .copy_flush = faulty_copy_flush,
        .event_record = faulty_event_record,
        .event_wait = faulty_event_wait,
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
