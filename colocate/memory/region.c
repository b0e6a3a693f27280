/* region.c - regions: stable address ranges whose memory can be paused and resumed. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A region owns a reserved range of addresses, its blocks while it is resident, and for the
 * policy KEEP a host copy in the arena. Its states: resident (blocks mapped) and paused (address
 * range reserved, nothing mapped).
 *
 * Pause: copy the contents to the host copy, unmap, release the blocks. Resume: request a grant,
 * create all blocks, map them, copy the contents back. A failed step leaves the region in its
 * earlier state. If even that fails, the paused region keeps its blocks (blocks_count is not 0),
 * so that no other tenant gets pages that are still mapped here; the next resume releases them
 * first.
 *
 * Only the actor's thread enters. tandem/region.h specifies what a region promises; region_api.c
 * connects the regions to the daemon's memory arbiter. */

#include "colocate/memory/region.h"

#include "colocate/memory/fault_report.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size in bytes of a region's blocks; an eighth of the region if that is more. One call of the
 * broker creates all blocks of a region, so that it succeeds or fails as a whole. */
enum { BLOCK_BYTES_TARGET = 64 << 20 };

/* A range of addresses whose memory can be paused and resumed. Its set owns it. */
struct tdm_region {
    /* Next region of the same set, in order of creation; NULL for the last one. */
    struct tdm_region *next;
    struct tdm__regions *regions; /* Set to which the region belongs. */
    /* Tag by which regions are paused and resumed together. */
    char tag[TDM_REGION_TAG_BYTES_MAX];
    /* What a pause does with the contents: keep or drop them. */
    enum tdm_region_policy policy;
    void *address;     /* First address of the region; it stays the same while the region exists. */
    size_t size_bytes; /* Size of the region in bytes, a multiple of the device's granularity. */
    /* Memory blocks of the region, in the order of their addresses; owned. */
    struct tdm__block *blocks[TDM__DEVICE_BLOCKS_MAX];
    /* Number of blocks; 0 while paused, unless a failed resume could not be undone. */
    uint32_t blocks_count;
    /* True if the region must have exactly one block. */
    bool is_single_block;
    /* The owner, until it destroys the region, and each tdm_region_retain(). The last one of them
     * that goes frees the region. */
    _Atomic uint32_t users_count;
    bool resident; /* True while the region's memory is mapped at its address. */
    /* True if `host_copy` has the contents of the region at its last pause. */
    bool host_copy_is_valid;
    /* Arena memory for the region's contents while it is paused; owned. NULL for the policy
     * DROP. */
    void *host_copy;
};

/* The regions of a process on one device. region_api.c owns the sets of an actor. */
struct tdm__regions {
    struct tdm__device *device; /* Device that has the memory of the regions; borrowed. */
    struct tdm__arena *arena;   /* Host memory for the contents of paused regions; borrowed. */
    /* Callback before a region allocates memory; NULL for no call. */
    tdm__memory_grant_request_fn *grant_request;
    void *grant_request_arg; /* First argument of grant_request. */
    /* Callback before regions release memory; NULL for no call. */
    tdm__memory_release_notice_fn *release_notice;
    void *release_notice_arg; /* First argument of release_notice. */
    /* Callback when a region does not allocate memory that was granted; NULL for no call. */
    tdm__memory_grant_cancel_fn *grant_cancel;
    void *grant_cancel_arg; /* First argument of grant_cancel. */
    tdm_region *first;      /* List of all regions of the set, in the order of creation; owned. */
};

/* ---- the set ---------------------------------------------------------------------------- */

tdm_status tdm__regions_create(struct tdm__device *device, struct tdm__arena *arena,
                               struct tdm__regions **regions_out)
{
    struct tdm__regions *regions = calloc(1, sizeof(*regions));

    if (regions == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a set of regions");
    }
    regions->device = device;
    regions->arena = arena;
    *regions_out = regions;
    return TDM_OK;
}

void tdm__regions_set_grant_request(struct tdm__regions *regions,
                                    tdm__memory_grant_request_fn *grant_request, void *arg)
{
    regions->grant_request = grant_request;
    regions->grant_request_arg = arg;
}

void tdm__regions_set_release_notice(struct tdm__regions *regions,
                                     tdm__memory_release_notice_fn *release_notice, void *arg)
{
    regions->release_notice = release_notice;
    regions->release_notice_arg = arg;
}

