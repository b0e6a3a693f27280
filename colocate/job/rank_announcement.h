/* rank_announcement.h - what one trainer rank gives to the gather of a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RANK_ANNOUNCEMENT_H
#define TDM_COLOCATE_JOB_RANK_ANNOUNCEMENT_H

#include <stdint.h>
#include <tandem/value.h>

/* What one trainer rank tells the engine rank of its number about a bucket. */
struct tdm__rank_announcement {
    uint32_t bucket;        /* Index of the bucket in the update, from 0. */
    uint32_t buckets_count; /* Number of buckets of the whole update. */
    /* Encoded tensor handles (colocate/weights/tensor_handles.h), which have a checksum of their
     * own. */
    struct tdm_bytes tensor_handles;
    /* Bytes that the trainer's attach() has given, at most TDM_ATTACHED_BYTES_MAX; without data if
     * it has given none. Tandem never reads them. */
    struct tdm_bytes attached;
};

/* Encodes an announcement, with a checksum of the attached bytes, into `writer`, whose bytes the
 * gather group carries. TDM_E_LIMIT, with both numbers: more than TDM_ATTACHED_BYTES_MAX bytes are
 * attached. */
tdm_status tdm__rank_announcement_pack(const struct tdm__rank_announcement *announcement,
                                       tdm_writer *writer);

/* Parses what a trainer rank has packed. The announcement borrows from `document_out`, which the
 * caller destroys. TDM_E_PROTOCOL: the bytes are no announcement. TDM_E_LIMIT: too many bytes are
 * attached. TDM_E_CHECKSUM: the attached bytes are others than the trainer rank gave. */
tdm_status tdm__rank_announcement_parse(struct tdm_bytes bytes,
                                        struct tdm__rank_announcement *announcement_out,
                                        tdm_document **document_out);

#endif
