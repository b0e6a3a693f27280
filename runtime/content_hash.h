/* content_hash.h - SHA-256 of bytes and of files, by which processes recognise equal contents. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_CONTENT_HASH_H
#define TDM_RUNTIME_CONTENT_HASH_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/value.h>

/* Bytes of a content hash; capacity of its text: 64 hexadecimal digits and the NUL. */
enum { TDM__CONTENT_HASH_BYTES = 32, TDM__CONTENT_HASH_TEXT_BYTES = 65 };

/* The SHA-256 of some contents. Nobody can make other contents with the same hash. */
struct tdm__content_hash {
    uint8_t bytes[TDM__CONTENT_HASH_BYTES]; /* The hash in the order in which it is printed. */
};

/* Computes the hash of `bytes`. TDM_E_IO if the library of hashes fails. */
tdm_status tdm__content_hash_bytes(struct tdm_bytes bytes, struct tdm__content_hash *hash_out);
/* Computes the hash of an open file from its present position to its end, and writes the number of
 * bytes that were read. `path` is for errors. Blocks on the disk. */
tdm_status tdm__content_hash_file(int fd, const char *path, struct tdm__content_hash *hash_out,
                                  uint64_t *size_bytes_out);
/* Returns true if both hashes are equal. */
bool tdm__content_hash_equal(const struct tdm__content_hash *a, const struct tdm__content_hash *b);
/* Writes the hash as 64 lower-case hexadecimal digits and a NUL to `text` and returns `text`. */
const char *tdm__content_hash_text(const struct tdm__content_hash *hash,
                                   char text[TDM__CONTENT_HASH_TEXT_BYTES]);

#endif
