/* weight_writer.c - a trainer rank's side of an update by a plan: writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */

/* One update: map_targets, claim_held and settle_held (optional), find_scales and share_scales,
 * then for each chunk write_chunk and describe_chunk for each engine rank, claim_result and
 * settle_result, and at the end unmap_targets. The caller (colocate/job) orders these steps among
 * the ranks, exchanges the claims and waits for the engines.
 *
 * A rank keeps the checksums of its own copies per chunk and image (image_sums()), and describes
 * nothing but its own copies. No rank needs another rank's checksums while chunks are written. The
 * hash to vote for and the engines' resume logs cover the copies of all ranks. Each rank claims its
 * share of them in a few words, which the caller exchanges once, and every rank combines all claims
 * to the same result.
 *
 * The checksums outlive an update: if it is aborted and the weights do not change, the next update
 * compares the resume logs that follow from them with the engines', and skips what engines have.
 * own_known_chunks is the number of leading chunks whose checksums this rank knows, known_chunks
 * the least of all ranks' numbers, as far as the ranks have settled it in this update.
 *
 * One thread enters at a time; there are no locks. Only share_scales blocks in a collective. */

#include "colocate/weights/weight_writer.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/tensor_handles.h"
#include "runtime/error.h"
#include "runtime/splitmix.h"

#include <stdlib.h>
#include <string.h>

/* The target of one engine rank, mapped into this process. */
struct mapped_target {
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

/* State of a trainer rank's weight writer. The caller owns it and serializes all calls. */
struct tdm__weight_writer {
    /* Arguments of tdm__weight_writer_create(); the pointers are borrowed. */
    struct tdm__weight_writer_options options;
    /* Staging region of this rank; NULL if the trainer ranks write directly into the engines'
     * shadows. Owned. */
    tdm_region *bucket;
    /* Size in bytes of one half of a bucket, or of a bucket without halves. It has room for one
     * chunk. */
    uint64_t half_bytes;
    /* Memory of each engine rank into which this rank writes. Owned. */
    struct mapped_target *targets;
    /* Tensor slices of this rank with the addresses at which their bytes can be read. Owned. */
    struct tdm_slice *slices;
    /* For each chunk and, within it, for each image the index in `sums` of the first checksum of
     * this rank's copies; one more entry at the end. Owned. */
    size_t *sums_firsts;
    /* Checksums of this rank's copies, ordered by chunk, image and copy. Owned. */
    uint64_t *sums;
    /* Number of leading chunks whose checksums this rank knows for the weights as they are now. */
    uint32_t own_known_chunks;
    /* Number of leading chunks whose checksums each trainer rank knew when this update began. */
    uint32_t known_chunks;
    /* Table of the shared FP8 scales, in host memory that the device reads. Owned; NULL if no block
     * is shared. */
    float *scales;
    /* Scales that this rank has computed; they lie behind the table `scales` in the same memory. */
    float *found;
    /* Device operations that write one chunk, or that compute FP8 scales. Owned. */
    struct tdm__copy_op *copy_ops;
    uint8_t *localities; /* Locality of each device operation, an enum tdm__copy_locality. Owned. */
    /* For each device operation the index of its checksum in `own_sums`. Owned. */
    uint32_t *sum_slots;
    uint64_t *copy_op_sums; /* Checksums that the operations `copy_ops` compute. Owned. */
    /* Checksums of this rank's copies of the chunk that is being written. Owned. */
    uint64_t *own_sums;
    /* Tensor records that describe this rank's copies of one chunk of one image, with room for the
     * most copies. Owned. */
    struct tdm__tensor_record *records;
    void *description; /* Encoded tensor handles of the chunk that was described last. Owned. */
    /* Bytes and checksums of the chunk that was written last. */
    struct tdm__transfer_totals last_totals;
    /* Hash of this rank's checksums of all chunks since the targets were mapped. */
    struct tdm__hash own_hash;
    /* Hash of what all ranks have written, which the ranks have settled at the end of an update. */
    struct tdm__hash contents_hash;
    /* For each engine rank the resume log of all chunks, which the ranks have settled. Owned. */
    struct tdm__resume_log *resume_logs;
    /* Number of chunks that this rank has described; each description contains it. */
    uint64_t exports_count;
};

/* ---- life ---------------------------------------------------------------------------- */

/* Returns the larger of two numbers. */
static uint32_t max_u32(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

/* Returns the number of rectangles whose shared FP8 scales this rank computes. */
static uint32_t own_scale_measures(const struct tdm__weight_writer *weight_writer)
{
    const struct tdm__scales *scales = &weight_writer->options.transfer_plan->scales;
    uint32_t count = 0;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        count += scales->measures[i].from_rank == weight_writer->options.rank ? 1 : 0;
    }
    return count;
}

/* Returns the size in bytes of the table of shared FP8 scales and of the scales that this rank
 * computes. */
static size_t scales_bytes(const struct tdm__weight_writer *weight_writer)
{
    const struct tdm__scales *scales = &weight_writer->options.transfer_plan->scales;
    uint64_t count = scales->count;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        count += scales->measures[i].from_rank == weight_writer->options.rank
                     ? tdm__scales_measured_count(&scales->measures[i])
                     : 0;
    }
    return count * sizeof(*weight_writer->scales);
}

