/* tensor.h - checks and strides of tensors whose shapes come from outside the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TENSOR_H
#define TDM_COLOCATE_WEIGHTS_TENSOR_H

#include <stdbool.h>
#include <tandem/tensor.h>

/* Checks the name, the dtype, the number of dimensions and the product of the shape against their
 * limits. Returns TDM_E_INVAL with a message that names the tensor and the violated limit. */
tdm_status tdm__tensor_check(const struct tdm_tensor_info *info);

/* Writes to `stride` the strides, in elements, of a tensor in row-major order without gaps. Strides
 * of unused dimensions are zero. */
void tdm__tensor_row_major_strides(const struct tdm_tensor_info *info,
                                   uint64_t stride[TDM_DIMS_MAX]);
/* Returns true if the view's elements are contiguous in row-major order. */
bool tdm__tensor_is_contiguous(const struct tdm_tensor_view *view);

#endif
