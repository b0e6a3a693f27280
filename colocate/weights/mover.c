/* mover.c - a trainer rank's side of an update by routes: it writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/mover.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/handle.h"
#include "runtime/error.h"
#include "runtime/mix.h"

#include <stdlib.h>
#include <string.h>

/* An engine rank's target, mapped here. */
struct target {
    struct tdm__id gpu;
    struct tdm__id key; /* of its first block: what descriptions call it */
    char *address;      /* NULL: nothing to write there, or not open */
    size_t size_bytes;  /* reserved */
    size_t mapped_bytes;
    struct tdm__block *blocks[TDM__DEVICE_BLOCKS_MAX]; /* owned */
    uint32_t blocks_count;
    bool is_absent;
    struct tdm__journal journal; /* as it was told */
    uint32_t held_count;         /* windows that the engine rank has, from the first on */
};

struct tdm__mover {
    struct tdm__mover_options options;
    tdm_region *bucket;       /* owned, like the rest; NULL in place */
    uint64_t half_bytes;      /* of a bucket: room for one window */
    struct target *targets;   /* one an engine rank */
    struct tdm_slice *slices; /* this rank's, with addresses where they are now */
    uint32_t *shares_max;     /* of each window: the most copies that one rank makes */
    size_t *sums_firsts;      /* of each window, where its sums begin */
    uint64_t *sums;           /* window after window, in each rank after rank */
    uint32_t own_known;   /* windows whose sums this rank has, of the weights as they are now */
    uint32_t known_count; /* all ranks have them, as far as is known in this update */
    float *scales;        /* of the route, in memory that the device reads; NULL: none */
    float *found;         /* behind them: what this rank finds of them */
    struct tdm__part *parts; /* of one window, or to find scales */
    uint8_t *edges;          /* theirs */
    uint32_t *slots;         /* where their sums belong among those of this rank */
    uint64_t *part_sums;
    uint64_t *own_sums;
    uint32_t *nexts;
    struct tdm__tensor_record *records;
    void *description;
    struct tdm__moved moved;
    struct tdm__hash contents;
    uint64_t exports_count;
};

/* ---- life ------------------------------------------------------------------------------- */

static uint32_t larger(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

static uint32_t own_measures(const struct tdm__mover *mover)
{
    const struct tdm__scales *scales = &mover->options.route->scales;
    uint32_t count = 0;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        count += scales->measures[i].from_rank == mover->options.rank ? 1 : 0;
    }
    return count;
}

static size_t scales_bytes(const struct tdm__mover *mover)
{
    const struct tdm__scales *scales = &mover->options.route->scales;
    uint64_t count = scales->count;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        count += scales->measures[i].from_rank == mover->options.rank
                     ? tdm__scales_found(&scales->measures[i])
                     : 0;
    }
    return count * sizeof(*mover->scales);
}

static tdm_status make_scales(struct tdm__mover *mover)
{
    struct tdm__device *device = tdm__regions_device(mover->options.regions);
    void *address;

    if (!tdm__mover_shares_blocks(mover)) {
        return TDM_OK;
    }
    TDM_TRY(device->ops->host_alloc(device, scales_bytes(mover), &address));
    mover->scales = address;
    mover->found = mover->scales + mover->options.route->scales.count;
    return TDM_OK;
}

