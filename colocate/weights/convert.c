/* convert.c - elements that become another type on their way into an engine's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/convert.h"

#include "colocate/plan/fp8.h"
#include "colocate/plan/model.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

enum tdm_dtype tdm__slice_dtype(const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice)
{
    return slice->dtype != 0 ? slice->dtype : tensor->dtype;
}

static uint64_t blocks_of(uint64_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

static bool is_quantized(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice)
{
    return slice->dtype == TDM_F8_E4M3 && tensor->dtype != TDM_F8_E4M3;
}

uint64_t tdm__slice_scales_bytes(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *slice)
{
    return is_quantized(tensor, slice)
               ? blocks_of(slice->extent[0]) * blocks_of(slice->extent[1]) * sizeof(float)
               : 0;
}

/* ---- what is possible ------------------------------------------------------------------- */

/* Does [begin, end) consist of whole blocks of a dimension of `length`? */
static bool is_of_blocks(uint64_t begin, uint64_t end, uint64_t length)
{
    return begin % TDM__FP8_BLOCK == 0 && (end % TDM__FP8_BLOCK == 0 || end == length);
}

static tdm_status check_blocks(const struct tdm_tensor_info *tensor,
                               const struct tdm_slice *slice)
{
    if (tensor->dims_count != 2 || slice->flat != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor %s: only boxes of matrices become %s; it has %" PRIu32
                         " dimensions, the slice is %s",
                         tensor->name, tdm_dtype_name(TDM_F8_E4M3), tensor->dims_count,
                         slice->flat != 0 ? "flat" : "a box");
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t end = slice->offset[i] + slice->extent[i];

        if (!is_of_blocks(slice->offset[i], end, tensor->shape[i])) {
            return tdm__fail(TDM_E_INVAL,
                             "tensor %s: a slice from %" PRIu64 " to %" PRIu64
                             " of dimension %" PRIu32 " (%" PRIu64 ") cuts blocks of %d",
                             tensor->name, slice->offset[i], end, i, tensor->shape[i],
                             TDM__FP8_BLOCK);
        }
    }
    return TDM_OK;
}

tdm_status tdm__convert_check(const struct tdm_tensor_info *tensor,
                              const struct tdm_slice *slice)
{
    enum tdm_dtype wanted = tdm__slice_dtype(tensor, slice);
    bool from_float = tensor->dtype == TDM_F32 || tensor->dtype == TDM_BF16;

    if (wanted == tensor->dtype || (tensor->dtype == TDM_F32 && wanted == TDM_BF16)) {
        return TDM_OK;
    }
    return from_float && wanted == TDM_F8_E4M3
               ? check_blocks(tensor, slice)
               : tdm__fail(TDM_E_INVAL, "tensor %s: %s does not become %s", tensor->name,
                           tdm_dtype_name(tensor->dtype), tdm_dtype_name(wanted));
}

/* ---- rectangles ------------------------------------------------------------------------- */

struct range {
    uint64_t begin;
    uint64_t end;
};

static struct range common_range(uint64_t offset, uint64_t extent, uint64_t other_offset,
                                 uint64_t other_extent)
{
    uint64_t end = offset + extent;
    uint64_t other_end = other_offset + other_extent;

    return (struct range){offset > other_offset ? offset : other_offset,
                          end < other_end ? end : other_end};
}

static tdm_status fail_shared(const struct tdm_tensor_info *tensor)
{
    return tdm__fail(TDM_E_INVAL,
                     "tensor %s: trainer ranks share blocks of %d x %d, and a block becomes %s "
                     "as a whole: cut it between blocks, or keep its dtype",
                     tensor->name, TDM__FP8_BLOCK, TDM__FP8_BLOCK, tdm_dtype_name(TDM_F8_E4M3));
}

/* A flat slice of whole rows is a box. */
static tdm_status make_box(const struct tdm_tensor_info *tensor, const struct tdm_slice *held,
                           struct tdm_slice *box)
{
    uint64_t columns = tensor->shape[1];

    *box = *held;
    if (held->flat == 0) {
        return TDM_OK;
    }
    if (held->offset[0] % columns != 0 || held->extent[0] % columns != 0) {
        return fail_shared(tensor);
    }
    *box = (struct tdm_slice){.offset = {held->offset[0] / columns, 0},
                              .extent = {held->extent[0] / columns, columns}};
    return TDM_OK;
}

tdm_status tdm__convert_rectangle(const struct tdm_tensor_info *tensor,
                                  const struct tdm_slice *wanted, const struct tdm_slice *held,
                                  struct tdm__copy *copy)
{
    bool is_scales = copy->convert == TDM__CONVERT_SCALES;
    uint64_t unit = is_scales ? TDM__FP8_BLOCK : 1;
    uint64_t to_pitch = is_scales ? blocks_of(wanted->extent[1]) : wanted->extent[1];
    struct range range[2];
    struct tdm_slice box;

    copy->rows = 0;
    TDM_TRY(make_box(tensor, held, &box));
    for (uint32_t i = 0; i < 2; i++) {
        range[i] =
            common_range(wanted->offset[i], wanted->extent[i], box.offset[i], box.extent[i]);
        if (range[i].begin >= range[i].end) {
            return TDM_OK;
        }
    }
    if (!is_of_blocks(range[0].begin, range[0].end, tensor->shape[0]) ||
        !is_of_blocks(range[1].begin, range[1].end, tensor->shape[1])) {
        return fail_shared(tensor);
    }
    if (tensor->shape[0] > UINT32_MAX || tensor->shape[1] > UINT32_MAX) {
        return tdm__fail(TDM_E_LIMIT, "tensor %s: more than 2^32 rows or columns",
                         tensor->name);
    }
    copy->rows = (uint32_t)(range[0].end - range[0].begin);
    copy->columns = (uint32_t)(range[1].end - range[1].begin);
    copy->from_pitch = (uint32_t)box.extent[1];
    copy->to_pitch = (uint32_t)to_pitch;
    copy->from_offset =
        (range[0].begin - box.offset[0]) * box.extent[1] + (range[1].begin - box.offset[1]);
    copy->to_offset = (range[0].begin - wanted->offset[0]) / unit * to_pitch +
                      (range[1].begin - wanted->offset[1]) / unit;
    return TDM_OK;
}

struct tdm__part tdm__convert_part(const struct tdm__copy *copy, const void *from, void *to)
{
    return (struct tdm__part){.from = from,
                              .to = to,
                              .rows = copy->rows,
                              .columns = copy->columns,
                              .from_pitch = copy->from_pitch,
                              .to_pitch = copy->to_pitch,
                              .convert = copy->convert,
                              .from_dtype = copy->from_dtype,
                              .to_dtype = copy->to_dtype};
}

struct tdm__rows tdm__convert_rows(const struct tdm__copy *copy)
{
    const struct tdm__part part = tdm__convert_part(copy, NULL, NULL);

    return tdm__part_rows(&part);
}