/* Allocates the table of shared FP8 scales, if the plan has FP8 blocks that several ranks share. */
static tdm_status allocate_scales(struct tdm__weight_writer *weight_writer)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    void *address;

    if (!tdm__weight_writer_shares_blocks(weight_writer)) {
        return TDM_OK;
    }
    TDM_TRY(device->ops->host_alloc(device, scales_bytes(weight_writer), &address));
    weight_writer->scales = address;
    weight_writer->found =
        weight_writer->scales + weight_writer->options.transfer_plan->scales.count;
    return TDM_OK;
}

/* The largest numbers of copies of one rank, from which the sizes of its arrays follow. */
struct copy_counts {
    size_t all;           /* Number of all copies. */
    uint32_t chunk_max;   /* Most copies of one chunk, for all engine ranks together. */
    uint32_t records_max; /* Most copies of one chunk for one engine rank. */
};

/* Counts the copies of this rank and fills `sums_firsts`. */
static void count_copies(struct tdm__weight_writer *weight_writer, struct copy_counts *counts)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    size_t entry = 0;

    *counts = (struct copy_counts){.all = 0};
    for (uint32_t chunk = 0; chunk < transfer_plan->chunks_count; chunk++) {
        size_t before = counts->all;

        for (uint32_t image = 0; image < transfer_plan->to_count; image++) {
            uint32_t count = tdm__transfer_plan_copies_between(transfer_plan, chunk,
                                                               weight_writer->options.rank, image);

            weight_writer->sums_firsts[entry++] = counts->all;
            counts->all += count;
            counts->records_max = max_u32(counts->records_max, count);
        }
        counts->chunk_max = max_u32(counts->chunk_max, (uint32_t)(counts->all - before));
    }
    weight_writer->sums_firsts[entry] = counts->all;
}

/* Allocates the arrays whose sizes follow from the number of copies. */
static tdm_status allocate_copies(struct tdm__weight_writer *weight_writer,
                                  const struct copy_counts *counts)
{
    size_t copy_ops_max = max_u32(own_scale_measures(weight_writer), counts->chunk_max);
    const struct tdm__tensor_handles largest = {
        .header = {.storages_count = 1, .tensors_count = counts->records_max}};

    weight_writer->copy_ops = calloc(copy_ops_max + 1, sizeof(*weight_writer->copy_ops));
    weight_writer->localities = calloc(copy_ops_max + 1, sizeof(*weight_writer->localities));
    weight_writer->sum_slots = calloc(copy_ops_max + 1, sizeof(*weight_writer->sum_slots));
    weight_writer->copy_op_sums = calloc(copy_ops_max + 1, sizeof(*weight_writer->copy_op_sums));
    weight_writer->own_sums = calloc(copy_ops_max + 1, sizeof(*weight_writer->own_sums));
    weight_writer->sums = calloc(counts->all + 1, sizeof(*weight_writer->sums));
    weight_writer->records =
        calloc((size_t)counts->records_max + 1, sizeof(*weight_writer->records));
    weight_writer->description = malloc(tdm__tensor_handles_bytes(&largest));
    return weight_writer->copy_ops != NULL && weight_writer->localities != NULL &&
                   weight_writer->sum_slots != NULL && weight_writer->copy_op_sums != NULL &&
                   weight_writer->own_sums != NULL && weight_writer->sums != NULL &&
                   weight_writer->records != NULL && weight_writer->description != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_NOMEM, "an update's buffers: sums of %zu copies", counts->all);
}