void tdm__regions_set_grant_cancel(struct tdm__regions *regions,
                                   tdm__memory_grant_cancel_fn *grant_cancel, void *arg)
{
    regions->grant_cancel = grant_cancel;
    regions->grant_cancel_arg = arg;
}

/* Tells the owner of the set that regions with this tag will release `bytes` bytes. 0 withdraws the
 * announcement. */
static void announce_release(const struct tdm__regions *regions, const char *tag, size_t bytes)
{
    if (regions->release_notice != NULL) {
        regions->release_notice(regions->release_notice_arg, tag, bytes);
    }
}

/* Appends a region to the list of its set. */
static void regions_append(struct tdm__regions *regions, tdm_region *region)
{
    tdm_region **link = &regions->first;

    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = region;
}

/* Removes a region from the list of its set. */
static void unlink_region(tdm_region *region)
{
    tdm_region **link = &region->regions->first;

    while (*link != region) {
        link = &(*link)->next;
    }
    *link = region->next;
}

/* Records whether the region's memory is mapped. An access to a region without it is a fault, which
 * a report names. */
static void region_set_resident(tdm_region *region, bool resident)
{
    region->resident = resident;
    tdm__fault_report_remove(region->address);
    if (!resident) {
        tdm__fault_report_add(region->address, region->size_bytes, region->tag);
    }
}

/* ---- taking and giving back memory ------------------------------------------------------ */

/* Releases all memory blocks of a region, which must be unmapped. */
static void region_release_blocks(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;

    device->ops->release(device, region->blocks, region->blocks_count);
    region->blocks_count = 0;
}

/* Creates all memory blocks of a region without mapping them. */
static tdm_status region_create_blocks(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;
    size_t unit = device->granularity_bytes;
    size_t block_bytes = region->size_bytes / TDM__DEVICE_BLOCKS_MAX;
    size_t sizes[TDM__DEVICE_BLOCKS_MAX];
    size_t left_bytes = region->size_bytes;
    uint32_t count = 0;

    block_bytes = (block_bytes + unit - 1) / unit * unit;
    block_bytes = block_bytes > BLOCK_BYTES_TARGET ? block_bytes : BLOCK_BYTES_TARGET;
    block_bytes = region->is_single_block ? region->size_bytes : block_bytes;
    while (left_bytes > 0) {
        TDM_ASSERT(count < TDM__DEVICE_BLOCKS_MAX);
        sizes[count] = left_bytes < block_bytes ? left_bytes : block_bytes;
        left_bytes -= sizes[count];
        count++;
    }
    TDM_TRY(device->ops->create(device, region->tag, sizes, count, region->blocks));
    region->blocks_count = count;
    return TDM_OK;
}

