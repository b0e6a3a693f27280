/* rect_copy.h - one step of a plan: a rectangle that is copied from one rank's tensor to
 * another's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_RECT_COPY_H
#define TDM_COLOCATE_TRANSFER_RECT_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* How near the source and the destination of a copy are to each other. */
enum tdm__copy_locality {
    TDM__LOCALITY_SAME_GPU,  /* Source and destination are on one GPU. */
    TDM__LOCALITY_SAME_NODE, /* Source and destination are on two GPUs of one node. */
    TDM__LOCALITY_OTHER_NODE /* Source and destination are on two nodes. */
};

/* Number of values of enum tdm__copy_locality. */
enum { TDM__LOCALITIES_COUNT = 3 };

/* What a copy does with the elements besides moving them. */
enum tdm__conversion {
    TDM__CONVERT_NONE, /* The elements are copied without conversion. */
    TDM__CONVERT_BF16, /* The elements are cast from float32 to bfloat16. */
    TDM__CONVERT_FP8,  /* The elements are quantized from float32 or bfloat16 to FP8 with scales. */
    /* Only the scales of a conversion to FP8 are written; rows and columns count the elements for
     * which the scales are. */
    TDM__CONVERT_SCALES
};

/* One copy of `rows` times `columns` elements whose rows have a pitch, as a strided copy engine
 * takes it. Offsets and pitches are in elements of the tensor's dtype. */
struct tdm__rect_copy {
    uint64_t from_offset; /* Offset of the first element in the source tensor, in elements. */
    uint64_t to_offset;   /* Offset of the first element in the destination tensor, in elements. */
    uint32_t from_rank;   /* Source rank, which holds the elements. */
    uint32_t from_tensor; /* Index among the slices of the source rank. */
    uint32_t to_tensor;   /* Index among the slices of the destination rank. */
    uint32_t rows;        /* Number of rows to copy. */
    uint32_t columns;     /* Number of elements in each row to copy. */
    uint32_t from_pitch;  /* Distance from row to row in the source tensor, in elements. */
    uint32_t to_pitch;    /* Distance from row to row in the destination tensor, in elements. */
    uint8_t conversion;   /* How the elements are converted, an enum tdm__conversion. */
    uint8_t locality;     /* How near source and destination are, an enum tdm__copy_locality. */
    uint8_t from_dtype;   /* Data type of the source elements, an enum tdm_dtype. */
    uint8_t to_dtype;     /* Data type of the destination elements, an enum tdm_dtype. */
};

_Static_assert(sizeof(struct tdm__rect_copy) == 48, "no bytes between the fields");

/* Turns a copy whose rows have no gaps in source and destination into a copy of one long row. */
void tdm__rect_copy_flatten(struct tdm__rect_copy *copy);

/* Extends the copy `last` by `next` and returns true if both together are one rectangle; otherwise
 * returns false. Both copies must be flattened. */
bool tdm__rect_copy_merge(struct tdm__rect_copy *last, const struct tdm__rect_copy *next);

/* Returns the number of elements that a copy reads. */
uint64_t tdm__rect_copy_elements(const struct tdm__rect_copy *copy);
/* Returns the number of bytes that a copy reads. */
uint64_t tdm__rect_copy_bytes(const struct tdm__rect_copy *copy);

#endif
