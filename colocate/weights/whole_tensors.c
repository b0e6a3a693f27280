/* whole_tensors.c - transfer plans to engines that get whole tensors, and their descriptions. */
/* SPDX-License-Identifier: Apache-2.0 */

/* One list of slices, each a whole tensor, is the layout of every engine rank. Its places follow
 * from the buckets (bucket.h), and the plan keeps slices whole, so that each chunk of each image is
 * one bucket; tdm__whole_tensors_compile_plan() asserts it. A trainer rank's bucket then has the
 * tensors at their offsets in the bucket, and its description needs nothing but the bucket plan and
 * the checksums, which the device computes. The arrays for one bucket are allocated once, for the
 * bucket with the most tensors. The caller serializes all calls; there are no locks. */

#include "colocate/weights/whole_tensors.h"

#include "colocate/weights/checksum.h"
#include "colocate/weights/remedies.h"
#include "colocate/weights/tensor.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>

_Static_assert((int)TDM__BUCKET_ALIGNMENT == (int)TDM__TRANSFER_PLAN_ALIGNMENT,
               "each chunk begins with a bucket");

/* What a trainer rank needs to send whole tensors. The caller owns it and serializes all calls. */
struct tdm__whole_tensors {
    const struct tdm__manifest *manifest; /* Tensors of the model; borrowed. */
    uint64_t bucket_bytes;                /* Size in bytes at which a bucket is full. */
    struct tdm__bucket_plan *plan;        /* How the model is divided into buckets; owned. */
    /* Each tensor as a slice of the image, in the order of the manifest. Owned. */
    struct tdm_slice *slices;
    /* Layouts of the engine ranks, which all have the same slices. Owned. */
    struct tdm__layout *layouts;
    uint32_t engine_ranks_count; /* Number of entries of `layouts`. */
    /* Device operations that compute the checksums of one bucket's tensors. Owned, like the four
     * arrays that follow, which have room for the bucket with the most tensors. */
    struct tdm__copy_op *sum_ops;
    uint64_t *sums;                     /* Checksums that the operations `sum_ops` compute. */
    struct tdm__tensor_record *records; /* Records that describe the tensors of one bucket. */
    struct tdm_tensor_view *views;      /* Views of the tensors of one bucket. */
    void *description; /* Encoded tensor handles of the bucket that was described last. */
    /* Number of buckets that were described; each description contains it. */
    uint64_t exports_count;
};

/* ---- life ---------------------------------------------------------------------------- */

/* Allocates the arrays, whose sizes follow from the bucket plan. */
static tdm_status allocate_arrays(struct tdm__whole_tensors *whole_tensors)
{
    uint32_t tensors_count = whole_tensors->manifest->tensors_count;
    size_t most = tdm__bucket_tensors_max(whole_tensors->plan);

    whole_tensors->slices = calloc(tensors_count, sizeof(*whole_tensors->slices));
    whole_tensors->layouts =
        calloc((size_t)whole_tensors->engine_ranks_count + 1, sizeof(*whole_tensors->layouts));
    whole_tensors->sum_ops = calloc(most, sizeof(*whole_tensors->sum_ops));
    whole_tensors->sums = calloc(most, sizeof(*whole_tensors->sums));
    whole_tensors->records = calloc(most, sizeof(*whole_tensors->records));
    whole_tensors->views = calloc(most, sizeof(*whole_tensors->views));
    whole_tensors->description = malloc(tdm__bucket_description_bytes_max(whole_tensors->plan));
    return whole_tensors->slices != NULL && whole_tensors->layouts != NULL &&
                   whole_tensors->sum_ops != NULL && whole_tensors->sums != NULL &&
                   whole_tensors->records != NULL && whole_tensors->views != NULL &&
                   whole_tensors->description != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_NOMEM,
                           "allocating an update of %" PRIu32
                           " whole tensors failed: out of memory",
                           tensors_count);
}

/* Divides the model into buckets and makes the layouts of the engine ranks. */
static tdm_status whole_tensors_init(struct tdm__whole_tensors *whole_tensors)
{
    TDM_TRY(tdm__bucket_plan_create(whole_tensors->manifest, whole_tensors->bucket_bytes,
                                    &whole_tensors->plan));
    TDM_TRY(allocate_arrays(whole_tensors));
    tdm__bucket_plan_slices(whole_tensors->plan, whole_tensors->manifest, whole_tensors->slices);
    for (uint32_t i = 0; i < whole_tensors->engine_ranks_count; i++) {
        whole_tensors->layouts[i] =
            (struct tdm__layout){whole_tensors->slices, whole_tensors->manifest->tensors_count};
    }
    return TDM_OK;
}

tdm_status tdm__whole_tensors_create(const struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                     uint32_t engine_ranks_count,
                                     struct tdm__whole_tensors **whole_tensors_out)
{
    struct tdm__whole_tensors *whole_tensors = calloc(1, sizeof(*whole_tensors));
    tdm_status status;

    if (whole_tensors == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating an update of whole tensors failed: out of memory");
    }
    whole_tensors->manifest = manifest;
    whole_tensors->bucket_bytes = bucket_bytes;
    whole_tensors->engine_ranks_count = engine_ranks_count;
    status = whole_tensors_init(whole_tensors);
    if (status != TDM_OK) {
        tdm__whole_tensors_destroy(whole_tensors);
        return status;
    }
    *whole_tensors_out = whole_tensors;
    return TDM_OK;
}

