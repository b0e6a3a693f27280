/* tls_security_test.c - without the token nothing is read, injected or downgraded. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each test is one promise of docs/security.md. A peer that is refused is logged once. */
#include "runtime/clock.h"
#include "runtime/rpc/hello.h"
#include "runtime/rpc/protocol.h"
#include "tests/support/tls_relay.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
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
    static struct pair_reply reply; /* A call without a reply ends when its relay is closed. */
    int64_t limit_ms = tdm__deadline_after(40);

    tls_relay_close(&relay);
    tls_relay_open(&relay, TDM__TLS_ON);
    reply = (struct pair_reply){.count = 0};
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
    bool has_key;        /* Whether the client has the key of the token. */
    int connected;       /* Result of SSL_connect(). */
    int reason;          /* Why it has failed, one of SSL_R_…. */
    atomic_bool is_done; /* Whether the thread has ended. */
};

/* The key that runtime/tls.c derives from pair_token. */
static uint8_t right_key[32];

static void derive_right_key(void)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *hkdf = EVP_KDF_CTX_new(kdf);
    char digest[] = "SHA256";
    char label[] = "tandem tls 1.3 pre-shared key";
    uint8_t token[TDM__TOKEN_BYTES];
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, token, sizeof(token)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label, sizeof(label) - 1),
        OSSL_PARAM_construct_end()};

    memcpy(token, pair_token, sizeof(token));
    assert_int_equal(EVP_KDF_derive(hkdf, right_key, sizeof(right_key), parameters), 1);
    EVP_KDF_CTX_free(hkdf);
    EVP_KDF_free(kdf);
}

/* Offers the right key in TLS 1.3. */
static int offer_key(SSL *ssl, const EVP_MD *digest, const unsigned char **name_out,
                     size_t *name_bytes_out, SSL_SESSION **session_out)
{
    static const unsigned char cipher[2] = {0x13, 0x01};
    SSL_SESSION *session = SSL_SESSION_new();

    (void)digest;
    (void)SSL_SESSION_set1_master_key(session, right_key, sizeof(right_key));
    (void)SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, cipher));
    (void)SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    *name_out = (const unsigned char *)"tandem";
    *name_bytes_out = strlen("tandem");
    *session_out = session;
    return 1;
}

/* Offers the right key in TLS 1.2. */
static unsigned int offer_key_1_2(SSL *ssl, const char *hint, char *name, unsigned int name_bytes,
                                  unsigned char *key, unsigned int key_bytes)
{
    (void)ssl;
    (void)hint;
    (void)snprintf(name, name_bytes, "tandem");
    assert_true(key_bytes >= sizeof(right_key));
    memcpy(key, right_key, sizeof(right_key));
    return sizeof(right_key);
}

static void *stranger_run(void *arg)
{
    struct stranger *stranger = arg;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl;

    (void)SSL_CTX_set_max_proto_version(context, stranger->highest_version);
    if (stranger->has_key) {
        (void)SSL_CTX_set_cipher_list(context, "PSK");
        SSL_CTX_set_psk_client_callback(context, offer_key_1_2);
    }
    if (stranger->has_key && stranger->highest_version == TLS1_3_VERSION) {
        SSL_CTX_set_psk_use_session_callback(context, offer_key);
    }
    ssl = SSL_new(context);
    (void)SSL_set_fd(ssl, stranger->fd);
    stranger->connected = SSL_connect(ssl);
    stranger->reason = ERR_GET_REASON(ERR_peek_last_error());
    SSL_free(ssl);
    SSL_CTX_free(context);
    (void)shutdown(stranger->fd, SHUT_RDWR);
    atomic_store(&stranger->is_done, true);
    return NULL;
}

/* Lets the client connect. */
static void stranger_connect(struct stranger *stranger)
{
    pthread_t thread;
    const struct timeval limit = {.tv_sec = 5};
    int64_t deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);

    /* OpenSSL's client blocks in its thread, for 5 s at most. */
    stranger->fd = tls_relay_send_raw(&relay, "", 0);
    assert_int_equal(fcntl(stranger->fd, F_SETFL, 0), 0);
    assert_int_equal(setsockopt(stranger->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(pthread_create(&thread, NULL, stranger_run, stranger), 0);
    while (!atomic_load(&stranger->is_done)) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)tdm__loop_run(relay.pair.loop, NULL, NULL, tdm__deadline_after(5));
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(stranger->fd);
}

/* Lets a client connect, which must fail for this reason. */
static void expect_refused(struct stranger *stranger, int reason)
{
    stranger_connect(stranger);
    assert_int_not_equal(stranger->connected, 1);
    assert_int_equal(stranger->reason, reason);
    assert_int_equal(relay.pair.served, 0);
    assert_null(relay.pair.conns[1]);
    assert_int_equal(tls_relay_count_log(&relay, "connection with a client ends"), 1);
}

static void client_without_a_token_is_refused(void **state)
{
    struct stranger stranger = {.highest_version = TLS1_3_VERSION};

    (void)state;
    expect_refused(&stranger, SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE);
}

/* The client has the right key, and is refused for its version and for nothing else: with TLS 1.3
 * it gets through. */
static void client_of_tls_1_2_is_refused(void **state)
{
    struct stranger old = {.highest_version = TLS1_2_VERSION, .has_key = true};
    struct stranger new = {.highest_version = TLS1_3_VERSION, .has_key = true};

    (void)state;
    derive_right_key();
    expect_refused(&old, SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);
    assert_int_equal(tls_relay_count_log(&relay, "unsupported protocol"), 1);
    stranger_connect(&new);
    assert_int_equal(new.connected, 1);
}

/* The relay lets the client's hello offer TLS 1.2 in place of TLS 1.3. */
static void relay_that_asks_for_tls_1_2_ends_the_connection(void **state)
{
    /* The extension supported_versions with TLS 1.3 alone. */
    static const uint8_t versions[] = {0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04};
    struct tdm__conn *conn = tls_relay_connect(&relay);

    (void)state;
    relay.to_server.pattern = versions;
    relay.to_server.pattern_bytes = sizeof(versions);
    relay.to_server.replacement = 0x03;
    assert_int_equal(tls_relay_echo(&relay, conn), TDM_E_CLOSED);
    assert_int_equal(relay.to_server.replaced, 1);
    tls_relay_run_until(&relay, &relay.pair.closed, 1);
    assert_int_equal(relay.pair.served, 0);
    assert_non_null(strstr(relay.pair.details[0], "does not speak TLS 1.3"));
    assert_non_null(strstr(relay.pair.details[0], "alert protocol version"));
    assert_int_equal(tls_relay_count_log(&relay, "unsupported protocol"), 1);
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
        SECURITY_TEST(relay_that_asks_for_tls_1_2_ends_the_connection),
        SECURITY_TEST(plain_text_on_a_tls_port_is_refused),
        SECURITY_TEST(client_without_tls_is_refused_and_told_the_option),
        SECURITY_TEST(client_never_falls_back_to_plain_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
