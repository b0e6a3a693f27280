/* transfer_plan.h - which bytes each trainer rank writes into each engine rank's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TRANSFER_PLAN_H
#define TDM_COLOCATE_WEIGHTS_TRANSFER_PLAN_H

#include "colocate/transfer/rect_copy.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/location.h"
#include "colocate/weights/scales.h"

/* Trainer ranks and engine ranks declare with layouts which slices of the tensors they hold and
 * where. A transfer plan is compiled once from these layouts and is the same on every rank; each
 * update replays it. Compilation is pure and touches no device.
 *
 * Several trainer ranks may hold the same slice. A plan copies it from the nearest of them, which
 * is on the GPU of the engine rank, else on its node, else on any. Among equally near ranks it is
 * the one that sends the fewest bytes to other GPUs.
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
    /* Offset in bytes of the chunk's first byte in the image; a multiple of
     * TDM__TRANSFER_PLAN_ALIGNMENT. */
    uint64_t begin;
    uint64_t end; /* Offset after the chunk's last byte in the image, in bytes. */
    /* Index in the image's array `copies` of the first copy that writes this chunk. */
    uint32_t copies_first;
    uint32_t copies_count; /* Number of consecutive copies that write the chunk. */
};

/* Value of a copy's field from_tensor if the copy reads the table of FP8 scales that all trainer
 * ranks share (scales.h) instead of a slice. */
#define TDM__TRANSFER_PLAN_SCALES UINT32_MAX
/* Values of from_tensor if the copy reads what the rank has received from another node
 * (node_exchange.h): elements, or FP8 scales that it writes. */
#define TDM__TRANSFER_PLAN_RECEIVED        (UINT32_MAX - 1)
#define TDM__TRANSFER_PLAN_RECEIVED_SCALES (UINT32_MAX - 2)

/* The copies that fill one engine rank's image, ordered by chunk. In a copy, from_tensor is a
 * slice index of trainer rank from_rank, and to_tensor is a slice index of the image. Offsets are
 * in elements from the beginnings of these slices. */
struct tdm__transfer_plan_image {
    /* Copies that fill the engine rank's image, ordered by chunk; owned. */
    struct tdm__rect_copy *copies;
    /* Chunks in the order of the image; owned. The array has the chunks_count of the plan; surplus
     * entries are empty. */
    struct tdm__transfer_plan_chunk *chunks;
    uint32_t copies_count; /* Number of entries in `copies`. */
    uint32_t chunks_count; /* Number of chunks of this image that are not empty. */
};

/* The cost of a plan, known before it runs. Bytes are counted as they are written. With an exchange
 * what crosses between nodes is counted once, and once more for each copy on its node. */
struct tdm__transfer_cost {
    /* Number of bytes written, or sent to another node, indexed by enum tdm__copy_locality. */
    uint64_t bytes_by_locality[TDM__LOCALITIES_COUNT];
    /* Number of copies, or of pieces that are sent, indexed by enum tdm__copy_locality. */
    uint64_t copies_by_locality[TDM__LOCALITIES_COUNT];
    /* Number of bytes written, in the engines' dtypes and with FP8 scales. */
    uint64_t written_bytes;
    uint64_t sent_bytes_min; /* Bytes to other GPUs of the trainer rank that sends the fewest. */
    uint64_t sent_bytes_max; /* Bytes to other GPUs of the trainer rank that sends the most. */
    /* Bytes from other GPUs of the engine rank that receives the most. */
    uint64_t received_bytes_max;
    uint32_t copies_max; /* Number of copies of the engine rank that has the most. */
};

/* What crosses between nodes (node_exchange.h). */
struct tdm__node_exchange;

/* The compiled copies from all trainer ranks to all engine ranks. It never changes after its
 * creation. */
