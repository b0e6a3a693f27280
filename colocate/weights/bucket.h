/* bucket.h - how a model travels: cut into buckets, each filled by all ranks together. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_BUCKET_H
#define TDM_COLOCATE_WEIGHTS_BUCKET_H

#include "colocate/transfer/copy_op.h"
#include "colocate/weights/layout.h"

#include <stdint.h>

/* A bucket is an image of whole tensors, in the manifest's order, each at a multiple of 256
 * bytes.  Every rank has its own copy of the image, and holds a part of the contents.  So a
 * bucket is filled by one exchange: each rank packs its runs one behind the other (its part),
 * the parts are all-gathered, every rank unpacks all parts into its image.
 *
 * A plan is compiled once, from the manifest and every rank's layout, the same on every rank;
 * each update only replays it.  Pure: nothing here touches a device. */

enum { TDM__BUCKET_ALIGNMENT = 256 };

/* Contiguous in the slice, in the packed part and in the image. */
struct tdm__bucket_run {
    uint32_t slice; /* of the rank's layout */
    uint32_t tensor;
    uint64_t slice_offset; /* all in bytes */
    uint64_t segment_offset;
    uint64_t bucket_offset;
    uint64_t size_bytes;
};

/* What one rank contributes to one bucket. */
struct tdm__bucket_segment {
    uint32_t runs_first; /* index into the plan's runs */
    uint32_t runs_count;
    uint64_t size_bytes;
};

struct tdm__bucket {
    uint32_t tensors_first;
    uint32_t tensors_count;
    uint64_t size_bytes;
    uint64_t segment_bytes_max; /* what the all-gather moves per rank */
};

struct tdm__bucket_plan {
    uint32_t buckets_count;
    uint32_t ranks_count;
    uint32_t tensors_count;
    uint32_t runs_count;
    uint64_t bucket_bytes_max;            /* the largest image: room that every rank needs */
    uint64_t segment_bytes_max;           /* the largest part */
    struct tdm__bucket *buckets;          /* all owned */
    uint64_t *tensor_offsets;             /* of each tensor in its bucket */
    struct tdm__bucket_segment *segments; /* buckets_count × ranks_count */
    struct tdm__bucket_run *runs;
};

struct tdm__bucket_options {
    uint64_t bucket_bytes;   /* where a bucket is cut; one larger tensor has its own bucket */
    uint64_t capacity_bytes; /* of the staging memory: what no bucket may exceed */
};

/* TDM_E_BUDGET: a tensor is over the capacity.  TDM_E_INVAL: the ranks' slices do not cover
 * every element exactly once; names the tensor, the elements and the ranks. */
tdm_status tdm__bucket_plan_create(const struct tdm__manifest *manifest,
                                   const struct tdm__bucket_options *options,
                                   const struct tdm__layout *layouts, uint32_t ranks_count,
                                   struct tdm__bucket_plan **plan_out);
void tdm__bucket_plan_destroy(struct tdm__bucket_plan *plan); /* NULL is allowed */

const struct tdm__bucket_segment *tdm__bucket_find_segment(const struct tdm__bucket_plan *plan,
                                                           uint32_t bucket, uint32_t rank);

/* What a device has to move: the rank's runs out of its slices, whose addresses are valid here,
 * into `part`, which has room for the bucket's segment_bytes_max.  Returns how many moves. */
uint32_t tdm__bucket_pack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                          const struct tdm_slice *slices, void *segment,
                          struct tdm__copy_op *copy_ops);
/* The same of a rank's part to its places in the image.  After all ranks' parts every tensor is
 * whole; the bytes between tensors are not touched. */
uint32_t tdm__bucket_unpack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                            const void *segment, void *image, struct tdm__copy_op *copy_ops);

#endif
