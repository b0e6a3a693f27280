/* scales.h - the scales of FP8 blocks that trainer ranks share: who finds what of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SCALES_H
#define TDM_COLOCATE_WEIGHTS_SCALES_H

#include "colocate/transfer/copy_op.h"
#include "colocate/weights/layout.h"

/* Where trainers' slices cut through blocks of a tensor that becomes FP8, no rank can tell a
 * block's scale alone.  Each finds the scales of what it has; a block's is the largest of those
 * of its parts, in whatever order they are compared.  So all ranks get one table, and each
 * converts its own elements by it: nobody's elements are moved for that. */
struct tdm__scales {
    const struct tdm__manifest *manifest; /* borrowed */
    uint64_t *firsts; /* owned, like the rest: of each tensor, where in the table it begins */
    uint64_t count;   /* in the table: row by row, tensor by tensor */
    /* What is to be found, rank after rank: of which slice, and where it belongs in the table.
     * to_tensor is of the manifest. */
    struct tdm__rect_copy *measures;
    uint32_t measures_count;
    uint64_t measured_bytes; /* read for it, by all ranks */
};

#define TDM__SCALES_NOT_SHARED UINT64_MAX /* instead of a beginning: no block of it is shared */

struct tdm__scales_options {
    const struct tdm__manifest *manifest; /* all borrowed */
    const struct tdm__layout *from;       /* checked, like `to` */
    uint32_t from_count;
    const struct tdm__layout *to;
    uint32_t to_count;
};

/* Pure.  On failure nothing is to be freed. */
tdm_status tdm__scales_init(const struct tdm__scales_options *options,
                            struct tdm__scales *scales_out);
void tdm__scales_fini(struct tdm__scales *scales);

/* The place of a block among all, by the row and column of its first element. */
uint64_t tdm__scales_block_index(const struct tdm__scales *scales, uint32_t tensor, uint64_t row,
                                 uint64_t column);
/* A part that becomes FP8 in `wanted` gets its scales out of the table, if that has them. */
void tdm__scales_attach(const struct tdm__scales *scales, const struct tdm_slice *wanted,
                        const struct tdm__rect_copy *copy, const float *table,
                        struct tdm__copy_op *part);

/* How many scales a measure finds; and the table with those, which are one behind the other. */
uint64_t tdm__scales_measured_count(const struct tdm__rect_copy *measure);
void tdm__scales_merge(const struct tdm__rect_copy *measure, const float *found, float *table);

#endif
