/* part.h - a rectangle on its way, with its ends: what a device copies, converts and sums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PLAN_PART_H
#define TDM_COLOCATE_PLAN_PART_H

#include "colocate/plan/copy.h"
#include "colocate/plan/sum.h"

#include <tandem/error.h>

/* As in struct tdm__copy, rows and columns are of elements that are read, and pitches in
 * elements of each side's dtype.  Ends of what is converted are aligned as their elements are;
 * others need not be. */
struct tdm__part {
    const void *from; /* NULL: zeros, without conversion */
    void *to;         /* NULL: nothing is written, but the sum is taken as if it were */
    uint64_t rows;
    uint64_t columns; /* with a conversion at most 2^32, as rows and pitches */
    uint64_t from_pitch;
    uint64_t to_pitch;
    uint8_t convert; /* enum tdm__convert */
    uint8_t from_dtype;
    uint8_t to_dtype;
    uint32_t scales_pitch;
    /* What becomes FP8 by scales that are known: theirs, one a block, mapped or in host memory
     * as the ends are; NULL: they are found on the way. */
    const float *scales;
};

/* Bytes as they are. */
struct tdm__part tdm__part_of_rows(const struct tdm__rows *rows, const void *from, void *to);

/* The rectangle that is written: its rows, in bytes, and the distances between them. */
struct tdm__rows tdm__part_rows(const struct tdm__part *part);

/* On the host: what every device's results are compared with.  The sum of what is written. */
tdm_status tdm__part_run(const struct tdm__part *part, uint64_t *sum_out);

#endif
