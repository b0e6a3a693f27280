/* copy_op.h - a rectangle on its way, with its ends: what a device copies, converts and sums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_COPY_OP_H
#define TDM_COLOCATE_TRANSFER_COPY_OP_H

#include "colocate/transfer/rect_checksum.h"
#include "colocate/transfer/rect_copy.h"

#include <tandem/error.h>

/* As in struct tdm__rect_copy, rows and columns are of elements that are read, and pitches in
 * elements of each side's dtype.  Ends of what is converted are aligned as their elements are;
 * others need not be. */
struct tdm__copy_op {
    const void *from; /* NULL: zeros, without conversion */
    void *to;         /* NULL: nothing is written, but the sum is taken as if it were */
    uint64_t rows;
    uint64_t columns; /* with a conversion at most 2^32, as rows and pitches */
    uint64_t from_pitch;
    uint64_t to_pitch;
    uint8_t conversion; /* enum tdm__conversion */
    uint8_t from_dtype;
    uint8_t to_dtype;
    uint32_t scales_pitch;
    /* What becomes FP8 by scales that are known: theirs, one a block, mapped or in host memory
     * as the ends are; NULL: they are found on the way. */
    const float *scales;
};

/* Bytes as they are. */
struct tdm__copy_op tdm__copy_op_of_rows(const struct tdm__strided_rows *rows, const void *from,
                                         void *to);

/* The rectangle that is written: its rows, in bytes, and the distances between them. */
struct tdm__strided_rows tdm__copy_op_rows(const struct tdm__copy_op *copy_op);

/* On the host: what every device's results are compared with.  The sum of what is written. */
tdm_status tdm__copy_op_execute(const struct tdm__copy_op *copy_op, uint64_t *sum_out);

#endif
