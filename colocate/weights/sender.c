/* sender.c - a trainer rank's side of an update by buckets: fills buckets and describes them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* An update by buckets sends whole tensors, for engines without a layout. For each bucket, in
 * order: every rank packs its slices into a host segment, the ranks all-gather the segments, and
 * each rank unpacks them into its staging bucket, a shared region on its GPU. Then
 * tdm__sender_describe_bucket() computes the checksums on the device and encodes the handles, which
 * an engine on the same GPU opens and reads. The segments are host memory of the device (pinned on
 * CUDA) and are allocated at the first use. tdm__sender_resume_bucket() must precede the first
 * fill. The receiving side is receiver.c; updates by layouts use weight_writer.c instead. One
 * thread enters at a time; there are no locks. */

#include "colocate/weights/sender.h"

#include "colocate/weights/tensor.h"
#include "colocate/weights/tensor_handles.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* State of a trainer rank's sender. The caller owns it and serializes all calls. */
struct tdm__sender {
    /* Arguments of tdm__sender_create(); the pointers are borrowed. */
    struct tdm__sender_options options;
    /* How the model is cut into buckets, and what each rank contributes; owned. */
    struct tdm__bucket_plan *plan;
    tdm_region *bucket; /* Staging region with the whole tensors of the current bucket; owned. */
    /* Tensor slices of this rank with the addresses at which their bytes can be read; owned. */
    struct tdm_slice *slices;
    /* Views of the tensors of one bucket, with room for those of the whole model; owned. */
    struct tdm_tensor_view *views;
    /* Device-accessible host memory for what this rank contributes to a bucket; owned. NULL before
     * the first use. */
    char *segment;
    /* Device-accessible host memory for the contributions of all ranks to a bucket; owned. NULL
     * before the first use. */
    char *segments;
    struct tdm__copy_op *copy_ops; /* Device operations that fill or checksum one bucket; owned. */
    uint64_t *sums;                /* Checksums that the operations `copy_ops` compute; owned. */
    /* Descriptions of the tensors of one bucket, with room for the largest bucket; owned. */
    struct tdm__tensor_record *records;
    void *description; /* Encoded tensor handles of the bucket that was described last; owned. */
    /* Number of buckets that this sender has described; each description contains it. */
    uint64_t exports_count;
};

/* ---- life ---------------------------------------------------------------------------- */

/* Returns the size in bytes of the memory for the segments of all ranks. */
static size_t segments_bytes(const struct tdm__sender *sender)
{
    return sender->options.ranks_count * sender->plan->segment_bytes_max;
}

/* Allocates the sender's host memory for segments if it does not exist. The memory may be pinned,
 * so it is allocated only when an update needs it. */
static tdm_status allocate_segments(struct tdm__sender *sender)
{
    struct tdm__device *device = tdm__regions_device(sender->options.regions);
    void *address;

    if (sender->segment == NULL) {
        TDM_TRY(device->ops->host_alloc(device, sender->plan->segment_bytes_max, &address));
        sender->segment = address;
    }
    if (sender->segments == NULL) {
        TDM_TRY(device->ops->host_alloc(device, segments_bytes(sender), &address));
        sender->segments = address;
    }
    return TDM_OK;
}

/* Frees the sender's host memory for segments. */
static void free_segments(struct tdm__sender *sender)
{
    struct tdm__device *device = tdm__regions_device(sender->options.regions);

    if (sender->segment != NULL) {
        device->ops->host_free(device, sender->segment, sender->plan->segment_bytes_max);
    }
    if (sender->segments != NULL) {
        device->ops->host_free(device, sender->segments, segments_bytes(sender));
    }
}