static tdm_status make_buffers(struct tdm__mover *mover)
{
    const struct tdm__route *route = mover->options.route;
    size_t slices_count = route->from[mover->options.rank].slices_count;
    struct tdm__handles largest = {.header = {.storages_count = 1}};
    uint32_t share_max = own_measures(mover);
    size_t sums_count = 0;

    mover->shares_max = calloc((size_t)route->windows_count + 1, sizeof(*mover->shares_max));
    mover->sums_firsts = calloc((size_t)route->windows_count + 1, sizeof(*mover->sums_firsts));
    if (mover->shares_max == NULL || mover->sums_firsts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u windows", route->windows_count);
    }
    for (uint32_t i = 0; i < route->windows_count; i++) {
        for (uint32_t rank = 0; rank < route->from_count; rank++) {
            mover->shares_max[i] =
                larger(mover->shares_max[i], tdm__route_share(route, i, rank));
        }
        share_max = larger(share_max, mover->shares_max[i]);
        mover->sums_firsts[i] = sums_count;
        sums_count += (size_t)mover->shares_max[i] * route->from_count;
        for (uint32_t k = 0; k < route->to_count; k++) {
            largest.header.tensors_count =
                larger(largest.header.tensors_count, route->images[k].windows[i].copies_count);
        }
    }
    mover->targets = calloc((size_t)route->to_count + 1, sizeof(*mover->targets));
    mover->slices = calloc(slices_count + 1, sizeof(*mover->slices));
    mover->parts = calloc((size_t)share_max + 1, sizeof(*mover->parts));
    mover->edges = calloc((size_t)share_max + 1, sizeof(*mover->edges));
    mover->slots = calloc((size_t)share_max + 1, sizeof(*mover->slots));
    mover->part_sums = calloc((size_t)share_max + 1, sizeof(*mover->part_sums));
    mover->own_sums = calloc((size_t)share_max + 1, sizeof(*mover->own_sums));
    mover->sums = calloc(sums_count + 1, sizeof(*mover->sums));
    mover->nexts = calloc((size_t)route->from_count + 1, sizeof(*mover->nexts));
    mover->records = calloc((size_t)largest.header.tensors_count + 1, sizeof(*mover->records));
    mover->description = malloc(tdm__handles_bytes(&largest));
    if (mover->targets == NULL || mover->slices == NULL || mover->parts == NULL ||
        mover->edges == NULL || mover->slots == NULL || mover->part_sums == NULL ||
        mover->own_sums == NULL || mover->sums == NULL || mover->nexts == NULL ||
        mover->records == NULL || mover->description == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an update's buffers: sums of %zu copies", sums_count);
    }
    return TDM_OK;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + TDM__ROUTE_ALIGNMENT - 1) / TDM__ROUTE_ALIGNMENT * TDM__ROUTE_ALIGNMENT;
}

static tdm_status make(struct tdm__mover *mover)
{
    const struct tdm__mover_options *options = &mover->options;
    struct tdm_region_options bucket = {
        .tag = "bucket", .policy = TDM_REGION_DROP, .paused = 1};

    mover->half_bytes = aligned(options->route->window_bytes_max);
    bucket.size_bytes = TDM__BUCKET_HALVES * mover->half_bytes;
    TDM_TRY(make_buffers(mover));
    TDM_TRY(make_scales(mover));
    return options->in_place
               ? TDM_OK
               : tdm__region_create_shared(options->regions, &bucket, &mover->bucket);
}

tdm_status tdm__mover_create(const struct tdm__mover_options *options,
                             struct tdm__mover **mover_out)
{
    struct tdm__mover *mover = calloc(1, sizeof(*mover));
    tdm_status status;

    if (mover == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a mover of weights");
    }
    mover->options = *options;
    status = make(mover);
    if (status != TDM_OK) {
        tdm__mover_destroy(mover);
        return status;
    }
    *mover_out = mover;
    return TDM_OK;
}

void tdm__mover_destroy(struct tdm__mover *mover)
{
    if (mover == NULL) {
        return;
    }
    if (mover->targets != NULL) {
        tdm__mover_close(mover);
    }
    tdm_region_destroy(mover->bucket);
    if (mover->scales != NULL) {
        struct tdm__device *device = tdm__regions_device(mover->options.regions);

        device->ops->host_free(device, mover->scales, scales_bytes(mover));
    }
    free(mover->targets);
    free(mover->slices);
    free(mover->shares_max);
    free(mover->sums_firsts);
    free(mover->parts);
    free(mover->edges);
    free(mover->slots);
    free(mover->part_sums);
    free(mover->own_sums);
    free(mover->sums);
    free(mover->nexts);
    free(mover->records);
    free(mover->description);
    free(mover);
}

tdm_status tdm__mover_resume(struct tdm__mover *mover, int64_t timeout_ms)
{
    return mover->bucket == NULL || tdm_region_is_resident(mover->bucket)
               ? TDM_OK
               : tdm_region_resume(mover->bucket, timeout_ms);
}

tdm_status tdm__mover_pause(struct tdm__mover *mover)
{
    return mover->bucket != NULL && tdm_region_is_resident(mover->bucket)
               ? tdm_region_pause(mover->bucket)
               : TDM_OK;
}

const tdm_region *tdm__mover_bucket(const struct tdm__mover *mover)
{
    return mover->bucket;
}

