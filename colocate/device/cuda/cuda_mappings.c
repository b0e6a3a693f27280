/* cuda_mappings.c - address ranges on a GPU, and which blocks are mapped there. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The device owns a list of mappings (cuda->block_mappings), one per mapped block. The driver has
 * no call that moves a mapping, so an exchange unmaps both ranges and maps the blocks again.
 *
 * Invariant: a function that fails leaves all mappings as they were. Unmapped blocks are mapped
 * again; if the driver refuses that, the process stops, because half of a region would be
 * missing.
 *
 * Before anything is unmapped, the GPU has done all that this process has queued on it, in any
 * library's stream: a kernel that still used the memory would be an illegal access, after which the
 * process can use the GPU no more. The actor's thread enters. device.h specifies the functions. */

#include "colocate/device/cuda/cuda_mappings.h"

#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/streams.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>

/* Converts a pointer to the driver's number for an address. */
static uint64_t device_address(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* ---- addresses -------------------------------------------------------------------------- */

tdm_status tdm__cuda_reserve(struct tdm__device *device, size_t size_bytes, void **address_out)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    size_t unit = device->granularity_bytes;
    uint64_t address;
    TDM__CUDA_SCOPE(scope);

    if (size_bytes == 0 || size_bytes % unit != 0) {
        return tdm__fail(TDM_E_INVAL, "%zu bytes of addresses: a multiple of %zu is needed",
                         size_bytes, unit);
    }
    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_check(cuda->driver->cuMemAddressReserve(&address, size_bytes, unit, 0, 0),
                            "cuMemAddressReserve of %zu bytes", size_bytes));
    *address_out = (void *)(uintptr_t)address;
    return TDM_OK;
}

void tdm__cuda_unreserve(struct tdm__device *device, void *address, size_t size_bytes)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;

    if (tdm__cuda_unmap(device, address, size_bytes) != TDM_OK ||
        tdm__cuda_check(cuda->driver->cuMemAddressFree(device_address(address), size_bytes),
                        "cuMemAddressFree of %zu bytes at %p", size_bytes, address) != TDM_OK) {
        tdm__log(TDM__WARN, "device", "addresses of %s stay reserved: %s", device->uuid,
                 tdm_error_detail());
    }
}

/* ---- mapping ---------------------------------------------------------------------------- */

/* Sets the access of a mapped range. A read-only mapping is only a request: drivers that do not
 * support it map for reading and writing. */
static tdm_status set_access(struct tdm__cuda_device *cuda, uint64_t address, size_t size_bytes,
                             enum tdm__access access)
{
    struct cu_access wanted = {{CU_LOCATION_DEVICE, cuda->device}, CU_ACCESS_READ_WRITE};

    if (access == TDM__READ_ONLY && !cuda->read_only_unsupported) {
        wanted.flags = CU_ACCESS_READ;
        if (cuda->driver->cuMemSetAccess(address, size_bytes, &wanted, 1) == CU_SUCCESS) {
            return TDM_OK;
        }
        cuda->read_only_unsupported = true;
        wanted.flags = CU_ACCESS_READ_WRITE;
    }
    return tdm__cuda_check(cuda->driver->cuMemSetAccess(address, size_bytes, &wanted, 1),
                           "cuMemSetAccess of %zu bytes at 0x%llx", size_bytes,
                           (unsigned long long)address);
}

/* Maps a block at an address and sets the access, without adding it to the device's list. */
static tdm_status add_mapping(struct tdm__cuda_device *cuda, uint64_t address,
                              const struct tdm__cuda_block *block, enum tdm__access access)
{
    size_t size_bytes = block->base.size_bytes;
    tdm_status status;

    TDM_TRY(tdm__cuda_check(cuda->driver->cuMemMap(address, size_bytes, 0, block->handle, 0),
                            "cuMemMap of %zu bytes at 0x%llx", size_bytes,
                            (unsigned long long)address));
    status = set_access(cuda, address, size_bytes, access);
    if (status != TDM_OK) {
        (void)cuda->driver->cuMemUnmap(address, size_bytes);
    }
    return status;
}

