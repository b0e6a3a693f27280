/* checksum.h - checksums of tensors, with which wrong bytes are found and named. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_CHECKSUM_H
#define TDM_COLOCATE_WEIGHTS_CHECKSUM_H

#include "colocate/transfer/copy_op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* A 128-bit hash that identifies a manifest, all weights of a model, or the buckets in a resume
 * log. */
struct tdm__hash {
    uint64_t high; /* Upper 64 bits of the 128-bit hash. */
    uint64_t low;  /* Lower 64 bits of the 128-bit hash. */
};

/* Size in bytes of a hash as text, including the terminating NUL. */
enum { TDM__HASH_TEXT_BYTES = 33 };

/* Returns true if both hashes are equal. */
bool tdm__hash_equal(const struct tdm__hash *a, const struct tdm__hash *b);
/* Writes the 32 hexadecimal digits of the hash to `text` and returns `text`. */
const char *tdm__hash_text(const struct tdm__hash *hash, char text[TDM__HASH_TEXT_BYTES]);

/* Returns the checksum of a contiguous tensor, treated as one row of bytes
 * (colocate/transfer/rect_checksum.h). */
uint64_t tdm__checksum_tensor(const void *data, size_t size_bytes);
/* Returns a device operation that computes the checksum of `size_bytes` bytes at `data` and writes
 * nothing. */
struct tdm__copy_op tdm__checksum_copy_op(const void *data, size_t size_bytes);

/* Computes the checksum of the tensor `name`, whose bytes are at `data`, and compares it with
 * `expected`. Returns TDM_E_CHECKSUM with a message that names the tensor and both checksums if
 * they differ. */
tdm_status tdm__checksum_verify(const char *name, const void *data, size_t size_bytes,
                                uint64_t expected);
/* Compares `found`, the checksum of the tensor `name` that for example a device computed, with
 * `expected`. Returns TDM_E_CHECKSUM as tdm__checksum_verify() does. */
tdm_status tdm__checksum_compare(const char *name, size_t size_bytes, uint64_t found,
                                 uint64_t expected);

/* Returns the hash for which a member of an update votes. It combines the hash of the manifest with
 * the checksum of each tensor in the manifest's order. Two members with the same hash hold the same
 * bytes under the same names. */
struct tdm__hash tdm__checksum_contents_hash(const struct tdm__hash *manifest, const uint64_t *sums,
                                             uint32_t sums_count);

#endif
