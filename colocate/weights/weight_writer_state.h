/* weight_writer_state.h - what a weight writer owns, and where its memory is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_STATE_H
#define TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_STATE_H

#include "colocate/weights/tensor_handles.h"
#include "colocate/weights/weight_writer.h"

/* What one device operation of a chunk is for. */
struct copy_op_use {
    /* Index of its checksum in `own_sums`, or the number of the piece that it packs. */
    uint32_t sum_slot;
    /* 1 plus the index of the piece that it reads from the receive buffer; 0 if it reads none. */
    uint32_t piece;
    uint8_t locality; /* How near source and destination are, an enum tdm__copy_locality. */
    bool is_packed;   /* True if it packs a piece for another node. */
};

/* State of a trainer rank's weight writer, shared by weight_writer_state.c, which creates it, and
 * weight_writer.c, which executes the plan. The caller owns it and serializes all calls. */
struct tdm__weight_writer {
    /* Arguments of tdm__weight_writer_create(); the pointers are borrowed. */
    struct tdm__weight_writer_options options;
    /* Staging region of this rank; NULL if the trainer ranks write directly into the engines'
     * shadows. Owned. */
    tdm_region *bucket;
    /* Size in bytes of one half of a part of a bucket, or of a part without halves. It has room for
     * one chunk. */
    uint64_t half_bytes;
    uint32_t bucket_parts_count; /* Number of parts of each bucket. */
    /* Memory of each engine rank into which this rank writes. Owned. */
    struct tdm__mapped_target *targets;
    /* Region of this rank's send and receive buffers if it has no bucket; NULL otherwise. Owned. */
    tdm_region *exchange_region;
    /* This rank's part of what is exchanged with other nodes; NULL if nothing is. Owned. */
    struct tdm__exchange_rounds *rounds;
    /* Tensor slices of this rank with the addresses at which their bytes can be read. Owned. */
    struct tdm_slice *slices;
    /* For each chunk and, within it, for each image the index in `sums` of the first checksum of
     * this rank's copies; one more entry at the end. Owned. */
    size_t *sums_firsts;
    /* Checksums of this rank's copies, ordered by chunk, image and copy. Owned. */
    uint64_t *sums;
    /* Number of leading chunks whose checksums this rank knows for the weights as they are now. */
    uint32_t own_known_chunks;
    /* Number of leading chunks whose checksums each trainer rank knew when this update began. */
    uint32_t known_chunks;
    /* Table of the shared FP8 scales, in host memory that the device reads. Owned; NULL if no block
     * is shared. */
    float *scales;
    /* Scales that this rank has computed; they lie behind the table `scales` in the same memory. */
    float *found;
    /* Device operations that write one chunk, or that compute FP8 scales. Owned. */
    struct tdm__copy_op *copy_ops;
    struct copy_op_use *copy_op_uses; /* What each device operation is for. Owned. */
    uint64_t *copy_op_sums;           /* Checksums that the operations `copy_ops` compute. Owned. */
    /* Checksums of this rank's copies of the chunk that is being written. Owned. */
    uint64_t *own_sums;
    /* Tensor records that describe this rank's copies of one chunk of one image, with room for the
     * most copies. Owned. */
    struct tdm__tensor_record *records;
    void *description; /* Encoded tensor handles of the chunk that was described last. Owned. */
    /* Bytes and checksums of the chunk that was written last. */
    struct tdm__transfer_totals last_totals;
    /* Hash of this rank's checksums of all chunks since the targets were mapped. */
    struct tdm__hash own_hash;
    /* Hash of what all ranks have written, which the ranks have settled at the end of an update. */
    struct tdm__hash contents_hash;
    /* For each engine rank the resume log of all chunks, which the ranks have settled. Owned. */
    struct tdm__resume_log *resume_logs;
    /* Number of chunks that this rank has described; each description contains it. */
    uint64_t exports_count;
};

/* Returns for how many chunks each part of a bucket has room. */
uint32_t tdm__weight_writer_halves_count(const struct tdm__weight_writer *weight_writer);
/* Returns the address of this rank's send buffer for an exchange, and of its receive buffer. The
 * rank has memory for them. */
char *tdm__weight_writer_send_buffer(const struct tdm__weight_writer *weight_writer);
char *tdm__weight_writer_receive_buffer(const struct tdm__weight_writer *weight_writer);

#endif