/* Maps the blocks of a region one after the other from its address on. */
static tdm_status region_map_blocks(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;
    char *address = region->address;

    for (uint32_t i = 0; i < region->blocks_count; i++) {
        TDM_TRY(device->ops->map(device, address, region->blocks[i], TDM__READ_WRITE));
        address += region->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

/* Copies the contents that the last pause saved back into the region, if it saved any. */
static tdm_status region_restore_contents(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;

    if (region->host_copy == NULL || !region->host_copy_is_valid) {
        return TDM_OK;
    }
    TDM_TRY(device->ops->copy(device, region->address, region->host_copy, region->size_bytes));
    return device->ops->copy_flush(device);
}

/* Returns a region to the paused state after a resume failed with `error`, and restores the detail
 * of that error. If unmapping fails, the region keeps its blocks, so that no other tenant gets
 * pages that are still mapped here; the next resume releases them. */
static void region_undo_resume(tdm_region *region, tdm_status error)
{
    struct tdm__device *device = region->regions->device;
    char detail[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (device->ops->unmap(device, region->address, region->size_bytes) == TDM_OK) {
        region_release_blocks(region);
    } else {
        tdm__log(TDM__WARN, "region", "%s keeps its memory after a failed resume: %s", region->tag,
                 tdm_error_detail());
    }
    (void)tdm__fail(error, "%s", detail);
}

/* Unmaps and releases the memory blocks that a failed resume of the region left behind. */
static tdm_status clear_leftover_mappings(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;

    if (region->blocks_count == 0) {
        return TDM_OK;
    }
    TDM_TRY(device->ops->unmap(device, region->address, region->size_bytes));
    region_release_blocks(region);
    return TDM_OK;
}

/* Requests a grant for a region's memory and creates its blocks. On failure it cancels the grant,
 * which would block other processes and the next attempt of this one. */
static tdm_status region_obtain_blocks(tdm_region *region, int64_t timeout_ms)
{
    struct tdm__regions *regions = region->regions;
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status status = TDM_OK;

    if (regions->grant_request != NULL) {
        status = regions->grant_request(regions->grant_request_arg, region->tag, region->size_bytes,
                                        timeout_ms);
    }
    if (status == TDM_OK) {
        status = region_create_blocks(region);
    }
    if (status != TDM_OK && regions->grant_cancel != NULL) {
        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        regions->grant_cancel(regions->grant_cancel_arg, region->tag);
        (void)tdm__fail(status, "%s", detail);
    }
    return status;
}

/* Adds the region's tag and size to the error text of `status`. */
static tdm_status name_region(const tdm_region *region, tdm_status status)
{
    return tdm__wrap(status, "region %s, %.1f MiB wanted", region->tag,
                     (double)region->size_bytes / (1 << 20));
}

/* Resumes a region as a transaction: creates all blocks, maps them, copies the contents back, and
 * only then marks the region resident. */
static tdm_status region_make_resident(tdm_region *region, int64_t timeout_ms)
{
    tdm_status status;

    TDM_TRY(clear_leftover_mappings(region));
    status = region_obtain_blocks(region, timeout_ms);
    if (status == TDM_E_DEVICE_FULL) {
        return status; /* The error text already names the request and its sizes. */
    }
    TDM_TRY(name_region(region, status));
    status = region_map_blocks(region);
    if (status == TDM_OK) {
        status = region_restore_contents(region);
    }
    if (status != TDM_OK) {
        region_undo_resume(region, status);
        return name_region(region, status);
    }
    region_set_resident(region, true);
    return TDM_OK;
}

/* ---- one region ------------------------------------------------------------------------- */

/* Fails with TDM_E_INVAL unless the tag, size and policy of a new region are valid. `unit` is the
 * device's granularity in bytes. */
static tdm_status check_options(const struct tdm_region_options *options, size_t unit)
{
    size_t length = options->tag != NULL ? strlen(options->tag) : 0;

    if (length == 0 || length >= TDM_REGION_TAG_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a region's tag has 1 to %d bytes, not %zu",
                         TDM_REGION_TAG_BYTES_MAX - 1, length);
    }
    if (options->size_bytes == 0 || options->size_bytes > SIZE_MAX / 4 - unit) {
        return tdm__fail(TDM_E_INVAL, "region %s of %zu bytes: a region has 1 to %zu", options->tag,
                         options->size_bytes, SIZE_MAX / 4 - unit);
    }
    if (options->policy != TDM_REGION_KEEP && options->policy != TDM_REGION_DROP) {
        return tdm__fail(TDM_E_INVAL, "region %s: policy %d is none", options->tag,
                         (int)options->policy);
    }
    return TDM_OK;
}

/* Reserves a region's addresses and, for the policy KEEP, its host memory, so that a shortage shows
 * now and not at the first pause. */
static tdm_status reserve(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;

    TDM_TRY(device->ops->reserve(device, region->size_bytes, &region->address));
    if (region->policy == TDM_REGION_KEEP) {
        return tdm__wrap(
            tdm__arena_alloc(region->regions->arena, region->size_bytes, &region->host_copy),
            "region %s", region->tag);
    }
    return TDM_OK;
}

/* Frees a region with its addresses, blocks and host copy. The list of its set must not contain it
 * any more. */
static void free_region(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;

    if (region->address != NULL) {
        tdm__fault_report_remove(region->address);
        device->ops->unreserve(device, region->address, region->size_bytes);
    }
    region_release_blocks(region);
    tdm__arena_free(region->regions->arena, region->host_copy);
    free(region);
}

/* Creates a region, resident unless options->paused is set, and appends it to the set. */
static tdm_status create(struct tdm__regions *regions, const struct tdm_region_options *options,
                         bool is_single_block, tdm_region **region_out)
{
    size_t unit = regions->device->granularity_bytes;
    tdm_region *region;
    tdm_status status;

    TDM_TRY(check_options(options, unit));
    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return tdm__fail(TDM_E_NOMEM, "region %s", options->tag);
    }
    region->users_count = 1;
    region->regions = regions;
    region->is_single_block = is_single_block;
    region->policy = options->policy;
    region->size_bytes = (options->size_bytes + unit - 1) / unit * unit;
    (void)snprintf(region->tag, sizeof(region->tag), "%s", options->tag);
    status = reserve(region);
    if (status == TDM_OK) {
        region_set_resident(region, false);
    }
    if (status == TDM_OK && !options->paused) {
        status = region_make_resident(region, 0);
    }
    if (status != TDM_OK) {
        free_region(region);
        return status;
    }
    regions_append(regions, region);
    *region_out = region;
    return TDM_OK;
}

tdm_status tdm__region_create(struct tdm__regions *regions,
                              const struct tdm_region_options *options, tdm_region **region_out)
{
    return create(regions, options, false, region_out);
}

tdm_status tdm__region_create_shared(struct tdm__regions *regions,
                                     const struct tdm_region_options *options,
                                     tdm_region **region_out)
{
    return create(regions, options, true, region_out);
}

const struct tdm__block *tdm__region_block(const tdm_region *region)
{
    TDM_ASSERT(region->resident && region->blocks_count == 1);
    return region->blocks[0];
}

struct tdm__block *const *tdm__region_blocks(const tdm_region *region, uint32_t *count_out)
{
    TDM_ASSERT(region->resident);
    *count_out = region->blocks_count;
    return region->blocks;
}

struct tdm__device *tdm__regions_device(const struct tdm__regions *regions)
{
    return regions->device;
}

void tdm_region_destroy(tdm_region *region)
{
    tdm_region_release(region); /* The owner is a user like the others. */
}

void tdm_region_retain(tdm_region *region)
{
    TDM__REQUIRE_OR(region, );

    region->users_count++;
}

void tdm_region_release(tdm_region *region)
{
    if (region == NULL) {
        return;
    }
    if (atomic_fetch_sub(&region->users_count, 1) == 1) {
        unlink_region(region);
        free_region(region);
    }
}

void tdm__regions_destroy(struct tdm__regions *regions)
{
    if (regions == NULL) {
        return;
    }
    while (regions->first != NULL) {
        tdm_region *region = regions->first;

        regions->first = region->next;
        free_region(region);
    }
    free(regions);
}

void *tdm_region_address(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, NULL);

    return region->address;
}

