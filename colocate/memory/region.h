/* region.h - the regions of a process on one GPU, and the operations on them that only Tandem
 * uses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_REGION_H
#define TDM_COLOCATE_MEMORY_REGION_H

#include "colocate/device/device.h"
#include "colocate/memory/arena.h"

#include <tandem/region.h>

/* The regions of this process on one device, in the order of creation. Only the actor's thread
 * uses them. tandem/region.h describes a region; this header has the functions for Tandem itself.
 */
struct tdm__regions;

/* Creates an empty set of regions on one device. Borrows the device and the arena; several sets may
 * share an arena. */
tdm_status tdm__regions_create(struct tdm__device *device, struct tdm__arena *arena,
                               struct tdm__regions **regions_out);
/* Destroys a set of regions and every region that is left in it. NULL is allowed. */
void tdm__regions_destroy(struct tdm__regions *regions);

/* Callback before a region with the tag `tag` allocates `bytes` bytes. Blocks until the memory is
 * granted, or returns why it is not. The region allocates the memory right after the grant. */
typedef tdm_status tdm__memory_grant_request_fn(void *arg, const char *tag, size_t bytes,
                                                int64_t timeout_ms);
/* Sets the callback that requests a grant before a region of the set allocates memory. Without it
 * the broker alone decides about memory. */
void tdm__regions_set_grant_request(struct tdm__regions *regions,
                                    tdm__memory_grant_request_fn *grant_request, void *arg);
/* Callback when a region does not allocate memory that was granted. The grant for `tag` may then go
 * to other processes. */
typedef void tdm__memory_grant_cancel_fn(void *arg, const char *tag);
/* Sets the callback that cancels a grant when a region of the set does not allocate the granted
 * memory. */
void tdm__regions_set_grant_cancel(struct tdm__regions *regions,
                                   tdm__memory_grant_cancel_fn *grant_cancel, void *arg);
/* Callback before regions with the tag `tag` start to release `bytes` bytes. 0 withdraws an earlier
 * notice: the regions stay resident. */
typedef void tdm__memory_release_notice_fn(void *arg, const char *tag, size_t bytes);
/* Sets the callback that announces that regions of the set will release memory. */
void tdm__regions_set_release_notice(struct tdm__regions *regions,
                                     tdm__memory_release_notice_fn *release_notice, void *arg);

/* Creates a region in the set, on the set's GPU; options->gpu is not read. */
tdm_status tdm__region_create(struct tdm__regions *regions,
                              const struct tdm_region_options *options, tdm_region **region_out);

/* Creates a region that has a single block of any size, so that other processes can map it by one
 * key. */
tdm_status tdm__region_create_shared(struct tdm__regions *regions,
                                     const struct tdm_region_options *options,
                                     tdm_region **region_out);
/* Returns the first memory block of a resident region, which is the only block of a shared region.
 * Each resume allocates another block. */
const struct tdm__block *tdm__region_block(const tdm_region *region);
/* Returns all memory blocks of a resident region in the order of their addresses; at most
 * TDM__DEVICE_BLOCKS_MAX. */
struct tdm__block *const *tdm__region_blocks(const tdm_region *region, uint32_t *count_out);
/* Returns the device of a set of regions; the set borrows it. */
struct tdm__device *tdm__regions_device(const struct tdm__regions *regions);

/* Pauses every resident region of the set with this tag (NULL for all tags) in the order of
 * creation. On failure the regions that were already paused are resumed. */
tdm_status tdm__regions_pause(struct tdm__regions *regions, const char *tag);
/* Resumes every paused region of the set with this tag (NULL for all tags) in the order of
 * creation. On failure the regions that were already resumed are paused. `timeout_ms` is the limit
 * in milliseconds for all regions together. */
tdm_status tdm__regions_resume(struct tdm__regions *regions, const char *tag, int64_t timeout_ms);

/* Returns the region of the set whose address range contains `address`, resident or paused; NULL if
 * there is none. */
tdm_region *tdm__regions_find_by_address(const struct tdm__regions *regions, const void *address);
/* Writes the address where the `size_bytes` bytes of a region at `address` can be read now: on
 * the device or in the host copy (see tdm_region_contents). Fails with TDM_E_NOT_FOUND if no
 * region has the address, TDM_E_INVAL past the end of the region, and TDM_E_STATE if the contents
 * were dropped. */
tdm_status tdm__region_contents_at(const struct tdm__regions *regions, const void *address,
                                   size_t size_bytes, const void **contents_out);

/* Implements tdm_region_descriptor() for bytes that begin in the region. */
tdm_status tdm__region_descriptor_at(const tdm_region *region, const void *address,
                                     size_t size_bytes, int *descriptor_out, uint64_t *offset_out);

/* Exchanges the memory of two resident regions of one set and one size: each address range then
 * shows the other's bytes. Nothing is copied. A new version of the weights becomes visible in
 * this way. */
tdm_status tdm__region_swap(tdm_region *a, tdm_region *b);

#endif
