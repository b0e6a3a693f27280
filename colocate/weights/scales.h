/* scales.h - scales of FP8 blocks of which several trainer ranks hold parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SCALES_H
#define TDM_COLOCATE_WEIGHTS_SCALES_H

#include "colocate/transfer/copy_op.h"
#include "colocate/weights/layout.h"

/* If trainer slices cut through blocks of a tensor that becomes FP8, no rank can compute the scale
 * of such a block alone. Each rank computes the scales of the parts that it holds, and the scale of
 * a block is the maximum over its parts, in any order. All ranks so get the same table of scales,
 * and each rank quantizes its own elements with it. No elements are moved for that. */
struct tdm__scales {
    const struct tdm__manifest *manifest; /* Manifest of the model; borrowed. */
    /* For each tensor the index of its first scale in the table, or TDM__SCALES_NOT_SHARED.
     * Owned. */
    uint64_t *firsts;
    /* Number of scales in the table, which is ordered by tensor and row of blocks. */
    uint64_t count;
    /* Measurements ordered by trainer rank: the rectangle of a slice whose block scales are
     * computed, and their place in the table. to_tensor is an index in the manifest. Owned. */
    struct tdm__rect_copy *measures;
    uint32_t measures_count; /* Number of measurements. */
    /* Number of bytes that all ranks together read for the measurements. */
    uint64_t measured_bytes;
};

/* Value of `firsts` for a tensor without shared blocks. */
#define TDM__SCALES_NOT_SHARED UINT64_MAX

/* Arguments of tdm__scales_init(). All pointers are borrowed. */
struct tdm__scales_options {
    const struct tdm__manifest *manifest; /* Manifest of the model; the result keeps the pointer. */
    /* Layouts of the trainer ranks, checked with tdm__layout_check(). */
    const struct tdm__layout *from;
    uint32_t from_count; /* Number of trainer ranks. */
    /* Layouts of the engine ranks, checked with tdm__layout_check(). */
    const struct tdm__layout *to;
    uint32_t to_count; /* Number of engine ranks. */
};

/* Finds the tensors with shared blocks and plans the measurements. Touches no device. On failure
 * the caller has nothing to free. */
tdm_status tdm__scales_init(const struct tdm__scales_options *options,
                            struct tdm__scales *scales_out);
/* Frees the table offsets and the measurements. */
void tdm__scales_fini(struct tdm__scales *scales);

/* Returns the index in the table of the scale of the block whose first element has this row and
 * column. */
uint64_t tdm__scales_block_index(const struct tdm__scales *scales, uint32_t tensor, uint64_t row,
                                 uint64_t column);
/* Lets a copy operation quantize with the shared table: sets its scales if the copy is to FP8 and
 * the tensor has shared blocks. Does nothing otherwise. `wanted` is the engine's slice, `table` the
 * table of all scales. */
void tdm__scales_attach(const struct tdm__scales *scales, const struct tdm_slice *wanted,
                        const struct tdm__rect_copy *copy, const float *table,
                        struct tdm__copy_op *part);

/* Returns the number of scales that a measurement produces. */
uint64_t tdm__scales_measured_count(const struct tdm__rect_copy *measure);
/* Merges the scales `found` by a measurement, stored without gaps, into the table, with the maximum
 * of both values. */
void tdm__scales_merge(const struct tdm__rect_copy *measure, const float *found, float *table);

#endif