/* Allocates the writer's arrays, whose sizes follow from the transfer plan. */
static tdm_status allocate_buffers(struct tdm__weight_writer *weight_writer)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    size_t images_count = transfer_plan->to_count;
    size_t slices_count = transfer_plan->from[weight_writer->options.rank].slices_count;
    struct copy_counts counts;

    weight_writer->sums_firsts =
        calloc(images_count * transfer_plan->chunks_count + 1, sizeof(*weight_writer->sums_firsts));
    weight_writer->targets = calloc(images_count + 1, sizeof(*weight_writer->targets));
    weight_writer->resume_logs = calloc(images_count + 1, sizeof(*weight_writer->resume_logs));
    weight_writer->slices = calloc(slices_count + 1, sizeof(*weight_writer->slices));
    if (weight_writer->sums_firsts == NULL || weight_writer->targets == NULL ||
        weight_writer->resume_logs == NULL || weight_writer->slices == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u chunks of %zu engine ranks", transfer_plan->chunks_count,
                         images_count);
    }
    count_copies(weight_writer, &counts);
    return allocate_copies(weight_writer, &counts);
}

/* Rounds a number of bytes up to the alignment of chunks. */
static uint64_t align_chunk(uint64_t bytes)
{
    return (bytes + TDM__TRANSFER_PLAN_ALIGNMENT - 1) / TDM__TRANSFER_PLAN_ALIGNMENT *
           TDM__TRANSFER_PLAN_ALIGNMENT;
}

/* Returns how many chunks a bucket has room for. */
static uint32_t halves_count(const struct tdm__weight_writer_options *options)
{
    return options->has_one_half ? 1 : TDM__BUCKET_HALVES;
}

/* Allocates a writer's arrays. Creates the region of its bucket without memory, unless the ranks
 * write directly into the engines' shadows. */
static tdm_status weight_writer_init(struct tdm__weight_writer *weight_writer)
{
    const struct tdm__weight_writer_options *options = &weight_writer->options;
    struct tdm_region_options bucket = {.tag = "bucket", .policy = TDM_REGION_DROP, .paused = 1};

    weight_writer->half_bytes = align_chunk(options->transfer_plan->chunk_bytes_max);
    bucket.size_bytes = halves_count(options) * weight_writer->half_bytes;
    TDM_TRY(allocate_buffers(weight_writer));
    TDM_TRY(allocate_scales(weight_writer));
    return options->in_place
               ? TDM_OK
               : tdm__region_create_shared(options->regions, &bucket, &weight_writer->bucket);
}

tdm_status tdm__weight_writer_create(const struct tdm__weight_writer_options *options,
                                     struct tdm__weight_writer **weight_writer_out)
{
    struct tdm__weight_writer *weight_writer = calloc(1, sizeof(*weight_writer));
    tdm_status status;

    if (weight_writer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a weight writer");
    }
    weight_writer->options = *options;
    status = weight_writer_init(weight_writer);
    if (status != TDM_OK) {
        tdm__weight_writer_destroy(weight_writer);
        return status;
    }
    *weight_writer_out = weight_writer;
    return TDM_OK;
}

void tdm__weight_writer_destroy(struct tdm__weight_writer *weight_writer)
{
    if (weight_writer == NULL) {
        return;
    }
    if (weight_writer->targets != NULL) {
        tdm__weight_writer_unmap_targets(weight_writer);
    }
    tdm_region_destroy(weight_writer->bucket);
    if (weight_writer->scales != NULL) {
        struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);

        device->ops->host_free(device, weight_writer->scales, scales_bytes(weight_writer));
    }
    free(weight_writer->targets);
    free(weight_writer->slices);
    free(weight_writer->sums_firsts);
    free(weight_writer->copy_ops);
    free(weight_writer->localities);
    free(weight_writer->sum_slots);
    free(weight_writer->copy_op_sums);
    free(weight_writer->own_sums);
    free(weight_writer->sums);
    free(weight_writer->resume_logs);
    free(weight_writer->records);
    free(weight_writer->description);
    free(weight_writer);
}

tdm_status tdm__weight_writer_resume_bucket(struct tdm__weight_writer *weight_writer,
                                            int64_t timeout_ms)
{
    return weight_writer->bucket == NULL || tdm_region_is_resident(weight_writer->bucket)
               ? TDM_OK
               : tdm_region_resume(weight_writer->bucket, timeout_ms);
}

tdm_status tdm__weight_writer_pause_bucket(struct tdm__weight_writer *weight_writer)
{
    return weight_writer->bucket != NULL && tdm_region_is_resident(weight_writer->bucket)
               ? tdm_region_pause(weight_writer->bucket)
               : TDM_OK;
}

const tdm_region *tdm__weight_writer_bucket(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->bucket;
}

uint64_t tdm__weight_writer_chunk_offset(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk)
{
    return weight_writer->bucket == NULL
               ? 0
               : chunk % halves_count(&weight_writer->options) * weight_writer->half_bytes;
}

