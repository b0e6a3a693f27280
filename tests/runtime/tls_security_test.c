/* tls_security_test.c - without the token nothing is read, injected or downgraded. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each test is one promise of docs/security.md. A peer that is refused is logged once. */
#include "runtime/clock.h"
#include "runtime/rpc/hello.h"
#include "runtime/rpc/protocol.h"
#include "tests/support/tls_relay.h"

#include <openssl/ssl.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

static struct tls_relay relay;

static int set_up(void **state)
{
    (void)state;
    tls_relay_open(&relay, TDM__TLS_ON);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tls_relay_close(&relay);
    return 0;
}

static bool contains(const struct tls_relay_way *way, const void *bytes, size_t count)
{
    return memmem(way->record, way->recorded, bytes, count) != NULL;
}

/* ---- eavesdroppers ---------------------------------------------------------------------- */

static void recorded_traffic_holds_no_secret_no_name_and_no_call(void **state)
{
    const char *const secrets[] = {"text", "echo", "left", "right", "TDMRPC"};
    struct tdm__conn *conn = tls_relay_connect(&relay);

    (void)state;
    assert_int_equal(tls_relay_echo(&relay, conn), TDM_OK);
    assert_true(relay.to_server.recorded > 300 && relay.to_client.recorded > 300);
    assert_false(contains(&relay.to_server, pair_token, TDM__TOKEN_BYTES));
    assert_false(contains(&relay.to_client, pair_token, TDM__TOKEN_BYTES));
    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
        assert_false(contains(&relay.to_server, secrets[i], strlen(secrets[i])));
        assert_false(contains(&relay.to_client, secrets[i], strlen(secrets[i])));
    }
}

/* ---- relays ----------------------------------------------------------------------------- */

/* Opens a connection through the relay and returns it after one call. */
static struct tdm__conn *open_relayed(void)
{
    struct tdm__conn *conn = tls_relay_connect(&relay);

    assert_int_equal(tls_relay_echo(&relay, conn), TDM_OK);
    assert_int_equal(relay.pair.served, 1);
    return conn;
}

static void relay_that_flips_a_bit_of_a_call_ends_the_connection(void **state)
{
    struct tdm__conn *conn = open_relayed();

    (void)state;
    relay.to_server.flip_at = relay.to_server.recorded + 20;
    assert_int_equal(tls_relay_echo(&relay, conn), TDM_E_CLOSED);
    tls_relay_run_until(&relay, &relay.pair.closed, 2);
    assert_int_equal(relay.pair.served, 1);
    assert_int_equal(relay.pair.reasons[1], TDM_E_PROTOCOL);
    /* The server says so, and the client, which TLS tells. */
    assert_int_equal(tls_relay_count_log(&relay, "bytes of left (pid"), 1);
    assert_int_equal(tls_relay_count_log(&relay, "bytes of right (pid"), 1);
}

static void relay_that_flips_a_bit_of_a_reply_ends_the_connection(void **state)
{
    struct tdm__conn *conn = open_relayed();

    (void)state;
    relay.to_client.flip_at = relay.to_client.recorded + 20;
    assert_int_equal(tls_relay_echo(&relay, conn), TDM_E_CLOSED);
    tls_relay_run_until(&relay, &relay.pair.closed, 1);
    assert_int_equal(relay.pair.reasons[0], TDM_E_PROTOCOL);
    assert_int_equal(tls_relay_count_log(&relay, "changed or added on the way"), 1);
}

/* Before there was TLS, such a call ran. */
static void relay_that_injects_a_call_ends_the_connection(void **state)
{
    uint8_t again[512];
    size_t before;
    size_t count;

    (void)state;
    (void)open_relayed();
    /* A call that the client has sent is sent once more. */
    before = relay.to_server.recorded;
    count = before < sizeof(again) ? before : sizeof(again);
    memcpy(again, relay.to_server.record + before - count, count);
    for (size_t i = 0; i + 5 < count; i++) { /* The last record of TLS begins here. */
        size_t length = (size_t)again[i + 3] << 8 | again[i + 4];

        if (again[i] == 0x17 && again[i + 1] == 3 && again[i + 2] == 3 && i + 5 + length == count) {
            assert_int_equal(send(relay.to_server.to, again + i, count - i, MSG_NOSIGNAL),
                             count - i);
            tls_relay_run_until(&relay, &relay.pair.closed, 1);
            assert_int_equal(relay.pair.served, 1);
            assert_int_equal(tls_relay_count_log(&relay, "changed or added on the way"), 1);
            return;
        }
    }
    fail_msg("no record of TLS was found");
}

static void relay_that_injects_plain_text_ends_the_connection(void **state)
{
    static const uint8_t plain[64] = {1, 2, 3};

    (void)state;
    (void)open_relayed();
    assert_int_equal(send(relay.to_server.to, plain, sizeof(plain), MSG_NOSIGNAL), sizeof(plain));
    tls_relay_run_until(&relay, &relay.pair.closed, 1);
    assert_int_equal(relay.pair.served, 1);
}