void tdm__whole_tensors_destroy(struct tdm__whole_tensors *whole_tensors)
{
    if (whole_tensors == NULL) {
        return;
    }
    tdm__bucket_plan_destroy(whole_tensors->plan);
    free(whole_tensors->slices);
    free(whole_tensors->layouts);
    free(whole_tensors->sum_ops);
    free(whole_tensors->sums);
    free(whole_tensors->records);
    free(whole_tensors->views);
    free(whole_tensors->description);
    free(whole_tensors);
}

const struct tdm__bucket_plan *
tdm__whole_tensors_buckets(const struct tdm__whole_tensors *whole_tensors)
{
    return whole_tensors->plan;
}

/* ---- plan ---------------------------------------------------------------------------- */

/* Returns true if each chunk of an engine rank's image is one bucket. */
static bool chunks_are_buckets(const struct tdm__bucket_plan *plan,
                               const struct tdm__transfer_plan_image *image)
{
    for (uint32_t i = 0; i < plan->buckets_count && i < image->chunks_count; i++) {
        const struct tdm__bucket *bucket = &plan->buckets[i];
        const struct tdm__transfer_plan_chunk *chunk = &image->chunks[i];

        if (chunk->begin != bucket->image_offset ||
            chunk->end != bucket->image_offset + bucket->size_bytes) {
            return false;
        }
    }
    return image->chunks_count == plan->buckets_count;
}

tdm_status tdm__whole_tensors_compile_plan(const struct tdm__whole_tensors *whole_tensors,
                                           const struct tdm__layout *from, uint32_t from_count,
                                           const struct tdm__location *from_locations,
                                           const struct tdm__location *to_locations,
                                           uint64_t exchange_bytes,
                                           struct tdm__transfer_plan **plan_out)
{
    const struct tdm__transfer_plan_options options = {
        .manifest = whole_tensors->manifest,
        .from = from,
        .from_count = from_count,
        .to = whole_tensors->layouts,
        .to_count = whole_tensors->engine_ranks_count,
        .from_locations = from_locations,
        .to_locations = to_locations,
        .image_bytes = whole_tensors->plan->image_bytes,
        .chunk_bytes = whole_tensors->bucket_bytes,
        .keeps_slices_whole = true,
        .exchange_bytes = exchange_bytes};

    TDM_TRY(tdm__transfer_plan_create(&options, plan_out));
    for (uint32_t i = 0; i < whole_tensors->engine_ranks_count; i++) {
        TDM_ASSERT(chunks_are_buckets(whole_tensors->plan, &(*plan_out)->images[i]));
    }
    return TDM_OK;
}

/* ---- describe ------------------------------------------------------------------------ */

/* Computes the checksums of the tensors in a bucket on the device, in the manifest's order. */
static tdm_status sum_tensors(struct tdm__whole_tensors *whole_tensors, struct tdm__device *device,
                              const tdm_region *region, const struct tdm__bucket *bucket)
{
    const char *address = tdm_region_address(region);

    for (uint32_t i = 0; i < bucket->tensors_count; i++) {
        uint32_t tensor = bucket->tensors_first + i;

        whole_tensors->sum_ops[i] =
            tdm__checksum_copy_op(address + whole_tensors->plan->tensor_offsets[tensor],
                                  tdm_tensor_bytes(&whole_tensors->manifest->tensors[tensor]));
    }
    return device->ops->move(device, whole_tensors->sum_ops, bucket->tensors_count,
                             whole_tensors->sums);
}

tdm_status tdm__whole_tensors_describe(struct tdm__whole_tensors *whole_tensors,
                                       const struct tdm__written_bucket *written,
                                       struct tdm_bytes *bytes_out)
{
    const struct tdm__block *block;
    struct tdm__bucket_contents contents = {.manifest = whole_tensors->manifest,
                                            .update = *written->update,
                                            .epoch = written->epoch,
                                            .node = written->location->node,
                                            .storage = {.gpu = written->location->gpu},
                                            .sums = whole_tensors->sums,
                                            .records = whole_tensors->records};

    if (!tdm_region_is_resident(written->region)) {
        return tdm__fail(TDM_E_STATE,
                         "describing bucket %" PRIu32
                         " failed: it has no memory yet. " TDM__REMEDY_DEFECT,
                         written->index);
    }
    block = tdm__region_block(written->region);
    contents.storage.key = block->key;
    contents.storage.size_bytes = block->size_bytes;
    contents.storage.allocation_bytes = block->size_bytes;
    contents.storage.reference = ++whole_tensors->exports_count;
    contents.storage.writer = written->writer;
    TDM_TRY(sum_tensors(whole_tensors, written->device, written->region,
                        &whole_tensors->plan->buckets[written->index]));
    return tdm__bucket_describe(whole_tensors->plan, written->index, &contents,
                                whole_tensors->description, bytes_out);
}

const struct tdm_tensor_view *tdm__whole_tensors_views(struct tdm__whole_tensors *whole_tensors,
                                                       const tdm_region *region, uint32_t bucket,
                                                       uint32_t *count_out)
{
    const struct tdm__bucket *about = &whole_tensors->plan->buckets[bucket];
    const char *address = tdm_region_address(region);

    for (uint32_t i = 0; i < about->tensors_count; i++) {
        uint32_t tensor = about->tensors_first + i;
        struct tdm_tensor_view *view = &whole_tensors->views[i];

        view->info = whole_tensors->manifest->tensors[tensor];
        tdm__tensor_row_major_strides(&view->info, view->stride);
        view->data = address + whole_tensors->plan->tensor_offsets[tensor];
    }
    *count_out = about->tensors_count;
    return whole_tensors->views;
}
