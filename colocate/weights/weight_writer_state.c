/* weight_writer_state.c - what a weight writer owns, and where its memory is. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Creates and destroys weight writers. All arrays are allocated at the creation, with sizes that
 * follow from the transfer plan, so that no update fails for lack of host memory. A writer has at
 * most one region: the bucket, behind whose halves the send and receive buffers of an exchange lie,
 * or these buffers alone. It gets its memory for one update.
 *
 * One thread enters at a time; there are no locks. */

#include "colocate/weights/weight_writer_state.h"

#include "runtime/error.h"

#include <stdlib.h>

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
    uint32_t sends_max =
        weight_writer->rounds == NULL ? 0 : tdm__exchange_rounds_sends_max(weight_writer->rounds);
    size_t copy_ops_max = max_u32(own_scale_measures(weight_writer), counts->chunk_max + sends_max);
    const struct tdm__tensor_handles largest = {
        .header = {.storages_count = 1, .tensors_count = counts->records_max}};

    weight_writer->copy_ops = calloc(copy_ops_max + 1, sizeof(*weight_writer->copy_ops));
    weight_writer->copy_op_uses = calloc(copy_ops_max + 1, sizeof(*weight_writer->copy_op_uses));
    weight_writer->copy_op_sums = calloc(copy_ops_max + 1, sizeof(*weight_writer->copy_op_sums));
    weight_writer->own_sums = calloc(copy_ops_max + 1, sizeof(*weight_writer->own_sums));
    weight_writer->sums = calloc(counts->all + 1, sizeof(*weight_writer->sums));
    weight_writer->records =
        calloc((size_t)counts->records_max + 1, sizeof(*weight_writer->records));
    weight_writer->description = malloc(tdm__tensor_handles_bytes(&largest));
    return weight_writer->copy_ops != NULL && weight_writer->copy_op_uses != NULL &&
                   weight_writer->copy_op_sums != NULL && weight_writer->own_sums != NULL &&
                   weight_writer->sums != NULL && weight_writer->records != NULL &&
                   weight_writer->description != NULL
               ? TDM_OK
               : tdm__fail(
                     TDM_E_NOMEM,
                     "allocating an update's buffers: sums of %zu copies failed: out of memory",
                     counts->all);
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
        return tdm__fail(TDM_E_NOMEM,
                         "allocating %u chunks of %zu engine ranks failed: out of memory",
                         transfer_plan->chunks_count, images_count);
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

uint32_t tdm__weight_writer_halves_count(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->options.has_one_half ? 1 : TDM__BUCKET_HALVES;
}

/* Returns the part of a bucket that is the target of an engine rank. */
static uint32_t bucket_part(const struct tdm__weight_writer *weight_writer, uint32_t engine_rank)
{
    const uint32_t *parts = weight_writer->options.bucket_parts;

    return parts == NULL ? 0 : parts[engine_rank];
}

/* Returns the number of parts that each bucket needs. */
static uint32_t count_bucket_parts(const struct tdm__weight_writer *weight_writer)
{
    uint32_t count = 1;

    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        count = max_u32(count, bucket_part(weight_writer, i) + 1);
    }
    return count;
}

/* Returns the size in bytes of the send buffer, behind which the receive buffer begins. */
static uint64_t send_room(const struct tdm__weight_writer *weight_writer)
{
    const struct tdm__node_exchange *exchange = weight_writer->options.transfer_plan->exchange;

    return exchange == NULL ? 0 : align_chunk(exchange->send_bytes);
}

/* Returns the size in bytes of all parts of a bucket. */
static uint64_t parts_bytes(const struct tdm__weight_writer *weight_writer)
{
    return (uint64_t)weight_writer->bucket_parts_count *
           tdm__weight_writer_halves_count(weight_writer) * weight_writer->half_bytes;
}

/* Creates the region, without memory, of this rank's bucket and of what it exchanges with other
 * nodes. If the ranks write directly into the engines' shadows, there is no bucket in it. */