/* ---- targets ------------------------------------------------------------------------- */

/* Unmaps the memory of an engine rank's target and releases its blocks. */
static void unmap_target(struct tdm__device *device, struct mapped_target *target)
{
    if (target->mapped_bytes > 0) {
        (void)device->ops->unmap(device, target->address, target->mapped_bytes);
    }
    if (target->address != NULL) {
        device->ops->unreserve(device, target->address, target->size_bytes);
    }
    device->ops->release(device, target->blocks, target->blocks_count);
    *target = (struct mapped_target){.address = NULL};
}

/* Opens the memory blocks of an engine rank's target by their keys. */
static tdm_status import_blocks(struct tdm__device *device, const struct tdm__transfer_target *from,
                                struct mapped_target *target)
{
    for (uint32_t i = 0; i < from->blocks_count; i++) {
        TDM_TRY(device->ops->import(device, &from->keys[i], &target->blocks[i]));
        target->blocks_count++;
        target->size_bytes += target->blocks[i]->size_bytes;
    }
    return TDM_OK;
}

/* Maps the imported blocks of a target one after the other into a reserved address range. */
static tdm_status map_blocks(struct tdm__device *device, struct mapped_target *target)
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

/* Returns true if trainer rank `from_rank` writes anything into the image of an engine rank. */
static bool has_copies(const struct tdm__transfer_plan_image *image, uint32_t from_rank)
{
    for (uint32_t i = 0; i < image->copies_count; i++) {
        if (image->copies[i].from_rank == from_rank) {
            return true;
        }
    }
    return false;
}

/* Returns the smallest allowed size in bytes of an engine rank's target, which is a shadow or a
 * bucket. */
static uint64_t target_bytes(const struct tdm__weight_writer *weight_writer, uint32_t engine_rank)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;

    return weight_writer->bucket != NULL
               ? tdm_region_size(weight_writer->bucket)
               : transfer_plan->images[engine_rank].chunks[transfer_plan->chunks_count - 1].end;
}

/* Stores what `from` says about the target of engine rank `index`, and maps the target if this rank
 * writes into it. */
static tdm_status map_target(struct tdm__weight_writer *weight_writer, uint32_t index,
                             const struct tdm__transfer_target *from)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    struct mapped_target *target = &weight_writer->targets[index];
    uint64_t wanted;

    target->is_absent = from->absent;
    if (from->absent) {
        return TDM_OK;
    }
    target->resume_log = from->resume_log;
    if (from->blocks_count == 0 || from->blocks_count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "engine rank %u has a target of %u blocks", index,
                         from->blocks_count);
    }
    target->gpu = from->gpu;
    target->key = from->keys[0];
    if (!has_copies(&transfer_plan->images[index], weight_writer->options.rank)) {
        return TDM_OK;
    }
    TDM_TRY(import_blocks(device, from, target));
    wanted = target_bytes(weight_writer, index);
    if (target->size_bytes < wanted) {
        return tdm__fail(TDM_E_PROTOCOL, "engine rank %u has a target of %zu bytes, not %llu",
                         index, target->size_bytes, (unsigned long long)wanted);
    }
    return map_blocks(device, target);
}

tdm_status tdm__weight_writer_map_targets(struct tdm__weight_writer *weight_writer,
                                          const struct tdm__transfer_target *targets)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;

    tdm__weight_writer_unmap_targets(weight_writer);
    weight_writer->known_chunks = 0;
    weight_writer->own_hash = transfer_plan->manifest->hash;
    weight_writer->contents_hash = transfer_plan->manifest->hash;
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        tdm_status status = map_target(weight_writer, i, &targets[i]);

        if (status != TDM_OK) {
            tdm__weight_writer_unmap_targets(weight_writer);
            return status;
        }
    }
    return tdm__layout_resolve_addresses(&transfer_plan->from[weight_writer->options.rank],
                                         transfer_plan->manifest, weight_writer->options.regions,
                                         weight_writer->slices);
}

void tdm__weight_writer_unmap_targets(struct tdm__weight_writer *weight_writer)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);

    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        unmap_target(device, &weight_writer->targets[i]);
    }
}

/* ---- scales of shared blocks --------------------------------------------------------- */

bool tdm__weight_writer_shares_blocks(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->options.transfer_plan->scales.count > 0;
}

/* Returns the address of the first element that a copy of this rank reads. */
static const char *copy_source(const struct tdm__weight_writer *weight_writer,
                               const struct tdm__rect_copy *copy)
{
    return (const char *)weight_writer->slices[copy->from_tensor].address +
           copy->from_offset * tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
}

