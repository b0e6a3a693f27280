/* casts.c - casts on the way: float32 to bfloat16, and to FP8 by blocks with a scale each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/transfer/casts.h"

#include "runtime/assert.h"

#include <string.h>

enum {
    E4M3_NAN = 0x7f,
    E4M3_MAX_BITS = 0x43e00000,   /* of 448 as a float */
    NORMAL_MIN_BITS = 0x3c800000, /* of 2^-6 */
    INFINITY_BITS = 0x7f800000
};

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

/* Masks and no branches, so that compilers make vectors of it. */
static inline __attribute__((always_inline)) uint16_t upper_half(uint32_t bits)
{
    uint32_t is_nan = -(uint32_t)((bits & 0x7fffffff) > INFINITY_BITS);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40; /* the lower half may have held all that made it a NaN */

    return (uint16_t)((rounded & ~is_nan) | (quiet & is_nan));
}

uint16_t tdm__bf16_from_float(float value)
{
    return upper_half(bits_of(value));
}

static inline __attribute__((always_inline)) void
cast_all(uint16_t *restrict to, const uint8_t *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
        to[i] = upper_half(bits);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void cast_avx2(uint16_t *restrict to,
                                                      const uint8_t *restrict from, size_t count)
{
    cast_all(to, from, count);
}

void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count)
{
    if (__builtin_cpu_supports("avx2")) {
        cast_avx2(to, from, count);
    } else {
        cast_all(to, from, count);
    }
}
#else
void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count)
{
    cast_all(to, from, count);
}
#endif

float tdm__bf16_to_float(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

static inline __attribute__((always_inline)) uint8_t encode(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t size = bits & 0x7fffffff;
    uint32_t held = size < E4M3_MAX_BITS ? size : E4M3_MAX_BITS;
    /* 3 of 23 bits of the fraction stay; what carries over is the next power of two */
    uint32_t normal = ((held + 0x7ffff + (held >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    /* below the normal numbers: so many times 2^-9, which is the last bit of 2^14 and more */
    uint32_t small = bits_of(float_of(held) + 0x1p14f) - bits_of(0x1p14f);
    uint32_t is_small = -(uint32_t)(held < NORMAL_MIN_BITS);
    uint32_t is_nan = -(uint32_t)(size > INFINITY_BITS);
    uint32_t code = (small & is_small) | (normal & ~is_small);

    return (uint8_t)((bits >> 24 & 0x80) | (code & ~is_nan) | (E4M3_NAN & is_nan));
}

uint8_t tdm__e4m3_from_float(float value)
{
    return encode(value);
}

/* ---- blocks ----------------------------------------------------------------------------- */

/* The part of a matrix that is one block. */
struct block {
    const void *from;         /* its first element, and so on */
    uint8_t *to;              /* NULL: only the scale is wanted */
    float *scale;             /* NULL: it stands there already */
    const float *known_scale; /* the same as it is read */
    uint32_t rows;
    uint32_t columns;
};

static inline __attribute__((always_inline)) void load_row(const struct tdm__strided_matrix *from,
                                                           const struct block *block, uint32_t row,
                                                           float values[TDM__FP8_BLOCK])
{
    size_t first = (size_t)row * from->pitch;
    const uint16_t *halves = (const uint16_t *)block->from + first;
    uint32_t count = block->columns;

    if (from->dtype == TDM_F32) {
        memcpy(values, (const float *)block->from + first, count * sizeof(*values));
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        values[i] = float_of((uint32_t)halves[i] << 16);
    }
}

/* Sizes of floats are ordered as their bits are; a NaN has none. */
static inline __attribute__((always_inline)) uint32_t largest_bits(const float *values,
                                                                   uint32_t count, uint32_t largest)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = bits_of(values[i]) & 0x7fffffff;

        size &= -(uint32_t)(size <= INFINITY_BITS);
        largest = size > largest ? size : largest;
    }
    return largest;
}

static inline __attribute__((always_inline)) void
store_row(uint8_t *restrict codes, const float *restrict values, uint32_t count, float inverse)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = encode(values[i] * inverse);
    }
}

