/* copy_split.h - the part of a copy that lands in one piece of a slice. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_COPY_SPLIT_H
#define TDM_COLOCATE_WEIGHTS_COPY_SPLIT_H

#include "colocate/transfer/rect_copy.h"

#include <tandem/tensor.h>

/* A slice larger than a bucket is sent in pieces: ranges of its bytes, one behind the other.  A
 * rectangle that crosses the ends of such a range is at most three inside: the rest of a row,
 * whole rows, the beginning of one. */

enum { TDM__COPY_SPLIT_MAX = 3 };

/* A piece may begin and end at multiples of this many bytes of the slice (of its scales, for a
 * copy of those): an element; where blocks of 128 x 128 become FP8, the rows of such blocks,
 * since a block's codes are computed together, and of their scales a row. */
uint64_t tdm__copy_split_unit(const struct tdm_slice *slice, enum tdm__conversion conversion,
                              enum tdm_dtype dtype);

/* What of `copy` lands in the bytes from `begin` to `end` of its slice, both multiples of the
 * unit.  Returns how many copies that is; together the pieces of a slice write what the copy
 * does, from the same elements, to the same places. */
uint32_t tdm__copy_split(const struct tdm__rect_copy *copy, uint64_t begin, uint64_t end,
                         struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX]);

#endif
