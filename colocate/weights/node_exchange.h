/* node_exchange.h - which bytes of a transfer plan cross between nodes, and which rank gets them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_NODE_EXCHANGE_H
#define TDM_COLOCATE_WEIGHTS_NODE_EXCHANGE_H

#include "colocate/weights/transfer_plan.h"

/* A trainer rank writes into memory of its own node only. What engine ranks want from trainer ranks
 * of other nodes is divided into pieces. The rank that has a piece packs it into its send buffer,
 * converted, and all trainer ranks exchange their pieces. Each piece goes to one trainer rank of
 * the node that wants it, the carrier, also if several engine ranks of that node want it. The
 * carrier writes it from its receive buffer to all of them, and describes these copies as its own.
 *
 * The pieces of a chunk are exchanged in rounds, in each of which no rank sends or receives more
 * than a limit, unless one piece is larger. Engine ranks that want a piece in different chunks get
 * it from the receive buffer, where it stays from the first of these chunks to the last. */

/* Bytes that a trainer rank sends to one rank of another node. */
struct tdm__exchange_piece {
    /* How the sender packs the piece: a copy of its slice whose rows have no gaps in the send
     * buffer. The places in an engine rank's slice are those of one copy that the piece replaces.
     */
    struct tdm__rect_copy copy;
    uint64_t send_offset;    /* Offset in bytes in the send buffer of rank copy.from_rank. */
    uint64_t receive_offset; /* Offset in bytes in the carrier's receive buffer. */
    uint64_t size_bytes;     /* Number of bytes of the piece. */
    uint32_t carrier;        /* Trainer rank that receives the piece. */
    uint32_t image;          /* An engine rank that wants the piece. */
    uint32_t round;          /* Round in which the piece is exchanged, among those of all chunks. */
};

/* All pieces of a transfer plan. It never changes after its creation. */
struct tdm__node_exchange {
    /* Pieces in the order of their rounds, then by sender, then by carrier; owned. In both buffers
     * the pieces of one round, sender and carrier follow one another in this order. */
    struct tdm__exchange_piece *pieces;
    uint32_t pieces_count; /* Number of entries in `pieces`. */
    uint32_t rounds_count; /* Number of rounds of all chunks. */
    /* For each round the index of its first piece, and one entry more for the end. Owned. */
    uint32_t *round_firsts;
    /* For each chunk the index of its first round, and one entry more for the end. Owned. */
    uint32_t *chunk_rounds;
    /* For each chunk true if engine ranks want some of its pieces in later chunks. Owned. */
    bool *chunk_keeps;
    /* For each image an array with 1 plus the index of the piece that a copy writes, for each copy;
     * 0 for a copy from a slice. Owned. */
    uint32_t **image_pieces;
    uint32_t images_count;  /* Number of entries in `image_pieces`. */
    uint64_t send_bytes;    /* Size in bytes of the largest send buffer. */
    uint64_t receive_bytes; /* Size in bytes of the largest receive buffer. */
};

/* Arguments of tdm__node_exchange_create(). The pointers are borrowed for the call. */
struct tdm__node_exchange_options {
    const struct tdm__location *from_locations; /* Where each trainer rank is. */
    const struct tdm__location *to_locations;   /* Where each engine rank's target is. */
    /* Most bytes that a rank sends, and most that it receives, in one round. */
    uint64_t round_bytes;
};

/* Divides what crosses between nodes into pieces. Replaces each copy of the plan's images between
 * two nodes by copies of the carrier from its receive buffer. Returns TDM_E_UNSUPPORTED if an
 * engine rank is on a node without a trainer rank. After a failure the caller frees the plan, whose
 * copies may have changed, and nothing else. */
tdm_status tdm__node_exchange_create(struct tdm__transfer_plan *transfer_plan,
                                     const struct tdm__node_exchange_options *options,
                                     struct tdm__node_exchange **exchange_out);
/* Frees an exchange; NULL is allowed. */
void tdm__node_exchange_destroy(struct tdm__node_exchange *exchange);

/* Returns the number of rounds of a chunk; 0 if there is no exchange. */
uint32_t tdm__node_exchange_rounds(const struct tdm__node_exchange *exchange, uint32_t chunk);
/* Returns the number of bytes that a piece takes in the buffers, which keeps the next piece
 * aligned. */
uint64_t tdm__node_exchange_piece_room(const struct tdm__exchange_piece *piece);

#endif
