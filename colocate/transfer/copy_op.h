/* copy_op.h - a copy operation: a rectangle that a device copies, converts and checksums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_COPY_OP_H
#define TDM_COLOCATE_TRANSFER_COPY_OP_H

#include "colocate/transfer/rect_checksum.h"
#include "colocate/transfer/rect_copy.h"

#include <tandem/error.h>

/* A copy operation with its addresses. Rows and columns count source elements; pitches are in
 * elements of each side's dtype. Addresses of converted elements must be aligned to them; others
 * may have any alignment. */
struct tdm__copy_op {
    /* Source; NULL to write zeros without conversion. */
    const void *from;
    /* Destination; NULL to compute the checksum as if it were written. */
    void *to;
    uint64_t rows; /* Rows of the rectangle. */
    /* Columns of the rectangle; with a conversion rows, columns and pitches are at most 2^32. */
    uint64_t columns;
    uint64_t from_pitch;   /* Source elements from row to row. */
    uint64_t to_pitch;     /* Destination elements from row to row. */
    uint8_t conversion;    /* An enum tdm__conversion. */
    uint8_t from_dtype;    /* An enum tdm_dtype. */
    uint8_t to_dtype;      /* An enum tdm_dtype. */
    uint32_t scales_pitch; /* Elements from row to row in `scales`. */
    /* Given scales for a conversion to FP8, one per block, mapped or in host memory like the two
     * ends; NULL to compute them. */
    const float *scales;
};

/* Returns the operation that copies rows of bytes. */
struct tdm__copy_op tdm__copy_op_of_rows(const struct tdm__strided_rows *rows, const void *from,
                                         void *to);

/* Returns the rows in bytes that an operation writes, and their pitches. */
struct tdm__strided_rows tdm__copy_op_rows(const struct tdm__copy_op *copy_op);

/* Executes an operation on the host and writes the checksum of what is written. The results of
 * other devices are compared with this one. */
tdm_status tdm__copy_op_execute(const struct tdm__copy_op *copy_op, uint64_t *sum_out);

#endif
