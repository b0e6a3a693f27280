/* model_buckets.h - a model's tensors as they travel: bucket after bucket, with checksums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MODEL_BUCKETS_H
#define TDM_COLOCATE_SCHEME_MODEL_BUCKETS_H

#include "colocate/weights/bucket.h"

/* Both ends compile the same from the same manifest.  Never changes once made. */
struct tdm__model_buckets {
    struct tdm__manifest *manifest; /* owned */
    struct tdm__bucket_plan *plan;  /* owned; one rank, which holds everything */
    uint64_t bucket_bytes;
};

/* Takes the manifest, also on failure. */
tdm_status tdm__model_buckets_create(struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                     struct tdm__model_buckets *model_buckets_out);
void tdm__model_buckets_fini(struct tdm__model_buckets *model_buckets);

/* Copies a bucket's tensors from addresses[tensor] to its image, and takes the sum of each:
 * sums[0] is that of the bucket's first tensor. */
void tdm__model_buckets_pack(const struct tdm__model_buckets *model_buckets, uint32_t bucket,
                             const void *const *addresses, void *image, uint64_t *sums);
/* TDM_E_CHECKSUM names the first tensor of the image that has another sum. */
tdm_status tdm__model_buckets_verify(const struct tdm__model_buckets *model_buckets,
                                     uint32_t bucket, const void *image, const uint64_t *sums);

#endif