/* Allocates the sender's arrays for slices, device operations, checksums and records. */
static tdm_status allocate_buffers(struct tdm__sender *sender)
{
    const struct tdm__layout *own = &sender->options.layouts[sender->options.rank];
    uint32_t most = tdm__bucket_tensors_max(sender->plan);
    struct tdm__tensor_handles largest = {.header = {.storages_count = 1, .tensors_count = most}};
    size_t moves_max = (size_t)sender->plan->runs_count + most;

    sender->slices = calloc(own->slices_count + 1, sizeof(*sender->slices));
    sender->copy_ops = calloc(moves_max + 1, sizeof(*sender->copy_ops));
    sender->sums = calloc(moves_max + 1, sizeof(*sender->sums));
    sender->records = calloc(most + 1, sizeof(*sender->records));
    sender->description = malloc(tdm__tensor_handles_bytes(&largest));
    if (sender->slices == NULL || sender->copy_ops == NULL || sender->sums == NULL ||
        sender->records == NULL || sender->description == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an update's buffers: %zu moves", moves_max);
    }
    return TDM_OK;
}

/* Compiles the sender's bucket plan and creates its staging region without memory. */
static tdm_status sender_init(struct tdm__sender *sender)
{
    const struct tdm__sender_options *options = &sender->options;
    uint32_t tensors_count = options->manifest->tensors_count;
    struct tdm__bucket_options cut = {options->bucket_bytes, UINT64_MAX};
    struct tdm_region_options region = {.tag = "bucket", .policy = TDM_REGION_DROP, .paused = 1};

    TDM_TRY(tdm__bucket_plan_create(options->manifest, &cut, options->layouts, options->ranks_count,
                                    &sender->plan));
    sender->views = calloc((size_t)tensors_count + 1, sizeof(*sender->views));
    if (sender->views == NULL) {
        return tdm__fail(TDM_E_NOMEM, "views of %u tensors", tensors_count);
    }
    region.size_bytes = sender->plan->bucket_bytes_max;
    TDM_TRY(tdm__region_create_shared(options->regions, &region, &sender->bucket));
    return allocate_buffers(sender);
}

tdm_status tdm__sender_create(const struct tdm__sender_options *options,
                              struct tdm__sender **sender_out)
{
    struct tdm__sender *sender = calloc(1, sizeof(*sender));
    tdm_status status;

    if (sender == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a sender of weights");
    }
    sender->options = *options;
    status = sender_init(sender);
    if (status != TDM_OK) {
        tdm__sender_destroy(sender);
        return status;
    }
    *sender_out = sender;
    return TDM_OK;
}

void tdm__sender_destroy(struct tdm__sender *sender)
{
    if (sender == NULL) {
        return;
    }
    free_segments(sender);
    tdm_region_destroy(sender->bucket);
    tdm__bucket_plan_destroy(sender->plan);
    free(sender->views);
    free(sender->slices);
    free(sender->copy_ops);
    free(sender->sums);
    free(sender->records);
    free(sender->description);
    free(sender);
}

tdm_status tdm__sender_resume_bucket(struct tdm__sender *sender, int64_t timeout_ms)
{
    TDM_TRY(allocate_segments(sender));
    return tdm_region_is_resident(sender->bucket) ? TDM_OK
                                                  : tdm_region_resume(sender->bucket, timeout_ms);
}

tdm_status tdm__sender_pause_bucket(struct tdm__sender *sender)
{
    return tdm_region_is_resident(sender->bucket) ? tdm_region_pause(sender->bucket) : TDM_OK;
}

uint32_t tdm__sender_buckets_count(const struct tdm__sender *sender)
{
    return sender->plan->buckets_count;
}

uint64_t tdm__sender_memory_bytes(const struct tdm__sender *sender)
{
    return tdm_region_size(sender->bucket);
}

uint64_t tdm__sender_bucket_bytes(const struct tdm__sender *sender, uint32_t bucket)
{
    return sender->plan->buckets[bucket].size_bytes;
}

/* ---- fill ---------------------------------------------------------------------------- */