uint64_t tdm__mover_place(const struct tdm__mover *mover, uint32_t window)
{
    return mover->bucket == NULL ? 0 : window % TDM__BUCKET_HALVES * mover->half_bytes;
}

/* ---- targets ---------------------------------------------------------------------------- */

static void close_target(struct tdm__device *device, struct target *target)
{
    if (target->mapped_bytes > 0) {
        (void)device->ops->unmap(device, target->address, target->mapped_bytes);
    }
    if (target->address != NULL) {
        device->ops->unreserve(device, target->address, target->size_bytes);
    }
    device->ops->release(device, target->blocks, target->blocks_count);
    *target = (struct target){.address = NULL};
}

static tdm_status import_blocks(struct tdm__device *device, const struct tdm__target *from,
                                struct target *target)
{
    for (uint32_t i = 0; i < from->blocks_count; i++) {
        TDM_TRY(device->ops->import(device, &from->keys[i], &target->blocks[i]));
        target->blocks_count++;
        target->size_bytes += target->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

static tdm_status map_blocks(struct tdm__device *device, struct target *target)
{
    void *address;

    TDM_TRY(device->ops->reserve(device, target->size_bytes, &address));
    target->address = address;
    for (uint32_t i = 0; i < target->blocks_count; i++) {
        TDM_TRY(device->ops->map(device, target->address + target->mapped_bytes,
                                 target->blocks[i], TDM__READ_WRITE));
        target->mapped_bytes += target->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

static bool has_copies(const struct tdm__route_image *image, uint32_t from_rank)
{
    for (uint32_t i = 0; i < image->copies_count; i++) {
        if (image->copies[i].from_rank == from_rank) {
            return true;
        }
    }
    return false;
}

/* At least; buckets all have one size. */
static uint64_t target_bytes(const struct tdm__mover *mover, uint32_t engine_rank)
{
    const struct tdm__route *route = mover->options.route;

    return mover->bucket != NULL
               ? tdm_region_size(mover->bucket)
               : route->images[engine_rank].windows[route->windows_count - 1].end;
}

static tdm_status open_target(struct tdm__mover *mover, uint32_t index,
                              const struct tdm__target *from)
{
    struct tdm__device *device = tdm__regions_device(mover->options.regions);
    const struct tdm__route *route = mover->options.route;
    struct target *target = &mover->targets[index];
    uint64_t wanted;

    target->is_absent = from->absent;
    if (from->absent) {
        return TDM_OK;
    }
    target->journal = from->journal;
    if (from->blocks_count == 0 || from->blocks_count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "engine rank %u has a target of %u blocks", index,
                         from->blocks_count);
    }
    target->gpu = from->gpu;
    target->key = from->keys[0];
    if (!has_copies(&route->images[index], mover->options.rank)) {
        return TDM_OK;
    }
    TDM_TRY(import_blocks(device, from, target));
    wanted = target_bytes(mover, index);
    if (target->size_bytes < wanted) {
        return tdm__fail(TDM_E_PROTOCOL, "engine rank %u has a target of %zu bytes, not %llu",
                         index, target->size_bytes, (unsigned long long)wanted);
    }
    return map_blocks(device, target);
}

tdm_status tdm__mover_open(struct tdm__mover *mover, const struct tdm__target *targets)
{
    const struct tdm__route *route = mover->options.route;

    tdm__mover_close(mover);
    mover->known_count = 0;
    mover->contents = route->manifest->hash;
    for (uint32_t i = 0; i < route->to_count; i++) {
        tdm_status status = open_target(mover, i, &targets[i]);

        if (status != TDM_OK) {
            tdm__mover_close(mover);
            return status;
        }
    }
    return tdm__layout_locate(&route->from[mover->options.rank], route->manifest,
                              mover->options.regions, mover->slices);
}

void tdm__mover_close(struct tdm__mover *mover)
{
    struct tdm__device *device = tdm__regions_device(mover->options.regions);

    for (uint32_t i = 0; i < mover->options.route->to_count; i++) {
        close_target(device, &mover->targets[i]);
    }
}

/* ---- scales of shared blocks ------------------------------------------------------------ */

bool tdm__mover_shares_blocks(const struct tdm__mover *mover)
{
    return mover->options.route->scales.count > 0;
}

static const char *source_of(const struct tdm__mover *mover, const struct tdm__copy *copy)
{
    return (const char *)mover->slices[copy->from_tensor].address +
           copy->from_offset * tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
}

/* What is found is packed, measure after measure: two slices may have parts of one block. */
static tdm_status find_scales(struct tdm__mover *mover)
{
    struct tdm__device *device = tdm__regions_device(mover->options.regions);
    const struct tdm__scales *scales = &mover->options.route->scales;
    float *found = mover->found;
    uint32_t count = 0;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__copy *measure = &scales->measures[i];

        if (measure->from_rank == mover->options.rank) {
            struct tdm__part *part = &mover->parts[count++];

            *part = tdm__convert_part(measure, source_of(mover, measure), found);
            part->to_pitch = tdm__convert_blocks(measure->columns);
            found += tdm__scales_found(measure);
        }
    }
    return count == 0 ? TDM_OK
                      : device->ops->move(device, mover->parts, count, mover->part_sums);
}

tdm_status tdm__mover_measure(struct tdm__mover *mover)
{
    const struct tdm__scales *scales = &mover->options.route->scales;
    const float *found = mover->found;

    if (!tdm__mover_shares_blocks(mover)) {
        return TDM_OK;
    }
    TDM_TRY(find_scales(mover));
    memset(mover->scales, 0, scales->count * sizeof(*mover->scales));
    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__copy *measure = &scales->measures[i];

        if (measure->from_rank == mover->options.rank) {
            tdm__scales_merge(measure, found, mover->scales);
            found += tdm__scales_found(measure);
        }
    }
    return TDM_OK;
}

tdm_status tdm__mover_share_scales(struct tdm__mover *mover)
{
    return tdm__mover_shares_blocks(mover)
               ? tdm_group_all_reduce(mover->options.group, mover->scales,
                                      mover->options.route->scales.count, TDM_MAX)
               : TDM_OK;
}

/* ---- write ------------------------------------------------------------------------------ */

/* To NULL: only a sum, so that what members vote for does not depend on who is there. */
static struct tdm__part part_of(const struct tdm__mover *mover, uint32_t image,
                                const struct tdm__copy *copy, char *to)
{
    const struct tdm__route *route = mover->options.route;
    struct tdm__part part;

    if (copy->from_tensor == TDM__ROUTE_SCALES) {
        return tdm__convert_part(copy, mover->scales + copy->from_offset, to);
    }
    part = tdm__convert_part(copy, source_of(mover, copy), to);
    tdm__scales_give(&route->scales, &route->to[image].slices[copy->to_tensor], copy,
                     mover->scales, &part);
    return part;
}

/* Sums of one rank's copies in a window, in the order of images and copies. */
static uint64_t *sums_of(const struct tdm__mover *mover, uint32_t window, uint32_t from_rank)
{
    return &mover->sums[mover->sums_firsts[window] +
                        (size_t)from_rank * mover->shares_max[window]];
}

/* Known, and nobody needs the bytes. */
static bool needs_no_copy(const struct tdm__mover *mover, uint32_t image_index, uint32_t window)
{
    const struct target *target = &mover->targets[image_index];

    return window < mover->known_count && (target->is_absent || window < target->held_count);
}

/* What is to be done of a window: the sums of some copies are known, and nobody needs them. */
struct work {
    uint32_t parts_count;
    uint32_t sums_count; /* of this rank, with those that are known */
};

static void add_image(struct tdm__mover *mover, uint32_t image_index, uint32_t window,
                      struct work *work)
{
    const struct tdm__route *route = mover->options.route;
    const struct tdm__route_image *image = &route->images[image_index];
    const struct tdm__route_window *about = &image->windows[window];
    const uint64_t *known = sums_of(mover, window, mover->options.rank);
    bool is_done = needs_no_copy(mover, image_index, window);
    char *address = mover->targets[image_index].address;

