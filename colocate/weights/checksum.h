/* checksum.h - sums of tensors, so that wrong bytes are found and named. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_CHECKSUM_H
#define TDM_COLOCATE_WEIGHTS_CHECKSUM_H

#include "colocate/transfer/copy_op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* 128 bits that stand for bytes: a manifest, or all of a model's contents. */
struct tdm__hash {
    uint64_t high;
    uint64_t low;
};

enum { TDM__HASH_TEXT_BYTES = 33 };

bool tdm__hash_equal(const struct tdm__hash *a, const struct tdm__hash *b);
/* Writes 32 hexadecimal digits and returns them. */
const char *tdm__hash_text(const struct tdm__hash *hash, char text[TDM__HASH_TEXT_BYTES]);

/* Of a tensor's contiguous bytes: they are one row (colocate/transfer/rect_checksum.h). */
uint64_t tdm__checksum_tensor(const void *data, size_t size_bytes);
/* For a device to take it: nothing is written, and the part's sum is the tensor's. */
struct tdm__copy_op tdm__checksum_copy_op(const void *data, size_t size_bytes);

/* TDM_E_CHECKSUM names the tensor and both sums unless the bytes have the sum `expected`. */
tdm_status tdm__checksum_verify(const char *name, const void *data, size_t size_bytes,
                                uint64_t expected);
/* The same of bytes that were summed elsewhere. */
tdm_status tdm__checksum_compare(const char *name, size_t size_bytes, uint64_t found,
                                 uint64_t expected);

/* What a member votes for: the manifest and the checksum of each of its tensors, in order.  Two
 * members with the same one hold the same bytes under the same names. */
struct tdm__hash tdm__checksum_contents_hash(const struct tdm__hash *manifest, const uint64_t *sums,
                                             uint32_t sums_count);

#endif
