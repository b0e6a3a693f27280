/* mapped_target.c - an engine rank's memory that a trainer rank has mapped to write into it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/mapped_target.h"

#include "colocate/weights/remedies.h"
#include "runtime/error.h"

/* Opens the memory blocks of an engine rank's target by their keys. */
static tdm_status import_blocks(struct tdm__device *device, const struct tdm__transfer_target *from,
                                struct tdm__mapped_target *target)
{
    for (uint32_t i = 0; i < from->blocks_count; i++) {
        TDM_TRY(device->ops->import(device, &from->keys[i], &target->blocks[i]));
        target->blocks_count++;
        target->size_bytes += target->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

/* Maps the imported blocks of a target one after the other into a reserved address range. */
static tdm_status map_blocks(struct tdm__device *device, struct tdm__mapped_target *target)
{
    void *address;

    TDM_TRY(device->ops->reserve(device, target->size_bytes, &address));
    target->address = address;
    for (uint32_t i = 0; i < target->blocks_count; i++) {
        TDM_TRY(device->ops->map(device, target->address + target->mapped_bytes, target->blocks[i],
                                 TDM__READ_WRITE));
        target->mapped_bytes += target->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

tdm_status tdm__mapped_target_map(struct tdm__mapped_target *target, struct tdm__device *device,
                                  const struct tdm__transfer_target *from, uint32_t index,
                                  uint64_t wanted_bytes)
{
    TDM_TRY(import_blocks(device, from, target));
    if (target->size_bytes < wanted_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "mapping the weights of engine rank %u failed: its memory has %zu bytes, "
                         "the transfer plan needs %llu. " TDM__REMEDY_DEFECT,
                         index, target->size_bytes, (unsigned long long)wanted_bytes);
    }
    return map_blocks(device, target);
}

void tdm__mapped_target_unmap(struct tdm__mapped_target *target, struct tdm__device *device)
{
    if (target->mapped_bytes > 0) {
        (void)device->ops->unmap(device, target->address, target->mapped_bytes);
    }
    if (target->address != NULL) {
        device->ops->unreserve(device, target->address, target->size_bytes);
    }
    device->ops->release(device, target->blocks, target->blocks_count);
    *target = (struct tdm__mapped_target){.address = NULL};
}
