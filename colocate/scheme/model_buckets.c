/* model_buckets.c - divides a model's tensors into buckets and packs them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/model_buckets.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Compiles a plan for one rank that holds each tensor as one flat slice. */
static tdm_status compile_bucket_plan(struct tdm__model_buckets *model_buckets)
{
    const struct tdm__manifest *manifest = model_buckets->manifest;
    const struct tdm__bucket_options options = {model_buckets->bucket_bytes, UINT64_MAX};
    struct tdm_slice *slices = calloc(manifest->tensors_count, sizeof(*slices));
    const struct tdm__layout layout = {slices, manifest->tensors_count};
    tdm_status status;

    if (slices == NULL) {
        return tdm__fail(TDM_E_NOMEM, "slices of %u tensors", manifest->tensors_count);
    }
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        slices[i] = (struct tdm_slice){
            .tensor = i, .flat = 1, .extent = {tdm_tensor_elements(&manifest->tensors[i])}};
    }
    status = tdm__bucket_plan_create(manifest, &options, &layout, 1, &model_buckets->plan);
    free(slices);
    return status;
}

tdm_status tdm__model_buckets_create(struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                     struct tdm__model_buckets *model_buckets_out)
{
    struct tdm__model_buckets model_buckets = {.manifest = manifest, .bucket_bytes = bucket_bytes};
    tdm_status status = compile_bucket_plan(&model_buckets);

    if (status != TDM_OK) {
        tdm__model_buckets_fini(&model_buckets);
        return status;
    }
    *model_buckets_out = model_buckets;
    return TDM_OK;
}

void tdm__model_buckets_fini(struct tdm__model_buckets *model_buckets)
{
    tdm__bucket_plan_destroy(model_buckets->plan);
    tdm__manifest_destroy(model_buckets->manifest);
    *model_buckets = (struct tdm__model_buckets){.manifest = NULL};
}

void tdm__model_buckets_pack(const struct tdm__model_buckets *model_buckets, uint32_t bucket,
                             const void *const *addresses, void *image, uint64_t *sums)
{
    const struct tdm__bucket *about = &model_buckets->plan->buckets[bucket];

    for (uint32_t i = 0; i < about->tensors_count; i++) {
        uint32_t tensor = about->tensors_first + i;
        size_t bytes = tdm_tensor_bytes(&model_buckets->manifest->tensors[tensor]);
        char *to = (char *)image + model_buckets->plan->tensor_offsets[tensor];

        memcpy(to, addresses[tensor], bytes);
        sums[i] = tdm__checksum_tensor(to, bytes);
    }
}
