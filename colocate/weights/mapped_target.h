/* mapped_target.h - an engine rank's memory that a trainer rank has mapped to write into it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_MAPPED_TARGET_H
#define TDM_COLOCATE_WEIGHTS_MAPPED_TARGET_H

#include "colocate/device/device.h"
#include "colocate/weights/resume_log.h"

/* The memory of an engine rank into which trainer ranks write. */
struct tdm__transfer_target {
    /* True if the engine rank does not exist. Nothing is written for it, but its checksums are
     * computed. */
    bool absent;
    struct tdm__id gpu;    /* ID of the GPU that has the target's memory. */
    uint32_t blocks_count; /* Number of memory blocks of the target. */
    /* Keys of the target's memory blocks, in address order. */
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    /* Which chunks of an aborted update the engine rank reports to have. */
    struct tdm__resume_log resume_log;
};

/* The target of one engine rank, mapped into this process. A zeroed struct is not mapped. */
struct tdm__mapped_target {
    struct tdm__id gpu; /* ID of the GPU that has the target's memory. */
    /* Key of the target's first memory block, by which tensor handles name the target. */
    struct tdm__id key;
    /* Address at which this process has mapped the target; NULL if it is not mapped, because this
     * rank writes nothing there. */
    char *address;
    size_t size_bytes;   /* Size in bytes of the address range that is reserved for the target. */
    size_t mapped_bytes; /* Size in bytes of the part of the address range that is mapped. */
    /* Memory blocks of the target that this process has imported; owned. */
    struct tdm__block *blocks[TDM__DEVICE_BLOCKS_MAX];
    uint32_t blocks_count; /* Number of entries in `blocks`. */
    /* True if no process runs the engine rank, so that nothing is written for it. */
    bool is_absent;
    /* Which chunks of an aborted update the engine rank reports to have. */
    struct tdm__resume_log resume_log;
    uint32_t held_count; /* Number of leading chunks that the engine rank has already. */
};

/* Maps the memory blocks of the target of engine rank `index`, which are at least `wanted_bytes`
 * bytes, one after the other. After a failure the caller unmaps what was mapped. */
tdm_status tdm__mapped_target_map(struct tdm__mapped_target *target, struct tdm__device *device,
                                  const struct tdm__transfer_target *from, uint32_t index,
                                  uint64_t wanted_bytes);
/* Unmaps the memory, releases its blocks and zeroes the struct. */
void tdm__mapped_target_unmap(struct tdm__mapped_target *target, struct tdm__device *device);

#endif
