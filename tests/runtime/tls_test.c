/* tls_test.c - calls of every size pass through TLS, and each mode encrypts what it says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/tls.h"

#include "runtime/clock.h"
#include "runtime/relay.h"
#include "runtime/rpc/internal.h"
#include "tests/support/rpc_pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct rpc_pair pair;

static int set_up(void **state)
{
    (void)state;
    pair_create(&pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

/* Connects the pair over TCP at `host` with the modes of client and server. Returns the client's
 * end; the connection may fail later. */
static struct tdm__conn *connect_at(const char *host, enum tdm__tls_mode client,
                                    enum tdm__tls_mode server)
{
    char wanted[64];
    char bound[64];
    struct tdm__conn *conn;

    tdm__rpc_set_tcp_settings(pair.rpcs[0], &(struct tdm__tcp_settings){.tls_mode = client});
    tdm__rpc_set_tcp_settings(pair.rpcs[1], &(struct tdm__tcp_settings){.tls_mode = server});
    (void)snprintf(wanted, sizeof(wanted), "tcp:%s:0", host);
    assert_int_equal(tdm__rpc_listen(pair.rpcs[1], wanted, bound, sizeof(bound)), TDM_OK);
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], bound, &conn), TDM_OK);
    return conn;
}

static tdm_status echo(struct tdm__conn *conn)
{
    struct tdm__rpc_request request = pair_request("echo", "x");

    return tdm__conn_call_wait(conn, &request, NULL, NULL, NULL);
}