static tdm_status create_region(struct tdm__weight_writer *weight_writer)
{
    const struct tdm__weight_writer_options *options = &weight_writer->options;
    const struct tdm__node_exchange *exchange = options->transfer_plan->exchange;
    struct tdm_region_options region = {.tag = "bucket", .policy = TDM_REGION_DROP, .paused = 1};

    region.size_bytes = options->in_place ? 0 : parts_bytes(weight_writer);
    region.size_bytes +=
        exchange == NULL ? 0 : send_room(weight_writer) + align_chunk(exchange->receive_bytes);
    if (options->in_place && exchange == NULL) {
        return TDM_OK;
    }
    return tdm__region_create_shared(options->regions, &region,
                                     options->in_place ? &weight_writer->exchange_region
                                                       : &weight_writer->bucket);
}

/* Allocates a writer's arrays and creates its region. */
static tdm_status weight_writer_init(struct tdm__weight_writer *weight_writer)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;

    weight_writer->half_bytes = align_chunk(transfer_plan->chunk_bytes_max);
    weight_writer->bucket_parts_count = count_bucket_parts(weight_writer);
    if (transfer_plan->exchange != NULL) {
        TDM_TRY(tdm__exchange_rounds_create(transfer_plan->exchange, weight_writer->options.rank,
                                            transfer_plan->from_count, &weight_writer->rounds));
    }
    TDM_TRY(allocate_buffers(weight_writer));
    TDM_TRY(allocate_scales(weight_writer));
    return create_region(weight_writer);
}

tdm_status tdm__weight_writer_create(const struct tdm__weight_writer_options *options,
                                     struct tdm__weight_writer **weight_writer_out)
{
    struct tdm__weight_writer *weight_writer = calloc(1, sizeof(*weight_writer));
    tdm_status status;

    if (weight_writer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a weight writer failed: out of memory");
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
    tdm_region_destroy(weight_writer->exchange_region);
    tdm__exchange_rounds_destroy(weight_writer->rounds);
    if (weight_writer->scales != NULL) {
        struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);

        device->ops->host_free(device, weight_writer->scales, scales_bytes(weight_writer));
    }
    free(weight_writer->targets);
    free(weight_writer->slices);
    free(weight_writer->sums_firsts);
    free(weight_writer->copy_ops);
    free(weight_writer->copy_op_uses);
    free(weight_writer->copy_op_sums);
    free(weight_writer->own_sums);
    free(weight_writer->sums);
    free(weight_writer->resume_logs);
    free(weight_writer->records);
    free(weight_writer->description);
    free(weight_writer);
}

/* Returns the region of this rank; NULL if it needs none. */
static tdm_region *own_region(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->bucket != NULL ? weight_writer->bucket : weight_writer->exchange_region;
}

tdm_status tdm__weight_writer_resume_bucket(struct tdm__weight_writer *weight_writer,
                                            int64_t timeout_ms)
{
    tdm_region *region = own_region(weight_writer);

    return region == NULL || tdm_region_is_resident(region) ? TDM_OK
                                                            : tdm_region_resume(region, timeout_ms);
}

tdm_status tdm__weight_writer_pause_bucket(struct tdm__weight_writer *weight_writer)
{
    tdm_region *region = own_region(weight_writer);

    return region != NULL && tdm_region_is_resident(region) ? tdm_region_pause(region) : TDM_OK;
}

const tdm_region *tdm__weight_writer_bucket(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->bucket;
}

uint64_t tdm__weight_writer_chunk_offset(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk, uint32_t engine_rank)
{
    uint32_t halves_count = tdm__weight_writer_halves_count(weight_writer);
    uint64_t halves_before = (uint64_t)bucket_part(weight_writer, engine_rank) * halves_count;

    return weight_writer->bucket == NULL
               ? 0
               : (halves_before + chunk % halves_count) * weight_writer->half_bytes;
}

char *tdm__weight_writer_send_buffer(const struct tdm__weight_writer *weight_writer)
{
    uint64_t begin = weight_writer->bucket == NULL ? 0 : parts_bytes(weight_writer);

    return (char *)tdm_region_address(own_region(weight_writer)) + begin;
}

char *tdm__weight_writer_receive_buffer(const struct tdm__weight_writer *weight_writer)
{
    return tdm__weight_writer_send_buffer(weight_writer) + send_room(weight_writer);
}
