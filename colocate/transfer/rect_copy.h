/* rect_copy.h - one step of a plan: a rectangle that is copied from one rank's tensor to
 * another's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_RECT_COPY_H
#define TDM_COLOCATE_TRANSFER_RECT_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* How near the two ends of a copy are to each other. */
enum tdm__copy_locality {
    TDM__LOCALITY_SAME_GPU,  /* Both ends are on one GPU. */
    TDM__LOCALITY_SAME_NODE, /* The ends are on two GPUs of one node. */
    TDM__LOCALITY_OTHER_NODE /* The ends are on two nodes. */
};

/* Number of localities. */
enum { TDM__LOCALITIES_COUNT = 3 };

/* What happens to the elements on the way. */
enum tdm__conversion {
    TDM__CONVERT_NONE, /* The dtype stays the same. */
    TDM__CONVERT_BF16, /* From float32 to bfloat16. */
    TDM__CONVERT_FP8,  /* From float32 or bfloat16 to FP8 with scales. */
    /* To the scales of such a conversion alone; rows and columns count the elements that the
     * scales are for. */
    TDM__CONVERT_SCALES
};

/* Value for a tensor's index: the destination's staging memory, which is addressed in bytes. */
#define TDM__STAGING UINT32_MAX

/* One copy of `rows` times `columns` elements whose rows have a pitch, as a strided copy engine
 * takes it. Offsets and pitches are in elements of the tensor's dtype; offsets into the staging
 * memory are in bytes. */
struct tdm__rect_copy {
    /* Offset of the first element in the source tensor. */
    uint64_t from_offset;
    /* Offset of the first element in the destination tensor. */
    uint64_t to_offset;
    uint32_t from_rank; /* Rank of the source. */
    /* Index among the tensors of the source rank, or TDM__STAGING. */
    uint32_t from_tensor;
    /* Index among the tensors of the destination rank, or TDM__STAGING. */
    uint32_t to_tensor;
    uint32_t rows;       /* Number of rows to copy. */
    uint32_t columns;    /* Number of elements in each row to copy. */
    uint32_t from_pitch; /* Source elements from row to row. */
    uint32_t to_pitch;   /* Destination elements from row to row. */
    /* For a conversion to FP8: index into the plan's locations of scales. */
    uint32_t scales;
    uint8_t conversion; /* An enum tdm__conversion. */
    uint8_t locality;   /* An enum tdm__copy_locality. */
    uint8_t from_dtype; /* An enum tdm_dtype. */
    uint8_t to_dtype;   /* An enum tdm_dtype. */
    uint32_t reserved;  /* 0, so that plans can be compared byte by byte. */
};

_Static_assert(sizeof(struct tdm__rect_copy) == 56, "no bytes between the fields");

/* Where the scales of an FP8 conversion are written. */
struct tdm__scales_location {
    /* Offset of the first scale in the tensor, in elements. */
    uint64_t offset;
    /* Index of the destination rank's tensor of scales. */
    uint32_t tensor;
    uint32_t pitch; /* Elements from row to row. */
};

/* Turns a rectangle that is contiguous on both sides into a single row. */
void tdm__rect_copy_flatten(struct tdm__rect_copy *copy);

/* Extends `last` by `next` if both together are one rectangle, and returns whether it did. Both
 * must be flattened. */
bool tdm__rect_copy_merge(struct tdm__rect_copy *last, const struct tdm__rect_copy *next);

/* Returns the number of elements. */
uint64_t tdm__rect_copy_elements(const struct tdm__rect_copy *copy);
/* Returns the bytes that are read. */
uint64_t tdm__rect_copy_bytes(const struct tdm__rect_copy *copy);

/* Executes a copy on the host. `from` and `to` are the starts of the tensors or of the staging
 * memory, and `scales` is the start of the tensor with the scales; `place` and `scales` are used
 * for FP8 only. */
void tdm__rect_copy_execute(const struct tdm__rect_copy *copy, const void *from, void *to,
                            const struct tdm__scales_location *place, float *scales);

#endif
