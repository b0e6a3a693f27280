/* rect_copy.h - a rectangle that goes from one rank's tensor into another's: the step of a plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_RECT_COPY_H
#define TDM_COLOCATE_TRANSFER_RECT_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/tensor.h>

enum tdm__copy_locality {
    TDM__LOCALITY_SAME_GPU,
    TDM__LOCALITY_SAME_NODE,
    TDM__LOCALITY_OTHER_NODE
};

enum { TDM__LOCALITIES_COUNT = 3 };

enum tdm__conversion {
    TDM__CONVERT_NONE,  /* same dtype */
    TDM__CONVERT_BF16,  /* from float32 */
    TDM__CONVERT_FP8,   /* from float32 or bfloat16, with scales */
    TDM__CONVERT_SCALES /* those scales alone: rows and columns are of what they are of */
};

/* Instead of a tensor's index: the destination's staging memory, addressed in bytes. */
#define TDM__STAGING UINT32_MAX

/* `rows` times `columns` elements, rows `pitch` elements apart: what a strided copy engine
 * takes as it is.  Offsets and pitches are in elements of the tensor's dtype, offsets into the
 * staging memory in bytes. */
struct tdm__rect_copy {
    uint64_t from_offset;
    uint64_t to_offset;
    uint32_t from_rank;
    uint32_t from_tensor; /* index among the tensors of that rank */
    uint32_t to_tensor;
    uint32_t rows;
    uint32_t columns;
    uint32_t from_pitch;
    uint32_t to_pitch;
    uint32_t scales;    /* of an FP8 conversion: index into the plan's places for scales */
    uint8_t conversion; /* enum tdm__conversion */
    uint8_t locality;   /* enum tdm__copy_locality */
    uint8_t from_dtype;
    uint8_t to_dtype;
    uint32_t reserved; /* zero: plans can be compared byte by byte */
};

_Static_assert(sizeof(struct tdm__rect_copy) == 56, "no bytes between the fields");

/* Where the scales of an FP8 conversion go. */
struct tdm__scales_location {
    uint64_t offset;
    uint32_t tensor;
    uint32_t pitch;
};

/* One row where both sides are contiguous. */
void tdm__rect_copy_flatten(struct tdm__rect_copy *copy);

/* Makes one rectangle of `last` and `next` if both together are one; both are flat where they
 * can be. */
bool tdm__rect_copy_merge(struct tdm__rect_copy *last, const struct tdm__rect_copy *next);

uint64_t tdm__rect_copy_elements(const struct tdm__rect_copy *copy);
uint64_t tdm__rect_copy_bytes(const struct tdm__rect_copy *copy); /* read */

/* On the host.  `from` and `to` are the beginnings of the tensors or of the staging memory,
 * `scales` that of the tensor with the scales. */
void tdm__rect_copy_execute(const struct tdm__rect_copy *copy, const void *from, void *to,
                            const struct tdm__scales_location *place, float *scales);

#endif