static inline __attribute__((always_inline)) float
find_scale(const struct tdm__strided_matrix *from, const struct block *block)
{
    uint32_t largest = bits_of(1e-10f);
    float values[TDM__FP8_BLOCK];

    for (uint32_t row = 0; row < block->rows; row++) {
        load_row(from, block, row, values);
        largest = largest_bits(values, block->columns, largest);
    }
    return float_of(largest) / 448.0f;
}

static inline __attribute__((always_inline)) void
quantize_block(const struct tdm__strided_matrix *from, uint32_t to_pitch, const struct block *block)
{
    float values[TDM__FP8_BLOCK];
    float inverse;

    if (block->scale != NULL) {
        *block->scale = find_scale(from, block);
    }
    if (block->to == NULL) {
        return;
    }
    inverse = 1.0f / *block->known_scale;
    for (uint32_t row = 0; row < block->rows; row++) {
        load_row(from, block, row, values);
        store_row(block->to + (size_t)row * to_pitch, values, block->columns, inverse);
    }
}

typedef void quantize_fn(const struct tdm__strided_matrix *from, uint32_t to_pitch,
                         const struct block *block);

static void quantize_generic(const struct tdm__strided_matrix *from, uint32_t to_pitch,
                             const struct block *block)
{
    quantize_block(from, to_pitch, block);
}

/* The same code in wider vectors; none of them rounds differently. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
quantize_avx2(const struct tdm__strided_matrix *from, uint32_t to_pitch, const struct block *block)
{
    quantize_block(from, to_pitch, block);
}

static quantize_fn *select_quantize(void)
{
    return __builtin_cpu_supports("avx2") ? quantize_avx2 : quantize_generic;
}
#else
static quantize_fn *select_quantize(void)
{
    return quantize_generic;
}
#endif

static uint32_t block_extent(uint32_t elements)
{
    return elements < TDM__FP8_BLOCK ? elements : TDM__FP8_BLOCK;
}

/* Block by block; `known_scale` are the scales as they are read, which may be those written. */
static void quantize_blocks(const struct tdm__strided_matrix *from,
                            const struct tdm__fp8_matrix *to, const float *known_scale)
{
    size_t element_bytes = tdm_dtype_bytes(from->dtype);
    quantize_fn *quantize = select_quantize();

    TDM_ASSERT(from->dtype == TDM_F32 || from->dtype == TDM_BF16);
    for (uint32_t row = 0; row < from->rows; row += TDM__FP8_BLOCK) {
        for (uint32_t column = 0; column < from->columns; column += TDM__FP8_BLOCK) {
            size_t first = (size_t)row * from->pitch + column;
            size_t scale =
                (size_t)(row / TDM__FP8_BLOCK) * to->scales_pitch + column / TDM__FP8_BLOCK;
            const struct block block = {
                .from = (const uint8_t *)from->data + first * element_bytes,
                .to = to->data == NULL ? NULL : to->data + (size_t)row * to->pitch + column,
                .scale = to->scales == NULL ? NULL : to->scales + scale,
                .known_scale = known_scale + scale,
                .rows = block_extent(from->rows - row),
                .columns = block_extent(from->columns - column),
            };

            quantize(from, to->pitch, &block);
        }
    }
}

void tdm__fp8_quantize(const struct tdm__strided_matrix *from, const struct tdm__fp8_matrix *to)
{
    quantize_blocks(from, to, to->scales);
}

void tdm__fp8_scales(const struct tdm__strided_matrix *from, float *scales, uint32_t pitch)
{
    const struct tdm__fp8_matrix to = {.scales = scales, .scales_pitch = pitch};

    quantize_blocks(from, &to, scales);
}

void tdm__fp8_quantize_by_scales(const struct tdm__strided_matrix *from,
                                 const struct tdm__fp8_scales *scales, uint8_t *to,
                                 uint32_t to_pitch)
{
    const struct tdm__fp8_matrix codes = {
        .data = to, .pitch = to_pitch, .scales_pitch = scales->pitch};

    quantize_blocks(from, &codes, scales->data);
}
