/* convert.h - dtype conversion of elements on their way into an engine's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_CONVERT_H
#define TDM_COLOCATE_WEIGHTS_CONVERT_H

#include "colocate/transfer/copy_op.h"

#include <stdbool.h>
#include <tandem/tensor.h>

/* Returns the dtype of the slice's elements: the slice's own dtype if it is set, else that of the
 * tensor. */
enum tdm_dtype tdm__slice_dtype(const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice);
/* Returns the size in bytes of the FP8 scales that belong to the slice. The result is 0 unless the
 * slice is FP8 and its tensor is not. */
uint64_t tdm__slice_scales_bytes(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *slice);

/* Returns how many FP8 blocks of 128 elements cover a row or a column of `elements` elements. */
uint64_t tdm__convert_blocks_count(uint64_t elements);

/* Checks whether the tensor can be converted to the dtype of the slice. Returns TDM_E_INVAL with a
 * message that names the tensor if not, or if the slice cuts through FP8 blocks. */
tdm_status tdm__convert_check(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice);

/* Returns true if `held`, a trainer's slice of a matrix, contains only a part of some FP8 block. */
bool tdm__convert_cuts_blocks(const struct tdm_tensor_info *tensor, const struct tdm_slice *held);

/* The largest number of rectangles that tdm__convert_rectangles() returns. */
enum { TDM__CONVERT_RECTANGLES_MAX = 12 };
/* Computes the rectangles that `held`, a slice of a trainer, and `wanted`, a checked FP8 slice of
 * an engine, have in common. Each rectangle begins at a block boundary or ends within the block in
 * which it begins, so that the scales of its blocks are consecutive. All other members are those of
 * `like`, whose conversion is to FP8 or to scales; rectangles of scales have offsets in the scales
 * of the slice. Returns the number of rectangles. */
uint32_t tdm__convert_rectangles(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *wanted, const struct tdm_slice *held,
                                 const struct tdm__rect_copy *like,
                                 struct tdm__rect_copy copies[TDM__CONVERT_RECTANGLES_MAX]);

/* Returns the device operation for one rectangle of a plan. `from` and `to` are the addresses of
 * its first source and destination bytes. */
struct tdm__copy_op tdm__convert_copy_op(const struct tdm__rect_copy *copy, const void *from,
                                         void *to);
/* Returns the rows that the copy writes: their number, their size in bytes and the distance between
 * them. */
struct tdm__strided_rows tdm__convert_written_rows(const struct tdm__rect_copy *copy);

#endif
