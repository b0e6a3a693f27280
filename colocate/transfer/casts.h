/* casts.h - casts of weights: float32 to bfloat16, and to FP8 in blocks that have a scale each. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_CASTS_H
#define TDM_COLOCATE_TRANSFER_CASTS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* Rows and columns of a block of FP8 numbers that share one scale. */
enum { TDM__FP8_BLOCK = 128 };

/* Casts to bfloat16: to nearest, ties to even; a NaN stays a NaN. */
uint16_t tdm__bf16_from_float(float value);
/* Returns the value of a bfloat16 number. */
float tdm__bf16_to_float(uint16_t bits);
/* Casts `count` floats to bfloat16. `from` does not have to be aligned. */
void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count);

/* Casts to e4m3 without infinities: to nearest, ties to even. Larger values become 448; a NaN
 * stays a NaN. */
uint8_t tdm__e4m3_from_float(float value);

/* A matrix to read whose rows have a pitch. */
struct tdm__strided_matrix {
    const void *data;     /* Borrowed elements. */
    enum tdm_dtype dtype; /* TDM_F32 or TDM_BF16. */
    uint32_t rows;        /* Number of rows. */
    uint32_t columns;     /* Number of elements in each row. */
    uint32_t pitch;       /* Elements from row to row. */
};

/* A matrix of FP8 numbers to write, and its scales. */
struct tdm__fp8_matrix {
    uint8_t *data;         /* Borrowed memory for the numbers. */
    float *scales;         /* Borrowed memory for one scale per block. */
    uint32_t pitch;        /* Elements from row to row of `data`. */
    uint32_t scales_pitch; /* Elements from row to row of `scales`. */
};

/* Quantizes a matrix to FP8. For each block of 128 x 128 (smaller at the edges) the scale is
 * max(|x|, 1e-10) / 448, and each element is x times 1 / scale, all in float32. Trainers and
 * engines that exchange such files compute the same. */
void tdm__fp8_quantize(const struct tdm__strided_matrix *from, const struct tdm__fp8_matrix *to);
/* The scales alone, `pitch` floats from row to row.  Those of a part of a block are at most the
 * block's: it has the largest of its parts'. */
void tdm__fp8_scales(const struct tdm__strided_matrix *from, float *scales, uint32_t pitch);

/* Computes the scales alone, with `pitch` floats from row to row. The scale of a block is the
 * largest of the scales of its parts. */
struct tdm__fp8_scales {
    const float *data; /* Borrowed scales. */
    uint32_t pitch;    /* Elements from row to row. */
};

/* Quantizes a matrix with given scales. */
void tdm__fp8_quantize_by_scales(const struct tdm__strided_matrix *from,
                                 const struct tdm__fp8_scales *scales, uint8_t *to,
                                 uint32_t to_pitch);

#endif