/* Unmaps a block without removing it from the device's list. */
static tdm_status remove_mapping(struct tdm__cuda_device *cuda,
                                 const struct tdm__cuda_mapping *block_mapping)
{
    size_t size_bytes = block_mapping->block->base.size_bytes;

    return tdm__cuda_check(cuda->driver->cuMemUnmap(block_mapping->address, size_bytes),
                           "cuMemUnmap of %zu bytes at 0x%llx", size_bytes,
                           (unsigned long long)block_mapping->address);
}

tdm_status tdm__cuda_map(struct tdm__device *device, void *address, struct tdm__block *block,
                         enum tdm__access access)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    struct tdm__cuda_mapping *block_mapping = calloc(1, sizeof(*block_mapping));
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    if (block_mapping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a mapping");
    }
    *block_mapping = (struct tdm__cuda_mapping){.next = cuda->block_mappings,
                                                .address = device_address(address),
                                                .block = (struct tdm__cuda_block *)block,
                                                .access = access};
    status = tdm__cuda_enter(cuda, &scope);
    if (status == TDM_OK) {
        status = add_mapping(cuda, block_mapping->address, block_mapping->block, access);
    }
    if (status != TDM_OK) {
        free(block_mapping);
        return tdm__cuda_describe_oom(cuda, status, "a mapping", block->size_bytes);
    }
    cuda->block_mappings = block_mapping;
    return TDM_OK;
}

/* Removes all mappings in a range of addresses from the device's list and returns them. Fails if
 * the range cuts a block in two. */
static tdm_status mappings_detach(struct tdm__cuda_device *cuda, uint64_t address,
                                  size_t size_bytes, struct tdm__cuda_mapping **taken_out)
{
    struct tdm__cuda_mapping **link = &cuda->block_mappings;

    for (const struct tdm__cuda_mapping *block_mapping = cuda->block_mappings;
         block_mapping != NULL; block_mapping = block_mapping->next) {
        uint64_t end = block_mapping->address + block_mapping->block->base.size_bytes;
        bool touches = block_mapping->address < address + size_bytes && end > address;

        if (touches && (block_mapping->address < address || end > address + size_bytes)) {
            return tdm__fail(
                TDM_E_INVAL, "%zu bytes at 0x%llx cut a block of %zu bytes at 0x%llx in two",
                size_bytes, (unsigned long long)address, block_mapping->block->base.size_bytes,
                (unsigned long long)block_mapping->address);
        }
    }
    *taken_out = NULL;
    while (*link != NULL) {
        struct tdm__cuda_mapping *block_mapping = *link;

        if (block_mapping->address - address >= size_bytes) {
            link = &block_mapping->next;
            continue;
        }
        *link = block_mapping->next;
        block_mapping->next = *taken_out;
        *taken_out = block_mapping;
    }
    return TDM_OK;
}

/* Maps the unmapped blocks of `gone` again and adds them to the device's list. */
static void remap_blocks(struct tdm__cuda_device *cuda, struct tdm__cuda_mapping *gone)
{
    while (gone != NULL) {
        struct tdm__cuda_mapping *block_mapping = gone;
        tdm_status status =
            add_mapping(cuda, block_mapping->address, block_mapping->block, block_mapping->access);

        TDM_ASSERT(status == TDM_OK); /* A half unmapped range cannot be repaired. */
        gone = block_mapping->next;
        block_mapping->next = cuda->block_mappings;
        cuda->block_mappings = block_mapping;
    }
}

/* Moves all mappings of one list to another. */
static void mappings_move_all(struct tdm__cuda_mapping **from, struct tdm__cuda_mapping **to)
{
    while (*from != NULL) {
        struct tdm__cuda_mapping *block_mapping = *from;

        *from = block_mapping->next;
        block_mapping->next = *to;
        *to = block_mapping;
    }
}

/* Unmaps every block in a range of addresses. The mappings that were there go to `gone_out`,
 * which the caller owns. */
static tdm_status unmap_mappings(struct tdm__cuda_device *cuda, uint64_t address, size_t size_bytes,
                                 struct tdm__cuda_mapping **gone_out)
{
    struct tdm__cuda_mapping *present;
    struct tdm__cuda_mapping *gone = NULL;
    tdm_status status = TDM_OK;

