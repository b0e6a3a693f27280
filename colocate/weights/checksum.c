/* checksum.c - checksums of tensors, with which wrong bytes are found and named. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/checksum.h"

#include "colocate/weights/remedies.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <xxhash.h>

#include <inttypes.h>
#include <stdio.h>

/* Checksums travel as little-endian words, and contents are hashed as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Tandem runs on little-endian hosts");

bool tdm__hash_equal(const struct tdm__hash *a, const struct tdm__hash *b)
{
    return a->high == b->high && a->low == b->low;
}

const char *tdm__hash_text(const struct tdm__hash *hash, char text[TDM__HASH_TEXT_BYTES])
{
    (void)snprintf(text, TDM__HASH_TEXT_BYTES, "%016" PRIx64 "%016" PRIx64, hash->high, hash->low);
    return text;
}

uint64_t tdm__checksum_tensor(const void *data, size_t size_bytes)
{
    const struct tdm__strided_rows row = {.count = 1, .size_bytes = size_bytes};

    TDM_ASSERT(data != NULL || size_bytes == 0);
    return tdm__rect_checksum(&row, data);
}

struct tdm__copy_op tdm__checksum_copy_op(const void *data, size_t size_bytes)
{
    const struct tdm__strided_rows row = {.count = 1, .size_bytes = size_bytes};

    return tdm__copy_op_of_rows(&row, data, NULL);
}

tdm_status tdm__checksum_verify(const char *name, const void *data, size_t size_bytes,
                                uint64_t expected)
{
    return tdm__checksum_compare(name, size_bytes, tdm__checksum_tensor(data, size_bytes),
                                 expected);
}

tdm_status tdm__checksum_compare(const char *name, size_t size_bytes, uint64_t found,
                                 uint64_t expected)
{
    if (found != expected) {
        return tdm__fail(
            TDM_E_CHECKSUM,
            "verifying the weights failed: tensor %s: %zu bytes have the checksum %016" PRIx64
            ", the sender's is %016" PRIx64 ". " TDM__REMEDY_SEND_AGAIN,
            name, size_bytes, found, expected);
    }
    return TDM_OK;
}

struct tdm__hash tdm__checksum_contents_hash(const struct tdm__hash *manifest, const uint64_t *sums,
                                             uint32_t sums_count)
{
    XXH128_hash_t contents = XXH3_128bits(sums, sums_count * sizeof(*sums));
    const uint64_t both[] = {manifest->high, manifest->low, contents.high64, contents.low64};
    XXH128_hash_t hash = XXH3_128bits(both, sizeof(both));

    return (struct tdm__hash){.high = hash.high64, .low = hash.low64};
}
