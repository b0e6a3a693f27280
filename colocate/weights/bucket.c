/* bucket.c - divides a model into buckets of whole tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/bucket.h"

#include "colocate/weights/tensor.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rounds an offset in bytes up to TDM__BUCKET_ALIGNMENT. */
static uint64_t align_up(uint64_t offset)
{
    return (offset + TDM__BUCKET_ALIGNMENT - 1) & ~(uint64_t)(TDM__BUCKET_ALIGNMENT - 1);
}

/* ---- plan ---------------------------------------------------------------------------- */

/* Puts a tensor at the end of the last bucket, or into a new bucket if the last one is full. */
static void place_tensor(struct tdm__bucket_plan *plan, uint32_t tensor, uint64_t tensor_bytes,
                         uint64_t bucket_bytes)
{
    struct tdm__bucket *bucket =
        plan->buckets_count == 0 ? NULL : &plan->buckets[plan->buckets_count - 1];
    uint64_t offset = bucket == NULL ? 0 : align_up(bucket->size_bytes);

    if (bucket == NULL || offset + tensor_bytes > bucket_bytes) {
        bucket = &plan->buckets[plan->buckets_count++];
        bucket->tensors_first = tensor;
        bucket->image_offset = align_up(plan->image_bytes);
        offset = 0;
    }
    plan->tensor_offsets[tensor] = offset;
    bucket->tensors_count++;
    bucket->size_bytes = offset + tensor_bytes;
    plan->image_bytes = bucket->image_offset + bucket->size_bytes;
    if (plan->bucket_bytes_max < bucket->size_bytes) {
        plan->bucket_bytes_max = bucket->size_bytes;
    }
}

tdm_status tdm__bucket_plan_create(const struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                   struct tdm__bucket_plan **plan_out)
{
    struct tdm__bucket_plan *plan;

    if (bucket_bytes == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "dividing the model into buckets failed: buckets of 0 bytes for %" PRIu32
                         " tensors. Give a bucket size of at least 1 byte",
                         manifest->tensors_count);
    }
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a bucket plan failed: out of memory");
    }
    plan->tensors_count = manifest->tensors_count;
    plan->buckets = calloc(plan->tensors_count, sizeof(plan->buckets[0]));
    plan->tensor_offsets = calloc(plan->tensors_count, sizeof(plan->tensor_offsets[0]));
    if (plan->buckets == NULL || plan->tensor_offsets == NULL) {
        tdm__bucket_plan_destroy(plan);
        return tdm__fail(TDM_E_NOMEM,
                         "allocating buckets of %" PRIu32 " tensors failed: out of memory",
                         manifest->tensors_count);
    }
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        place_tensor(plan, i, tdm_tensor_bytes(&manifest->tensors[i]), bucket_bytes);
    }
    TDM_ASSERT(plan->buckets_count > 0);
    *plan_out = plan;
    return TDM_OK;
}

void tdm__bucket_plan_destroy(struct tdm__bucket_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    free(plan->buckets);
    free(plan->tensor_offsets);
    free(plan);
}

uint32_t tdm__bucket_tensors_max(const struct tdm__bucket_plan *plan)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < plan->buckets_count; i++) {
        most = plan->buckets[i].tensors_count > most ? plan->buckets[i].tensors_count : most;
    }
    return most;
}

void tdm__bucket_plan_slices(const struct tdm__bucket_plan *plan,
                             const struct tdm__manifest *manifest, struct tdm_slice *slices_out)
{
    for (uint32_t b = 0; b < plan->buckets_count; b++) {
        const struct tdm__bucket *bucket = &plan->buckets[b];

        for (uint32_t i = 0; i < bucket->tensors_count; i++) {
            uint32_t tensor = bucket->tensors_first + i;
            const struct tdm_tensor_info *info = &manifest->tensors[tensor];
            uint64_t offset = bucket->image_offset + plan->tensor_offsets[tensor];
            struct tdm_slice *slice = &slices_out[tensor];

            *slice = (struct tdm_slice){.tensor = tensor};
            memcpy(slice->extent, info->shape, info->dims_count * sizeof(info->shape[0]));
            memcpy(&slice->address, &offset, sizeof(offset));
        }
    }
}

/* ---- describe ------------------------------------------------------------------------ */

/* Fills the record that describes one tensor of a bucket, with its checksum `sum`. */
static void describe_tensor(const struct tdm__bucket_plan *plan,
                            const struct tdm__bucket_contents *contents, uint32_t tensor,
                            uint64_t sum, struct tdm__tensor_record *record)
{
    const struct tdm_tensor_info *info = &contents->manifest->tensors[tensor];

    *record = (struct tdm__tensor_record){
        .tensor = tensor,
        .dtype = (uint16_t)info->dtype,
        .dims_count = (uint8_t)info->dims_count,
        .offset = plan->tensor_offsets[tensor] / tdm_dtype_bytes(info->dtype),
        .checksum = sum,
    };
    memcpy(record->shape, info->shape, info->dims_count * sizeof(info->shape[0]));
    tdm__tensor_row_major_strides(info, record->stride);
}

size_t tdm__bucket_description_bytes_max(const struct tdm__bucket_plan *plan)
{
    const struct tdm__tensor_handles largest = {
        .header = {.storages_count = 1, .tensors_count = tdm__bucket_tensors_max(plan)}};

    return tdm__tensor_handles_bytes(&largest);
}

tdm_status tdm__bucket_describe(const struct tdm__bucket_plan *plan, uint32_t bucket,
                                struct tdm__bucket_contents *contents, void *buffer,
                                struct tdm_bytes *bytes_out)
{
    const struct tdm__bucket *about = &plan->buckets[bucket];
    const struct tdm__tensor_handles handles = {.header = {.storages_count = 1,
                                                           .tensors_count = about->tensors_count,
                                                           .update = contents->update,
                                                           .node = contents->node,
                                                           .epoch = contents->epoch,
                                                           .bucket = bucket,
                                                           .buckets_count = plan->buckets_count},
                                                .storages = &contents->storage,
                                                .tensors = contents->records};

    for (uint32_t i = 0; i < about->tensors_count; i++) {
        describe_tensor(plan, contents, about->tensors_first + i, contents->sums[i],
                        &contents->records[i]);
    }
    *bytes_out = (struct tdm_bytes){buffer, tdm__tensor_handles_bytes(&handles)};
    return tdm__tensor_handles_encode(&handles, buffer, bytes_out->size_bytes);
}
