/* merged_handles.h - descriptions of one bucket by several writers, merged to one description. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_MERGED_HANDLES_H
#define TDM_COLOCATE_WEIGHTS_MERGED_HANDLES_H

#include "colocate/weights/tensor_handles.h"

/* Value of struct tdm__bucket_description.writer if the reader has not been told who wrote. */
#define TDM__WRITER_UNKNOWN UINT32_MAX

/* What one writer says about a bucket. */
struct tdm__bucket_description {
    /* Rank of the writer among the trainer ranks, by which errors name it; TDM__WRITER_UNKNOWN if
     * it is not known. */
    uint32_t writer;
    struct tdm_bytes handles; /* Encoded tensor handles (tensor_handles.h); borrowed. */
};

/* Prefixes the error detail with the writer's rank, if it is known. TDM_OK stays TDM_OK. */
tdm_status tdm__merged_handles_wrap(uint32_t writer, tdm_status status);

/* A check of one decoded description against what the reader knows. */
typedef tdm_status tdm__handles_check(const void *arg, const struct tdm__tensor_handles *handles);

/* Decodes the descriptions of one bucket and merges their tensors, in the order of the
 * descriptions, of which there is at least one. The tensors of description i have the storage i,
 * whose field `writer` names the rank that wrote them. An error names the writer. Failures of
 * tdm__tensor_handles_decode() and of `check`, which gets `arg`, are returned. Fails with
 * TDM_E_PROTOCOL in these cases:
 * - The descriptions are of different buckets, updates or nodes, or of different storages.
 * - One of several descriptions has more than one storage.
 * - A description names another writer than its own, or a writer has two descriptions.
 * The caller releases the result with tdm__tensor_handles_fini(). */
tdm_status tdm__merged_handles_decode(const struct tdm__bucket_description *descriptions,
                                      uint32_t descriptions_count, tdm__handles_check *check,
                                      const void *arg, struct tdm__tensor_handles *handles_out);

#endif