struct tdm__transfer_plan {
    const struct tdm__manifest *manifest; /* Tensors of the model; borrowed. */
    /* Layouts of the trainer ranks, from which the plan copies; borrowed array of from_count. */
    const struct tdm__layout *from;
    /* Layouts of the engine ranks, to which the plan copies; borrowed array of to_count. */
    const struct tdm__layout *to;
    uint32_t from_count; /* Number of trainer ranks, from which the plan copies. */
    uint32_t to_count;   /* Number of engine ranks, to which the plan copies. */
    /* Number of chunks of each image; the last chunks of a smaller image are empty. */
    uint32_t chunks_count;
    /* Size in bytes of the largest chunk; each half of a bucket has room for it. */
    uint64_t chunk_bytes_max;
    /* For each engine rank the copies and chunks that fill its weights; owned array of to_count. */
    struct tdm__transfer_plan_image *images;
    /* What crosses between nodes; NULL if nothing does, or if the plan was compiled without. Owned.
     */
    struct tdm__node_exchange *exchange;
    /* Scales of FP8 blocks of which several trainer ranks hold parts; owned. */
    struct tdm__scales scales;
    struct tdm__transfer_cost cost; /* How many bytes and copies the whole plan has. */
};

/* Arguments of tdm__transfer_plan_create(). All pointers are borrowed for the life of the plan. */
struct tdm__transfer_plan_options {
    const struct tdm__manifest *manifest; /* Tensors of the model. */
    /* Layouts of the trainer ranks, from which the plan copies. Together the ranks hold every
     * element that an engine wants. Two slices are equal or have no element in common. */
    const struct tdm__layout *from;
    uint32_t from_count; /* Number of trainer ranks, which are entries of `from`. */
    /* Layouts of the engine ranks, to which the plan copies. The addresses of their slices are byte
     * offsets in the rank's image. */
    const struct tdm__layout *to;
    uint32_t to_count; /* Number of engine ranks, which are entries of `to`. */
    /* For each trainer rank where its memory is, and for each engine rank where its target is. NULL
     * if trainer rank r and engine rank r share a GPU, and all ranks a node. */
    const struct tdm__location *from_locations;
    const struct tdm__location *to_locations; /* NULL like `from_locations`. */
    /* Size in bytes of each engine rank's image (the contents of its weights region). */
    uint64_t image_bytes;
    /* The largest size of a chunk in bytes; 0 puts an image into one chunk. A chunk is larger if
     * 128 rows of a matrix that becomes FP8, or one row of their scales, do not fit, or if the
     * limit is below TDM__TRANSFER_PLAN_ALIGNMENT. */
    uint64_t chunk_bytes;
    /* True if no slice of an engine rank is divided. A slice larger than `chunk_bytes` is then a
     * chunk of its own. */
    bool keeps_slices_whole;
    /* If greater than 0, what crosses between nodes does so once, in rounds in which no rank sends
     * or receives more bytes (node_exchange.h). If 0, copies go from any node to any other. */
    uint64_t exchange_bytes;
};

/* Compiles the plan of all copies from trainer ranks to engine ranks. Fails with TDM_E_INVAL if
 * no trainer rank holds some element of a tensor, or if slices of trainer ranks have only a part of
 * their elements in common. The message names the tensor. The same applies if an engine's slice
 * lies outside the image or overlaps another slice. */
tdm_status tdm__transfer_plan_create(const struct tdm__transfer_plan_options *options,
                                     struct tdm__transfer_plan **plan_out);
/* Frees a transfer plan; NULL is allowed. */
void tdm__transfer_plan_destroy(struct tdm__transfer_plan *transfer_plan);

/* Returns the offset in bytes at which `copy` begins to write in the image of engine rank
 * `image`. */
uint64_t tdm__transfer_plan_image_offset(const struct tdm__transfer_plan *transfer_plan,
                                         uint32_t image, const struct tdm__rect_copy *copy);
/* Returns the tensor whose elements or scales `copy` writes into the image of engine rank
 * `image`. */
const struct tdm_tensor_info *
tdm__transfer_plan_tensor(const struct tdm__transfer_plan *transfer_plan, uint32_t image,
                          const struct tdm__rect_copy *copy);

/* Returns how many copies trainer rank `from_rank` makes for chunk number `chunk` of the image of
 * engine rank `image`. */
uint32_t tdm__transfer_plan_copies_between(const struct tdm__transfer_plan *transfer_plan,
                                           uint32_t chunk, uint32_t from_rank, uint32_t image);

#endif
