/* rect_copy.c - one step of a plan: a rectangle that is copied from one rank's tensor to
 * another's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/transfer/rect_copy.h"

uint64_t tdm__rect_copy_elements(const struct tdm__rect_copy *copy)
{
    return (uint64_t)copy->rows * copy->columns;
}

uint64_t tdm__rect_copy_bytes(const struct tdm__rect_copy *copy)
{
    return tdm__rect_copy_elements(copy) * tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
}

void tdm__rect_copy_flatten(struct tdm__rect_copy *copy)
{
    if (copy->rows > 1 && copy->from_pitch == copy->columns && copy->to_pitch == copy->columns &&
        tdm__rect_copy_elements(copy) <= UINT32_MAX) {
        copy->columns *= copy->rows;
        copy->rows = 1;
    }
    if (copy->rows == 1) {
        copy->from_pitch = copy->columns;
        copy->to_pitch = copy->columns;
    }
}

/* Returns next - last, or 0 if `next` is not larger than `last`. */
static uint64_t distance_behind(uint64_t last, uint64_t next)
{
    return next > last && next - last <= UINT32_MAX ? next - last : 0;
}

/* Extends the rectangle `last` by `next` as columns to its right, if they fit. Returns true if they
 * did. */
static bool rect_merge_columns(struct tdm__rect_copy *last, const struct tdm__rect_copy *next,
                               uint64_t from, uint64_t to)
{
    bool same_pitches = last->from_pitch == next->from_pitch && last->to_pitch == next->to_pitch;

    if (last->rows != next->rows || from != last->columns || to != last->columns ||
        (last->rows > 1 && !same_pitches) || (uint64_t)last->columns + next->columns > UINT32_MAX) {
        return false;
    }
    last->columns += next->columns;
    tdm__rect_copy_flatten(last);
    return true;
}

/* Extends the rectangle `last` by `next` as rows below it, if they fit. Returns true if they did.
 * If `last` has one row, the distance to the next row becomes its pitch. */
static bool rect_merge_rows(struct tdm__rect_copy *last, const struct tdm__rect_copy *next,
                            uint64_t from, uint64_t to)
{
    uint64_t from_pitch = last->rows == 1 ? from : last->from_pitch;
    uint64_t to_pitch = last->rows == 1 ? to : last->to_pitch;

    if (last->columns != next->columns || from != from_pitch * last->rows ||
        to != to_pitch * last->rows || from_pitch < last->columns || to_pitch < last->columns) {
        return false;
    }
    if (next->rows > 1 && (next->from_pitch != from_pitch || next->to_pitch != to_pitch)) {
        return false;
    }
    last->rows += next->rows;
    last->from_pitch = (uint32_t)from_pitch;
    last->to_pitch = (uint32_t)to_pitch;
    tdm__rect_copy_flatten(last);
    return true;
}

bool tdm__rect_copy_merge(struct tdm__rect_copy *last, const struct tdm__rect_copy *next)
{
    uint64_t from = distance_behind(last->from_offset, next->from_offset);
    uint64_t to = distance_behind(last->to_offset, next->to_offset);

    if (from == 0 || to == 0 || last->from_rank != next->from_rank ||
        last->from_tensor != next->from_tensor || last->to_tensor != next->to_tensor ||
        last->conversion != next->conversion || last->conversion == TDM__CONVERT_FP8) {
        return false;
    }
    return rect_merge_columns(last, next, from, to) || rect_merge_rows(last, next, from, to);
}
