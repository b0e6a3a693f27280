/* transfer_plan.h - how a model travels: from trainers' slices into each engine rank's image. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TRANSFER_PLAN_H
#define TDM_COLOCATE_WEIGHTS_TRANSFER_PLAN_H

#include "colocate/layout/reshard.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/scales.h"

/* Both sides say which parts of the tensors they have where.  A route is compiled of that once,
 * the same on every rank; each update only replays it.  Pure: nothing here touches a device.
 *
 * An engine rank's image is its "weights" as they will be served.  A chunk is a part of an
 * image that is written in one go, of whole slices, or a piece of one that is larger: with
 * chunks as large as the image each trainer rank writes where the engine will read; with
 * smaller ones it writes into a bucket that the engine copies. */

enum { TDM__TRANSFER_PLAN_ALIGNMENT = 256 }; /* of chunks: rows keep theirs in a bucket */

struct tdm__transfer_plan_chunk {
    uint64_t begin; /* in the image, in bytes */
    uint64_t end;
    uint32_t copies_first;
    uint32_t copies_count;
};

/* Instead of a slice: the scales of shared blocks (scales.h), which every trainer rank has. */
#define TDM__TRANSFER_PLAN_SCALES UINT32_MAX

/* Copies are chunk after chunk.  In each, from_tensor is a slice of rank from_rank, to_tensor
 * a slice of the image, and offsets count from the beginnings of those. */
struct tdm__transfer_plan_image {
    struct tdm__rect_copy *copies; /* owned, and so are the chunks */
    struct tdm__transfer_plan_chunk *chunks;
    uint32_t copies_count;
    uint32_t chunks_count; /* its own; the others are empty */
};

struct tdm__transfer_plan {
    const struct tdm__manifest *manifest; /* borrowed, and so are the layouts */
    const struct tdm__layout *from;
    const struct tdm__layout *to;
    uint32_t from_count; /* ranks */
    uint32_t to_count;
    uint32_t chunks_count;                   /* of each image; the last ones may be empty */
    uint64_t chunk_bytes_max;                /* room that a bucket needs */
    struct tdm__transfer_plan_image *images; /* owned, one an engine rank */
    struct tdm__scales scales;               /* owned: of blocks that trainer ranks share */
    struct tdm__reshard_cost cost;           /* of what is written; trainer rank r and engine rank r
                                                share a GPU */
};

struct tdm__transfer_plan_options {
    const struct tdm__manifest *manifest;
    const struct tdm__layout *from; /* exactly once, all that is wanted */
    uint32_t from_count;
    const struct tdm__layout *to; /* addresses are offsets in the image */
    uint32_t to_count;
    uint64_t image_bytes;
    /* No chunk is larger; but 128 rows of a matrix that becomes FP8 stay together, and a row
     * of their scales.  0: one chunk. */
    uint64_t chunk_bytes;
};

/* TDM_E_INVAL names the tensor whose elements no trainer rank has, or two; or whose slice lies
 * outside the image or on another one. */
tdm_status tdm__transfer_plan_create(const struct tdm__transfer_plan_options *options,
                                     struct tdm__transfer_plan **route_out);
void tdm__transfer_plan_destroy(struct tdm__transfer_plan *transfer_plan); /* NULL is allowed */

/* Where a copy begins in the image, in bytes; its rows. */
uint64_t tdm__transfer_plan_image_offset(const struct tdm__transfer_plan *transfer_plan,
                                         uint32_t image, const struct tdm__rect_copy *copy);
const struct tdm_tensor_info *
tdm__transfer_plan_tensor(const struct tdm__transfer_plan *transfer_plan, uint32_t image,
                          const struct tdm__rect_copy *copy);

/* Copies of one chunk of all images, that `from_rank` makes. */
uint32_t tdm__transfer_plan_copies_of_rank(const struct tdm__transfer_plan *transfer_plan,
                                           uint32_t chunk, uint32_t from_rank);

#endif
