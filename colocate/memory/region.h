/* region.h - a process's regions: all that lie on one GPU, and what is done to them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_REGION_H
#define TDM_COLOCATE_MEMORY_REGION_H

#include "colocate/device/device.h"
#include "colocate/memory/arena.h"

#include <tandem/region.h>

/* The regions of this process on one device, in the order created.  One thread: the actor's.
 * tandem/region.h tells what a region does; here is what only Tandem itself does with them. */
struct tdm__regions;

/* Borrows the device and the arena (which several sets may share). */
tdm_status tdm__regions_create(struct tdm__device *device, struct tdm__arena *arena,
                               struct tdm__regions **regions_out);
/* Destroys every region that is left.  NULL is allowed. */
void tdm__regions_destroy(struct tdm__regions *regions);

/* Asked before a region takes memory: blocks until `bytes` for `tag` are granted, or says why
 * not; the memory is then taken at once.  None by default: then the broker alone decides. */
typedef tdm_status tdm__memory_grant_request_fn(void *arg, const char *tag, size_t bytes,
                                                int64_t timeout_ms);
void tdm__regions_set_grant_request(struct tdm__regions *regions,
                                    tdm__memory_grant_request_fn *grant_request, void *arg);
/* Told that memory which was asked for is not taken after all: what was granted for `tag` may
 * go to others. */
typedef void tdm__memory_grant_cancel_fn(void *arg, const char *tag);
void tdm__regions_set_grant_cancel(struct tdm__regions *regions,
                                   tdm__memory_grant_cancel_fn *grant_cancel, void *arg);
/* Told before regions of this tag begin to give `bytes` back; 0: they stay after all. */
typedef void tdm__memory_release_notice_fn(void *arg, const char *tag, size_t bytes);
void tdm__regions_set_release_notice(struct tdm__regions *regions,
                                     tdm__memory_release_notice_fn *release_notice, void *arg);

/* options->gpu is not read: the set is of one GPU. */
tdm_status tdm__region_create(struct tdm__regions *regions,
                              const struct tdm_region_options *options, tdm_region **region_out);

/* The same in a single block, however large, so that others can map it by one key. */
tdm_status tdm__region_create_shared(struct tdm__regions *regions,
                                     const struct tdm_region_options *options,
                                     tdm_region **region_out);
/* That block, while the region is resident; another one after each resume. */
const struct tdm__block *tdm__region_block(const tdm_region *region);
/* All of a resident region's, in the order of their addresses; at most TDM__DEVICE_BLOCKS_MAX.
 */
struct tdm__block *const *tdm__region_blocks(const tdm_region *region, uint32_t *count_out);
struct tdm__device *tdm__regions_device(const struct tdm__regions *regions);

/* Pauses (resumes) every resident (paused) region with this tag, NULL for all, in the order
 * they were created.  All or nothing: on failure those already done are taken back.  The
 * timeout is for all of them together. */
tdm_status tdm__regions_pause(struct tdm__regions *regions, const char *tag);
tdm_status tdm__regions_resume(struct tdm__regions *regions, const char *tag, int64_t timeout_ms);

/* The region around `address`, resident or not; NULL if there is none. */
tdm_region *tdm__regions_find_by_address(const struct tdm__regions *regions, const void *address);
/* Where the `size_bytes` bytes of a region at `address` can be read now (see
 * tdm_region_contents).  TDM_E_NOT_FOUND, TDM_E_INVAL past the end, TDM_E_STATE where the
 * contents are nowhere. */
tdm_status tdm__region_contents_at(const struct tdm__regions *regions, const void *address,
                                   size_t size_bytes, const void **contents_out);

/* Two resident regions of one set and one size exchange their memory: each address now shows
 * the other's bytes.  Nothing is copied.  This is how a new version of the weights goes live.
 */
tdm_status tdm__region_swap(tdm_region *a, tdm_region *b);

/* The set of the actor's GPU number `gpu` (0: its first), made when it is first asked for; it
 * ends with the runtime. */
tdm_status tdm__runtime_regions_of_gpu(tdm_runtime *runtime, uint32_t gpu,
                                       struct tdm__regions **regions_out);

#endif
