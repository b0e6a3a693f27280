/* transfer_plan.h - which bytes each trainer rank writes into each engine rank's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TRANSFER_PLAN_H
#define TDM_COLOCATE_WEIGHTS_TRANSFER_PLAN_H

#include "colocate/layout/reshard.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/scales.h"

/* Trainer ranks and engine ranks declare with layouts which slices of the tensors they hold and
 * where. A transfer plan is compiled once from these layouts and is the same on every rank; each
 * update replays it. Compilation is pure and touches no device.
 *
 * The image of an engine rank is the contents of its weights region. A chunk is a range of an
 * image that is written in one step. It consists of whole slices, or is a piece of one slice
 * that is larger. If chunks are as large as the image, trainer ranks write where the engine will
 * read. With smaller chunks they write into a bucket from which the engine copies. */

/* Alignment of chunks in bytes. It keeps the alignment of rows the same in a bucket as in the
 * image. */
enum { TDM__TRANSFER_PLAN_ALIGNMENT = 256 };

/* A range of an engine rank's image that is written in one step, and the copies that write it. */
struct tdm__transfer_plan_chunk {
    /* Offset of the chunk's first byte in the image, in bytes; a multiple of the alignment. */
    uint64_t begin;
    uint64_t end;          /* Offset after the chunk's last byte in the image, in bytes. */
    uint32_t copies_first; /* Index of the chunk's first copy in the copies of the image. */
    uint32_t copies_count; /* Number of consecutive copies that write the chunk. */
};

/* Value of from_tensor for a copy that reads the shared table of FP8 scales (scales.h) instead of a
 * slice. Every trainer rank has that table. */
#define TDM__TRANSFER_PLAN_SCALES UINT32_MAX

/* The copies that fill one engine rank's image, ordered by chunk. In a copy, from_tensor is a
 * slice index of trainer rank from_rank, and to_tensor is a slice index of the image. Offsets are
 * in elements from the beginnings of these slices. */
struct tdm__transfer_plan_image {
    struct tdm__rect_copy *copies; /* Copies of all chunks; owned. */
    /* Chunks in the order of the image; owned. The array has the chunks_count of the plan; surplus
     * entries are empty. */
    struct tdm__transfer_plan_chunk *chunks;
    uint32_t copies_count; /* Number of copies. */
    uint32_t chunks_count; /* Number of chunks of this image that are not empty. */
};

/* The compiled copies from all trainer ranks to all engine ranks. It never changes after its
 * creation. */
struct tdm__transfer_plan {
    const struct tdm__manifest *manifest; /* Manifest of the model; borrowed. */
    /* Layouts of the trainer ranks; borrowed array of from_count. */
    const struct tdm__layout *from;
    const struct tdm__layout *to; /* Layouts of the engine ranks; borrowed array of to_count. */
    uint32_t from_count;          /* Number of trainer ranks. */
    uint32_t to_count;            /* Number of engine ranks. */
    /* Number of chunks of each image; the last chunks of a smaller image are empty. */
    uint32_t chunks_count;
    /* Size of the largest chunk in bytes, which is the room that half a bucket needs. */
    uint64_t chunk_bytes_max;
    /* Copies and chunks of each engine rank; owned array of to_count. */
    struct tdm__transfer_plan_image *images;
    /* Scales of FP8 blocks of which several trainer ranks hold parts; owned. */
    struct tdm__scales scales;
    /* Bytes and copies of the whole plan. Trainer rank r and engine rank r share a GPU. */
    struct tdm__reshard_cost cost;
};

/* Arguments of tdm__transfer_plan_create(). All pointers are borrowed for the life of the plan. */
struct tdm__transfer_plan_options {
    /* Manifest of the model. */
    const struct tdm__manifest *manifest;
    /* Layouts of the trainer ranks. Together they hold every wanted element exactly once. */
    const struct tdm__layout *from;
    uint32_t from_count; /* Number of trainer ranks. */
    /* Layouts of the engine ranks; addresses are byte offsets in the image. */
    const struct tdm__layout *to;
    uint32_t to_count;    /* Number of engine ranks. */
    uint64_t image_bytes; /* Size of each engine rank's image in bytes. */
    /* The largest size of a chunk in bytes; 0 puts an image into one chunk. A chunk is larger if
     * 128 rows of a matrix that becomes FP8, or one row of their scales, do not fit. */
    uint64_t chunk_bytes;
};

/* Compiles a plan. Returns TDM_E_INVAL with a message that names the tensor if no trainer rank, or
 * more than one, holds some element of it. The same applies if an engine's slice lies outside the
 * image or overlaps another slice. */
tdm_status tdm__transfer_plan_create(const struct tdm__transfer_plan_options *options,
                                     struct tdm__transfer_plan **plan_out);
/* Frees the plan; NULL is allowed. */
void tdm__transfer_plan_destroy(struct tdm__transfer_plan *transfer_plan);

/* Returns the offset in bytes of the copy's first written byte in the image of engine rank
 * `image`. */
uint64_t tdm__transfer_plan_image_offset(const struct tdm__transfer_plan *transfer_plan,
                                         uint32_t image, const struct tdm__rect_copy *copy);
/* Returns the tensor of which the copy writes elements or scales. */
const struct tdm_tensor_info *
tdm__transfer_plan_tensor(const struct tdm__transfer_plan *transfer_plan, uint32_t image,
                          const struct tdm__rect_copy *copy);

/* Returns how many copies `from_rank` makes for one chunk of all images together. */
uint32_t tdm__transfer_plan_copies_of_rank(const struct tdm__transfer_plan *transfer_plan,
                                           uint32_t chunk, uint32_t from_rank);

#endif
