/* scales.h - scales of FP8 blocks of which several trainer ranks hold parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SCALES_H
#define TDM_COLOCATE_WEIGHTS_SCALES_H

#include "colocate/transfer/copy_op.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/replicas.h"

/* If trainer slices cut through blocks of a tensor that becomes FP8, no rank can compute the scale
 * of such a block alone. Each rank computes the scales of the parts that it holds, and the scale of
 * a block is the maximum over its parts, in any order. All ranks so get the same table of scales,
 * and each rank quantizes its own elements with it. No elements are moved for that. */
struct tdm__scales {
    /* Tensors of the model whose weights are quantized; borrowed. */
    const struct tdm__manifest *manifest;
    /* For each tensor the index of its first scale in the table of shared scales, or
     * TDM__SCALES_NOT_SHARED. Owned. */
    uint64_t *firsts;
    /* Number of FP8 scales in the table, which is ordered by tensor and row of blocks. */
    uint64_t count;
    /* Rectangles of trainer slices whose FP8 block scales are computed, ordered by trainer rank. In
     * each, to_tensor is an index in the manifest. Owned. */
    struct tdm__rect_copy *measures;
    uint32_t measures_count; /* Number of rectangles in `measures`. */
    /* Number of bytes that all trainer ranks together read to compute the scales. */
    uint64_t measured_bytes;
};

/* Value in `firsts` for a tensor whose FP8 blocks each lie in one trainer slice, or which is not
 * FP8. */
#define TDM__SCALES_NOT_SHARED UINT64_MAX

/* Arguments of tdm__scales_init(). All pointers are borrowed. */
struct tdm__scales_options {
    const struct tdm__manifest *manifest; /* Tensors of the model; the result keeps the pointer. */
    /* Layouts of the trainer ranks, checked with tdm__layout_check(). */
    const struct tdm__layout *from;
    uint32_t from_count; /* Number of trainer ranks, which are entries of `from`. */
    /* Layouts of the engine ranks, checked with tdm__layout_check(). */
    const struct tdm__layout *to;
    uint32_t to_count; /* Number of engine ranks, which are entries of `to`. */
    /* Equal slices among those of the trainer ranks, of which one is measured. */
    const struct tdm__replicas *replicas;
};

/* Finds the tensors of which several trainer ranks hold parts of an FP8 block, and plans which
 * scales each rank computes. Touches no device. On failure the caller has nothing to free. */
tdm_status tdm__scales_init(const struct tdm__scales_options *options,
                            struct tdm__scales *scales_out);
/* Frees the arrays of a tdm__scales. */
void tdm__scales_fini(struct tdm__scales *scales);

/* Returns the index in the table of the scale of one FP8 block; `row` and `column` are those of the
 * block's first element in the tensor. */
uint64_t tdm__scales_block_index(const struct tdm__scales *scales, uint32_t tensor, uint64_t row,
                                 uint64_t column);
/* Makes a copy to FP8 quantize with the shared scales if the tensor has any in the table. Does
 * nothing otherwise. `wanted` is the engine's slice, `table` the table of all scales. */
void tdm__scales_attach(const struct tdm__scales *scales, const struct tdm_slice *wanted,
                        const struct tdm__rect_copy *copy, const float *table,
                        struct tdm__copy_op *part);

/* Returns the number of FP8 block scales that are computed for a rectangle of
 * tdm__scales.measures. */
uint64_t tdm__scales_measured_count(const struct tdm__rect_copy *measure);
/* Merges the scales `found`, which were computed for the rectangle `measure` and lie without gaps,
 * into the table. Each entry becomes the maximum of both values. */
void tdm__scales_merge(const struct tdm__rect_copy *measure, const float *found, float *table);

#endif
