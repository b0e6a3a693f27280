/* copy_op.h - a copy operation: a rectangle that a device copies, converts and checksums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_COPY_OP_H
#define TDM_COLOCATE_TRANSFER_COPY_OP_H

#include "colocate/transfer/rect_checksum.h"
#include "colocate/transfer/rect_copy.h"

#include <tandem/error.h>

/* A copy of a rectangle of elements between two addresses, with an optional conversion. Rows and
 * columns count source elements; pitches are in elements of each side's dtype. Addresses of
 * converted elements must be aligned to them; others may have any alignment. */
struct tdm__copy_op {
    const void *from; /* Address of the first source element; NULL to write zeros. */
    void *to; /* Address of the first destination element; NULL to compute the checksum only. */
    uint64_t rows; /* Number of rows of the rectangle. */
    /* Number of columns of the rectangle. With a conversion, rows, columns and pitches are at most
     * 2^32. */
    uint64_t columns;
    uint64_t from_pitch;   /* Distance from row to row in the source, in elements. */
    uint64_t to_pitch;     /* Distance from row to row in the destination, in elements. */
    uint8_t conversion;    /* How the elements are converted, an enum tdm__conversion. */
    uint8_t from_dtype;    /* Data type of the source elements, an enum tdm_dtype. */
    uint8_t to_dtype;      /* Data type of the destination elements, an enum tdm_dtype. */
    uint32_t scales_pitch; /* Distance from row to row in `scales`, in floats. */
    /* For a conversion to FP8 the scales to use, one for each block; NULL to compute them. Like
     * `from` and `to`, they are in mapped device memory or in host memory. */
    const float *scales;
};

/* Returns the operation that copies rows of bytes without conversion. */
struct tdm__copy_op tdm__copy_op_of_rows(const struct tdm__strided_rows *rows, const void *from,
                                         void *to);

/* Returns the rows that an operation writes, with their size and pitches in bytes. */
struct tdm__strided_rows tdm__copy_op_rows(const struct tdm__copy_op *copy_op);

/* Executes a copy operation on the host. Sets `sum_out` to the checksum of the written rows. This
 * is the reference for devices. */
tdm_status tdm__copy_op_execute(const struct tdm__copy_op *copy_op, uint64_t *sum_out);

#endif
