/* convert.h - elements that become another type on their way into an engine's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_CONVERT_H
#define TDM_COLOCATE_WEIGHTS_CONVERT_H

#include "colocate/plan/part.h"

#include <tandem/tensor.h>

/* What a slice of this tensor consists of. */
enum tdm_dtype tdm__slice_dtype(const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice);
/* Bytes of the scales that belong to it: of an FP8 slice of something else; 0 for others. */
uint64_t tdm__slice_scales_bytes(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *slice);

/* TDM_E_INVAL names the tensor that cannot become what the slice wants, or whose blocks it
 * cuts. */
tdm_status tdm__convert_check(const struct tdm_tensor_info *tensor,
                              const struct tdm_slice *slice);

/* Fills in the rectangle that `held` (a trainer's slice) and `wanted` (an FP8 slice that was
 * checked) have in common; `rows` is 0 where that is nothing.  A block's scale needs all of its
 * elements: TDM_E_INVAL names the tensor where `held` has only a part of one. */
tdm_status tdm__convert_rectangle(const struct tdm_tensor_info *tensor,
                                  const struct tdm_slice *wanted, const struct tdm_slice *held,
                                  struct tdm__copy *copy);

/* A copy with its ends, for a device to run. */
struct tdm__part tdm__convert_part(const struct tdm__copy *copy, const void *from, void *to);
/* The rectangle that it writes: its rows, in bytes, and the distance between them. */
struct tdm__rows tdm__convert_rows(const struct tdm__copy *copy);

#endif