    for (uint32_t i = 0; i < about->copies_count; i++) {
        const struct tdm__copy *copy = &image->copies[about->copies_first + i];

        if (copy->from_rank == mover->options.rank && is_done) {
            mover->own_sums[work->sums_count] = known[work->sums_count];
            work->sums_count++;
        } else if (copy->from_rank == mover->options.rank) {
            uint64_t at = tdm__route_image_offset(route, image_index, copy);

            at -= mover->options.in_place ? 0 : about->begin;
            at += tdm__mover_place(mover, window);
            mover->parts[work->parts_count] =
                part_of(mover, image_index, copy, address == NULL ? NULL : address + at);
            mover->slots[work->parts_count] = work->sums_count++;
            mover->edges[work->parts_count++] = copy->edge;
        }
    }
}

static void count_parts(struct tdm__mover *mover, uint32_t parts_count)
{
    struct tdm__moved *moved = &mover->moved;

    for (uint32_t i = 0; i < parts_count; i++) {
        const struct tdm__rows rows = tdm__part_rows(&mover->parts[i]);
        uint8_t edge = mover->edges[i];

        mover->own_sums[mover->slots[i]] = mover->part_sums[i];
        if (mover->parts[i].to != NULL) {
            moved->bytes[edge] += rows.count * rows.size_bytes;
            moved->sums[edge] = tdm__mix(moved->sums[edge], mover->part_sums[i]);
        }
    }
}

static tdm_status compare_known(struct tdm__mover *mover, uint32_t window)
{
    size_t bytes = mover->shares_max[window] * sizeof(*mover->own_sums);

    if (window >= mover->known_count ||
        memcmp(mover->own_sums, sums_of(mover, window, mover->options.rank), bytes) == 0) {
        return TDM_OK;
    }
    tdm__mover_forget(mover);
    return tdm__fail(TDM_E_STATE,
                     "window %u: the weights are not those of the update before, though this "
                     "rank has neither learned nor loaded",
                     window);
}

tdm_status tdm__mover_write(struct tdm__mover *mover, uint32_t window)
{
    struct tdm__device *device = tdm__regions_device(mover->options.regions);
    struct work work = {.parts_count = 0};

    mover->moved = (struct tdm__moved){.bytes = {0}};
    memset(mover->own_sums, 0, mover->shares_max[window] * sizeof(*mover->own_sums));
    for (uint32_t i = 0; i < mover->options.route->to_count; i++) {
        add_image(mover, i, window, &work);
    }
    if (work.parts_count > 0) {
        TDM_TRY(device->ops->move(device, mover->parts, work.parts_count, mover->part_sums));
    }
    count_parts(mover, work.parts_count);
    return compare_known(mover, window);
}

tdm_status tdm__mover_share(struct tdm__mover *mover, uint32_t window)
{
    uint32_t each = mover->shares_max[window];
    uint64_t *all = sums_of(mover, window, 0);

    if (window >= mover->known_count) {
        TDM_TRY(tdm_group_all_gather(mover->options.group, mover->own_sums,
                                     each * sizeof(*mover->own_sums), all));
        mover->known_count = window + 1;
        mover->own_known = larger(mover->own_known, window + 1);
    }
    mover->contents =
        tdm__checksum_contents(&mover->contents, all, each * mover->options.route->from_count);
    return TDM_OK;
}

const struct tdm__moved *tdm__mover_moved(const struct tdm__mover *mover)
{
    return &mover->moved;
}

struct tdm__hash tdm__mover_contents(const struct tdm__mover *mover)
{
    return mover->contents;
}

/* ---- describe --------------------------------------------------------------------------- */

/* Each rank's sums are in the order of images and copies; `nexts` goes along. */
static uint64_t next_sum(struct tdm__mover *mover, uint32_t window, uint32_t from_rank)
{
    return sums_of(mover, window, from_rank)[mover->nexts[from_rank]++];
}

static void skip_images(struct tdm__mover *mover, uint32_t window, uint32_t end)
{
    const struct tdm__route *route = mover->options.route;

    memset(mover->nexts, 0, route->from_count * sizeof(*mover->nexts));
    for (uint32_t i = 0; i < end; i++) {
        const struct tdm__route_window *about = &route->images[i].windows[window];

        for (uint32_t k = 0; k < about->copies_count; k++) {
            mover->nexts[route->images[i].copies[about->copies_first + k].from_rank]++;
        }
    }
}

static void describe_copies(struct tdm__mover *mover, uint32_t window, uint32_t image_index)
{
    const struct tdm__route *route = mover->options.route;
    const struct tdm__route_image *image = &route->images[image_index];
    const struct tdm__route_window *about = &image->windows[window];

    skip_images(mover, window, image_index);
    for (uint32_t i = 0; i < about->copies_count; i++) {
        const struct tdm__copy *copy = &image->copies[about->copies_first + i];
        uint64_t at = tdm__route_image_offset(route, image_index, copy);
        size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
        struct tdm__rows rows = tdm__convert_rows(copy);

        mover->records[i] = (struct tdm__tensor_record){
            .tensor = route->to[image_index].slices[copy->to_tensor].tensor,
            .dtype = copy->to_dtype,
            .dims_count = 2,
            .flags = TDM__TENSOR_PART,
            .shape = {rows.count, rows.size_bytes / element_bytes},
            .stride = {copy->to_pitch, 1},
            .offset = (at - (mover->options.in_place ? 0 : about->begin)) / element_bytes,
            .checksum = next_sum(mover, window, copy->from_rank),
            .image = at,
        };
    }
}

/* What an engine rank has once it has these windows. */
static struct tdm__journal make_journal(struct tdm__mover *mover, uint32_t engine_rank,
                                        uint32_t windows_count)
{
    const struct tdm__route_image *image = &mover->options.route->images[engine_rank];
    struct tdm__journal journal = {.next = 0};

    for (uint32_t i = 0; i < windows_count; i++) {
        if (image->windows[i].copies_count > 0) {
            describe_copies(mover, i, engine_rank);
            tdm__journal_add(&journal, i, mover->records, image->windows[i].copies_count);
        }
    }
    return journal;
}

struct tdm__journal tdm__mover_journal(struct tdm__mover *mover, uint32_t engine_rank)
{
    return make_journal(mover, engine_rank, mover->known_count);
}

tdm_status tdm__mover_describe(struct tdm__mover *mover, const struct tdm__id *update,
                               uint64_t epoch, uint32_t window, uint32_t engine_rank,
                               struct tdm_bytes *bytes_out)
{
    const struct tdm__route *route = mover->options.route;
    const struct tdm__route_image *image = &route->images[engine_rank];
    uint64_t all_bytes = target_bytes(mover, engine_rank);
    struct tdm__storage_record storage = {
        .gpu = mover->targets[engine_rank].gpu,
        .key = mover->targets[engine_rank].key,
        .size_bytes = mover->bucket == NULL ? all_bytes : mover->half_bytes,
        .offset_bytes = tdm__mover_place(mover, window),
        .allocation_bytes = all_bytes,
        .reference = ++mover->exports_count};
    struct tdm__handles handles = {
        .header = {.storages_count = 1,
                   .tensors_count = image->windows[window].copies_count,
                   .update = *update,
                   .node = mover->options.node,
                   .epoch = epoch,
                   .bucket = window,
                   .buckets_count = route->windows_count},
        .storages = &storage,
        .tensors = mover->records};
    size_t bytes = tdm__handles_bytes(&handles);

