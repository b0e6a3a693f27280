/* convert.h - elements that become another type on their way into an engine's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_CONVERT_H
#define TDM_COLOCATE_WEIGHTS_CONVERT_H

#include "colocate/transfer/copy_op.h"

#include <stdbool.h>
#include <tandem/tensor.h>

/* What a slice of this tensor consists of. */
enum tdm_dtype tdm__slice_dtype(const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice);
/* Bytes of the scales that belong to it: of an FP8 slice of something else; 0 for others. */
uint64_t tdm__slice_scales_bytes(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *slice);

/* Along a row or a column of so many elements. */
uint64_t tdm__convert_blocks_count(uint64_t elements);

/* TDM_E_INVAL names the tensor that cannot become what the slice wants, or whose blocks it
 * cuts. */
tdm_status tdm__convert_check(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice);

/* Does `held` (a trainer's slice of a matrix) have a part of a block only? */
bool tdm__convert_cuts_blocks(const struct tdm_tensor_info *tensor, const struct tdm_slice *held);

/* What `held` and `wanted` (an FP8 slice that was checked) have in common: rectangles that
 * begin where blocks do, or inside of one and then end in it, so that each has its blocks'
 * scales in a row.  Else they are as `like`, whose conversion is to FP8 or of the scales; those
 * go where the slice has its scales.  Returns how many. */
enum { TDM__CONVERT_RECTANGLES_MAX = 12 };
uint32_t tdm__convert_rectangles(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *wanted, const struct tdm_slice *held,
                                 const struct tdm__rect_copy *like,
                                 struct tdm__rect_copy copies[TDM__CONVERT_RECTANGLES_MAX]);

/* A copy with its ends, for a device to run. */
struct tdm__copy_op tdm__convert_copy_op(const struct tdm__rect_copy *copy, const void *from,
                                         void *to);
/* The rectangle that it writes: its rows, in bytes, and the distance between them. */
struct tdm__strided_rows tdm__convert_written_rows(const struct tdm__rect_copy *copy);

#endif
