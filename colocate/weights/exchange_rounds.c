/* exchange_rounds.c - one trainer rank's part of the rounds in which ranks exchange pieces. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The pieces of a round are ordered by sender and carrier. The pieces that one rank gives to
 * another thus follow one another in both buffers, as do their checksums. Everything is allocated
 * at the creation, so that no round fails. One thread enters at a time. */

#include "colocate/weights/exchange_rounds.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* The arrays of sizes, each with one element for each rank. */
enum size_array {
    SEND_OFFSETS,
    SEND_BYTES,
    RECEIVE_OFFSETS,
    RECEIVE_BYTES,
    SENT_SUM_OFFSETS,
    SENT_SUM_BYTES,
    RECEIVED_SUM_OFFSETS,
    RECEIVED_SUM_BYTES,
    SIZE_ARRAYS_COUNT
};

/* One rank's part of all rounds. The caller owns it and serializes all calls. */
struct tdm__exchange_rounds {
    const struct tdm__node_exchange *exchange; /* Pieces of all rounds; borrowed. */
    uint32_t rank;                             /* Rank of this process. */
    uint32_t ranks_count;                      /* Number of trainer ranks. */
    uint32_t round;                            /* Round that began last. */
    uint32_t sends_max;                        /* Most pieces that this rank sends in a round. */
    size_t *sizes;                             /* Arrays of the round, by enum size_array. Owned. */
    uint64_t *sent_sums;     /* Checksums of the pieces that this rank sends. Owned. */
    uint64_t *received_sums; /* Checksums of those that it receives. Owned. */
    uint64_t *piece_sums;    /* For each piece the checksum that was received. Owned. */
};

/* Returns one of the arrays of sizes. */
static size_t *size_array(const struct tdm__exchange_rounds *rounds, enum size_array which)
{
    return &rounds->sizes[(size_t)which * rounds->ranks_count];
}

/* Returns the most pieces that this rank sends in one round, or that it receives. */
static uint32_t count_max(const struct tdm__exchange_rounds *rounds, bool received)
{
    const struct tdm__node_exchange *exchange = rounds->exchange;
    uint32_t most = 0;

    for (uint32_t round = 0; round < exchange->rounds_count; round++) {
        uint32_t count = 0;

        for (uint32_t i = exchange->round_firsts[round]; i < exchange->round_firsts[round + 1];
             i++) {
            const struct tdm__exchange_piece *piece = &exchange->pieces[i];

            count += (received ? piece->carrier : piece->copy.from_rank) == rounds->rank ? 1 : 0;
        }
        most = count > most ? count : most;
    }
    return most;
}

tdm_status tdm__exchange_rounds_create(const struct tdm__node_exchange *exchange, uint32_t rank,
                                       uint32_t ranks_count,
                                       struct tdm__exchange_rounds **rounds_out)
{
    struct tdm__exchange_rounds *rounds = calloc(1, sizeof(*rounds));

    if (rounds != NULL) {
        *rounds = (struct tdm__exchange_rounds){
            .exchange = exchange, .rank = rank, .ranks_count = ranks_count};
        rounds->sends_max = count_max(rounds, false);
        rounds->sizes = calloc((size_t)ranks_count * SIZE_ARRAYS_COUNT, sizeof(*rounds->sizes));
        rounds->sent_sums = calloc((size_t)rounds->sends_max + 1, sizeof(*rounds->sent_sums));
        rounds->received_sums =
            calloc((size_t)count_max(rounds, true) + 1, sizeof(*rounds->received_sums));
        rounds->piece_sums =
            calloc((size_t)exchange->pieces_count + 1, sizeof(*rounds->piece_sums));
    }
    if (rounds == NULL || rounds->sizes == NULL || rounds->sent_sums == NULL ||
        rounds->received_sums == NULL || rounds->piece_sums == NULL) {
        tdm__exchange_rounds_destroy(rounds);
        return tdm__fail(TDM_E_NOMEM, "allocating rounds of %u pieces failed: out of memory",
                         exchange->pieces_count);
    }
    *rounds_out = rounds;
    return TDM_OK;
}

void tdm__exchange_rounds_destroy(struct tdm__exchange_rounds *rounds)
{
    if (rounds == NULL) {
        return;
    }
    free(rounds->sizes);
    free(rounds->sent_sums);
    free(rounds->received_sums);
    free(rounds->piece_sums);
    free(rounds);
}