/* Marks the bytes of what has passed that TLS protects: all but the headers of its records. */
static void mark_protected(const struct tls_relay_way *way, bool *is_protected)
{
    size_t at = 0;

    while (at + 5 <= way->recorded) {
        size_t length = (size_t)way->record[at + 3] << 8 | way->record[at + 4];

        for (size_t i = at + 5; i < at + 5 + length && i < way->recorded; i++) {
            is_protected[i] = true;
        }
        at += 5 + length;
    }
}

/* Calls through a new relay that flips one bit, for 40 ms: a side may wait for bytes that never
 * come. Returns whether the call succeeded. */
static bool call_with_flipped_bit(size_t flip_to_server, size_t flip_to_client)
{
    /* A call that has no reply yet gets one when its relay is closed, after this function. */
    static struct pair_reply reply;
    int64_t limit_ms = tdm__deadline_after(40);

    tls_relay_close(&relay);
    reply = (struct pair_reply){.count = 0};
    tls_relay_open(&relay, TDM__TLS_ON);
    relay.to_server.flip_at = flip_to_server;
    relay.to_client.flip_at = flip_to_client;
    pair_call(tls_relay_connect(&relay), "echo", &reply);
    while (reply.count == 0 && tdm__clock_ms() < limit_ms) {
        tls_relay_run_until(&relay, &reply.count, 0);
        (void)tdm__loop_run(relay.pair.loop, NULL, NULL, tdm__deadline_after(1));
    }
    return reply.count == 1 && reply.status == TDM_OK;
}

static void relay_that_flips_a_bit_of_the_handshake_ends_it(void **state)
{
    static bool is_protected[2][TLS_RELAY_RECORD_BYTES];

    (void)state;
    (void)open_relayed();
    mark_protected(&relay.to_server, is_protected[0]);
    mark_protected(&relay.to_client, is_protected[1]);
    for (size_t i = 0; i < 2 * relay.to_client.recorded; i += 13) {
        bool to_server = i % 2 == 0;

        if (is_protected[to_server ? 0 : 1][i / 2]) {
            assert_false(
                call_with_flipped_bit(to_server ? i / 2 : SIZE_MAX, to_server ? SIZE_MAX : i / 2));
            assert_int_equal(relay.pair.served, 0);
        }
    }
}

static void replayed_connection_runs_no_call(void **state)
{
    static uint8_t record[TLS_RELAY_RECORD_BYTES];
    size_t count;
    int fd;

    (void)state;
    (void)open_relayed();
    count = relay.to_server.recorded;
    memcpy(record, relay.to_server.record, count);
    fd = tls_relay_send_raw(&relay, record, count);
    tls_relay_expect_end(&relay, fd);
    (void)close(fd);
    assert_int_equal(relay.pair.served, 1);
    assert_int_equal(tls_relay_count_log(&relay, "connection with a client ends"), 1);
}

/* ---- clients without the token ----------------------------------------------------------- */

