/* casts.h - casts of weights: float32 to bfloat16, and to FP8 in blocks that have a scale each. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_CASTS_H
#define TDM_COLOCATE_TRANSFER_CASTS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* Number of rows, and of columns, of a block of FP8 numbers that share one scale. */
enum { TDM__FP8_BLOCK = 128 };

/* Casts a float32 number to bfloat16: to nearest, ties to even. A NaN stays a NaN with its
 * sign and the upper part of its payload; CUDA's and PyTorch's casts on a GPU make 0x7fff of it. */
uint16_t tdm__bf16_from_float(float value);
/* Returns the value of the bfloat16 number with these bits. */
float tdm__bf16_to_float(uint16_t bits);
/* Casts `count` floats to bfloat16. `from` does not have to be aligned. */
void tdm__bf16_from_floats(uint16_t *restrict to, const void *restrict from, size_t count);

/* Casts a float32 number to e4m3 (8 bits, no infinities): to nearest, ties to even. Larger values
 * become 448. A NaN stays a NaN with its sign (0x7f or 0xff); CUDA's casts make 0x7f of it. */
uint8_t tdm__e4m3_from_float(float value);

/* A matrix to read, whose rows may have gaps between them. */
struct tdm__strided_matrix {
    const void *data;     /* First element of the matrix; borrowed. */
    enum tdm_dtype dtype; /* Data type of the elements: TDM_F32 or TDM_BF16. */
    uint32_t rows;        /* Number of rows of the matrix. */
    uint32_t columns;     /* Number of elements in each row. */
    uint32_t pitch;       /* Distance from row to row, in elements. */
};

/* A matrix of FP8 numbers to write, and its scales. */
struct tdm__fp8_matrix {
    uint8_t *data;  /* First FP8 number of the matrix; borrowed memory. */
    float *scales;  /* First scale; there is one for each block of 128 x 128. Borrowed memory. */
    uint32_t pitch; /* Distance from row to row of `data`, in FP8 numbers. */
    uint32_t scales_pitch; /* Distance from row to row of `scales`, in floats. */
};

/* Quantizes a matrix to FP8. For each block of 128 x 128 (smaller at the edges) the scale is
 * max(|x|, 1e-10) / 448, and each element is x times 1 / scale, all in float32. Trainers and
 * engines that exchange FP8 checkpoints use the same formula. */
void tdm__fp8_quantize(const struct tdm__strided_matrix *from, const struct tdm__fp8_matrix *to);
/* Computes only the FP8 scales of a matrix into `scales`, with `pitch` floats from row to row. The
 * scale of a block is the largest of the scales of its parts. */
void tdm__fp8_scales(const struct tdm__strided_matrix *from, float *scales, uint32_t pitch);

/* Given FP8 scales, one for each block of a matrix. */
struct tdm__fp8_scales {
    const float *data; /* First scale; there is one for each block of 128 x 128. Borrowed. */
    uint32_t pitch;    /* Distance from row to row of the scales, in floats. */
};

/* Quantizes a matrix to FP8 with given scales. `to_pitch` is the distance from row to row of `to`,
 * in FP8 numbers. */
void tdm__fp8_quantize_by_scales(const struct tdm__strided_matrix *from,
                                 const struct tdm__fp8_scales *scales, uint8_t *to,
                                 uint32_t to_pitch);

#endif
