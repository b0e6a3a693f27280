/* tensor.c - checks and strides of tensors whose shapes come from outside the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/tensor.h"

#include "runtime/error.h"

#include <string.h>

/* Returns 0 if any dimension is 0, however large the other dimensions are. */
uint64_t tdm_tensor_elements(const struct tdm_tensor_info *info)
{
    TDM__REQUIRE_OR(info, UINT64_MAX);

    uint64_t elements = 1;
    bool overflow = info->dims_count > TDM_DIMS_MAX;

    for (uint32_t i = 0; i < info->dims_count && i < TDM_DIMS_MAX; i++) {
        if (info->shape[i] == 0) {
            return 0;
        }
        overflow |= __builtin_mul_overflow(elements, info->shape[i], &elements);
    }
    return overflow ? UINT64_MAX : elements;
}

uint64_t tdm_tensor_bytes(const struct tdm_tensor_info *info)
{
    TDM__REQUIRE_OR(info, UINT64_MAX);

    uint64_t elements = tdm_tensor_elements(info);
    uint64_t size_bytes;

    if (elements == UINT64_MAX ||
        __builtin_mul_overflow(elements, tdm_dtype_bytes(info->dtype), &size_bytes)) {
        return UINT64_MAX;
    }
    return size_bytes;
}

tdm_status tdm__tensor_check(const struct tdm_tensor_info *info)
{
    size_t name_bytes = info->name == NULL ? 0 : strnlen(info->name, TDM_TENSOR_NAME_BYTES_MAX);

    if (name_bytes == 0 || name_bytes >= TDM_TENSOR_NAME_BYTES_MAX) {
        return tdm__fail(
            TDM_E_INVAL,
            "checking tensor \"%.95s\" failed: its name has %s%zu bytes, expected 1 to "
            "%d. Rename it",
            info->name == NULL ? "" : info->name, name_bytes == 0 ? "" : "at least ", name_bytes,
            TDM_TENSOR_NAME_BYTES_MAX - 1);
    }
    if (tdm_dtype_bytes(info->dtype) == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "checking tensor \"%s\" failed: its dtype is %d, which is none of enum "
                         "tdm_dtype. Give one of them",
                         info->name, (int)info->dtype);
    }
    if (info->dims_count > TDM_DIMS_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "checking tensor \"%s\" failed: it has %u dimensions, at most %d are "
                         "allowed. Give its shape with fewer dimensions",
                         info->name, info->dims_count, TDM_DIMS_MAX);
    }
    if (tdm_tensor_bytes(info) == UINT64_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "checking tensor \"%s\" failed: the product of its shape overflows 64 "
                         "bits. Correct the shape",
                         info->name);
    }
    return TDM_OK;
}

void tdm__tensor_row_major_strides(const struct tdm_tensor_info *info,
                                   uint64_t stride[TDM_DIMS_MAX])
{
    uint64_t step = 1;

    memset(stride, 0, TDM_DIMS_MAX * sizeof(stride[0]));
    for (uint32_t i = info->dims_count; i-- > 0;) {
        stride[i] = step;
        step *= info->shape[i];
    }
}

bool tdm__tensor_is_contiguous(const struct tdm_tensor_view *view)
{
    uint64_t stride[TDM_DIMS_MAX];

    tdm__tensor_row_major_strides(&view->info, stride);
    for (uint32_t i = 0; i < view->info.dims_count; i++) {
        /* The stride of a dimension with one element does not matter. */
        if (view->info.shape[i] > 1 && view->stride[i] != stride[i]) {
            return false;
        }
    }
    return true;
}