/* Computes on the device the FP8 scales that this rank contributes to the shared table. The results
 * are stored without gaps, because two slices may have parts of the same block. */
static tdm_status find_scales(struct tdm__weight_writer *weight_writer)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    const struct tdm__scales *scales = &weight_writer->options.transfer_plan->scales;
    float *found = weight_writer->found;
    uint32_t count = 0;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__rect_copy *measure = &scales->measures[i];

        if (measure->from_rank == weight_writer->options.rank) {
            struct tdm__copy_op *part = &weight_writer->copy_ops[count++];

            *part = tdm__convert_copy_op(measure, copy_source(weight_writer, measure), found);
            part->to_pitch = tdm__convert_blocks_count(measure->columns);
            found += tdm__scales_measured_count(measure);
        }
    }
    return count == 0 ? TDM_OK
                      : device->ops->move(device, weight_writer->copy_ops, count,
                                          weight_writer->copy_op_sums);
}

tdm_status tdm__weight_writer_find_scales(struct tdm__weight_writer *weight_writer)
{
    const struct tdm__scales *scales = &weight_writer->options.transfer_plan->scales;
    const float *found = weight_writer->found;

    if (!tdm__weight_writer_shares_blocks(weight_writer)) {
        return TDM_OK;
    }
    TDM_TRY(find_scales(weight_writer));
    memset(weight_writer->scales, 0, scales->count * sizeof(*weight_writer->scales));
    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__rect_copy *measure = &scales->measures[i];

        if (measure->from_rank == weight_writer->options.rank) {
            tdm__scales_merge(measure, found, weight_writer->scales);
            found += tdm__scales_measured_count(measure);
        }
    }
    return TDM_OK;
}

tdm_status tdm__weight_writer_share_scales(struct tdm__weight_writer *weight_writer)
{
    return tdm__weight_writer_shares_blocks(weight_writer)
               ? tdm_collective_all_reduce(weight_writer->options.group, weight_writer->scales,
                                           weight_writer->options.transfer_plan->scales.count,
                                           TDM_MAX)
               : TDM_OK;
}

/* ---- write --------------------------------------------------------------------------- */

/* Returns the device operation for a copy into the image of an engine rank. With `to` NULL the
 * operation only computes the checksum, which the update's hash needs also for absent engine
 * ranks. */
static struct tdm__copy_op plan_copy_op(const struct tdm__weight_writer *weight_writer,
                                        uint32_t image, const struct tdm__rect_copy *copy, char *to)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    struct tdm__copy_op part;

    if (copy->from_tensor == TDM__TRANSFER_PLAN_SCALES) {
        return tdm__convert_copy_op(copy, weight_writer->scales + copy->from_offset, to);
    }
    part = tdm__convert_copy_op(copy, copy_source(weight_writer, copy), to);
    tdm__scales_attach(&transfer_plan->scales, &transfer_plan->to[image].slices[copy->to_tensor],
                       copy, weight_writer->scales, &part);
    return part;
}

/* Returns the checksums of this rank's copies for one chunk of an engine rank's image, in the order
 * of the copies. Those of the chunk's other images follow. */
static uint64_t *image_sums(const struct tdm__weight_writer *weight_writer, uint32_t chunk,
                            uint32_t image)
{
    size_t entry = (size_t)chunk * weight_writer->options.transfer_plan->to_count + image;

    return &weight_writer->sums[weight_writer->sums_firsts[entry]];
}

/* Returns the number of this rank's copies for one chunk of all images. */
static uint32_t chunk_copies(const struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    return (uint32_t)(image_sums(weight_writer, chunk + 1, 0) -
                      image_sums(weight_writer, chunk, 0));
}

/* Returns true if the chunk's checksums are known and the engine rank of this image has the chunk
 * or is absent. */
static bool target_has_chunk(const struct tdm__weight_writer *weight_writer, uint32_t image_index,
                             uint32_t chunk)
{
    const struct mapped_target *target = &weight_writer->targets[image_index];

    return chunk < weight_writer->known_chunks && (target->is_absent || chunk < target->held_count);
}

/* The work of this rank for one chunk. Copies with a known checksum that no engine rank needs are
 * left out. */
struct chunk_work {
    uint32_t copy_ops_count; /* Number of device operations that this rank runs for the chunk. */
    /* Number of checksums of this rank's copies, including those known from an earlier update. */
    uint32_t sums_count;
};

