/* part.c - a rectangle on its way, with its ends: copied, converted and summed on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/part.h"

#include "colocate/plan/fp8.h"
#include "colocate/plan/model.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

enum { TILE_BLOCKS = 64 }; /* in a row, of which scales are kept while codes are written */

static uint64_t blocks_of(uint64_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

struct tdm__part tdm__part_of_rows(const struct tdm__rows *rows, const void *from, void *to)
{
    return (struct tdm__part){.from = from,
                              .to = to,
                              .rows = rows->count,
                              .columns = rows->size_bytes,
                              .from_pitch = rows->from_pitch,
                              .to_pitch = rows->to_pitch,
                              .convert = TDM__CONVERT_NONE,
                              .from_dtype = TDM_U8,
                              .to_dtype = TDM_U8};
}

struct tdm__rows tdm__part_rows(const struct tdm__part *part)
{
    bool is_scales = part->convert == TDM__CONVERT_SCALES;
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)part->to_dtype);
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)part->from_dtype);
    uint64_t rows = is_scales ? blocks_of(part->rows) : part->rows;
    uint64_t columns = is_scales ? blocks_of(part->columns) : part->columns;

    return (struct tdm__rows){.count = rows,
                              .size_bytes = columns * element_bytes,
                              .from_pitch = part->from_pitch * from_bytes,
                              .to_pitch = part->to_pitch * element_bytes};
}

/* ---- conversions ------------------------------------------------------------------------ */

static uint32_t smaller(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

/* The codes alone: the scales have a part of their own, maybe in another window. */
static void write_codes(const struct tdm__matrix *matrix, uint8_t *to, uint32_t to_pitch)
{
    const uint8_t *from = matrix->data;
    size_t from_bytes = tdm_dtype_bytes(matrix->dtype);
    const uint32_t tile_columns = TILE_BLOCKS * TDM__FP8_BLOCK;
    float scales[TILE_BLOCKS];

    for (uint32_t row = 0; row < matrix->rows; row += TDM__FP8_BLOCK) {
        for (uint32_t column = 0; column < matrix->columns; column += tile_columns) {
            size_t first = (size_t)row * matrix->pitch + column;
            const struct tdm__matrix tile = {from + first * from_bytes, matrix->dtype,
                                             smaller(matrix->rows - row, TDM__FP8_BLOCK),
                                             smaller(matrix->columns - column, tile_columns),
                                             matrix->pitch};
            const struct tdm__fp8_matrix codes = {to + (size_t)row * to_pitch + column, scales,
                                                  to_pitch, TILE_BLOCKS};

            tdm__fp8_quantize(&tile, &codes);
        }
    }
}

static void write_halves(const struct tdm__matrix *matrix, uint16_t *to, uint32_t to_pitch)
{
    const uint8_t *from = matrix->data;

    for (uint32_t row = 0; row < matrix->rows; row++) {
        tdm__bf16_cast(to + (size_t)row * to_pitch,
                       from + (size_t)row * matrix->pitch * sizeof(float), matrix->columns);
    }
}

static void convert(const struct tdm__part *part, void *to, uint32_t to_pitch)
{
    const struct tdm__matrix matrix = {part->from, (enum tdm_dtype)part->from_dtype,
                                       (uint32_t)part->rows, (uint32_t)part->columns,
                                       (uint32_t)part->from_pitch};
    const struct tdm__fp8_scales scales = {part->scales, part->scales_pitch};

    switch ((enum tdm__convert)part->convert) {
    case TDM__CONVERT_NONE:
        break; /* copied while it is summed */
    case TDM__CONVERT_BF16:
        write_halves(&matrix, to, to_pitch);
        break;
    case TDM__CONVERT_FP8:
        if (part->scales != NULL) {
            tdm__fp8_encode(&matrix, &scales, to, to_pitch);
        } else {
            write_codes(&matrix, to, to_pitch);
        }
        break;
    case TDM__CONVERT_SCALES:
        tdm__fp8_scales(&matrix, to, to_pitch);
        break;
    }
}

/* ---- running ---------------------------------------------------------------------------- */

static void write_zeros(const struct tdm__rows *rows, void *to)
{
    for (size_t i = 0; i < rows->count; i++) {
        memset((char *)to + i * rows->to_pitch, 0, rows->size_bytes);
    }
}

static uint64_t write_and_sum(const struct tdm__part *part, void *to, uint64_t to_pitch)
{
    struct tdm__part part_there = *part;
    struct tdm__rows rows;

    part_there.to_pitch = to_pitch;
    rows = tdm__part_rows(&part_there);
    if (part->from == NULL) {
        write_zeros(&rows, to);
    } else {
        convert(part, to, (uint32_t)to_pitch);
    }
    rows.from_pitch = rows.to_pitch;
    return tdm__sum_rows(&rows, to);
}

/* Packed: a sum does not depend on where the rows lie. */
static tdm_status sum_unwritten(const struct tdm__part *part, uint64_t *sum_out)
{
    const struct tdm__rows rows = tdm__part_rows(part);
    void *scratch = malloc(rows.count * rows.size_bytes + 1);

    if (scratch == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu bytes to take a sum of",
                         rows.count * rows.size_bytes);
    }
    *sum_out = write_and_sum(part, scratch,
                             rows.size_bytes / tdm_dtype_bytes((enum tdm_dtype)part->to_dtype));
    free(scratch);
    return TDM_OK;
}

tdm_status tdm__part_run(const struct tdm__part *part, uint64_t *sum_out)
{
    const struct tdm__rows rows = tdm__part_rows(part);

    if (part->from != NULL && part->convert == TDM__CONVERT_NONE) {
        *sum_out = part->to == NULL ? tdm__sum_rows(&rows, part->from)
                                    : tdm__sum_copy(&rows, part->from, part->to);
        return TDM_OK;
    }
    if (part->to == NULL) {
        return sum_unwritten(part, sum_out);
    }
    *sum_out = write_and_sum(part, part->to, part->to_pitch);
    return TDM_OK;
}
