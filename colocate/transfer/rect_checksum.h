/* rect_checksum.h - checksums of rectangles of bytes, computed while they are copied. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_TRANSFER_RECT_CHECKSUM_H
#define TDM_COLOCATE_TRANSFER_RECT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* A checksum depends on every bit, on the order of the bytes and on how they are divided into
 * rows, but not on where the rows are. It detects accidents, not attacks.
 *
 * A row is read in stripes of eight words; the last stripe is padded with zeros. Word j of stripe
 * i is xored with a key that depends on i and j. The product of the two halves of the result is
 * added to lane j, and the word itself to the neighbouring lane. At the end the lanes are mixed
 * into one number. */

/* Size in bytes of a stripe: the part of a row that one round of the checksum reads. */
enum { TDM__CHECKSUM_STRIPE_BYTES = 64 };

/* Rows of bytes, with the distances between them in a source and a destination. */
struct tdm__strided_rows {
    size_t count;      /* Number of rows of bytes. */
    size_t size_bytes; /* Size of each row in bytes. */
    size_t from_pitch; /* Distance from row to row in the source, in bytes. */
    size_t to_pitch;   /* Distance from row to row in the destination, in bytes. */
};

/* Returns the checksum of the rows whose first byte is at `from`. */
uint64_t tdm__rect_checksum(const struct tdm__strided_rows *rows, const void *from);
/* Copies the rows from `from` to `to` and returns their checksum. This is as fast as a plain copy
 * if `to` and its pitch are multiples of a stripe. Source and destination must not overlap. */
uint64_t tdm__rect_checksum_copy(const struct tdm__strided_rows *rows, const void *from, void *to);

/* Number of lanes of a checksum: 64-bit sums that are computed side by side, one for each word of a
 * stripe. */
enum { TDM__CHECKSUM_LANES = TDM__CHECKSUM_STRIPE_BYTES / 8 };
/* Returns the checksum of rows whose lanes were computed elsewhere, for example on a GPU. Each lane
 * starts at zero, and additions to it may come in any order. */
uint64_t tdm__rect_checksum_from_lanes(const struct tdm__strided_rows *rows,
                                       const uint64_t lanes[TDM__CHECKSUM_LANES]);

/* Like tdm__rect_checksum_copy(), but in plain C on every machine: the reference for the faster
 * variants. */
uint64_t tdm__rect_checksum_copy_plain(const struct tdm__strided_rows *rows, const void *from,
                                       void *to);

#endif
