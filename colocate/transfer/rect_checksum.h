/* rect_checksum.h - checksums of rectangles of bytes, taken while they are copied. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_RECT_CHECKSUM_H
#define TDM_COLOCATE_TRANSFER_RECT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* A sum depends on every bit, on the order, and on how the bytes are cut into rows; not on
 * where they lie.  It finds accidents, not malice.
 *
 * A row is read in stripes of eight words, the last one filled up with zeros.  Word j of stripe
 * i is xored with a key that depends on i and j; the product of the halves of that goes into
 * lane j, the word itself into its neighbour.  In the end the lanes are mixed into one. */

enum { TDM__CHECKSUM_STRIPE_BYTES = 64 };

struct tdm__strided_rows {
    size_t count;
    size_t size_bytes; /* of one row */
    size_t from_pitch; /* in bytes */
    size_t to_pitch;
};

uint64_t tdm__rect_checksum(const struct tdm__strided_rows *rows, const void *from);
/* Copies and sums in one go, as fast as copying alone where `to` and its pitch are multiples of
 * a stripe.  They do not overlap. */
uint64_t tdm__rect_checksum_copy(const struct tdm__strided_rows *rows, const void *from, void *to);

/* The end of a sum whose lanes were filled elsewhere: each starts with zero, and what goes into
 * it does so in any order. */
enum { TDM__CHECKSUM_LANES = TDM__CHECKSUM_STRIPE_BYTES / 8 };
uint64_t tdm__rect_checksum_from_lanes(const struct tdm__strided_rows *rows,
                                       const uint64_t lanes[TDM__CHECKSUM_LANES]);

/* A copy by plain C, whatever the machine can do: the reference. */
uint64_t tdm__rect_checksum_copy_plain(const struct tdm__strided_rows *rows, const void *from,
                                       void *to);

#endif