tdm_status tdm__sender_fill_bucket(struct tdm__sender *sender, uint32_t bucket)
{
    const struct tdm__sender_options *options = &sender->options;
    struct tdm__device *device = tdm__regions_device(options->regions);
    size_t part_bytes = sender->plan->buckets[bucket].segment_bytes_max;
    uint32_t count;

    if (!tdm_region_is_resident(sender->bucket)) {
        return tdm__fail(TDM_E_STATE, "a bucket is to be filled before it has memory");
    }
    TDM_TRY(tdm__layout_resolve_addresses(&options->layouts[options->rank], options->manifest,
                                          options->regions, sender->slices));
    count = tdm__bucket_pack(sender->plan, bucket, options->rank, sender->slices, sender->segment,
                             sender->copy_ops);
    TDM_TRY(device->ops->move(device, sender->copy_ops, count, sender->sums));
    TDM_TRY(
        tdm_collective_all_gather(options->group, sender->segment, part_bytes, sender->segments));
    count = 0;
    for (uint32_t rank = 0; rank < options->ranks_count; rank++) {
        count +=
            tdm__bucket_unpack(sender->plan, bucket, rank, sender->segments + rank * part_bytes,
                               tdm_region_address(sender->bucket), sender->copy_ops + count);
    }
    return device->ops->move(device, sender->copy_ops, count, sender->sums);
}

/* ---- describe ------------------------------------------------------------------------ */

/* Computes on the device the checksums of the tensors in bucket `about`, in the manifest's
 * order. */
static tdm_status sum_tensors(struct tdm__sender *sender, const struct tdm__bucket *about)
{
    struct tdm__device *device = tdm__regions_device(sender->options.regions);
    const char *image = tdm_region_address(sender->bucket);

    for (uint32_t i = 0; i < about->tensors_count; i++) {
        uint32_t tensor = about->tensors_first + i;

        sender->copy_ops[i] =
            tdm__checksum_copy_op(image + sender->plan->tensor_offsets[tensor],
                                  tdm_tensor_bytes(&sender->options.manifest->tensors[tensor]));
    }
    return device->ops->move(device, sender->copy_ops, about->tensors_count, sender->sums);
}

tdm_status tdm__sender_describe_bucket(struct tdm__sender *sender, const struct tdm__id *update,
                                       uint64_t epoch, uint32_t bucket, struct tdm_bytes *bytes_out)
{
    const struct tdm__bucket *about = &sender->plan->buckets[bucket];
    const struct tdm__block *block = tdm__region_block(sender->bucket);
    struct tdm__bucket_contents contents = {.manifest = sender->options.manifest,
                                            .update = *update,
                                            .epoch = epoch,
                                            .node = sender->options.location.node,
                                            .storage = {.gpu = sender->options.location.gpu,
                                                        .key = block->key,
                                                        .size_bytes = block->size_bytes,
                                                        .allocation_bytes = block->size_bytes,
                                                        .reference = ++sender->exports_count},
                                            .sums = sender->sums,
                                            .records = sender->records};

    TDM_TRY(sum_tensors(sender, about));
    return tdm__bucket_describe(sender->plan, bucket, &contents, sender->description, bytes_out);
}

const struct tdm_tensor_view *tdm__sender_bucket_views(struct tdm__sender *sender, uint32_t bucket,
                                                       uint32_t *count_out)
{
    const struct tdm__bucket *about = &sender->plan->buckets[bucket];
    const char *image = tdm_region_address(sender->bucket);

    for (uint32_t i = 0; i < about->tensors_count; i++) {
        uint32_t tensor = about->tensors_first + i;
        struct tdm_tensor_view *view = &sender->views[i];

        view->info = sender->options.manifest->tensors[tensor];
        tdm__tensor_row_major_strides(&view->info, view->stride);
        view->data = image + sender->plan->tensor_offsets[tensor];
    }
    *count_out = about->tensors_count;
    return sender->views;
}
