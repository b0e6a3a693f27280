/* convert.c - dtype conversion of elements on their way into an engine's weights. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Trainers keep F32 or BF16, engines may ask for BF16 or FP8 (E4M3). FP8 is quantized in blocks
 * of 128 x 128 elements with one F32 scale for each block, so a slice of FP8 has a second array
 * of scales. This file decides which conversions are possible. It divides a trainer's slice into
 * rectangles that respect block boundaries. The conversion itself runs on the device
 * (colocate/transfer/copy_op.h).
 *
 * All functions are pure and may be called from any thread. Slices that are passed in have been
 * checked with tdm__layout_check(). */

#include "colocate/weights/convert.h"

#include "colocate/layout/model.h"
#include "colocate/transfer/casts.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

enum tdm_dtype tdm__slice_dtype(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice)
{
    return slice->dtype != 0 ? slice->dtype : tensor->dtype;
}

uint64_t tdm__convert_blocks_count(uint64_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

/* Returns true if the slice is quantized to FP8 on its way from the tensor's dtype. */
static bool is_quantized(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice)
{
    return slice->dtype == TDM_F8_E4M3 && tensor->dtype != TDM_F8_E4M3;
}

uint64_t tdm__slice_scales_bytes(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *slice)
{
    return is_quantized(tensor, slice)
               ? tdm__convert_blocks_count(slice->extent[0]) *
                     tdm__convert_blocks_count(slice->extent[1]) * sizeof(float)
               : 0;
}

/* ---- what is possible ---------------------------------------------------------------- */

/* Returns true if the range from `begin` to `end` of a dimension consists of whole FP8 blocks.
 * `length` is the size of the dimension. */
static bool has_whole_blocks(uint64_t begin, uint64_t end, uint64_t length)
{
    return begin % TDM__FP8_BLOCK == 0 && (end % TDM__FP8_BLOCK == 0 || end == length);
}

/* Checks that a slice that an engine wants in FP8 is a box of a matrix and consists of whole FP8
 * blocks. */
static tdm_status check_blocks(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice)
{
    if (tensor->dims_count != 2 || slice->flat != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "planning the transfer of weights failed: tensor %s: only boxes of "
                         "matrices become %s; it has %" PRIu32
                         " dimensions, the slice is %s. Declare the slice in the trainer's dtype, "
                         "or as a box of 2 dimensions",
                         tensor->name, tdm_dtype_name(TDM_F8_E4M3), tensor->dims_count,
                         slice->flat != 0 ? "flat" : "a box");
    }
    if (tensor->shape[0] > UINT32_MAX || tensor->shape[1] > UINT32_MAX) {
        return tdm__fail(
            TDM_E_LIMIT,
            "planning the transfer of weights failed: tensor %s: %" PRIu64 " rows and %" PRIu64
            " columns, at most %u of each become %s. Declare the slice in the trainer's dtype",
            tensor->name, tensor->shape[0], tensor->shape[1], UINT32_MAX,
            tdm_dtype_name(TDM_F8_E4M3));
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t end = slice->offset[i] + slice->extent[i];

        if (!has_whole_blocks(slice->offset[i], end, tensor->shape[i])) {
            return tdm__fail(
                TDM_E_INVAL,
                "planning the transfer of weights failed: tensor %s: a slice from %" PRIu64
                " to %" PRIu64 " of dimension %" PRIu32 " (%" PRIu64
                ") cuts blocks of %d. Let the slice begin and end at multiples of %d",
                tensor->name, slice->offset[i], end, i, tensor->shape[i], TDM__FP8_BLOCK,
                TDM__FP8_BLOCK);
        }
    }
    return TDM_OK;
}

tdm_status tdm__convert_check(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice)
{
    enum tdm_dtype wanted = tdm__slice_dtype(tensor, slice);
    bool from_float = tensor->dtype == TDM_F32 || tensor->dtype == TDM_BF16;

    if (wanted == tensor->dtype || (tensor->dtype == TDM_F32 && wanted == TDM_BF16)) {
        return TDM_OK;
    }
    return from_float && wanted == TDM_F8_E4M3
               ? check_blocks(tensor, slice)
               : tdm__fail(
                     TDM_E_INVAL,
                     "planning the transfer of weights failed: tensor %s: %s does not become %s. "
                     "Declare the slice in %s, or in a dtype to which it can be converted",
                     tensor->name, tdm_dtype_name(tensor->dtype), tdm_dtype_name(wanted),
                     tdm_dtype_name(tensor->dtype));
}

/* ---- rectangles ---------------------------------------------------------------------- */

/* A half-open range of rows or columns. */
struct range {
    uint64_t begin; /* Index of the first row or column in the range. */
    uint64_t end;   /* Index after the last row or column in the range. */
};

/* A rectangle of a matrix whose elements lie row by row in a slice. */
struct box {
    struct range ranges[2]; /* Rows and columns of the matrix that the rectangle covers. */
    uint64_t offset;        /* Index of the rectangle's first element in the slice, in elements. */
};

/* Limits of the division into rectangles. */
enum {
    BOXES_MAX = 3,  /* The largest number of rectangles of which a flat slice consists. */
    RANGES_MAX = 2, /* The largest number of ranges into which one dimension is cut. */
};

_Static_assert(BOXES_MAX *RANGES_MAX *RANGES_MAX == TDM__CONVERT_RECTANGLES_MAX, "all cut");

/* Lists the rectangles of which a trainer's slice consists and returns their number. A flat slice
 * has up to three: the rest of a row, whole rows, and the beginning of a row. */
