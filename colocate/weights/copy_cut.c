/* copy_cut.c - cuts the copies between nodes that are larger than a round of an exchange. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A copy is cut between its rows, and a plain copy also within a row that is larger than a round
 * alone. Where it is cut depends on its shape, pitches and conversion only, so that equal copies to
 * several engine ranks have equal parts. */

#include "colocate/weights/copy_cut.h"

#include "colocate/layout/model.h"
#include "colocate/weights/convert.h"
#include "colocate/weights/copy_split.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>

/* Returns true if a copy goes to another node. */
static bool crosses(const struct tdm__rect_copy *copy)
{
    return copy->locality == TDM__LOCALITY_OTHER_NODE;
}

/* Returns the greater number, at least 1. */
static uint64_t at_least_one(uint64_t number)
{
    return number > 0 ? number : 1;
}

/* Returns the smaller number. */
static uint64_t min_number(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Returns the next part of a row of a plain copy that fits into a round, and adds its elements to
 * `done`. */
static struct tdm__rect_copy cut_row(const struct tdm__rect_copy *copy, uint64_t round_bytes,
                                     uint64_t *done)
{
    uint64_t columns = round_bytes / tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
    uint64_t row = *done / copy->columns;
    uint64_t begin = *done % copy->columns;
    uint64_t end = min_number(begin + at_least_one(columns), copy->columns);

    *done += end - begin;
    return tdm__copy_split_columns(copy, row, begin, end);
}

/* Returns the next rows of a copy that fit into a round, and adds their number to `done`. FP8 codes
 * are cut between blocks. */
static struct tdm__rect_copy cut_rows(const struct tdm__rect_copy *copy, uint64_t round_bytes,
                                      uint64_t *done)
{
    struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
    uint64_t unit = copy->conversion == TDM__CONVERT_FP8 ? TDM__FP8_BLOCK : 1;
    uint64_t units = at_least_one(round_bytes / (unit * rows.size_bytes));
    uint64_t begin = *done;

    *done = min_number(begin + units * unit, rows.count);
    return tdm__copy_split_rows(copy, begin, *done);
}

/* Returns the next part of a copy that fits into a round, and adds its elements or its rows to
 * `done`. Sets `is_last_out` for the last part. */
static struct tdm__rect_copy cut_copy(const struct tdm__rect_copy *copy, uint64_t round_bytes,
                                      uint64_t *done, bool *is_last_out)
{
    struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
    bool is_plain = copy->conversion == TDM__CONVERT_NONE || copy->conversion == TDM__CONVERT_BF16;
    struct tdm__rect_copy part = *copy;

    if (!crosses(copy)) {
        *is_last_out = true;
    } else if (is_plain && rows.size_bytes > round_bytes) {
        part = cut_row(copy, round_bytes, done);
        *is_last_out = *done == rows.count * copy->columns;
    } else {
        part = cut_rows(copy, round_bytes, done);
        *is_last_out = *done == rows.count;
    }
    return part;
}

/* A growable array of copies. */
struct copy_list {
    struct tdm__rect_copy *items; /* Copies; owned. */
    uint32_t count;               /* Number of copies. */
    uint32_t capacity;            /* Number of copies for which there is room. */
};

/* Appends the parts of a copy to a list. */
static tdm_status add_parts(struct copy_list *list, const struct tdm__rect_copy *copy,
                            uint64_t round_bytes)
{
    uint64_t done = 0;
    bool is_last = false;

    while (!is_last) {
        TDM_TRY(tdm__array_grow((void **)&list->items, &list->capacity, list->count,
                                sizeof(*list->items)));
        TDM_ASSERT(list->items != NULL);
        list->items[list->count++] = cut_copy(copy, round_bytes, &done, &is_last);
    }
    return TDM_OK;
}

/* Appends the parts of all copies of an image to a list, and sets which of them each chunk has. */
static tdm_status cut_chunks(struct tdm__transfer_plan_image *image, uint64_t round_bytes,
                             struct copy_list *list)
{
    for (uint32_t chunk = 0; chunk < image->chunks_count; chunk++) {
        struct tdm__transfer_plan_chunk *about = &image->chunks[chunk];
        uint32_t first = list->count;

        for (uint32_t i = 0; i < about->copies_count; i++) {
            TDM_TRY(add_parts(list, &image->copies[about->copies_first + i], round_bytes));
        }
        about->copies_first = first;
        about->copies_count = list->count - first;
    }
    return TDM_OK;
}

tdm_status tdm__copy_cut(struct tdm__transfer_plan *transfer_plan, uint64_t round_bytes)
{
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        struct tdm__transfer_plan_image *image = &transfer_plan->images[i];
        struct copy_list list = {.items = NULL};
        tdm_status status = cut_chunks(image, round_bytes, &list);

        free(image->copies);
        image->copies = list.items;
        image->copies_count = list.count;
        TDM_TRY(status);
    }
    return TDM_OK;
}
