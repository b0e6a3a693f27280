/* bucket.h - cuts a model into buckets of whole tensors, which all ranks fill together. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_BUCKET_H
#define TDM_COLOCATE_WEIGHTS_BUCKET_H

#include "colocate/transfer/copy_op.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/tensor_handles.h"

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
    uint32_t slice;        /* Index of the tensor slice in the layout of the rank that holds it. */
    uint32_t tensor;       /* Index in the manifest of the tensor that the slice is a part of. */
    uint64_t slice_offset; /* Offset of the run in the slice, in bytes. */
    uint64_t segment_offset; /* Offset of the run in the rank's segment, in bytes. */
    uint64_t bucket_offset;  /* Offset of the run in the bucket's image, in bytes. */
    uint64_t size_bytes;     /* Size of the run in bytes. */
};

/* What one rank contributes to one bucket: consecutive runs of the plan. */
struct tdm__bucket_segment {
    /* Index in the plan's array `runs` of the rank's first run in this bucket. */
    uint32_t runs_first;
    uint32_t runs_count; /* Number of consecutive runs that the rank contributes to this bucket. */
    uint64_t size_bytes; /* Sum of the sizes of these runs, in bytes. */
};

/* One bucket of a plan: consecutive tensors of the manifest. */
struct tdm__bucket {
    uint32_t tensors_first; /* Index in the manifest of the bucket's first tensor. */
    uint32_t tensors_count; /* Number of tensors in the bucket. */
    /* Size of the whole bucket in bytes, with the gaps between aligned tensors. */
    uint64_t size_bytes;
    /* Size in bytes of the largest segment that a rank contributes to this bucket. The all-gather
     * moves that many bytes for each rank. */
    uint64_t segment_bytes_max;
};

/* The buckets of a model and the runs with which the ranks fill them. It never changes after its
 * creation. */
struct tdm__bucket_plan {
    uint32_t buckets_count; /* Number of buckets into which the model is cut. */
    uint32_t ranks_count;   /* Number of ranks that fill the buckets. */
    uint32_t tensors_count; /* Number of tensors of the model. */
    uint32_t runs_count;    /* Number of runs of all ranks and buckets. */
    /* Size of the largest bucket in bytes; every rank needs that much staging memory. */
    uint64_t bucket_bytes_max;
    /* Size in bytes of the largest segment that any rank contributes to any bucket. */
    uint64_t segment_bytes_max;
    /* Buckets in the order of the manifest's tensors; owned array of buckets_count. */
    struct tdm__bucket *buckets;
    /* Offset in bytes of each tensor in its bucket; owned array of tensors_count. */
    uint64_t *tensor_offsets;
    /* What each rank contributes to each bucket, at index bucket x ranks_count + rank. Owned. */
    struct tdm__bucket_segment *segments;
    /* Runs of all segments, ordered by rank and then by bucket; owned array of runs_count. */
    struct tdm__bucket_run *runs;
};

/* Limits for the size of buckets. */
struct tdm__bucket_options {
    /* Size in bytes at which a bucket is full. A larger tensor gets a bucket of its own. */
    uint64_t bucket_bytes;
    /* Size in bytes of a rank's staging memory, which no bucket may exceed. */
    uint64_t capacity_bytes;
};

/* Compiles the bucket plan of a model whose slices the ranks hold as `layouts` say. Returns
 * TDM_E_BUDGET if a tensor exceeds the capacity. Returns TDM_E_INVAL with a message that names the
 * tensor, the elements and the ranks if the slices do not cover every element, or if two of them
 * have only a part of their elements in common. Of equal slices one is contributed. */
tdm_status tdm__bucket_plan_create(const struct tdm__manifest *manifest,
                                   const struct tdm__bucket_options *options,
                                   const struct tdm__layout *layouts, uint32_t ranks_count,
                                   struct tdm__bucket_plan **plan_out);
/* Frees a bucket plan; NULL is allowed. */
void tdm__bucket_plan_destroy(struct tdm__bucket_plan *plan);

/* Returns the largest number of tensors that a bucket of the plan has. */
uint32_t tdm__bucket_tensors_max(const struct tdm__bucket_plan *plan);

/* Returns what one rank contributes to one bucket; the plan owns the segment. */
const struct tdm__bucket_segment *tdm__bucket_find_segment(const struct tdm__bucket_plan *plan,
                                                           uint32_t bucket, uint32_t rank);

/* Lists in `copy_ops` the device operations that copy a rank's part of a bucket into `segment`,
 * which has room for the bucket's segment_bytes_max. `slices` are the rank's slices with valid
 * addresses. Returns the number of operations. */
uint32_t tdm__bucket_pack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                          const struct tdm_slice *slices, void *segment,
                          struct tdm__copy_op *copy_ops);
/* Lists in `copy_ops` the device operations that copy the segment of one rank to its places in
 * `image`, this rank's copy of the bucket. Once the segments of all ranks are unpacked, every
 * tensor of the bucket is complete; bytes between tensors are not touched. Returns the number of
 * operations. */
uint32_t tdm__bucket_unpack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                            const void *segment, void *image, struct tdm__copy_op *copy_ops);

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
