/* model_buckets.h - divides a model's tensors into buckets and packs them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MODEL_BUCKETS_H
#define TDM_COLOCATE_SCHEME_MODEL_BUCKETS_H

#include "colocate/weights/bucket.h"

/* The buckets of a model. Sender and receivers compile the same from the same manifest. It never
 * changes after its creation. */
struct tdm__model_buckets {
    struct tdm__manifest *manifest; /* Manifest of the model; owned. */
    struct tdm__bucket_plan *plan;  /* How the model is divided into buckets; owned. */
    uint64_t bucket_bytes;          /* Size in bytes at which a bucket is full. */
};

/* Compiles the buckets. Takes ownership of the manifest, also on failure. */
tdm_status tdm__model_buckets_create(struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                     struct tdm__model_buckets *model_buckets_out);
/* Frees the manifest and the plan. */
void tdm__model_buckets_fini(struct tdm__model_buckets *model_buckets);

/* Copies the tensors of a bucket from addresses[tensor] into the image and computes their
 * checksums. sums[0] is the checksum of the bucket's first tensor. */
void tdm__model_buckets_pack(const struct tdm__model_buckets *model_buckets, uint32_t bucket,
                             const void *const *addresses, void *image, uint64_t *sums);

#endif
