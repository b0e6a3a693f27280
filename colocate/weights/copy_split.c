/* copy_split.c - divides the copy of a tensor slice at the boundaries of chunks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/copy_split.h"

#include "colocate/layout/model.h"

#include <stdbool.h>

uint64_t tdm__copy_split_unit(const struct tdm_slice *slice, enum tdm__conversion conversion,
                              enum tdm_dtype dtype)
{
    uint64_t columns = slice->extent[1];

    switch (conversion) {
    case TDM__CONVERT_FP8:
        return TDM__FP8_BLOCK * columns;
    case TDM__CONVERT_SCALES:
        return (columns + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK * sizeof(float);
    case TDM__CONVERT_NONE:
    case TDM__CONVERT_BF16:
        break;
    }
    return tdm_dtype_bytes(dtype);
}

/* Returns how many source rows one destination row covers. A row of FP8 scales covers 128 rows of
 * elements. */
static uint32_t rows_per_unit(const struct tdm__rect_copy *copy)
{
    return copy->conversion == TDM__CONVERT_SCALES ? TDM__FP8_BLOCK : 1;
}

/* Returns true if the copy writes elements, and false if it writes FP8 blocks or scales. */
static bool copy_writes_elements(const struct tdm__rect_copy *copy)
{
    return copy->conversion == TDM__CONVERT_NONE || copy->conversion == TDM__CONVERT_BF16;
}

struct tdm__rect_copy tdm__copy_split_rows(const struct tdm__rect_copy *copy, uint64_t first,
                                           uint64_t end)
{
    uint64_t each = rows_per_unit(copy);
    uint64_t rows_end = end * each < copy->rows ? end * each : copy->rows;
    struct tdm__rect_copy piece = *copy;

    piece.from_offset += first * each * copy->from_pitch;
    piece.to_offset += first * copy->to_pitch;
    piece.rows = (uint32_t)(rows_end - first * each);
    if (copy_writes_elements(copy)) {
        tdm__rect_copy_flatten(&piece);
    }
    return piece;
}

struct tdm__rect_copy tdm__copy_split_columns(const struct tdm__rect_copy *copy, uint64_t row,
                                              uint64_t first, uint64_t end)
{
    struct tdm__rect_copy piece = tdm__copy_split_rows(copy, row, row + 1);

    piece.from_offset += first;
    piece.to_offset += first;
    piece.columns = (uint32_t)(end - first);
    tdm__rect_copy_flatten(&piece);
    return piece;
}

/* A position among the elements that a rectangle writes. */
struct split_position {
    uint64_t row; /* Index of the row in the written rectangle. */
    /* Index of the column in the written rectangle; 0 at the beginning of a row. */
    uint64_t column;
};

/* Returns the position of the first written element whose index in the slice is `at` or more. */
static struct split_position find_split_position(const struct tdm__rect_copy *copy, uint64_t at)
{
    /* Elements in a written row. A row of FP8 scales is never divided, so its value is not used. */
    uint64_t columns = copy->columns;
    uint64_t rows = (copy->rows + rows_per_unit(copy) - 1) / rows_per_unit(copy);
    uint64_t distance = at > copy->to_offset ? at - copy->to_offset : 0;
    struct split_position place = {distance / copy->to_pitch, distance % copy->to_pitch};

    if (!copy_writes_elements(copy)) {
        place.row += place.column > 0 ? 1 : 0;
        place.column = 0;
    } else if (place.column >= columns) {
        place.row++;
        place.column = 0;
    }
    return place.row < rows ? place : (struct split_position){rows, 0};
}

uint32_t tdm__copy_split(const struct tdm__rect_copy *copy, uint64_t begin, uint64_t end,
                         struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX])
{
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
    struct split_position first = find_split_position(copy, begin / element_bytes);
    struct split_position last = find_split_position(copy, end / element_bytes);
    uint32_t count = 0;

    if (first.column > 0) {
        uint64_t stop = first.row == last.row ? last.column : copy->columns;

        if (stop > first.column) {
            pieces[count++] = tdm__copy_split_columns(copy, first.row, first.column, stop);
        }
        if (first.row == last.row) {
            return count;
        }
        first.row++;
    }
    if (first.row < last.row) {
        pieces[count++] = tdm__copy_split_rows(copy, first.row, last.row);
    }
    if (last.column > 0) {
        pieces[count++] = tdm__copy_split_columns(copy, last.row, 0, last.column);
    }
    return count;
}