static uint32_t list_boxes(const struct tdm_tensor_info *tensor, const struct tdm_slice *held,
                           struct box boxes[BOXES_MAX])
{
    uint64_t columns = tensor->shape[1];
    uint64_t end = held->offset[0] + held->extent[0];
    uint32_t count = 0;

    if (held->flat == 0) {
        boxes[0] = (struct box){
            {{held->offset[0], end}, {held->offset[1], held->offset[1] + held->extent[1]}}, 0};
        return 1;
    }
    for (uint64_t at = held->offset[0]; at < end;) {
        uint64_t row = at / columns;
        uint64_t first = at % columns;
        uint64_t rows = first == 0 ? (end - at) / columns : 0;
        uint64_t row_end = end - at < columns - first ? first + (end - at) : columns;

        boxes[count++] =
            rows > 0 ? (struct box){{{row, row + rows}, {0, columns}}, at - held->offset[0]}
                     : (struct box){{{row, row + 1}, {first, row_end}}, at - held->offset[0]};
        at += rows > 0 ? rows * columns : row_end - first;
    }
    return count;
}

bool tdm__convert_cuts_blocks(const struct tdm_tensor_info *tensor, const struct tdm_slice *held)
{
    struct box boxes[BOXES_MAX];
    uint32_t count = list_boxes(tensor, held, boxes);

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t dim = 0; dim < 2; dim++) {
            const struct range *range = &boxes[i].ranges[dim];

            if (!has_whole_blocks(range->begin, range->end, tensor->shape[dim])) {
                return true;
            }
        }
    }
    return false;
}

/* Limits `range` to the wanted extent and cuts the rest at the end of the FP8 block in which it
 * begins. Returns the number of resulting ranges. */
static uint32_t cut_range(const struct range *range, uint64_t offset, uint64_t extent,
                          struct range ranges[RANGES_MAX])
{
    uint64_t begin = range->begin > offset ? range->begin : offset;
    uint64_t end = range->end < offset + extent ? range->end : offset + extent;
    uint64_t border = tdm__convert_blocks_count(begin) * TDM__FP8_BLOCK;
    uint32_t count = 0;

    if (begin < end && begin < border) {
        ranges[count++] = (struct range){begin, border < end ? border : end};
    }
    if (border < end) {
        ranges[count++] = (struct range){border, end};
    }
    return count;
}

/* Returns the copy for the given rows and columns of `box`. All other fields are those of
 * `like`. */
static struct tdm__rect_copy box_to_rectangle(const struct tdm_slice *wanted, const struct box *box,
                                              const struct range *rows, const struct range *columns,
                                              const struct tdm__rect_copy *like)
{
    bool is_scales = like->conversion == TDM__CONVERT_SCALES;
    uint64_t unit = is_scales ? TDM__FP8_BLOCK : 1;
    uint64_t to_pitch =
        is_scales ? tdm__convert_blocks_count(wanted->extent[1]) : wanted->extent[1];
    uint64_t from_pitch = box->ranges[1].end - box->ranges[1].begin;
    struct tdm__rect_copy copy = *like;

    copy.rows = (uint32_t)(rows->end - rows->begin);
    copy.columns = (uint32_t)(columns->end - columns->begin);
    copy.from_pitch = (uint32_t)from_pitch;
    copy.to_pitch = (uint32_t)to_pitch;
    copy.from_offset = box->offset + (rows->begin - box->ranges[0].begin) * from_pitch +
                       (columns->begin - box->ranges[1].begin);
    copy.to_offset = (rows->begin - wanted->offset[0]) / unit * to_pitch +
                     (columns->begin - wanted->offset[1]) / unit;
    return copy;
}

uint32_t tdm__convert_rectangles(const struct tdm_tensor_info *tensor,
                                 const struct tdm_slice *wanted, const struct tdm_slice *held,
                                 const struct tdm__rect_copy *like,
                                 struct tdm__rect_copy copies[TDM__CONVERT_RECTANGLES_MAX])
{
    struct box boxes[BOXES_MAX];
    uint32_t boxes_count = list_boxes(tensor, held, boxes);
    uint32_t count = 0;

    for (uint32_t i = 0; i < boxes_count; i++) {
        struct range rows[RANGES_MAX];
        struct range columns[RANGES_MAX];
        uint32_t rows_count =
            cut_range(&boxes[i].ranges[0], wanted->offset[0], wanted->extent[0], rows);
        uint32_t columns_count =
            cut_range(&boxes[i].ranges[1], wanted->offset[1], wanted->extent[1], columns);

        for (uint32_t k = 0; k < rows_count * columns_count; k++) {
            copies[count++] = box_to_rectangle(wanted, &boxes[i], &rows[k / columns_count],
                                               &columns[k % columns_count], like);
        }
    }
    return count;
}

struct tdm__copy_op tdm__convert_copy_op(const struct tdm__rect_copy *copy, const void *from,
                                         void *to)
{
    return (struct tdm__copy_op){.from = from,
                                 .to = to,
                                 .rows = copy->rows,
                                 .columns = copy->columns,
                                 .from_pitch = copy->from_pitch,
                                 .to_pitch = copy->to_pitch,
                                 .conversion = copy->conversion,
                                 .from_dtype = copy->from_dtype,
                                 .to_dtype = copy->to_dtype};
}

struct tdm__strided_rows tdm__convert_written_rows(const struct tdm__rect_copy *copy)
{
    const struct tdm__copy_op part = tdm__convert_copy_op(copy, NULL, NULL);

    return tdm__copy_op_rows(&part);
}