size_t tdm_region_size(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, 0);

    return region->size_bytes;
}

const char *tdm_region_tag(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, "");

    return region->tag;
}

const char *tdm_region_device(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, "");

    return region->regions->device->ops->name;
}

int tdm_region_device_number(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, -1);

    return region->regions->device->visible_number;
}

int tdm_region_is_resident(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, 0);

    return region->resident;
}

const void *tdm_region_contents(const tdm_region *region)
{
    TDM__REQUIRE_OR(region, NULL);

    return region->resident ? region->address : region->host_copy;
}

/* Returns the block of a resident region that has the byte at `offset`, and the offset in the
 * block. */
static const struct tdm__block *find_block(const tdm_region *region, size_t offset,
                                           uint64_t *offset_out)
{
    uint32_t index = 0;

    while (offset >= region->blocks[index]->size_bytes) {
        offset -= region->blocks[index]->size_bytes;
        index++;
    }
    *offset_out = offset;
    return region->blocks[index];
}

tdm_status tdm__region_descriptor_at(const tdm_region *region, const void *address,
                                     size_t size_bytes, int *descriptor_out, uint64_t *offset_out)
{
    struct tdm__device *device = region->regions->device;
    size_t begin = (size_t)((const char *)address - (const char *)region->address);
    const struct tdm__block *block;
    uint64_t offset;

    if (!region->resident) {
        return tdm__fail(TDM_E_STATE, "the region %s is paused: it has no memory to open",
                         region->tag);
    }
    if (size_bytes > region->size_bytes - begin) {
        return tdm__fail(TDM_E_INVAL, "%zu bytes at %zu of the region %s, which has %zu",
                         size_bytes, begin, region->tag, region->size_bytes);
    }
    block = find_block(region, begin, &offset);
    if (size_bytes > block->size_bytes - offset) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "%zu bytes at %zu of the region %s lie in two of its blocks, of which the "
                         "first has %zu bytes: open the parts of each block, or use a region of at "
                         "most %d MiB",
                         size_bytes, begin, region->tag, block->size_bytes,
                         BLOCK_BYTES_TARGET >> 20);
    }
    TDM_TRY(device->ops->descriptor(device, block, descriptor_out));
    *offset_out = offset;
    return TDM_OK;
}

