/* casts.c - casts of weights: float32 to bfloat16, and to FP8 in blocks that have a scale each. */
/* SPDX-License-Identifier: Apache-2.0 */

/* These functions are the reference for the CUDA kernels, which must give the same bits. Inner
 * loops have no branches, so that the compiler vectorises them; on x86 each exists a second time
 * for AVX2 and is chosen at run time. Both variants round alike. There is no state; any thread
 * may enter. */

#include "colocate/transfer/casts.h"

#include "runtime/assert.h"

#include <string.h>

enum {
    E4M3_NAN = 0x7f,              /* Code of a NaN in the 8-bit float format e4m3. */
    E4M3_MAX_BITS = 0x43e00000,   /* Bits of 448, the largest e4m3 number, as a float32. */
    NORMAL_MIN_BITS = 0x3c800000, /* Bits of 2^-6, the smallest normal e4m3 number, as a float32. */
    INFINITY_BITS = 0x7f800000    /* Bits of infinity as a float32. */
};

/* Returns the 32 bits that represent a float. */
static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Returns the float that these 32 bits represent. */
static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Rounds the bits of a float32 number to bfloat16. Has no branches, so that the compiler vectorises
 * loops of calls. */
static inline __attribute__((always_inline)) uint16_t upper_half(uint32_t bits)
{
    uint32_t is_nan = -(uint32_t)((bits & 0x7fffffff) > INFINITY_BITS);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    /* Sets a bit that keeps a NaN a NaN, because the lower half may have held all its fraction
     * bits. */
    uint32_t quiet = bits >> 16 | 0x40;

    return (uint16_t)((rounded & ~is_nan) | (quiet & is_nan));
}

uint16_t tdm__bf16_from_float(float value)
{
    return upper_half(bits_of(value));
}

/* Casts `count` float32 numbers, which may be unaligned, to bfloat16. */
static inline __attribute__((always_inline)) void
bf16_cast_all(uint16_t *restrict to, const uint8_t *restrict from, size_t count)
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
    bf16_cast_all(to, from, count);
}

void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count)
{
    if (__builtin_cpu_supports("avx2")) {
        cast_avx2(to, from, count);
    } else {
        bf16_cast_all(to, from, count);
    }
}
#else
void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count)
{
    bf16_cast_all(to, from, count);
}
#endif

float tdm__bf16_to_float(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

/* Returns the e4m3 code of a float. Has no branches, so that the compiler vectorises loops of
 * calls. */
static inline __attribute__((always_inline)) uint8_t e4m3_encode(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t size = bits & 0x7fffffff;
    uint32_t held = size < E4M3_MAX_BITS ? size : E4M3_MAX_BITS;
    /* For normal numbers 3 of the 23 fraction bits remain. A carry from rounding goes into the
     * exponent. */
    uint32_t normal = ((held + 0x7ffff + (held >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    /* Subnormal numbers are multiples of 2^-9, which is the value of the last bit of 2^14. */
    uint32_t small = bits_of(float_of(held) + 0x1p14f) - bits_of(0x1p14f);
    uint32_t is_small = -(uint32_t)(held < NORMAL_MIN_BITS);
    uint32_t is_nan = -(uint32_t)(size > INFINITY_BITS);
    uint32_t code = (small & is_small) | (normal & ~is_small);

    return (uint8_t)((bits >> 24 & 0x80) | (code & ~is_nan) | (E4M3_NAN & is_nan));
}

uint8_t tdm__e4m3_from_float(float value)
{
    return e4m3_encode(value);
}

/* ---- blocks ----------------------------------------------------------------------------- */

/* One FP8 block of a matrix, and where its scale and its e4m3 numbers are written. */
struct fp8_block {
    const void *from; /* First source element of the block. */
    /* Where to write the first e4m3 number of the block; NULL if only the scale is wanted. */
    uint8_t *to;
    float *scale; /* Where to write the scale of the block; NULL if the scale is given. */
    /* Where to read the scale of the block; may be the same address as `scale`. */
    const float *known_scale;
    uint32_t rows;    /* Number of rows of the block, at most TDM__FP8_BLOCK. */
    uint32_t columns; /* Number of columns of the block, at most TDM__FP8_BLOCK. */
};

/* Converts row number `row` of an FP8 block to floats. */
static inline __attribute__((always_inline)) void load_row(const struct tdm__strided_matrix *from,
                                                           const struct fp8_block *block,
                                                           uint32_t row,
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

/* Returns the bits of the largest magnitude among `values`, or `largest` if that is larger. Skips
 * NaNs. Magnitudes are ordered like their bits. */
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

/* Writes the e4m3 codes of a row of values, each multiplied by `inverse`. */
static inline __attribute__((always_inline)) void
store_row(uint8_t *restrict codes, const float *restrict values, uint32_t count, float inverse)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = e4m3_encode(values[i] * inverse);
    }
}

/* Returns the scale of an FP8 block, which follows from its largest magnitude. */
static inline __attribute__((always_inline)) float
find_scale(const struct tdm__strided_matrix *from, const struct fp8_block *block)
{
    uint32_t largest = bits_of(1e-10f);
    float values[TDM__FP8_BLOCK];

    for (uint32_t row = 0; row < block->rows; row++) {
        load_row(from, block, row, values);
        largest = largest_bits(values, block->columns, largest);
    }
    return float_of(largest) / 448.0f;
}

/* Computes the scale of an FP8 block, its e4m3 numbers, or both. */
static inline __attribute__((always_inline)) void
quantize_block(const struct tdm__strided_matrix *from, uint32_t to_pitch,
               const struct fp8_block *block)
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

/* A variant of quantize_block() for some kind of processor. */
typedef void quantize_fn(const struct tdm__strided_matrix *from, uint32_t to_pitch,
                         const struct fp8_block *block);

/* Variant of quantize_block() that runs on every processor. */
static void quantize_generic(const struct tdm__strided_matrix *from, uint32_t to_pitch,
                             const struct fp8_block *block)
{
    quantize_block(from, to_pitch, block);
}

/* Variant of quantize_block() that the compiler vectorises with AVX2. It rounds like the generic
 * variant. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void quantize_avx2(const struct tdm__strided_matrix *from,
                                                          uint32_t to_pitch,
                                                          const struct fp8_block *block)
{
    quantize_block(from, to_pitch, block);
}

/* Returns the fastest variant of quantize_block() for this processor. */
static quantize_fn *select_quantize(void)
{
    return __builtin_cpu_supports("avx2") ? quantize_avx2 : quantize_generic;
}
#else
/* Returns the only variant of quantize_block() that there is for this kind of processor. */
static quantize_fn *select_quantize(void)
{
    return quantize_generic;
}
#endif

/* Returns the number of rows or columns of the next FP8 block if `elements` rows or columns are
 * left. */
static uint32_t block_extent(uint32_t elements)
{
    return elements < TDM__FP8_BLOCK ? elements : TDM__FP8_BLOCK;
}

/* Quantizes a matrix block by block. `known_scale` points to the scales to use, which may be the
 * scales that this call writes. */
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
            const struct fp8_block block = {
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