static void modes_decide_who_encrypts(void **state)
{
    static const struct {
        enum tdm__tls_mode client;
        enum tdm__tls_mode server;
        bool is_open;
        bool is_encrypted;
    } cases[] = {
        {TDM__TLS_AUTO, TDM__TLS_AUTO, true, false}, {TDM__TLS_ON, TDM__TLS_AUTO, true, true},
        {TDM__TLS_ON, TDM__TLS_ON, true, true},      {TDM__TLS_ON, TDM__TLS_OFF, true, true},
        {TDM__TLS_OFF, TDM__TLS_OFF, true, false},   {TDM__TLS_AUTO, TDM__TLS_ON, false, false},
        {TDM__TLS_OFF, TDM__TLS_ON, false, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tdm__conn *conn = connect_at("127.0.0.1", cases[i].client, cases[i].server);

        assert_int_equal(echo(conn), cases[i].is_open ? TDM_OK : TDM_E_CLOSED);
        if (cases[i].is_open) {
            assert_int_equal(conn->tls != NULL, cases[i].is_encrypted);
            assert_int_equal(pair.conns[1]->tls != NULL, cases[i].is_encrypted);
            tdm__conn_close(conn);
            pair_run_for(&pair, 5);
        }
    }
}

static void names_of_modes_are_read(void **state)
{
    enum tdm__tls_mode mode;

    (void)state;
    assert_int_equal(tdm__tls_mode_parse("--tls", "on", &mode), TDM_OK);
    assert_int_equal(mode, TDM__TLS_ON);
    assert_int_equal(tdm__tls_mode_parse("--tls", "yes", &mode), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(), "--tls wants auto, on or off, not \"yes\"");
    assert_int_equal(setenv("TANDEM_TLS", "off", 1), 0);
    assert_int_equal(tdm__tls_mode_of_environment(&mode), TDM_OK);
    assert_int_equal(mode, TDM__TLS_OFF);
    assert_int_equal(unsetenv("TANDEM_TLS"), 0);
    assert_int_equal(tdm__tls_mode_of_environment(&mode), TDM_OK);
    assert_int_equal(mode, TDM__TLS_AUTO);
}

/* Calls with payloads around the sizes of buffers and records, all at once and in both directions.
 */
static void calls_of_every_size_arrive_unchanged(void **state)
{
    static const size_t sizes[] = {1,     15,    4000,  4096,   16383,   16384,
                                   16385, 32768, 65536, 100000, 1000000, 20000000};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    struct tdm__conn *conn = connect_at("127.0.0.1", TDM__TLS_ON, TDM__TLS_ON);
    struct pair_reply replies[2 * SIZES] = {{.count = 0}};
    tdm_writer *writers[SIZES];

    (void)state;
    assert_int_equal(echo(conn), TDM_OK);
    for (size_t i = 0; i < SIZES; i++) {
        uint8_t *bytes = malloc(sizes[i]);

        assert_non_null(bytes);
        for (size_t at = 0; at < sizes[i]; at++) {
            bytes[at] = (uint8_t)(at * 31 + i + at / 251);
        }
        assert_int_equal(tdm_writer_create(&writers[i]), TDM_OK);
        tdm_write_bytes(writers[i], bytes, sizes[i]);
        free(bytes);
    }
    for (size_t i = 0; i < (size_t)2 * SIZES; i++) {
        const struct tdm__rpc_request request = {.method = "echo",
                                                 .packed = tdm_writer_bytes(writers[i / 2]),
                                                 .deadline_ms = tdm__deadline_after(PAIR_WAIT_MS)};

        assert_int_equal(tdm__conn_call(i % 2 == 0 ? conn : pair.conns[1], &request, pair_on_reply,
                                        &replies[i], NULL),
                         TDM_OK);
    }
    for (size_t i = 0; i < (size_t)2 * SIZES; i++) {
        pair_run_until(&pair, &replies[i].count, 1);
        assert_int_equal(replies[i].status, TDM_OK);
        assert_true(replies[i].hash == pair_hash(tdm_writer_bytes(writers[i / 2])));
    }
    for (size_t i = 0; i < SIZES; i++) {
        tdm_writer_destroy(writers[i]);
    }
}

static void thousands_of_small_calls_keep_their_order(void **state)
{
    enum { CALLS = 5000 };
    struct tdm__conn *conn = connect_at("127.0.0.1", TDM__TLS_ON, TDM__TLS_ON);
    struct pair_reply *replies = calloc(CALLS, sizeof(*replies));

    (void)state;
    assert_non_null(replies);
    for (int i = 0; i < CALLS; i++) {
        pair_call(conn, "echo", &replies[i]);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        pair_run_until(&pair, &replies[i].count, 1);
        assert_int_equal(replies[i].order, i);
    }
    free(replies);
}

/* ---- sockets without frames ---------------------------------------------------------------- */

/* Two TLS connections in a row, as between a daemon and the Redis server of another one: the socket
 * is taken out of the connection, and a relay copies its bytes to a plain socket. */
static void detached_connection_stays_encrypted(void **state)
{
    enum { BYTES = 3000000 };
    struct tdm__conn *conn = connect_at("127.0.0.1", TDM__TLS_ON, TDM__TLS_ON);
    struct tdm__relays *relays = NULL;
    uint8_t *sent = malloc(BYTES);
    uint8_t *got = malloc(BYTES);
    size_t sent_bytes = 0;
    size_t got_bytes = 0;
    int plain[2][2];
    int64_t deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);

    (void)state;
    assert_non_null(sent);
    assert_non_null(got);
    assert_int_equal(echo(conn), TDM_OK);
    pair.conns[0] = conn;
    assert_int_equal(tdm__relays_create(pair.loop, TDM__RELAY_STALL_MS, &relays), TDM_OK);
    for (int i = 0; i < 2; i++) {
        struct tdm__tls *tls = NULL;
        int fd = -1;

        assert_int_equal(tdm__conn_detach(pair.conns[i], &fd, &tls), TDM_OK);
        assert_non_null(tls);
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, plain[i]), 0);
        assert_int_equal(tdm__relays_add(relays, fd, tls, plain[i][1]), TDM_OK);
    }
    for (size_t i = 0; i < BYTES; i++) {
        sent[i] = (uint8_t)(i * 7 + i / 255);
    }
    while (got_bytes < BYTES) {
        ssize_t count = send(plain[0][0], sent + sent_bytes, BYTES - sent_bytes, MSG_NOSIGNAL);

        assert_true(tdm__clock_ms() < deadline_ms);
        sent_bytes += count > 0 ? (size_t)count : 0;
        (void)tdm__loop_run(pair.loop, NULL, NULL, tdm__deadline_after(1));
        while ((count = recv(plain[1][0], got + got_bytes, BYTES - got_bytes, 0)) > 0) {
            got_bytes += (size_t)count;
        }
    }
    assert_memory_equal(sent, got, BYTES);
    (void)close(plain[0][0]); /* The end travels through both relays. */
    while (recv(plain[1][0], got, 1, 0) != 0) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)tdm__loop_run(pair.loop, NULL, NULL, tdm__deadline_after(1));
    }
    (void)close(plain[1][0]);
    tdm__relays_destroy(relays);
    free(sent);
    free(got);
}

#define TLS_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TLS_TEST(modes_decide_who_encrypts),
        TLS_TEST(names_of_modes_are_read),
        TLS_TEST(calls_of_every_size_arrive_unchanged),
        TLS_TEST(thousands_of_small_calls_keep_their_order),
        TLS_TEST(detached_connection_stays_encrypted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
