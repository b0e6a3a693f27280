/* casts.h - casts on the way: float32 to bfloat16, and to FP8 by blocks with a scale each. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_CASTS_H
#define TDM_COLOCATE_TRANSFER_CASTS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* Rows and columns of a block of FP8 numbers that share one scale. */
enum { TDM__FP8_BLOCK = 128 };

/* To nearest, ties to even; a NaN stays one. */
uint16_t tdm__bf16_from_float(float value);
float tdm__bf16_to_float(uint16_t bits);
/* The same for many; `from` need not be aligned. */
void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count);

/* e4m3 without infinities: to nearest, ties to even, over 448 it is 448; a NaN stays one. */
uint8_t tdm__e4m3_from_float(float value);

/* Rows of a matrix, `pitch` elements from row to row. */
struct tdm__strided_matrix {
    const void *data;     /* borrowed */
    enum tdm_dtype dtype; /* F32 or BF16 */
    uint32_t rows;
    uint32_t columns;
    uint32_t pitch;
};

struct tdm__fp8_matrix {
    uint8_t *data; /* borrowed, and so are the scales */
    float *scales;
    uint32_t pitch;
    uint32_t scales_pitch;
};

/* For each block of 128 x 128, those at the ends smaller: scale = max(|x|, 1e-10) / 448, and
 * each element is x times 1 / scale, all in float32.  So do the trainers and engines that
 * exchange such files. */
void tdm__fp8_quantize(const struct tdm__strided_matrix *from, const struct tdm__fp8_matrix *to);
/* The scales alone, `pitch` floats from row to row.  Those of a part of a block are at most the
 * block's: it has the largest of its parts'. */
void tdm__fp8_scales(const struct tdm__strided_matrix *from, float *scales, uint32_t pitch);

/* Scales that are known: of blocks that are larger than what `from` has of them. */
struct tdm__fp8_scales {
    const float *data; /* borrowed */
    uint32_t pitch;
};

/* The elements alone, by those. */
void tdm__fp8_quantize_by_scales(const struct tdm__strided_matrix *from,
                                 const struct tdm__fp8_scales *scales, uint8_t *to,
                                 uint32_t to_pitch);

#endif
