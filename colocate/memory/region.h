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

/* Creates an empty set of regions. Borrows the device and the arena; several sets may share an
 * arena. */
tdm_status tdm__regions_create(struct tdm__device *device, struct tdm__arena *arena,
                               struct tdm__regions **regions_out);
/* Destroys the set and every region that is left in it. NULL is allowed. */
void tdm__regions_destroy(struct tdm__regions *regions);

/* Called before a region allocates memory. Blocks until `bytes` for `tag` are granted, or returns
 * why they are not. The region allocates the memory right after the grant. */
typedef tdm_status tdm__memory_grant_request_fn(void *arg, const char *tag, size_t bytes,
                                                int64_t timeout_ms);
/* Sets the function that requests grants. Without it the broker alone decides about memory. */
void tdm__regions_set_grant_request(struct tdm__regions *regions,
                                    tdm__memory_grant_request_fn *grant_request, void *arg);
/* Called when a region does not allocate the memory that it requested. The grant for `tag` may
 * then go to other tenants. */
typedef void tdm__memory_grant_cancel_fn(void *arg, const char *tag);
/* Sets the function that cancels grants. */
void tdm__regions_set_grant_cancel(struct tdm__regions *regions,
                                   tdm__memory_grant_cancel_fn *grant_cancel, void *arg);
/* Called before regions with this tag start to release `bytes`. 0 withdraws the notice: the
 * regions stay resident. */
typedef void tdm__memory_release_notice_fn(void *arg, const char *tag, size_t bytes);
/* Sets the function that announces releases. */
void tdm__regions_set_release_notice(struct tdm__regions *regions,
                                     tdm__memory_release_notice_fn *release_notice, void *arg);

/* Creates a region on the set's GPU. options->gpu is not read. */
tdm_status tdm__region_create(struct tdm__regions *regions,
                              const struct tdm_region_options *options, tdm_region **region_out);

/* Creates a region that has a single block of any size, so that other processes can map it by one
 * key. */
tdm_status tdm__region_create_shared(struct tdm__regions *regions,
                                     const struct tdm_region_options *options,
                                     tdm_region **region_out);
/* Returns the first block of a resident region: the only block of a shared region. Each resume
 * allocates another block. */
const struct tdm__block *tdm__region_block(const tdm_region *region);
/* Returns all blocks of a resident region in the order of their addresses; at most
 * TDM__DEVICE_BLOCKS_MAX. */
struct tdm__block *const *tdm__region_blocks(const tdm_region *region, uint32_t *count_out);
/* Returns the device of the set, which the set borrows. */
struct tdm__device *tdm__regions_device(const struct tdm__regions *regions);

/* Pauses every resident region with this tag (NULL for all tags) in the order of creation. On
 * failure the regions that were already paused are resumed. */
tdm_status tdm__regions_pause(struct tdm__regions *regions, const char *tag);
/* Resumes every paused region with this tag (NULL for all tags) in the order of creation. On
 * failure the regions that were already resumed are paused. `timeout_ms` covers all of them
 * together. */
tdm_status tdm__regions_resume(struct tdm__regions *regions, const char *tag, int64_t timeout_ms);

/* Returns the region whose addresses include `address`, resident or paused, or NULL if none
 * exists. */
tdm_region *tdm__regions_find_by_address(const struct tdm__regions *regions, const void *address);
/* Writes the address where the `size_bytes` bytes of a region at `address` can be read now: on
 * the device or in the host copy (see tdm_region_contents). Fails with TDM_E_NOT_FOUND if no
 * region has the address, TDM_E_INVAL past the end of the region, and TDM_E_STATE if the contents
 * were dropped. */
tdm_status tdm__region_contents_at(const struct tdm__regions *regions, const void *address,
                                   size_t size_bytes, const void **contents_out);

/* Exchanges the memory of two resident regions of one set and one size: each address range then
 * shows the other's bytes. Nothing is copied. A new version of the weights becomes visible in
 * this way. */
tdm_status tdm__region_swap(tdm_region *a, tdm_region *b);

#endif
