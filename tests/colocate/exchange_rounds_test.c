/* exchange_rounds_test.c - each rank knows what it gives to each other rank, and gets, in a round.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/exchange_rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 4 };

/* Two rounds. In the first, rank 0 gives rank 2 two pieces and rank 3 one, and rank 1 gives rank 2
 * one. In the second, rank 1 gives rank 3 one. */
static struct tdm__exchange_piece pieces[] = {
    {.copy = {.from_rank = 0}, .carrier = 2, .size_bytes = 100},
    {.copy = {.from_rank = 0}, .carrier = 2, .size_bytes = 16, .send_offset = 112},
    {.copy = {.from_rank = 0}, .carrier = 3, .size_bytes = 7, .send_offset = 128},
    {.copy = {.from_rank = 1}, .carrier = 2, .size_bytes = 32},
    {.copy = {.from_rank = 1}, .carrier = 3, .size_bytes = 48, .round = 1},
};
static uint32_t round_firsts[] = {0, 4, 5};
static const struct tdm__node_exchange exchange = {
    .pieces = pieces, .pieces_count = 5, .rounds_count = 2, .round_firsts = round_firsts};

static void test_parts_are_those_of_the_pieces(void **state)
{
    struct tdm__exchange_rounds *sender;
    struct tdm__exchange_rounds *carrier;
    struct tdm__exchange_round round;

    (void)state;
    pieces[0].receive_offset = 32;
    pieces[1].receive_offset = 144;
    pieces[3].receive_offset = 160;
    TRY(tdm__exchange_rounds_create(&exchange, 0, RANKS, &sender));
    TRY(tdm__exchange_rounds_create(&exchange, 2, RANKS, &carrier));
    assert_int_equal(tdm__exchange_rounds_sends_max(sender), 3);
    assert_int_equal(tdm__exchange_rounds_sends_max(carrier), 0);
    tdm__exchange_rounds_begin(sender, 0, &round);
    assert_int_equal(round.pieces.part_bytes_max, 128); /* Of rank 0 for rank 2, with a gap. */
    assert_int_equal(round.sums.part_bytes_max, 16);
    assert_int_equal(round.pieces.send_bytes[2], 128);
    assert_int_equal(round.pieces.send_offsets[3], 128);
    assert_int_equal(round.pieces.send_bytes[3], 16);
    assert_int_equal(round.pieces.receive_bytes[2], 0);
    assert_int_equal(round.sums.send_offsets[3], 16);
    assert_int_equal(round.sums.send_bytes[3], 8);
    tdm__exchange_rounds_begin(carrier, 0, &round);
    assert_int_equal(round.pieces.part_bytes_max, 128);
    assert_int_equal(round.pieces.receive_offsets[0], 32);
    assert_int_equal(round.pieces.receive_bytes[0], 128);
    assert_int_equal(round.pieces.receive_offsets[1], 160);
    assert_int_equal(round.sums.receive_offsets[1], 16);
    assert_int_equal(round.sums.receive_bytes[1], 8);
    tdm__exchange_rounds_begin(carrier, 1, &round); /* Others meet without this rank's bytes. */
    assert_int_equal(round.pieces.part_bytes_max, 48);
    assert_int_equal(round.pieces.receive_bytes[0], 0);
    assert_int_equal(round.sums.receive_bytes[1], 0);
    tdm__exchange_rounds_destroy(sender);
    tdm__exchange_rounds_destroy(carrier);
}

static void test_checksums_belong_to_their_pieces(void **state)
{
    struct tdm__exchange_rounds *sender;
    struct tdm__exchange_rounds *carrier;
    struct tdm__exchange_round sent;
    struct tdm__exchange_round received;

    (void)state;
    TRY(tdm__exchange_rounds_create(&exchange, 0, RANKS, &sender));
    TRY(tdm__exchange_rounds_create(&exchange, 2, RANKS, &carrier));
    for (uint32_t i = 0; i < 3; i++) {
        tdm__exchange_rounds_keep_sent(sender, i, 70 + i);
    }
    tdm__exchange_rounds_begin(sender, 0, &sent);
    assert_int_equal(sent.sent_sums[2], 72);
    tdm__exchange_rounds_begin(carrier, 0, &received);
    received.received_sums[0] = sent.sent_sums[0];
    received.received_sums[1] = sent.sent_sums[1];
    received.received_sums[2] = 90; /* From rank 1. */
    tdm__exchange_rounds_end(carrier);
    tdm__exchange_rounds_begin(carrier, 1, &received);
    tdm__exchange_rounds_end(carrier);
    /* A later round does not change what came before, which later chunks may need. */
    assert_int_equal(tdm__exchange_rounds_sum(carrier, 0), 70);
    assert_int_equal(tdm__exchange_rounds_sum(carrier, 1), 71);
    assert_int_equal(tdm__exchange_rounds_sum(carrier, 3), 90);
    tdm__exchange_rounds_destroy(sender);
    tdm__exchange_rounds_destroy(carrier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_those_of_the_pieces),
        cmocka_unit_test(test_checksums_belong_to_their_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
