/* convert.c - elements that become another type on their way into an engine's weights. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/convert.h"

#include "colocate/plan/fp8.h"
#include "colocate/plan/model.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

enum { TILE_BLOCKS = 64 }; /* in a row, of which scales are kept while codes are written */

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

struct tdm__rows tdm__convert_rows(const struct tdm__copy *copy)
{
    bool is_scales = copy->convert == TDM__CONVERT_SCALES;
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
    uint64_t rows = is_scales ? blocks_of(copy->rows) : copy->rows;
    uint64_t columns = is_scales ? blocks_of(copy->columns) : copy->columns;

    return (struct tdm__rows){.count = rows,
                              .size_bytes = columns * element_bytes,
                              .from_pitch = copy->from_pitch * from_bytes,
                              .to_pitch = copy->to_pitch * element_bytes};
}

/* ---- running ---------------------------------------------------------------------------- */

static uint32_t smaller(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

/* The codes alone: the scales have a copy of their own, maybe in another window. */
static void write_codes(const struct tdm__copy *copy, const uint8_t *from, uint8_t *to)
{
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
    const uint32_t tile_columns = TILE_BLOCKS * TDM__FP8_BLOCK;
    float scales[TILE_BLOCKS];

    for (uint32_t row = 0; row < copy->rows; row += TDM__FP8_BLOCK) {
        for (uint32_t column = 0; column < copy->columns; column += tile_columns) {
            size_t first = (size_t)row * copy->from_pitch + column;
            const struct tdm__matrix tile = {
                from + first * from_bytes, (enum tdm_dtype)copy->from_dtype,
                smaller(copy->rows - row, TDM__FP8_BLOCK),
                smaller(copy->columns - column, tile_columns), copy->from_pitch};
            const struct tdm__fp8_matrix codes = {to + (size_t)row * copy->to_pitch + column,
                                                  scales, copy->to_pitch, TILE_BLOCKS};

            tdm__fp8_quantize(&tile, &codes);
        }
    }
}

static void write_halves(const struct tdm__copy *copy, const uint8_t *from, uint16_t *to)
{
    for (uint32_t row = 0; row < copy->rows; row++) {
        tdm__bf16_cast(to + (size_t)row * copy->to_pitch,
                       from + (size_t)row * copy->from_pitch * sizeof(float), copy->columns);
    }
}

static void convert(const struct tdm__copy *copy, const void *from, void *to)
{
    const struct tdm__matrix matrix = {from, (enum tdm_dtype)copy->from_dtype, copy->rows,
                                       copy->columns, copy->from_pitch};

    switch ((enum tdm__convert)copy->convert) {
    case TDM__CONVERT_NONE:
        break; /* copied while it is summed */
    case TDM__CONVERT_BF16:
        write_halves(copy, from, to);
        break;
    case TDM__CONVERT_FP8:
        write_codes(copy, from, to);
        break;
    case TDM__CONVERT_SCALES:
        tdm__fp8_scales(&matrix, to, copy->to_pitch);
        break;
    }
}

/* Packed: a sum does not depend on where the rows lie. */
static uint64_t sum_converted(const struct tdm__copy *copy, const void *from)
{
    struct tdm__rows rows = tdm__convert_rows(copy);
    void *scratch = malloc(rows.count * rows.size_bytes);
    struct tdm__copy packed = *copy;
    uint64_t sum;

    if (scratch == NULL) {
        return 0;
    }
    rows.from_pitch = rows.size_bytes;
    packed.to_pitch =
        (uint32_t)(rows.size_bytes / tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype));
    convert(&packed, from, scratch);
    sum = tdm__sum_rows(&rows, scratch);
    free(scratch);
    return sum;
}

uint64_t tdm__convert_copy(const struct tdm__copy *copy, const void *from, void *to)
{
    struct tdm__rows rows = tdm__convert_rows(copy);

    if (copy->convert == TDM__CONVERT_NONE) {
        return to == NULL ? tdm__sum_rows(&rows, from) : tdm__sum_copy(&rows, from, to);
    }
    if (to == NULL) {
        return sum_converted(copy, from);
    }
    convert(copy, from, to);
    rows.from_pitch = rows.to_pitch;
    return tdm__sum_rows(&rows, to);
}