uint32_t tdm__exchange_rounds_sends_max(const struct tdm__exchange_rounds *rounds)
{
    return rounds->sends_max;
}

void tdm__exchange_rounds_keep_sent(struct tdm__exchange_rounds *rounds, uint32_t index,
                                    uint64_t sum)
{
    rounds->sent_sums[index] = sum;
}

/* Adds a piece to the part of one direction that the rank `other` gives or gets. Pieces of one part
 * follow one another, in the buffer and among the checksums; `sums_count` are before this one. */
static void add_to_part(struct tdm__exchange_rounds *rounds, enum size_array offsets,
                        uint32_t other, uint64_t offset, uint64_t room, uint32_t sums_count)
{
    size_t *at = &size_array(rounds, offsets)[other];
    size_t *bytes = &size_array(rounds, offsets + 1)[other];
    size_t *sums_at = &size_array(rounds, offsets + SENT_SUM_OFFSETS)[other];
    size_t *sums_bytes = &size_array(rounds, offsets + SENT_SUM_OFFSETS + 1)[other];

    if (*bytes == 0) {
        *at = offset;
        *sums_at = sums_count * sizeof(uint64_t);
    }
    *bytes += room;
    *sums_bytes += sizeof(uint64_t);
}

/* Returns the parts of one memory, whose arrays begin with `offsets`. */
static struct tdm__exchange_parts parts_of(const struct tdm__exchange_rounds *rounds,
                                           enum size_array offsets)
{
    return (struct tdm__exchange_parts){.send_offsets = size_array(rounds, offsets),
                                        .send_bytes = size_array(rounds, offsets + 1),
                                        .receive_offsets = size_array(rounds, offsets + 2),
                                        .receive_bytes = size_array(rounds, offsets + 3)};
}

void tdm__exchange_rounds_begin(struct tdm__exchange_rounds *rounds, uint32_t round,
                                struct tdm__exchange_round *round_out)
{
    const struct tdm__node_exchange *exchange = rounds->exchange;
    uint32_t counts[2] = {0, 0};
    size_t part_bytes = 0;
    size_t part_sums = 0;

    rounds->round = round;
    memset(rounds->sizes, 0,
           (size_t)rounds->ranks_count * SIZE_ARRAYS_COUNT * sizeof(*rounds->sizes));
    *round_out = (struct tdm__exchange_round){.sent_sums = rounds->sent_sums,
                                              .received_sums = rounds->received_sums,
                                              .pieces = parts_of(rounds, SEND_OFFSETS),
                                              .sums = parts_of(rounds, SENT_SUM_OFFSETS)};
    for (uint32_t i = exchange->round_firsts[round]; i < exchange->round_firsts[round + 1]; i++) {
        const struct tdm__exchange_piece *piece = &exchange->pieces[i];
        uint64_t room = tdm__node_exchange_piece_room(piece);
        bool goes_on = i > exchange->round_firsts[round] &&
                       piece->copy.from_rank == piece[-1].copy.from_rank &&
                       piece->carrier == piece[-1].carrier;

        part_bytes = (goes_on ? part_bytes : 0) + room;
        part_sums = (goes_on ? part_sums : 0) + sizeof(uint64_t);
        if (part_bytes > round_out->pieces.part_bytes_max) {
            round_out->pieces.part_bytes_max = part_bytes;
        }
        if (part_sums > round_out->sums.part_bytes_max) {
            round_out->sums.part_bytes_max = part_sums;
        }
        if (piece->copy.from_rank == rounds->rank) {
            add_to_part(rounds, SEND_OFFSETS, piece->carrier, piece->send_offset, room,
                        counts[0]++);
        } else if (piece->carrier == rounds->rank) {
            add_to_part(rounds, RECEIVE_OFFSETS, piece->copy.from_rank, piece->receive_offset, room,
                        counts[1]++);
        }
    }
}

void tdm__exchange_rounds_end(struct tdm__exchange_rounds *rounds)
{
    const struct tdm__node_exchange *exchange = rounds->exchange;
    uint32_t count = 0;

    for (uint32_t i = exchange->round_firsts[rounds->round];
         i < exchange->round_firsts[rounds->round + 1]; i++) {
        if (exchange->pieces[i].carrier == rounds->rank) {
            rounds->piece_sums[i] = rounds->received_sums[count++];
        }
    }
}

uint64_t tdm__exchange_rounds_sum(const struct tdm__exchange_rounds *rounds, uint32_t piece)
{
    return rounds->piece_sums[piece];
}
