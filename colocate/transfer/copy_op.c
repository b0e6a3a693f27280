/* copy_op.c - executes copy operations on the host: copies, converts and checksums. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This is the reference for the devices: the CUDA kernels must give the same bytes and checksums.
 * A copy without conversion is checksummed while it is copied; a conversion is written first and
 * read again for the checksum. Conversions to FP8 without given scales compute them per block and
 * discard them, because another operation writes the scales. There is no state; any thread may
 * enter. */

#include "colocate/transfer/copy_op.h"

#include "colocate/transfer/casts.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Number of FP8 blocks that are quantized at once; their scales are kept on the stack meanwhile. */
enum { TILE_BLOCKS = 64 };

/* Returns how many FP8 blocks cover a row or column of `elements` elements. */
static uint64_t fp8_blocks_count(uint64_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

struct tdm__copy_op tdm__copy_op_of_rows(const struct tdm__strided_rows *rows, const void *from,
                                         void *to)
{
    return (struct tdm__copy_op){.from = from,
                                 .to = to,
                                 .rows = rows->count,
                                 .columns = rows->size_bytes,
                                 .from_pitch = rows->from_pitch,
                                 .to_pitch = rows->to_pitch,
                                 .conversion = TDM__CONVERT_NONE,
                                 .from_dtype = TDM_U8,
                                 .to_dtype = TDM_U8};
}

struct tdm__strided_rows tdm__copy_op_rows(const struct tdm__copy_op *copy_op)
{
    bool is_scales = copy_op->conversion == TDM__CONVERT_SCALES;
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)copy_op->to_dtype);
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)copy_op->from_dtype);
    uint64_t rows = is_scales ? fp8_blocks_count(copy_op->rows) : copy_op->rows;
    uint64_t columns = is_scales ? fp8_blocks_count(copy_op->columns) : copy_op->columns;

    return (struct tdm__strided_rows){.count = rows,
                                      .size_bytes = columns * element_bytes,
                                      .from_pitch = copy_op->from_pitch * from_bytes,
                                      .to_pitch = copy_op->to_pitch * element_bytes};
}

/* ---- conversions ------------------------------------------------------------------------ */

/* Returns the smaller of two numbers. */
static uint32_t min_number(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

/* Quantizes a matrix to FP8 and discards the scales, which another copy operation writes. */
static void write_fp8_codes(const struct tdm__strided_matrix *matrix, uint8_t *to,
                            uint32_t to_pitch)
{
    const uint8_t *from = matrix->data;
    size_t from_bytes = tdm_dtype_bytes(matrix->dtype);
    const uint32_t tile_columns = TILE_BLOCKS * TDM__FP8_BLOCK;
    float scales[TILE_BLOCKS];

    for (uint32_t row = 0; row < matrix->rows; row += TDM__FP8_BLOCK) {
        for (uint32_t column = 0; column < matrix->columns; column += tile_columns) {
            size_t first = (size_t)row * matrix->pitch + column;
            const struct tdm__strided_matrix tile = {
                from + first * from_bytes, matrix->dtype,
                min_number(matrix->rows - row, TDM__FP8_BLOCK),
                min_number(matrix->columns - column, tile_columns), matrix->pitch};
            const struct tdm__fp8_matrix codes = {to + (size_t)row * to_pitch + column, scales,
                                                  to_pitch, TILE_BLOCKS};

            tdm__fp8_quantize(&tile, &codes);
        }
    }
}

/* Casts a float32 matrix to bfloat16. */
static void write_bf16(const struct tdm__strided_matrix *matrix, uint16_t *to, uint32_t to_pitch)
{
    const uint8_t *from = matrix->data;

    for (uint32_t row = 0; row < matrix->rows; row++) {
        tdm__bf16_from_floats(to + (size_t)row * to_pitch,
                              from + (size_t)row * matrix->pitch * sizeof(float), matrix->columns);
    }
}

/* Converts the elements of a copy operation and writes them to `to`. */
static void convert(const struct tdm__copy_op *copy_op, void *to, uint32_t to_pitch)
{
    const struct tdm__strided_matrix matrix = {copy_op->from, (enum tdm_dtype)copy_op->from_dtype,
                                               (uint32_t)copy_op->rows, (uint32_t)copy_op->columns,
                                               (uint32_t)copy_op->from_pitch};
    const struct tdm__fp8_scales scales = {copy_op->scales, copy_op->scales_pitch};

    switch ((enum tdm__conversion)copy_op->conversion) {
    case TDM__CONVERT_NONE:
        break; /* Without conversion, the bytes are copied while the checksum is computed below. */
    case TDM__CONVERT_BF16:
        write_bf16(&matrix, to, to_pitch);
        break;
    case TDM__CONVERT_FP8:
        if (copy_op->scales != NULL) {
            tdm__fp8_quantize_by_scales(&matrix, &scales, to, to_pitch);
        } else {
            write_fp8_codes(&matrix, to, to_pitch);
        }
        break;
    case TDM__CONVERT_SCALES:
        tdm__fp8_scales(&matrix, to, to_pitch);
        break;
    }
}

/* ---- execution ---------------------------------------------------------------------------- */

/* Writes zeros to all rows at `to`. */
static void write_zeros(const struct tdm__strided_rows *rows, void *to)
{
    for (size_t i = 0; i < rows->count; i++) {
        memset((char *)to + i * rows->to_pitch, 0, rows->size_bytes);
    }
}

/* Executes a copy operation with the destination `to` and returns the checksum of what it
 * writes. */
static uint64_t write_with_checksum(const struct tdm__copy_op *copy_op, void *to, uint64_t to_pitch)
{
    struct tdm__copy_op copy_op_there = *copy_op;
    struct tdm__strided_rows rows;

    copy_op_there.to_pitch = to_pitch;
    rows = tdm__copy_op_rows(&copy_op_there);
    if (copy_op->from == NULL) {
        write_zeros(&rows, to);
    } else {
        convert(copy_op, to, (uint32_t)to_pitch);
    }
    rows.from_pitch = rows.to_pitch;
    return tdm__rect_checksum(&rows, to);
}

/* Computes the checksum of what a copy operation would write, in scratch memory. The rows are
 * packed there, because the checksum does not depend on their pitch. */
static tdm_status checksum_without_write(const struct tdm__copy_op *copy_op, uint64_t *sum_out)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(copy_op);
    void *scratch = malloc(rows.count * rows.size_bytes + 1);

    if (scratch == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu bytes to take a sum of", rows.count * rows.size_bytes);
    }
    *sum_out = write_with_checksum(
        copy_op, scratch, rows.size_bytes / tdm_dtype_bytes((enum tdm_dtype)copy_op->to_dtype));
    free(scratch);
    return TDM_OK;
}

tdm_status tdm__copy_op_execute(const struct tdm__copy_op *copy_op, uint64_t *sum_out)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(copy_op);

    if (copy_op->from != NULL && copy_op->conversion == TDM__CONVERT_NONE) {
        *sum_out = copy_op->to == NULL ? tdm__rect_checksum(&rows, copy_op->from)
                                       : tdm__rect_checksum_copy(&rows, copy_op->from, copy_op->to);
        return TDM_OK;
    }
    if (copy_op->to == NULL) {
        return checksum_without_write(copy_op, sum_out);
    }
    *sum_out = write_with_checksum(copy_op, copy_op->to, copy_op->to_pitch);
    return TDM_OK;
}
