/* tls_relay.c - a relay between two endpoints on TCP, which records, changes or adds bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tls_relay.h"

#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/rpc/address.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int listen_on_loopback(char *address, size_t address_bytes)
{
    struct tdm__address any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(tdm__address_parse("tcp:127.0.0.1:0", &any), TDM_OK);
    assert_int_equal(bind(fd, &any.socket.any, any.socket_bytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(tdm__address_of_socket(fd, address, address_bytes), TDM_OK);
    return fd;
}

static int connect_to(const char *text)
{
    struct tdm__address address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(tdm__address_parse(text, &address), TDM_OK);
    assert_int_equal(connect(fd, &address.socket.any, address.socket_bytes), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

void tls_relay_open(struct tls_relay *relay, enum tdm__tls_mode server_mode)
{
    memset(relay, 0, sizeof(*relay));
    pair_create(&relay->pair);
    tdm__rpc_set_tcp_settings(relay->pair.rpcs[0],
                              &(struct tdm__tcp_settings){.tls_mode = TDM__TLS_ON});
    tdm__rpc_set_tcp_settings(relay->pair.rpcs[1],
                              &(struct tdm__tcp_settings){.tls_mode = server_mode});
    assert_int_equal(tdm__rpc_listen(relay->pair.rpcs[1], "tcp:127.0.0.1:0", relay->server_address,
                                     sizeof(relay->server_address)),
                     TDM_OK);
    relay->listener = listen_on_loopback(relay->address, sizeof(relay->address));
    relay->to_server = (struct tls_relay_way){.from = -1, .to = -1, .flip_at = SIZE_MAX};
    relay->to_client = relay->to_server;
    (void)snprintf(relay->log_path, sizeof(relay->log_path), "/tmp/tls_relay.XXXXXX");
    relay->log = mkstemp(relay->log_path);
    assert_true(relay->log >= 0);
    tdm__log_add_output(relay->log);
}

static void hang_up(struct tls_relay *relay)
{
    if (relay->to_server.from >= 0) {
        (void)close(relay->to_server.from);
        (void)close(relay->to_server.to);
    }
    relay->to_server.from = -1;
}

void tls_relay_close(struct tls_relay *relay)
{
    tdm__log_add_output(-1);
    (void)close(relay->log);
    assert_int_equal(unlink(relay->log_path), 0);
    hang_up(relay);
    (void)close(relay->listener);
    pair_destroy(&relay->pair);
}

static void note_end(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct tls_relay *relay = arg;

    (void)conn;
    relay->pair.reasons[0] = reason;
    (void)snprintf(relay->pair.details[0], sizeof(relay->pair.details[0]), "%s", detail);
    relay->pair.closed++;
}

struct tdm__conn *tls_relay_connect(struct tls_relay *relay)
{
    struct tdm__conn *conn;

    hang_up(relay);
    relay->to_server.recorded = 0;
    relay->to_client.recorded = 0;
    assert_int_equal(tdm__rpc_connect(relay->pair.rpcs[0], relay->address, &conn), TDM_OK);
    tdm__conn_on_closed(conn, note_end, relay);
    return conn;
}

/* Whether the last bytes that have passed are the pattern. */
static bool ends_with_pattern(const struct tls_relay_way *way)
{
    return way->pattern != NULL && way->recorded >= way->pattern_bytes &&
           memcmp(way->record + way->recorded - way->pattern_bytes, way->pattern,
                  way->pattern_bytes) == 0;
}

/* Passes on what has come, byte by byte, and records it. */
static void pass_on(struct tls_relay_way *way)
{
    uint8_t byte;
    ssize_t got;

    while ((got = recv(way->from, &byte, 1, 0)) == 1) {
        assert_true(way->recorded < TLS_RELAY_RECORD_BYTES);
        way->record[way->recorded] = byte;
        byte ^= way->recorded == way->flip_at ? 1 : 0;
        way->recorded++;
        if (ends_with_pattern(way)) {
            byte = way->replacement;
            way->replaced++;
        }
        (void)send(way->to, &byte, 1, MSG_NOSIGNAL);
    }
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        (void)shutdown(way->to, SHUT_WR);
    }
}

static bool pump(void *arg)
{
    struct tls_relay *relay = arg;

    if (relay->to_server.from < 0) {
        int client = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (client >= 0) {
            relay->to_server.from = client;
            relay->to_client.to = client;
            relay->to_server.to = connect_to(relay->server_address);
            relay->to_client.from = relay->to_server.to;
        }
    } else {
        pass_on(&relay->to_server);
        pass_on(&relay->to_client);
    }
    return *relay->value >= relay->goal;
}

/* The loop does not watch the relay's sockets, so it is run in short turns. */
void tls_relay_run_until(struct tls_relay *relay, const uint32_t *value, uint32_t goal)
{
    int64_t deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);

    relay->value = value;
    relay->goal = goal;
    while (!pump(relay)) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)tdm__loop_run(relay->pair.loop, pump, relay, tdm__deadline_after(2));
    }
}

tdm_status tls_relay_echo(struct tls_relay *relay, struct tdm__conn *conn)
{
    struct pair_reply reply = {.count = 0};

    pair_call(conn, "echo", &reply);
    tls_relay_run_until(relay, &reply.count, 1);
    return reply.status;
}

uint32_t tls_relay_count_log(const struct tls_relay *relay, const char *text)
{
    FILE *file = fopen(relay->log_path, "re");
    char line[1024];
    uint32_t count = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, text) != NULL ? 1 : 0;
    }
    (void)fclose(file);
    return count;
}

int tls_relay_send_raw(struct tls_relay *relay, const void *bytes, size_t count)
{
    int fd = connect_to(relay->server_address);

    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), count);
    return fd;
}

static bool has_ended(void *arg)
{
    uint8_t bytes[512];
    ssize_t got = recv(*(int *)arg, bytes, sizeof(bytes), 0);

    return got == 0 || (got < 0 && errno != EAGAIN);
}

void tls_relay_expect_end(struct tls_relay *relay, int fd)
{
    int64_t deadline_ms = tdm__deadline_after(PAIR_WAIT_MS);

    while (!has_ended(&fd)) {
        assert_true(tdm__clock_ms() < deadline_ms);
        (void)tdm__loop_run(relay->pair.loop, has_ended, &fd, tdm__deadline_after(2));
    }
}
