/* bucket.h - divides a model into buckets of whole tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_BUCKET_H
#define TDM_COLOCATE_WEIGHTS_BUCKET_H

#include "colocate/weights/tensor_handles.h"

#include <stdint.h>
#include <tandem/tensor.h>

/* A bucket has consecutive tensors of the manifest, each at a multiple of 256 bytes. No tensor is
 * divided. The buckets one after the other are the image of the model. A plan depends only on the
 * manifest and the wanted size of buckets, and never changes after its creation. */

/* Alignment of tensors in a bucket, and of buckets in the image, in bytes. */
enum { TDM__BUCKET_ALIGNMENT = 256 };

/* One bucket of a plan: consecutive tensors of the manifest. */
struct tdm__bucket {
    uint32_t tensors_first; /* Index in the manifest of the bucket's first tensor. */
    uint32_t tensors_count; /* Number of tensors in the bucket. */
    /* Offset of the bucket's first byte in the image, in bytes; a multiple of
     * TDM__BUCKET_ALIGNMENT. */
    uint64_t image_offset;
    /* Size of the whole bucket in bytes, with the gaps between aligned tensors. */
    uint64_t size_bytes;
};

/* The buckets of a model. */
struct tdm__bucket_plan {
    uint32_t buckets_count;    /* Number of buckets into which the model is divided. */
    uint32_t tensors_count;    /* Number of tensors of the model. */
    uint64_t bucket_bytes_max; /* Size of the largest bucket in bytes. */
    uint64_t image_bytes;      /* Size of the image in bytes. */
    /* Buckets in the order of the manifest's tensors; owned array of buckets_count. */
    struct tdm__bucket *buckets;
    /* Offset in bytes of each tensor in its bucket; owned array of tensors_count. */
    uint64_t *tensor_offsets;
};

/* Divides a model into buckets of at most `bucket_bytes` bytes; a larger tensor gets a bucket of
 * its own. TDM_E_INVAL if `bucket_bytes` is 0. The plan does not refer to the manifest. */
tdm_status tdm__bucket_plan_create(const struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                   struct tdm__bucket_plan **plan_out);
/* Frees a bucket plan; NULL is allowed. */
void tdm__bucket_plan_destroy(struct tdm__bucket_plan *plan);

/* Returns the largest number of tensors that a bucket of the plan has. */
uint32_t tdm__bucket_tensors_max(const struct tdm__bucket_plan *plan);
/* Describes each tensor of the manifest as a slice that is the whole tensor. Its address is the
 * offset of the tensor in the image. `slices_out` has room for tensors_count slices. */
void tdm__bucket_plan_slices(const struct tdm__bucket_plan *plan,
                             const struct tdm__manifest *manifest, struct tdm_slice *slices_out);

/* What the description of a bucket says beside where each tensor lies in it. All pointers are
 * borrowed. */
struct tdm__bucket_contents {
    const struct tdm__manifest *manifest; /* Tensors of the model, from which the plan was made. */
    struct tdm__id update;                /* ID of the update to which the bucket belongs. */
    uint64_t epoch;                       /* Epoch of the update. */
    struct tdm__id node;                  /* ID of the node on which the bucket lies. */
    /* The storage that contains the bucket, from its first byte on. */
    struct tdm__storage_record storage;
    const uint64_t *sums; /* Checksums of the bucket's tensors, in the order of the manifest. */
    /* Room for the records of the bucket's tensors, which tdm__bucket_describe() fills. */
    struct tdm__tensor_record *records;
};

/* Returns the size in bytes of the largest description of a bucket of the plan. */
size_t tdm__bucket_description_bytes_max(const struct tdm__bucket_plan *plan);
/* Encodes tensor handles that describe all tensors of a bucket into `buffer`, which has room for
 * the largest description. `bytes_out` is the description; it borrows the buffer. */
tdm_status tdm__bucket_describe(const struct tdm__bucket_plan *plan, uint32_t bucket,
                                struct tdm__bucket_contents *contents, void *buffer,
                                struct tdm_bytes *bytes_out);

#endif
