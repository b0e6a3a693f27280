/* copy_split.h - divides the copy of a tensor slice at the boundaries of chunks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COPY_SPLIT_H
#define TDM_COLOCATE_WEIGHTS_COPY_SPLIT_H

#include "colocate/transfer/rect_copy.h"

#include <tandem/tensor.h>

/* A slice that is larger than a chunk is sent in pieces, which are consecutive byte ranges of the
 * slice. If a rectangle crosses the ends of such a range, what lies inside the range is at most
 * three rectangles. These are the rest of one row, whole rows, and the beginning of one row. */

/* The largest number of rectangles into which one piece divides a copy. */
enum { TDM__COPY_SPLIT_MAX = 3 };

/* Returns the granularity in bytes at which a slice, or its scales for a copy of scales, may be
 * divided. It is one element for plain copies. For FP8 it is all rows of 128 x 128 blocks, because
 * the codes of a block are computed together; for scales it is one row of scales. */
uint64_t tdm__copy_split_unit(const struct tdm_slice *slice, enum tdm__conversion conversion,
                              enum tdm_dtype dtype);

/* Returns the part of a copy that writes its rows from `first` up to but not including `end`. A row
 * of FP8 scales is for 128 rows of elements. For FP8 codes `first` is a multiple of 128. */
struct tdm__rect_copy tdm__copy_split_rows(const struct tdm__rect_copy *copy, uint64_t first,
                                           uint64_t end);
/* Returns the part of a plain copy that writes the columns from `first` up to but not including
 * `end` of one row. */
struct tdm__rect_copy tdm__copy_split_columns(const struct tdm__rect_copy *copy, uint64_t row,
                                              uint64_t first, uint64_t end);

/* Computes the rectangles of `copy` that lie within the bytes from `begin` to `end` of the slice,
 * multiples of the unit or the end of the slice. Returns the number of rectangles. All pieces of a
 * slice together write the same elements to the same places as `copy`. */
uint32_t tdm__copy_split(const struct tdm__rect_copy *copy, uint64_t begin, uint64_t end,
                         struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX]);

#endif