/* Adds this rank's copies for one chunk of one engine rank's image to the device operations. */
static void add_image_work(struct tdm__weight_writer *weight_writer, uint32_t image_index,
                           uint32_t chunk, struct chunk_work *work)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[image_index];
    const struct tdm__transfer_plan_chunk *about = &image->chunks[chunk];
    const uint64_t *known = image_sums(weight_writer, chunk, 0);
    bool is_done = target_has_chunk(weight_writer, image_index, chunk);
    char *address = weight_writer->targets[image_index].address;

    for (uint32_t i = 0; i < about->copies_count; i++) {
        const struct tdm__rect_copy *copy = &image->copies[about->copies_first + i];

        if (copy->from_rank == weight_writer->options.rank && is_done) {
            weight_writer->own_sums[work->sums_count] = known[work->sums_count];
            work->sums_count++;
        } else if (copy->from_rank == weight_writer->options.rank) {
            uint64_t at = tdm__transfer_plan_image_offset(transfer_plan, image_index, copy);

            at -= weight_writer->options.in_place ? 0 : about->begin;
            at += tdm__weight_writer_chunk_offset(weight_writer, chunk);
            weight_writer->copy_ops[work->copy_ops_count] = plan_copy_op(
                weight_writer, image_index, copy, address == NULL ? NULL : address + at);
            weight_writer->sum_slots[work->copy_ops_count] = work->sums_count++;
            weight_writer->localities[work->copy_ops_count++] = copy->locality;
        }
    }
}

/* Stores the checksums of the executed device operations and adds them to the writer's
 * last_totals. */
static void count_copy_ops(struct tdm__weight_writer *weight_writer, uint32_t copy_ops_count)
{
    struct tdm__transfer_totals *last_totals = &weight_writer->last_totals;

    for (uint32_t i = 0; i < copy_ops_count; i++) {
        const struct tdm__strided_rows rows = tdm__copy_op_rows(&weight_writer->copy_ops[i]);
        uint8_t locality = weight_writer->localities[i];

        weight_writer->own_sums[weight_writer->sum_slots[i]] = weight_writer->copy_op_sums[i];
        if (weight_writer->copy_ops[i].to != NULL) {
            last_totals->bytes[locality] += rows.count * rows.size_bytes;
            last_totals->sums[locality] =
                tdm__splitmix64(last_totals->sums[locality], weight_writer->copy_op_sums[i]);
        }
    }
}

/* Keeps the computed checksums of a chunk. If they differ from those that are known for it, forgets
 * all checksums and returns TDM_E_STATE. */
static tdm_status keep_sums(struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    uint64_t *sums = image_sums(weight_writer, chunk, 0);
    uint32_t count = chunk_copies(weight_writer, chunk);
    size_t bytes = count * sizeof(*sums);

    if (chunk < weight_writer->known_chunks && memcmp(weight_writer->own_sums, sums, bytes) != 0) {
        tdm__weight_writer_forget_sums(weight_writer);
        return tdm__fail(TDM_E_STATE,
                         "chunk %u: the weights are not those of the update before, though this "
                         "rank has neither learned nor loaded",
                         chunk);
    }
    memcpy(sums, weight_writer->own_sums, bytes);
    weight_writer->own_known_chunks = max_u32(weight_writer->own_known_chunks, chunk + 1);
    weight_writer->own_hash = tdm__checksum_contents_hash(&weight_writer->own_hash, sums, count);
    return TDM_OK;
}

tdm_status tdm__weight_writer_write_chunk(struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    struct chunk_work work = {.copy_ops_count = 0};

    weight_writer->last_totals = (struct tdm__transfer_totals){.bytes = {0}};
    memset(weight_writer->own_sums, 0,
           chunk_copies(weight_writer, chunk) * sizeof(*weight_writer->own_sums));
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        add_image_work(weight_writer, i, chunk, &work);
    }
    if (work.copy_ops_count > 0) {
        TDM_TRY(device->ops->move(device, weight_writer->copy_ops, work.copy_ops_count,
                                  weight_writer->copy_op_sums));
    }
    count_copy_ops(weight_writer, work.copy_ops_count);
    return keep_sums(weight_writer, chunk);
}

const struct tdm__transfer_totals *
tdm__weight_writer_last_totals(const struct tdm__weight_writer *weight_writer)
{
    return &weight_writer->last_totals;
}

struct tdm__hash tdm__weight_writer_contents_hash(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->contents_hash;
}

/* ---- describe ------------------------------------------------------------------------ */

/* Fills the tensor records that describe this rank's copies of one chunk of an engine rank's image.
 * Returns their number. */