static void client_with_a_wrong_token_is_refused_and_both_sides_say_so_once(void **state)
{
    static const uint8_t wrong_token[TDM__TOKEN_BYTES] = "another token altogether";
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct tdm__peer_identity identity = pair_identity("stranger");
    struct tdm__conn *conn;
    struct tdm__rpc *rpc;

    (void)state;
    assert_int_equal(tdm__rpc_create(relay.pair.loop, &identity, wrong_token, &rpc), TDM_OK);
    tdm__rpc_set_tcp_settings(rpc, &(struct tdm__tcp_settings){.tls_mode = TDM__TLS_ON});
    assert_int_equal(tdm__rpc_connect(rpc, relay.server_address, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_E_CLOSED);
    assert_non_null(strstr(tdm_error_detail(), "does not know the cluster's token"));
    assert_non_null(strstr(tdm_error_detail(), "TANDEM_TOKEN_FILE"));
    pair_run_for(&relay.pair, 10);
    assert_int_equal(relay.pair.served, 0);
    assert_int_equal(tls_relay_count_log(&relay, "a client ends: a client does not know"), 1);
    assert_int_equal(tls_relay_count_log(&relay, "set TANDEM_TOKEN_FILE"), 1);
    tdm__rpc_destroy(rpc);
}

/* What a client of OpenSSL's own does at the server, in a thread. */
struct stranger {
    int fd;              /* Socket to the server. */
    int highest_version; /* Highest version of TLS that the client speaks. */
    int connected;       /* Result of SSL_connect(). */
    atomic_bool is_done; /* Whether the thread has ended. */
};

static void *stranger_run(void *arg)
{
    struct stranger *stranger = arg;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl;

    (void)SSL_CTX_set_max_proto_version(context, stranger->highest_version);
    ssl = SSL_new(context);
    (void)SSL_set_fd(ssl, stranger->fd);
    stranger->connected = SSL_connect(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
    (void)shutdown(stranger->fd, SHUT_RDWR);
    atomic_store(&stranger->is_done, true);
    return NULL;
}

/* Lets a client without the token connect by TLS up to this version, which must fail. */
static void expect_refused(int highest_version)
{
    struct stranger stranger = {.fd = tls_relay_send_raw(&relay, "", 0),
                                .highest_version = highest_version,
                                .connected = 1};
    pthread_t thread;
    const struct timeval limit = {.tv_sec = 5};
    int64_t deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);

    /* OpenSSL's client blocks in its thread, for 5 s at most. */
    assert_int_equal(fcntl(stranger.fd, F_SETFL, 0), 0);
    assert_int_equal(setsockopt(stranger.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(pthread_create(&thread, NULL, stranger_run, &stranger), 0);
    while (!atomic_load(&stranger.is_done)) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)tdm__loop_run(relay.pair.loop, NULL, NULL, tdm__deadline_after(5));
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_not_equal(stranger.connected, 1);
    (void)close(stranger.fd);
    assert_int_equal(relay.pair.served, 0);
    assert_null(relay.pair.conns[1]);
    assert_int_equal(tls_relay_count_log(&relay, "connection with a client ends"), 1);
}

static void client_without_a_token_is_refused(void **state)
{
    (void)state;
    expect_refused(TLS1_3_VERSION);
}

static void client_of_tls_1_2_is_refused(void **state)
{
    (void)state;
    expect_refused(TLS1_2_VERSION);
}

static void plain_text_on_a_tls_port_is_refused(void **state)
{
    struct wire_hello hello = {.role = 1,
                               .kind = TDM__PEER_DRIVER,
                               .magic = {'T', 'D', 'M', 'R', 'P', 'C'},
                               .version = htole32(tdm__protocol_version())};
    int fd = tls_relay_send_raw(&relay, &hello, sizeof(hello));

    (void)state;
    tls_relay_expect_end(&relay, fd);
    (void)close(fd);
    assert_int_equal(tls_relay_count_log(&relay, "sends plain text, and this process wants TLS"),
                     1);
}

static void client_without_tls_is_refused_and_told_the_option(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct tdm__conn *conn;

    (void)state;
    tdm__rpc_set_tcp_settings(relay.pair.rpcs[0],
                              &(struct tdm__tcp_settings){.tls_mode = TDM__TLS_OFF});
    assert_int_equal(tdm__rpc_connect(relay.pair.rpcs[0], relay.server_address, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_E_CLOSED);
    assert_non_null(strstr(tdm_error_detail(), "TANDEM_TLS"));
    assert_int_equal(relay.pair.served, 0);
}

/* ---- servers without the token ----------------------------------------------------------- */

/* Answers a client as a server that speaks no TLS would, and one that breaks it off. */
static void client_never_falls_back_to_plain_text(void **state)
{
    static const char answer[] = "-ERR unknown command\r\n";
    struct tdm__conn *conn = tls_relay_connect(&relay);
    struct pair_reply reply = {.count = 0};
    struct pollfd ready = {.fd = relay.listener, .events = POLLIN};
    uint8_t sent[2048];
    ssize_t count;
    int client;

    (void)state;
    pair_call(conn, "echo", &reply);
    assert_int_equal(poll(&ready, 1, PAIR_WAIT_MS), 1);
    client = accept4(relay.listener, NULL, NULL, SOCK_CLOEXEC);
    pair_run_for(&relay.pair, 20);
    count = recv(client, sent, sizeof(sent), MSG_DONTWAIT);
    assert_true(count > 0 && sent[0] == TDM__TLS_FIRST_BYTE);
    assert_int_equal(send(client, answer, sizeof(answer) - 1, MSG_NOSIGNAL), sizeof(answer) - 1);
    pair_run_until(&relay.pair, &reply.count, 1);
    assert_int_equal(reply.status, TDM_E_CLOSED);
    assert_non_null(strstr(reply.detail, "does not speak TLS 1.3"));
    assert_true(recv(client, sent, sizeof(sent), MSG_DONTWAIT) <= 7); /* Nothing but an alert. */
    (void)close(client);
}

#define SECURITY_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SECURITY_TEST(recorded_traffic_holds_no_secret_no_name_and_no_call),
        SECURITY_TEST(relay_that_flips_a_bit_of_a_call_ends_the_connection),
        SECURITY_TEST(relay_that_flips_a_bit_of_a_reply_ends_the_connection),
        SECURITY_TEST(relay_that_injects_a_call_ends_the_connection),
        SECURITY_TEST(relay_that_injects_plain_text_ends_the_connection),
        SECURITY_TEST(relay_that_flips_a_bit_of_the_handshake_ends_it),
        SECURITY_TEST(replayed_connection_runs_no_call),
        SECURITY_TEST(client_with_a_wrong_token_is_refused_and_both_sides_say_so_once),
        SECURITY_TEST(client_without_a_token_is_refused),
        SECURITY_TEST(client_of_tls_1_2_is_refused),
        SECURITY_TEST(plain_text_on_a_tls_port_is_refused),
        SECURITY_TEST(client_without_tls_is_refused_and_told_the_option),
        SECURITY_TEST(client_never_falls_back_to_plain_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
