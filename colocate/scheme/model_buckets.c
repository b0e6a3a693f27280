/* model_buckets.c - divides a model's tensors into buckets and packs them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/model_buckets.h"

#include "colocate/weights/checksum.h"

#include <string.h>

tdm_status tdm__model_buckets_create(struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                     struct tdm__model_buckets *model_buckets_out)
{
    struct tdm__model_buckets model_buckets = {.manifest = manifest, .bucket_bytes = bucket_bytes};
    tdm_status status = tdm__bucket_plan_create(manifest, bucket_bytes, &model_buckets.plan);

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
