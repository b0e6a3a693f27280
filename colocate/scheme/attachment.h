/* attachment.h - bytes of the user that travel with a version. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_ATTACHMENT_H
#define TDM_COLOCATE_SCHEME_ATTACHMENT_H

#include <stdint.h>
#include <tandem/value.h>

/* A copy of the bytes that a sender attaches to a version. All zero: there are none. Tandem never
 * looks into them. */
struct tdm__attachment {
    void *data;        /* The bytes; NULL if there are none. Owned. */
    size_t size_bytes; /* Number of bytes, at most TDM_WEIGHTS_ATTACHED_BYTES_MAX. */
    uint64_t sum;      /* Checksum of the bytes at the sender; 0 if there are none. */
};

/* Replaces the bytes by a copy of `bytes` and computes their checksum. Returns TDM_E_LIMIT, with
 * both numbers, for more than TDM_WEIGHTS_ATTACHED_BYTES_MAX bytes. A failure changes nothing. */
tdm_status tdm__attachment_set(struct tdm__attachment *attachment, struct tdm_bytes bytes);
/* Replaces the bytes by a copy of received ones and keeps the checksum that came with them. Fails
 * like tdm__attachment_set(). */
tdm_status tdm__attachment_receive(struct tdm__attachment *attachment, struct tdm_bytes bytes,
                                   uint64_t sum);
/* Returns TDM_E_CHECKSUM if the received bytes do not have the checksum that came with them. */
tdm_status tdm__attachment_verify(const struct tdm__attachment *attachment);
/* Moves the bytes of `from` to `to`, whose own bytes are freed. `from` has none then. */
void tdm__attachment_move(struct tdm__attachment *to, struct tdm__attachment *from);
/* Frees the bytes. */
void tdm__attachment_fini(struct tdm__attachment *attachment);

#endif