/* Pauses a region: copies its contents to host memory for the policy KEEP, unmaps it and releases
 * its blocks. */
static tdm_status region_save_contents(tdm_region *region)
{
    struct tdm__device *device = region->regions->device;

    if (region->host_copy != NULL) {
        /* Kernels of other libraries may still write the region, in streams that have no order with
         * the device's copies. */
        TDM_TRY(device->ops->synchronize(device));
        TDM_TRY(device->ops->copy(device, region->host_copy, region->address, region->size_bytes));
        TDM_TRY(device->ops->copy_flush(device));
    }
    TDM_TRY(device->ops->unmap(device, region->address, region->size_bytes));
    region_set_resident(region, false);
    region->host_copy_is_valid = region->host_copy != NULL;
    region_release_blocks(region);
    return TDM_OK;
}

tdm_status tdm_region_pause(tdm_region *region)
{
    TDM__REQUIRE(region);

    tdm_status status;

    if (!region->resident) {
        return tdm__fail(TDM_E_STATE, "region %s is paused already", region->tag);
    }
    announce_release(region->regions, region->tag, region->size_bytes);
    status = region_save_contents(region);
    if (status != TDM_OK) {
        announce_release(region->regions, region->tag, 0);
    }
    return status;
}

tdm_status tdm_region_resume(tdm_region *region, int64_t timeout_ms)
{
    TDM__REQUIRE(region);

    if (region->resident) {
        return tdm__fail(TDM_E_STATE, "region %s is resident already", region->tag);
    }
    return region_make_resident(region, timeout_ms);
}

/* ---- many regions ----------------------------------------------------------------------- */

/* Returns true if the region is resident, or paused if `resident` is false, and has the tag (NULL
 * for any). */
static bool region_is_selected(const tdm_region *region, const char *tag, bool resident)
{
    return region->resident == resident && (tag == NULL || strcmp(region->tag, tag) == 0);
}

/* Returns the number of resident regions, or of paused ones if `resident` is false, with the tag
 * (NULL for any). */
static uint32_t count_selected_regions(const struct tdm__regions *regions, const char *tag,
                                       bool resident)
{
    uint32_t count = 0;

    for (const tdm_region *region = regions->first; region != NULL; region = region->next) {
        count += region_is_selected(region, tag, resident) ? 1 : 0;
    }
    return count;
}

/* Returns true if no resident region before this one in the set has the same tag. */
static bool region_is_first_of_tag(const tdm_region *region)
{
    const tdm_region *other = region->regions->first;

    while (other != region && !region_is_selected(other, region->tag, true)) {
        other = other->next;
    }
    return other == region;
}

/* Announces that all resident regions with the tag (NULL for all) will release their memory. With
 * `stay` it withdraws the announcement. */
static void announce_releases(const struct tdm__regions *regions, const char *tag, bool stay)
{
    for (const tdm_region *region = regions->first; region != NULL; region = region->next) {
        size_t bytes = 0;

        if (!region_is_selected(region, tag, true) || !region_is_first_of_tag(region)) {
            continue;
        }
        for (const tdm_region *other = region; other != NULL && !stay; other = other->next) {
            bytes += region_is_selected(other, region->tag, true) ? other->size_bytes : 0;
        }
        announce_release(regions, region->tag, bytes);
    }
}

/* Resumes the region, or pauses it if `resume` is false. */
static tdm_status region_pause_or_resume(tdm_region *region, bool resume, int64_t deadline_ms)
{
    return resume ? region_make_resident(region, tdm__deadline_remaining_ms(deadline_ms))
                  : region_save_contents(region);
}

/* Resumes the regions that were paused, or pauses those that were resumed, in reverse order, and
 * restores the detail of `error`, the one because of which they are undone. */
