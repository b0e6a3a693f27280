/* bucket.h - cuts a model into buckets of whole tensors, which all ranks fill together. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_BUCKET_H
#define TDM_COLOCATE_WEIGHTS_BUCKET_H

#include "colocate/transfer/copy_op.h"
#include "colocate/weights/layout.h"

#include <stdint.h>

/* A bucket is an image of whole tensors in the manifest's order, each at a multiple of 256
 * bytes. Every rank has its own copy of the image and holds slices of the tensors. A bucket is
 * filled by one exchange: each rank packs its runs without gaps into a segment, the segments are
 * all-gathered, and every rank unpacks all segments into its image.
 *
 * A plan is compiled once from the manifest and the layouts of all ranks. It is the same on
 * every rank, and each update replays it. Compilation is pure and touches no device. */

/* Alignment of tensors in a bucket, in bytes. */
enum { TDM__BUCKET_ALIGNMENT = 256 };

/* A range of bytes that is contiguous in the rank's slice, in its segment and in the image. */
struct tdm__bucket_run {
    uint32_t slice;          /* Index of the slice in the rank's layout. */
    uint32_t tensor;         /* Index of the tensor in the manifest. */
    uint64_t slice_offset;   /* Offset of the run in the slice, in bytes. */
    uint64_t segment_offset; /* Offset of the run in the rank's segment, in bytes. */
    uint64_t bucket_offset;  /* Offset of the run in the bucket's image, in bytes. */
    uint64_t size_bytes;     /* Size of the run in bytes. */
};

/* What one rank contributes to one bucket: consecutive runs of the plan. */
struct tdm__bucket_segment {
    uint32_t runs_first; /* Index of the first run in the plan's runs. */
    uint32_t runs_count; /* Number of runs. */
    uint64_t size_bytes; /* Sum of the sizes of the runs, in bytes. */
};

/* One bucket of a plan: consecutive tensors of the manifest. */
struct tdm__bucket {
    uint32_t tensors_first; /* Index of the first tensor in the manifest. */
    uint32_t tensors_count; /* Number of tensors. */
    uint64_t size_bytes;    /* Size of the image in bytes. */
    /* Size of the largest rank's segment in bytes; the all-gather moves that much per rank. */
    uint64_t segment_bytes_max;
};

/* The buckets of a model and the runs with which the ranks fill them. It never changes after its
 * creation. */
struct tdm__bucket_plan {
    uint32_t buckets_count; /* Number of buckets. */
    uint32_t ranks_count;   /* Number of ranks that fill the buckets. */
    uint32_t tensors_count; /* Number of tensors of the manifest. */
    uint32_t runs_count;    /* Number of runs of all ranks and buckets. */
    /* Size of the largest image in bytes, for which every rank needs memory. */
    uint64_t bucket_bytes_max;
    uint64_t segment_bytes_max;  /* Size of the largest segment in bytes. */
    struct tdm__bucket *buckets; /* Buckets in the manifest's order; owned. */
    uint64_t *tensor_offsets;    /* Offset of each tensor in its bucket's image, in bytes. Owned. */
    /* Segments, indexed by bucket x ranks_count + rank. Owned. */
    struct tdm__bucket_segment *segments;
    struct tdm__bucket_run *runs; /* Runs, ordered by rank and bucket. Owned. */
};

/* Limits for the size of buckets. */
struct tdm__bucket_options {
    /* Size in bytes that ends a bucket; a tensor that is larger gets a bucket of its own. */
    uint64_t bucket_bytes;
    uint64_t capacity_bytes; /* Size of the staging memory in bytes, which no bucket may exceed. */
};

/* Compiles a plan. Returns TDM_E_BUDGET if a tensor exceeds the capacity. Returns TDM_E_INVAL with
 * a message that names the tensor, the elements and the ranks if the slices do not cover every
 * element exactly once. */
tdm_status tdm__bucket_plan_create(const struct tdm__manifest *manifest,
                                   const struct tdm__bucket_options *options,
                                   const struct tdm__layout *layouts, uint32_t ranks_count,
                                   struct tdm__bucket_plan **plan_out);
/* Frees the plan; NULL is allowed. */
void tdm__bucket_plan_destroy(struct tdm__bucket_plan *plan);

/* Returns the segment of one rank in one bucket; the plan owns it. */
const struct tdm__bucket_segment *tdm__bucket_find_segment(const struct tdm__bucket_plan *plan,
                                                           uint32_t bucket, uint32_t rank);

/* Writes to `copy_ops` the device operations that copy the rank's runs into `segment`, which has
 * room for the bucket's segment_bytes_max. `slices` are the rank's slices with valid addresses.
 * Returns the number of operations. */
uint32_t tdm__bucket_pack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                          const struct tdm_slice *slices, void *segment,
                          struct tdm__copy_op *copy_ops);
/* Writes to `copy_ops` the device operations that copy a rank's segment into the image. Once all
 * segments are unpacked, every tensor is complete; the bytes between tensors are not touched.
 * Returns the number of operations. */
uint32_t tdm__bucket_unpack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                            const void *segment, void *image, struct tdm__copy_op *copy_ops);

#endif
