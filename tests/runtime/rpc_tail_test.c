/* rpc_tail_test.c - the tail of a call, and the buffer into which it is read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* LARGE is several times the capacity of a socket; SMALL arrives with one read. */
enum { LARGE = 3 << 20, SMALL = 100 };

static struct rpc_pair pair;
static struct pair_reply answers[PAIR_HELD_MAX];
static char sent[LARGE];
static char places[2][LARGE];

static int set_up(void **state)
{
    (void)state;
    memset(answers, 0, sizeof(answers));
    memset(places, 0, sizeof(places));
    for (size_t i = 0; i < sizeof(sent); i++) {
        sent[i] = (char)(i * 7 + i / 251);
    }
    pair_create(&pair);
    pair_join(&pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

static void send(size_t tail_bytes, struct pair_reply *answer)
{
    struct tdm__rpc_request request = pair_request("hold", "text");

    request.tail = (struct tdm_bytes){sent, tail_bytes};
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, answer, NULL), TDM_OK);
}

/* Waits for call number `index`, checks its value and its tail, and returns the tail's address. */
static const char *tail_of(uint32_t index, size_t tail_bytes)
{
    const struct tdm__incoming_call *incoming;
    struct tdm_bytes packed;
    struct tdm_bytes tail;

    pair_run_until(&pair, &pair.held_count, index + 1);
    incoming = pair.held[index];
    packed = tdm__incoming_packed(incoming);
    tail = tdm__incoming_tail(incoming);
    assert_true(pair_hash(packed) == pair_hash(pair_text("text")));
    assert_int_equal(tail.size_bytes, tail_bytes);
    assert_memory_equal(tail.data, sent, tail_bytes);
    return tail.data;
}

static void answer_all(void)
{
    for (uint32_t i = 0; i < pair.held_count; i++) {
        tdm__incoming_reply(pair.held[i], pair_text("text"), NULL, 0);
    }
    pair_run_until(&pair, &answers[pair.held_count - 1].count, 1);
    pair.held_count = 0;
}

static void tail_arrives_with_its_value(void **state)
{
    (void)state;
    send(LARGE, &answers[0]);
    send(SMALL, &answers[1]);
    send(0, &answers[2]);
    send(SMALL, &answers[3]);
    (void)tail_of(0, LARGE);
    (void)tail_of(1, SMALL);
    assert_null(tail_of(2, 0));
    (void)tail_of(3, SMALL);
    answer_all();
}

static void tail_lands_where_it_is_wanted(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        tdm__conn_set_tail_buffer(pair.conns[1], places[i], i == 0 ? LARGE : SMALL);
        send(i == 0 ? LARGE : SMALL, &answers[i]);
        assert_ptr_equal(tail_of(i, i == 0 ? LARGE : SMALL), places[i]);
    }
    answer_all();
}

static void only_the_next_call_lands(void **state)
{
    (void)state;
    tdm__conn_set_tail_buffer(pair.conns[1], places[0], SMALL);
    send(SMALL, &answers[0]);
    send(SMALL, &answers[1]);
    assert_ptr_equal(tail_of(0, SMALL), places[0]);
    assert_ptr_not_equal(tail_of(1, SMALL), places[0]);
    answer_all();
}

static void another_size_does_not_land(void **state)
{
    (void)state;
    tdm__conn_set_tail_buffer(pair.conns[1], places[0], SMALL);
    send(SMALL + 1, &answers[0]);
    assert_ptr_not_equal(tail_of(0, SMALL + 1), places[0]);
    assert_int_equal(places[0][1], 0);
    answer_all();
}

static void place_can_be_taken_back(void **state)
{
    (void)state;
    tdm__conn_set_tail_buffer(pair.conns[1], places[0], SMALL);
    tdm__conn_set_tail_buffer(pair.conns[1], NULL, 0);
    send(SMALL, &answers[0]);
    assert_ptr_not_equal(tail_of(0, SMALL), places[0]);
    answer_all();
}

/* The peer is slow: a part of the first call has arrived, and its tail goes to another buffer. */
static void call_on_its_way_does_not_land(void **state)
{
    (void)state;
    send(LARGE, &answers[0]);
    tdm__loop_run(pair.loop, NULL, NULL, 0);
    assert_int_equal(pair.held_count, 0);
    tdm__conn_set_tail_buffer(pair.conns[1], places[0], LARGE);
    send(LARGE, &answers[1]);
    assert_ptr_not_equal(tail_of(0, LARGE), places[0]);
    assert_ptr_not_equal(tail_of(1, LARGE), places[0]);
    answer_all();
}

static void tail_needs_a_value_of_few_bytes(void **state)
{
    struct tdm__rpc_request request = {.method = "hold", .tail = {sent, 1}};

    (void)state;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_LIMIT);
    request.packed = (struct tdm_bytes){sent, 65536};
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_LIMIT);
    request.packed.size_bytes = 65535;
    request.tail.size_bytes = TDM__RPC_FRAME_BYTES_MAX;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tail_arrives_with_its_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tail_lands_where_it_is_wanted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_next_call_lands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_size_does_not_land, set_up, tear_down),
        cmocka_unit_test_setup_teardown(place_can_be_taken_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(call_on_its_way_does_not_land, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tail_needs_a_value_of_few_bytes, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