static uint32_t describe_copies(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                uint32_t image_index)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[image_index];
    const struct tdm__transfer_plan_chunk *about = &image->chunks[chunk];
    const uint64_t *sums = image_sums(weight_writer, chunk, image_index);
    uint32_t count = 0;

    for (uint32_t i = 0; i < about->copies_count; i++) {
        const struct tdm__rect_copy *copy = &image->copies[about->copies_first + i];
        uint64_t at = tdm__transfer_plan_image_offset(transfer_plan, image_index, copy);
        size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
        struct tdm__strided_rows rows = tdm__convert_written_rows(copy);

        if (copy->from_rank != weight_writer->options.rank) {
            continue;
        }
        weight_writer->records[count] = (struct tdm__tensor_record){
            .tensor = transfer_plan->to[image_index].slices[copy->to_tensor].tensor,
            .dtype = copy->to_dtype,
            .dims_count = 2,
            .flags = TDM__TENSOR_SLICE,
            .shape = {rows.count, rows.size_bytes / element_bytes},
            .stride = {copy->to_pitch, 1},
            .offset = (at - (weight_writer->options.in_place ? 0 : about->begin)) / element_bytes,
            .checksum = sums[count],
            .image = at,
        };
        count++;
    }
    return count;
}

/* Returns this rank's share of the resume log of an engine rank that has the first `chunks_count`
 * chunks. */
static struct tdm__resume_log build_own_log(struct tdm__weight_writer *weight_writer,
                                            uint32_t engine_rank, uint32_t chunks_count)
{
    const struct tdm__transfer_plan_image *image =
        &weight_writer->options.transfer_plan->images[engine_rank];
    struct tdm__resume_log resume_log = {.next = 0};

    for (uint32_t i = 0; i < chunks_count; i++) {
        if (image->chunks[i].copies_count > 0) {
            uint32_t count = describe_copies(weight_writer, i, engine_rank);

            tdm__resume_log_add_bucket(&resume_log, i, weight_writer->records, count);
        }
    }
    return resume_log;
}

bool tdm__weight_writer_has_part(const struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                 uint32_t engine_rank)
{
    const struct mapped_target *target = &weight_writer->targets[engine_rank];

    return weight_writer->options.transfer_plan->images[engine_rank].chunks[chunk].copies_count >
               0 &&
           !target->is_absent && chunk >= target->held_count;
}

tdm_status tdm__weight_writer_describe_chunk(struct tdm__weight_writer *weight_writer,
                                             const struct tdm__id *update, uint64_t epoch,
                                             uint32_t chunk, uint32_t engine_rank,
                                             struct tdm_bytes *bytes_out)
{
    uint64_t all_bytes = target_bytes(weight_writer, engine_rank);
    struct tdm__storage_record storage = {
        .gpu = weight_writer->targets[engine_rank].gpu,
        .key = weight_writer->targets[engine_rank].key,
        .size_bytes = weight_writer->bucket == NULL ? all_bytes : weight_writer->half_bytes,
        .offset_bytes = tdm__weight_writer_chunk_offset(weight_writer, chunk),
        .allocation_bytes = all_bytes,
        .reference = ++weight_writer->exports_count,
        .writer = weight_writer->options.rank};
    struct tdm__tensor_handles handles = {
        .header = {.storages_count = 1,
                   .update = *update,
                   .node = weight_writer->options.node,
                   .epoch = epoch,
                   .bucket = chunk,
                   .buckets_count = weight_writer->options.transfer_plan->chunks_count},
        .storages = &storage,
        .tensors = weight_writer->records};

    *bytes_out = (struct tdm_bytes){weight_writer->description, 0};
    if (tdm__weight_writer_has_part(weight_writer, chunk, engine_rank)) {
        handles.header.tensors_count = describe_copies(weight_writer, chunk, engine_rank);
    }
    if (handles.header.tensors_count == 0) {
        return TDM_OK;
    }
    bytes_out->size_bytes = tdm__tensor_handles_bytes(&handles);
    return tdm__tensor_handles_encode(&handles, weight_writer->description, bytes_out->size_bytes);
}

void tdm__weight_writer_forget_sums(struct tdm__weight_writer *weight_writer)
{
    weight_writer->own_known_chunks = 0;
    weight_writer->known_chunks = 0;
}

/* ---- claims: what ranks tell each other ---------------------------------------------- */

/* Places of the words of a claim: a number or a hash, and then two words for each engine rank. */
enum { CLAIM_FIRST = 0, CLAIM_SECOND = 1, CLAIM_LOGS = 2, LOG_WORDS = 2 };

uint32_t tdm__weight_writer_claim_words(const struct tdm__weight_writer *weight_writer)
{
    return CLAIM_LOGS + LOG_WORDS * weight_writer->options.transfer_plan->to_count;
}

