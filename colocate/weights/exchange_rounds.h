/* exchange_rounds.h - one trainer rank's part of the rounds in which ranks exchange pieces. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_EXCHANGE_ROUNDS_H
#define TDM_COLOCATE_WEIGHTS_EXCHANGE_ROUNDS_H

#include "colocate/weights/node_exchange.h"

/* In each round the ranks exchange packed pieces, and then the checksums of these pieces, which the
 * senders have computed while they packed. The carrier of a piece compares the checksum with that
 * of every copy that it makes of the piece. */
struct tdm__exchange_rounds;

/* What a rank gives to each rank and gets from each, in one memory. */
struct tdm__exchange_parts {
    const size_t *send_offsets;    /* Offset in bytes of what each rank gets from this one. */
    const size_t *send_bytes;      /* Number of bytes that each rank gets from this one. */
    const size_t *receive_offsets; /* Offset in bytes of what each rank gives to this one. */
    const size_t *receive_bytes;   /* Number of bytes that each rank gives to this one. */
    /* The largest number of bytes that one rank gives to another; the same on all ranks. */
    size_t part_bytes_max;
};

/* One round, as one rank sees it. All pointers are borrowed until the next round. */
struct tdm__exchange_round {
    const void *send;                  /* Address of this rank's send buffer. */
    void *receive;                     /* Address of this rank's receive buffer. */
    struct tdm__exchange_parts pieces; /* Parts of these buffers. */
    const uint64_t *sent_sums;         /* Checksums of the pieces that this rank sends. */
    uint64_t *received_sums;         /* Memory for the checksums of the pieces that it receives. */
    struct tdm__exchange_parts sums; /* Parts of these two arrays. */
};

/* Creates what rank `rank` needs for the rounds of an exchange, which is borrowed, among
 * `ranks_count` trainer ranks. */
tdm_status tdm__exchange_rounds_create(const struct tdm__node_exchange *exchange, uint32_t rank,
                                       uint32_t ranks_count,
                                       struct tdm__exchange_rounds **rounds_out);
/* Frees it; NULL is allowed. */
void tdm__exchange_rounds_destroy(struct tdm__exchange_rounds *rounds);

/* Returns the most pieces that this rank sends in one round. */
uint32_t tdm__exchange_rounds_sends_max(const struct tdm__exchange_rounds *rounds);
/* Stores the checksum of the piece that this rank sends as number `index` of its round. */
void tdm__exchange_rounds_keep_sent(struct tdm__exchange_rounds *rounds, uint32_t index,
                                    uint64_t sum);
/* Computes the parts of one round. The caller sets the addresses of the buffers. */
void tdm__exchange_rounds_begin(struct tdm__exchange_rounds *rounds, uint32_t round,
                                struct tdm__exchange_round *round_out);
/* Notes the checksums that were received in the round that began last. */
void tdm__exchange_rounds_end(struct tdm__exchange_rounds *rounds);
/* Returns the checksum that the sender has computed for a piece that this rank carries. */
uint64_t tdm__exchange_rounds_sum(const struct tdm__exchange_rounds *rounds, uint32_t piece);

#endif
