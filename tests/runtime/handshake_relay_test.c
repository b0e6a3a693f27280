/* handshake_relay_test.c - who stands between two processes cannot use or change their proofs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/rpc/rpc.h"
#include "tests/support/rpc_pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Sizes of a hello and of a proof in bytes, and of the record of one direction. */
enum { HELLO_SIZE = 160, PROOF_SIZE = 32, RECORD_SIZE = 4096 };

/* One direction of the relay. */
struct direction {
    int from;                    /* Socket to read from. */
    int to;                      /* Socket to write to. */
    uint8_t record[RECORD_SIZE]; /* Bytes that have passed. */
    size_t recorded;             /* Number of bytes that have passed. */
    size_t flip_at; /* Number of the byte in which one bit is flipped; SIZE_MAX: none. */
};

/* A relay between a client and a server. */
struct relay {
    struct rpc_pair pair;              /* The two processes: 0 is the client, 1 the server. */
    struct direction to_server;        /* Bytes from the client to the server. */
    struct direction to_client;        /* Bytes from the server to the client. */
    bool (*done)(struct relay *relay); /* Condition that relay_run() waits for. */
};

static void relay_open(struct relay *relay, size_t flip_to_server, size_t flip_to_client)
{
    int client[2];
    int server[2];

    pair_create(&relay->pair);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, client), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, server), 0);
    relay->to_server =
        (struct direction){.from = client[1], .to = server[1], .flip_at = flip_to_server};
    relay->to_client =
        (struct direction){.from = server[1], .to = client[1], .flip_at = flip_to_client};
    pair_adopt(&relay->pair, client[0], server[0]);
}

static void relay_close(struct relay *relay)
{
    (void)close(relay->to_server.from);
    (void)close(relay->to_server.to);
    pair_destroy(&relay->pair);
}

/* Passes on what has come, byte by byte, and records it. */
static void pass_on(struct direction *direction)
{
    uint8_t byte;
    ssize_t got;

    while ((got = recv(direction->from, &byte, 1, 0)) == 1) {
        assert_true(direction->recorded < RECORD_SIZE);
        direction->record[direction->recorded] = byte;
        byte ^= direction->recorded == direction->flip_at ? 1 : 0;
        direction->recorded++;
        (void)send(direction->to, &byte, 1, MSG_NOSIGNAL);
    }
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        (void)shutdown(direction->to, SHUT_WR);
    }
}

static bool pump(void *arg)
{
    struct relay *relay = arg;

    pass_on(&relay->to_server);
    pass_on(&relay->to_client);
    return relay->done(relay);
}

static void relay_run(struct relay *relay, bool (*done)(struct relay *relay))
{
    relay->done = done;
    assert_int_equal(
        tdm__loop_run(relay->pair.loop, pump, relay, tdm__deadline_after(PAIR_WAIT_MS)), TDM_OK);
}

static bool both_are_open(struct relay *relay)
{
    return relay->pair.conns[0] != NULL && relay->pair.conns[1] != NULL &&
           tdm__conn_is_open(relay->pair.conns[0]) && tdm__conn_is_open(relay->pair.conns[1]);
}

static bool server_has_closed(struct relay *relay)
{
    return relay->pair.conns[1] == NULL;
}

static bool client_has_closed(struct relay *relay)
{
    return relay->pair.conns[0] == NULL;
}

static bool one_has_closed(struct relay *relay)
{
    return server_has_closed(relay) || client_has_closed(relay);
}

static void honest_relay_is_not_noticed(void **state)
{
    struct relay relay;

    (void)state;
    relay_open(&relay, SIZE_MAX, SIZE_MAX);
    relay_run(&relay, both_are_open);
    assert_true(relay.to_server.recorded == HELLO_SIZE + PROOF_SIZE);
    assert_true(relay.to_client.recorded == HELLO_SIZE + PROOF_SIZE);
    relay_close(&relay);
}

static void recorded_proof_does_not_open_another_connection(void **state)
{
    uint8_t record[HELLO_SIZE + PROOF_SIZE];
    struct relay relay;

    (void)state;
    relay_open(&relay, SIZE_MAX, SIZE_MAX);
    relay_run(&relay, both_are_open);
    memcpy(record, relay.to_server.record, sizeof(record));
    relay_close(&relay);

    relay_open(&relay, SIZE_MAX, SIZE_MAX);
    tdm__conn_close(relay.pair.conns[0]); /* The client is silent; the record takes its place. */
    relay.pair.conns[0] = NULL;
    assert_true(send(relay.to_server.to, record, sizeof(record), MSG_NOSIGNAL) == sizeof(record));
    relay_run(&relay, server_has_closed);
    assert_int_equal(relay.pair.reasons[1], TDM_E_AUTH);
    relay_close(&relay);
}

static void every_byte_of_the_clients_proof_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROOF_SIZE; i++) {
        struct relay relay;

        relay_open(&relay, HELLO_SIZE + i, SIZE_MAX);
        relay_run(&relay, server_has_closed);
        assert_int_equal(relay.pair.reasons[1], TDM_E_AUTH);
        relay_close(&relay);
    }
}

static void every_byte_of_the_servers_proof_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROOF_SIZE; i++) {
        struct relay relay;

        relay_open(&relay, SIZE_MAX, HELLO_SIZE + i);
        relay_run(&relay, client_has_closed);
        assert_int_equal(relay.pair.reasons[0], TDM_E_AUTH);
        relay_close(&relay);
    }
}

/* A hello is covered by both proofs, so no byte of it can be changed on the way. */
static void every_byte_of_the_hellos_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * HELLO_SIZE; i++) {
        struct relay relay;

        relay_open(&relay, i < HELLO_SIZE ? i : SIZE_MAX,
                   i < HELLO_SIZE ? SIZE_MAX : i - HELLO_SIZE);
        relay_run(&relay, one_has_closed);
        relay_close(&relay);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_relay_is_not_noticed),
        cmocka_unit_test(recorded_proof_does_not_open_another_connection),
        cmocka_unit_test(every_byte_of_the_clients_proof_counts),
        cmocka_unit_test(every_byte_of_the_servers_proof_counts),
        cmocka_unit_test(every_byte_of_the_hellos_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
