/* tensor.h - sizes of tensors whose shapes come from outside. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TENSOR_H
#define TDM_COLOCATE_WEIGHTS_TENSOR_H

#include <stdbool.h>
#include <tandem/tensor.h>

/* Name, dtype, number of dimensions and the product of the shape, all within their limits;
 * TDM_E_INVAL names what is not. */
tdm_status tdm__tensor_check(const struct tdm_tensor_info *info);

/* Strides of the tensor laid out row after row. */
void tdm__tensor_row_major_strides(const struct tdm_tensor_info *info,
                                   uint64_t stride[TDM_DIMS_MAX]);
bool tdm__tensor_is_contiguous(const struct tdm_tensor_view *view);

#endif