    TDM_TRY(mappings_detach(cuda, address, size_bytes, &present));
    while (present != NULL && status == TDM_OK) {
        struct tdm__cuda_mapping *block_mapping = present;

        status = remove_mapping(cuda, block_mapping);
        if (status == TDM_OK) {
            present = block_mapping->next;
            block_mapping->next = gone;
            gone = block_mapping;
        }
    }
    if (status != TDM_OK) {
        mappings_move_all(&present, &cuda->block_mappings);
        remap_blocks(cuda, gone);
        return status;
    }
    *gone_out = gone;
    return TDM_OK;
}

/* Frees a list of mappings. */
static void free_mappings(struct tdm__cuda_mapping *block_mapping)
{
    while (block_mapping != NULL) {
        struct tdm__cuda_mapping *next = block_mapping->next;

        free(block_mapping);
        block_mapping = next;
    }
}

/* Returns true if a block is mapped somewhere in a range of addresses. */
static bool has_mappings_in(const struct tdm__cuda_device *cuda, uint64_t address,
                            size_t size_bytes)
{
    const struct tdm__cuda_mapping *block_mapping = cuda->block_mappings;

    while (block_mapping != NULL &&
           (block_mapping->address >= address + size_bytes ||
            block_mapping->address + block_mapping->block->base.size_bytes <= address)) {
        block_mapping = block_mapping->next;
    }
    return block_mapping != NULL;
}

tdm_status tdm__cuda_unmap(struct tdm__device *device, void *address, size_t size_bytes)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    struct tdm__cuda_mapping *gone = NULL;
    TDM__CUDA_SCOPE(scope);

    if (!has_mappings_in(cuda, device_address(address), size_bytes)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_synchronize(device)); /* No copy and no kernel may still use the memory. */
    TDM_TRY(unmap_mappings(cuda, device_address(address), size_bytes, &gone));
    free_mappings(gone);
    return TDM_OK;
}

/* ---- exchange --------------------------------------------------------------------------- */

/* Returns the bytes of all blocks of a mapping. */
static size_t mappings_bytes(const struct tdm__mapping *mapping)
{
    size_t size_bytes = 0;

    for (uint32_t i = 0; i < mapping->blocks_count; i++) {
        size_bytes += mapping->blocks[i]->size_bytes;
    }
    return size_bytes;
}

/* Maps the blocks of `mapping` at another address; on failure none stays mapped. */
static tdm_status map_blocks(struct tdm__device *device, void *address,
                             const struct tdm__mapping *mapping)
{
    char *at = address;

    for (uint32_t i = 0; i < mapping->blocks_count; i++) {
        tdm_status status = tdm__cuda_map(device, at, mapping->blocks[i], TDM__READ_WRITE);

        if (status != TDM_OK) {
            size_t mapped_bytes = (size_t)(at - (char *)address);
            tdm_status undone =
                mapped_bytes > 0 ? tdm__cuda_unmap(device, address, mapped_bytes) : TDM_OK;

            TDM_ASSERT(undone == TDM_OK);
            return status;
        }
        at += mapping->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

/* Maps the blocks of each unmapped range at the other's address; on failure none stays mapped. */
static tdm_status map_exchanged(struct tdm__device *device, const struct tdm__mapping *a,
                                const struct tdm__mapping *b)
{
    tdm_status status;

    TDM_TRY(map_blocks(device, a->address, b));
    status = map_blocks(device, b->address, a);
    if (status != TDM_OK) {
        tdm_status undone = tdm__cuda_unmap(device, a->address, mappings_bytes(b));

        TDM_ASSERT(undone == TDM_OK);
    }
    return status;
}

tdm_status tdm__cuda_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                              const struct tdm__mapping *b)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    struct tdm__cuda_mapping *gone_a = NULL;
    struct tdm__cuda_mapping *gone_b = NULL;
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    TDM_ASSERT(mappings_bytes(a) == mappings_bytes(b));
    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_synchronize(device));
    TDM_TRY(unmap_mappings(cuda, device_address(a->address), mappings_bytes(a), &gone_a));
    status = unmap_mappings(cuda, device_address(b->address), mappings_bytes(b), &gone_b);
    if (status == TDM_OK) {
        status = map_exchanged(device, a, b);
    }
    if (status != TDM_OK) {
        remap_blocks(cuda, gone_a);
        remap_blocks(cuda, gone_b);
        return status;
    }
    free_mappings(gone_a);
    free_mappings(gone_b);
    return TDM_OK;
}
