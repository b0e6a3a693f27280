/* contents.h - a model's tensors as they travel: bucket after bucket, with checksums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_CONTENTS_H
#define TDM_COLOCATE_SCHEME_CONTENTS_H

#include "colocate/weights/bucket.h"

/* Both ends compile the same from the same manifest.  Never changes once made. */
struct tdm__contents {
    struct tdm__manifest *manifest; /* owned */
    struct tdm__bucket_plan *plan;  /* owned; one rank, which holds everything */
    uint64_t bucket_bytes;
};

/* Takes the manifest, also on failure. */
tdm_status tdm__contents_create(struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                struct tdm__contents *contents_out);
void tdm__contents_fini(struct tdm__contents *contents);

/* Copies a bucket's tensors from addresses[tensor] to its image, and takes the sum of each:
 * sums[0] is that of the bucket's first tensor. */
void tdm__contents_pack(const struct tdm__contents *contents, uint32_t bucket,
                        const void *const *addresses, void *image, uint64_t *sums);
/* TDM_E_CHECKSUM names the first tensor of the image that has another sum. */
tdm_status tdm__contents_verify(const struct tdm__contents *contents, uint32_t bucket,
                                const void *image, const uint64_t *sums);

#endif