static void regions_undo(tdm_region **changed, uint32_t count, bool resume, tdm_status error)
{
    char detail[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    while (count > 0) {
        count--;
        if (region_pause_or_resume(changed[count], !resume, tdm__clock_ms()) != TDM_OK) {
            tdm__log(TDM__WARN, "region", "%s could not be %s again: %s", changed[count]->tag,
                     resume ? "paused" : "resumed", tdm_error_detail());
        }
    }
    (void)tdm__fail(error, "%s", detail);
}

/* Pauses or resumes all regions with the tag (NULL for all). On failure it undoes those that were
 * completed, in reverse order. */
static tdm_status regions_pause_or_resume(struct tdm__regions *regions, const char *tag,
                                          bool resume, int64_t deadline_ms)
{
    uint32_t capacity = count_selected_regions(regions, tag, !resume);
    tdm_region **changed = calloc(capacity + 1u, sizeof(tdm_region *));
    tdm_status status = TDM_OK;
    uint32_t count = 0;

    if (changed == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of %u regions", capacity);
    }
    for (tdm_region *region = regions->first; region != NULL && status == TDM_OK;
         region = region->next) {
        if (!region_is_selected(region, tag, !resume)) {
            continue;
        }
        status = region_pause_or_resume(region, resume, deadline_ms);
        if (status == TDM_OK) {
            changed[count] = region;
            count++;
        }
    }
    if (status != TDM_OK) {
        regions_undo(changed, count, resume, status);
    }
    free(changed);
    return status;
}

tdm_status tdm__regions_pause(struct tdm__regions *regions, const char *tag)
{
    tdm_status status;

    announce_releases(regions, tag, false);
    status = regions_pause_or_resume(regions, tag, false, TDM__NEVER);
    if (status != TDM_OK) {
        announce_releases(regions, tag, true);
    }
    return status;
}

tdm_status tdm__regions_resume(struct tdm__regions *regions, const char *tag, int64_t timeout_ms)
{
    return regions_pause_or_resume(regions, tag, true, tdm__deadline_after(timeout_ms));
}

tdm_region *tdm__regions_find_by_address(const struct tdm__regions *regions, const void *address)
{
    uintptr_t wanted = (uintptr_t)address;

    for (tdm_region *region = regions->first; region != NULL; region = region->next) {
        uintptr_t start = (uintptr_t)region->address;

        if (wanted >= start && wanted - start < region->size_bytes) {
            return region;
        }
    }
    return NULL;
}

tdm_status tdm__region_contents_at(const struct tdm__regions *regions, const void *address,
                                   size_t size_bytes, const void **contents_out)
{
    const tdm_region *region = tdm__regions_find_by_address(regions, address);
    const char *contents;
    size_t offset;

    if (region == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "no region has the address %p", address);
    }
    offset = (size_t)((const char *)address - (const char *)region->address);
    if (size_bytes > region->size_bytes - offset) {
        return tdm__fail(TDM_E_INVAL, "region %s has %zu bytes, %zu from %zu on are wanted",
                         region->tag, region->size_bytes, size_bytes, offset);
    }
    contents = tdm_region_contents(region);
    if (contents == NULL) {
        return tdm__fail(TDM_E_STATE, "region %s is paused and its contents are dropped",
                         region->tag);
    }
    *contents_out = contents + offset;
    return TDM_OK;
}

tdm_status tdm__region_swap(tdm_region *a, tdm_region *b)
{
    struct tdm__device *device = a->regions->device;
    const struct tdm__mapping from = {a->address, a->blocks, a->blocks_count};
    const struct tdm__mapping to = {b->address, b->blocks, b->blocks_count};
    struct tdm__block *blocks[TDM__DEVICE_BLOCKS_MAX];

    if (a == b || a->regions != b->regions || a->size_bytes != b->size_bytes) {
        return tdm__fail(TDM_E_INVAL,
                         "regions %s (%zu bytes) and %s (%zu bytes) cannot be exchanged", a->tag,
                         a->size_bytes, b->tag, b->size_bytes);
    }
    if (!a->resident || !b->resident) {
        return tdm__fail(TDM_E_STATE, "regions %s and %s must both be resident", a->tag, b->tag);
    }
    TDM_TRY(device->ops->exchange(device, &from, &to));
    memcpy(blocks, a->blocks, sizeof(blocks));
    memcpy(a->blocks, b->blocks, sizeof(blocks));
    memcpy(b->blocks, blocks, sizeof(blocks));
    return TDM_OK;
}