/* Writes this rank's share of the resume log of an engine rank that has the first `chunks_count`
 * chunks into a claim. */
static void claim_log(struct tdm__weight_writer *weight_writer, uint32_t engine_rank,
                      uint32_t chunks_count, uint64_t *claim)
{
    struct tdm__resume_log own = build_own_log(weight_writer, engine_rank, chunks_count);
    uint64_t *words = &claim[CLAIM_LOGS + LOG_WORDS * engine_rank];

    words[0] = own.sums.high;
    words[1] = own.sums.low;
}

/* Returns the resume log of an engine rank that has the first `chunks_count` chunks, from the
 * claims of all ranks. */
static struct tdm__resume_log sum_logs(const struct tdm__weight_writer *weight_writer,
                                       uint32_t engine_rank, uint32_t chunks_count,
                                       const uint64_t *claims)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    size_t each = tdm__weight_writer_claim_words(weight_writer);
    struct tdm__resume_log resume_log = {.next = 0};

    for (uint32_t i = 0; i < chunks_count; i++) {
        if (transfer_plan->images[engine_rank].chunks[i].copies_count > 0) {
            resume_log.next = i + 1;
        }
    }
    for (uint32_t rank = 0; rank < transfer_plan->from_count; rank++) {
        const uint64_t *words = &claims[rank * each + CLAIM_LOGS + LOG_WORDS * (size_t)engine_rank];
        const struct tdm__hash share = {.high = words[0], .low = words[1]};

        tdm__resume_log_add_share(&resume_log, &share);
    }
    return resume_log;
}

void tdm__weight_writer_claim_held(struct tdm__weight_writer *weight_writer, uint64_t *claim_out)
{
    uint32_t known = weight_writer->own_known_chunks;

    memset(claim_out, 0, tdm__weight_writer_claim_words(weight_writer) * sizeof(*claim_out));
    claim_out[CLAIM_FIRST] = known;
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        uint32_t next = weight_writer->targets[i].resume_log.next;

        claim_log(weight_writer, i, next <= known ? next : 0, claim_out);
    }
}

void tdm__weight_writer_settle_held(struct tdm__weight_writer *weight_writer,
                                    const uint64_t *claims)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    uint32_t each = tdm__weight_writer_claim_words(weight_writer);
    uint32_t known = transfer_plan->chunks_count;

    for (uint32_t rank = 0; rank < transfer_plan->from_count; rank++) {
        uint64_t claimed = claims[(size_t)rank * each + CLAIM_FIRST];

        known = claimed < known ? (uint32_t)claimed : known;
    }
    weight_writer->known_chunks = known;
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        struct mapped_target *target = &weight_writer->targets[i];
        uint32_t next = target->resume_log.next;

        if (!target->is_absent && next > 0 && next <= known) {
            struct tdm__resume_log resume_log = sum_logs(weight_writer, i, next, claims);

            target->held_count = tdm__resume_log_equal(&resume_log, &target->resume_log) ? next : 0;
        }
    }
}

void tdm__weight_writer_claim_result(struct tdm__weight_writer *weight_writer, uint64_t *claim_out)
{
    claim_out[CLAIM_FIRST] = weight_writer->own_hash.high;
    claim_out[CLAIM_SECOND] = weight_writer->own_hash.low;
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        claim_log(weight_writer, i, weight_writer->own_known_chunks, claim_out);
    }
}

void tdm__weight_writer_settle_result(struct tdm__weight_writer *weight_writer,
                                      const uint64_t *claims)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    uint32_t each = tdm__weight_writer_claim_words(weight_writer);

    weight_writer->contents_hash = transfer_plan->manifest->hash;
    for (uint32_t rank = 0; rank < transfer_plan->from_count; rank++) {
        weight_writer->contents_hash = tdm__checksum_contents_hash(
            &weight_writer->contents_hash, &claims[(size_t)rank * each], CLAIM_LOGS);
    }
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        weight_writer->resume_logs[i] =
            sum_logs(weight_writer, i, transfer_plan->chunks_count, claims);
    }
}

struct tdm__resume_log tdm__weight_writer_resume_log(const struct tdm__weight_writer *weight_writer,
                                                     uint32_t engine_rank)
{
    return weight_writer->resume_logs[engine_rank];
}

bool tdm__weight_writer_chunk_is_held(const struct tdm__weight_writer *weight_writer,
                                      uint32_t chunk)
{
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        if (tdm__weight_writer_has_part(weight_writer, chunk, i)) {
            return false;
        }
    }
    return chunk < weight_writer->known_chunks;
}