    *bytes_out = (struct tdm_bytes){mover->description, 0};
    if (handles.header.tensors_count == 0 || window < mover->targets[engine_rank].held_count) {
        return TDM_OK;
    }
    describe_copies(mover, window, engine_rank);
    TDM_TRY(tdm__handles_encode(&handles, mover->description, bytes));
    bytes_out->size_bytes = bytes;
    return TDM_OK;
}

/* ---- an update before ------------------------------------------------------------------- */

void tdm__mover_forget(struct tdm__mover *mover)
{
    mover->own_known = 0;
    mover->known_count = 0;
}

tdm_status tdm__mover_go_on(struct tdm__mover *mover)
{
    uint32_t windows_count = mover->options.route->windows_count;
    double unknown = windows_count - mover->own_known;

    TDM_TRY(tdm_group_all_reduce_double(mover->options.group, &unknown, 1, TDM_MAX));
    mover->known_count = windows_count - (uint32_t)unknown;
    for (uint32_t i = 0; i < mover->options.route->to_count; i++) {
        struct target *target = &mover->targets[i];
        uint32_t next = target->journal.next;

        if (!target->is_absent && next > 0 && next <= mover->known_count) {
            struct tdm__journal journal = make_journal(mover, i, next);

            target->held_count = tdm__journal_equal(&journal, &target->journal) ? next : 0;
        }
    }
    return TDM_OK;
}

bool tdm__mover_is_held(const struct tdm__mover *mover, uint32_t window)
{
    for (uint32_t i = 0; i < mover->options.route->to_count; i++) {
        const struct target *target = &mover->targets[i];
        bool has_part = mover->options.route->images[i].windows[window].copies_count > 0;

        if (!target->is_absent && has_part && window >= target->held_count) {
            return false;
        }
    }
    return window < mover->known_count;
}
