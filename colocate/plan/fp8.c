/* fp8.c - casts on the way: float32 to bfloat16, and to FP8 by blocks with a scale each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/fp8.h"

#include "colocate/plan/model.h"
#include "runtime/assert.h"

#include <math.h>
#include <string.h>

enum { E4M3_MAX = 448, E4M3_NAN = 0x7f };

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

uint16_t tdm__bf16_of(float value)
{
    uint32_t bits = bits_of(value);

    if (isnan(value)) {
        return (uint16_t)(bits >> 16 | 0x40); /* quiet: the lower half may have held it all */
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float tdm__bf16_value(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint8_t tdm__e4m3_of(float value)
{
    uint32_t bits = bits_of(value);
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    float size = float_of(bits & 0x7fffffff);

    if (isnan(value)) {
        return sign | E4M3_NAN;
    }
    if (size > E4M3_MAX) {
        size = E4M3_MAX;
    }
    if (size < 0x1p-6f) { /* below the normal numbers: so many times 2^-9 */
        return sign | (uint8_t)rintf(size * 0x1p9f);
    }
    bits = bits_of(size);
    bits += 0x7ffff + (bits >> 20 & 1); /* 3 of 23 bits stay; what carries is the next power */
    return sign | (uint8_t)((bits >> 20) - ((127 - 7) << 3));
}

static float element(const struct tdm__matrix *matrix, uint32_t row, uint32_t column)
{
    size_t index = (size_t)row * matrix->pitch + column;

    return matrix->dtype == TDM_F32 ? ((const float *)matrix->data)[index]
                                    : tdm__bf16_value(((const uint16_t *)matrix->data)[index]);
}

/* The part of a matrix that is one block. */
struct block {
    uint32_t row;
    uint32_t row_end;
    uint32_t column;
    uint32_t column_end;
};

static float scale_of(const struct tdm__matrix *from, const struct block *block)
{
    float largest = 1e-10f;

    for (uint32_t row = block->row; row < block->row_end; row++) {
        for (uint32_t column = block->column; column < block->column_end; column++) {
            largest = fmaxf(largest, fabsf(element(from, row, column)));
        }
    }
    return largest / (float)E4M3_MAX;
}

static void quantize_block(const struct tdm__matrix *from, const struct tdm__fp8_matrix *to,
                           const struct block *block)
{
    float scale = scale_of(from, block);
    float inverse = 1.0f / scale;

    to->scales[(size_t)(block->row / TDM__FP8_BLOCK) * to->scales_pitch +
               block->column / TDM__FP8_BLOCK] = scale;
    for (uint32_t row = block->row; row < block->row_end; row++) {
        for (uint32_t column = block->column; column < block->column_end; column++) {
            to->data[(size_t)row * to->pitch + column] =
                tdm__e4m3_of(element(from, row, column) * inverse);
        }
    }
}

static uint32_t block_end(uint32_t begin, uint32_t size)
{
    return size - begin < TDM__FP8_BLOCK ? size : begin + TDM__FP8_BLOCK;
}

void tdm__fp8_quantize(const struct tdm__matrix *from, const struct tdm__fp8_matrix *to)
{
    TDM_ASSERT(from->dtype == TDM_F32 || from->dtype == TDM_BF16);
    for (uint32_t row = 0; row < from->rows; row += TDM__FP8_BLOCK) {
        for (uint32_t column = 0; column < from->columns; column += TDM__FP8_BLOCK) {
            const struct block block = {row, block_end(row, from->rows), column,
                                        block_end(column, from->columns)};

            quantize_block(from, to, &block);
        }
    }
}
