/* handshake_test.c - a peer that does not know the token is refused, whatever it sends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/log.h"
#include "runtime/rpc/address.h"
#include "runtime/rpc/handshake.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/protocol.h"
#include "runtime/wire/frame.h"
#include "tests/support/rpc_pair.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <tandem/collective.h>
#include <unistd.h>

#include <cmocka.h>

static struct rpc_pair pair;
static char address[64];

static int set_up(void **state)
{
    (void)state;
    pair_create(&pair);
    (void)snprintf(address, sizeof(address), "unix:/tmp/handshake_test.%d.sock", (int)getpid());
    assert_int_equal(tdm__rpc_listen(pair.rpcs[1], address, NULL, 0), TDM_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    assert_int_equal(access(address + strlen("unix:"), F_OK), -1);
    return 0;
}

static void note_end(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    (void)arg;
    (void)conn;
    pair.reasons[0] = reason;
    (void)snprintf(pair.details[0], sizeof(pair.details[0]), "%s", detail);
    pair.closed++;
}

static void both_sides_authenticate_and_exchange_identities(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct tdm__conn *conn;

    (void)state;
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], address, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_OK);
    assert_int_equal(tdm__conn_peer(conn)->kind, TDM__PEER_WORKER);
    assert_string_equal(tdm__conn_peer(conn)->name, "right");
    assert_non_null(pair.conns[1]);
    assert_string_equal(tdm__conn_peer(pair.conns[1])->name, "left");
    assert_true(tdm__conn_peer(pair.conns[1])->pid == getpid());
}

static void socket_file_is_for_its_user_only(void **state)
{
    struct stat file;

    (void)state;
    assert_int_equal(stat(address + strlen("unix:"), &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
}

static void live_address_is_not_taken_and_a_stale_one_is(void **state)
{
    struct tdm__rpc *rpc = pair.rpcs[0];
    char stale[] = "/tmp/handshake_test_stale.XXXXXX";
    char stale_address[64];
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    int fd;

    (void)state;
    assert_int_equal(tdm__rpc_listen(rpc, address, NULL, 0), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "a process listens"));

    fd = mkstemp(stale);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)snprintf(stale_address, sizeof(stale_address), "unix:%s", stale);
    assert_int_equal(tdm__rpc_listen(rpc, stale_address, NULL, 0), TDM_E_EXISTS);
    assert_int_equal(unlink(stale), 0);

    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(local.sun_path, stale, sizeof(stale));
    assert_int_equal(bind(fd, (struct sockaddr *)&local, sizeof(local)), 0);
    (void)close(fd); /* The socket file remains. */
    assert_int_equal(tdm__rpc_listen(rpc, stale_address, NULL, 0), TDM_OK);
}

static void wrong_token_is_refused_on_both_sides(void **state)
{
    static const uint8_t wrong_token[TDM__TOKEN_BYTES] = "another token altogether";
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct tdm__peer_identity identity = pair_identity("stranger");
    struct tdm__conn *conn;
    struct tdm__rpc *rpc;

    (void)state;
    assert_int_equal(tdm__rpc_create(pair.loop, &identity, wrong_token, &rpc), TDM_OK);
    assert_int_equal(tdm__rpc_connect(rpc, address, &conn), TDM_OK);
    tdm__conn_on_closed(conn, note_end, NULL);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_E_CLOSED);
    assert_non_null(strstr(tdm_error_detail(), "does not know the cluster's token"));
    pair_run_until(&pair, &pair.closed, 1);
    assert_int_equal(pair.reasons[0], TDM_E_AUTH);
    pair_run_for(&pair, 10);
    assert_int_equal(pair.served, 0);
    assert_null(pair.conns[1]);
    tdm__rpc_destroy(rpc);
}

/* Notes the end of the connection, and in `arg` whether it was refused. */
static void note_refusal(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    *(bool *)arg = tdm__conn_was_refused(conn);
    note_end(NULL, conn, reason, detail);
}

/* Another process listens at the address of one that has ended. */
static void connection_opens_to_the_expected_process_only(void **state)
{
    static const struct tdm__id gone = {.bytes = {1, 2, 3}};
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct tdm__conn *conn;
    bool was_refused = false;

    (void)state;
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], address, &conn), TDM_OK);
    tdm__conn_expect_peer(conn, &gone);
    tdm__conn_on_closed(conn, note_refusal, &was_refused);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_E_CLOSED);
    pair_run_until(&pair, &pair.closed, 1);
    assert_true(was_refused);
    assert_int_equal(pair.reasons[0], TDM_E_NODE_LOST);
    assert_int_equal(pair.served, 0);
}

/* ---- a client made by hand -------------------------------------------------------------- */

static int connect_raw(void)
{
    struct tdm__address parsed;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(tdm__address_parse(address, &parsed), TDM_OK);
    assert_int_equal(connect(fd, &parsed.socket.any, parsed.socket_bytes), 0);
    return fd;
}

static bool has_ended(void *arg)
{
    char byte;
    ssize_t rc = recv(*(int *)arg, &byte, 1, MSG_PEEK);

    return rc == 0 || (rc < 0 && errno != EAGAIN);
}

struct awaited {
    int fd;
    uint8_t *bytes; /* Bytes that the peer can still read. */
    size_t bytes_count;
};

static bool has_come(void *arg)
{
    const struct awaited *awaited = arg;

    return recv(awaited->fd, awaited->bytes, awaited->bytes_count, MSG_PEEK) ==
           (ssize_t)awaited->bytes_count;
}

/* Receives exactly `bytes_count` bytes and nothing more. */
static void expect_answer(int fd, uint8_t *bytes, size_t bytes_count)
{
    struct awaited awaited = {fd, bytes, bytes_count};

    assert_int_equal(
        tdm__loop_run(pair.loop, has_come, &awaited, tdm__deadline_after(PAIR_WAIT_MS)), TDM_OK);
    assert_true(recv(fd, bytes, bytes_count, 0) == (ssize_t)bytes_count);
    assert_true(recv(fd, bytes, 1, MSG_PEEK) <= 0);
}

static void expect_end(int fd)
{
    assert_int_equal(tdm__loop_run(pair.loop, has_ended, &fd, tdm__deadline_after(PAIR_WAIT_MS)),
                     TDM_OK);
    (void)close(fd);
    assert_int_equal(pair.served, 0);
    assert_null(pair.conns[1]);
}

static void garbage_of_an_unauthenticated_client_is_dropped(void **state)
{
    char garbage[HELLO_BYTES];
    int fd = connect_raw();

    (void)state;
    memset(garbage, 'G', sizeof(garbage));
    assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
    expect_end(fd);
}

/* The reply reaches also a client that sends more than a hello. */
static void client_that_speaks_http_is_told_what_the_port_is(void **state)
{
    static const char expected[] = "HTTP/1.1 401 Unauthorized\r\n";
    char request[2000];
    char told[512] = "";
    int fd = connect_raw();

    (void)state;
    memset(request, 'x', sizeof(request));
    memcpy(request, "POST /api/jobs/ HTTP/1.1\r\n\r\n", 28);
    assert_int_equal(write(fd, request, sizeof(request)), sizeof(request));
    assert_int_equal(tdm__loop_run(pair.loop, has_come,
                                   &(struct awaited){fd, (uint8_t *)told, sizeof(expected) - 1},
                                   tdm__deadline_after(PAIR_WAIT_MS)),
                     TDM_OK);
    assert_memory_equal(told, expected, sizeof(expected) - 1);
    assert_true(recv(fd, told, sizeof(told) - 1, 0) > 0);
    assert_non_null(strstr(told, "\r\n\r\nThis port of Tandem speaks no HTTP"));
    expect_end(fd);
}

static void unauthenticated_clients_cannot_fill_the_log(void **state)
{
    char path[] = "/tmp/handshake_test_log.XXXXXX";
    char garbage[HELLO_BYTES];
    int log = mkstemp(path);
    int lines = 0;
    FILE *told;

    (void)state;
    assert_true(log >= 0);
    memset(garbage, 'G', sizeof(garbage));
    tdm__log_add_output(log);
    for (int i = 0; i < 40; i++) {
        int fd = connect_raw();

        assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
        expect_end(fd);
    }
    tdm__log_add_output(-1);
    told = fdopen(log, "r");
    assert_non_null(told);
    rewind(told);
    for (int byte = fgetc(told); byte != EOF; byte = fgetc(told)) {
        lines += byte == '\n';
    }
    (void)fclose(told);
    (void)unlink(path);
    assert_in_range(lines, 1, 10);
}

/* Number of clients that flood a listener, and the limit of descriptors of its process meanwhile.
 */
enum { FLOOD = 400, FLOOD_DESCRIPTORS = 200 };

/* Starts a process that connects FLOOD times and says nothing, until it is killed. */
static pid_t start_flood(void)
{
    pid_t flood = fork();

    if (flood == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* A failed test does not end it. */
        for (int i = 0; i < FLOOD; i++) {
            (void)connect_raw();
        }
        (void)pause();
        _exit(0);
    }
    return flood;
}

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;

    for (int fd = 0; fd < 2 * FLOOD; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Floods the listener, in a process that may have `descriptors_max` descriptors. At most
 * `taken_max` of them are taken, and clients that know the token are served meanwhile. */
static void flood_listener(uint32_t descriptors_max, uint32_t taken_max)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    uint32_t before = open_descriptors();
    struct rlimit limit;
    struct rlimit tight;
    pid_t flood;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    tight.rlim_cur = descriptors_max;
    flood = start_flood();
    assert_true(flood > 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (int i = 0; i < 8; i++) {
        struct tdm__conn *conn;

        pair_run_for(&pair, 20);
        assert_in_range(open_descriptors(), before, before + taken_max + 2 * (uint32_t)i);
        assert_int_equal(tdm__rpc_connect(pair.rpcs[0], address, &conn), TDM_OK);
        assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_OK);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(kill(flood, SIGKILL), 0);
    assert_int_equal(waitpid(flood, NULL, 0), flood);
}

/* Before clients without a proof were counted, they took all descriptors of a process. */
static void silent_clients_take_each_others_place(void **state)
{
    (void)state;
    flood_listener(FLOOD_DESCRIPTORS, 64);
}

/* Returns true if the other side of a connection has closed it. */
static bool is_closed(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

static bool oldest_is_closed(void *arg)
{
    const int *fds = arg;

    return is_closed(fds[0]);
}

static void oldest_silent_client_is_dropped_for_a_new_one(void **state)
{
    enum { CLIENTS = 65 };
    int fds[CLIENTS];

    (void)state;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = connect_raw();
    }
    assert_int_equal(tdm__loop_run(pair.loop, oldest_is_closed, fds, tdm__clock_ms() + 10000),
                     TDM_OK);
    for (int i = 1; i < CLIENTS; i++) {
        assert_false(is_closed(fds[i]));
    }
    for (int i = 0; i < CLIENTS; i++) {
        (void)close(fds[i]);
    }
}

/* All members of a group connect at once, and may be slow. */
static void endpoint_of_a_group_has_places_for_all_its_members(void **state)
{
    enum { PLACES = 64 + TDM_COLLECTIVE_RANKS_MAX, PAST_THE_HELLO_MS = 300 };
    static int fds[PLACES + 1];
    char usual_address[sizeof(address)];
    struct tdm__rpc *group;

    (void)state;
    memcpy(usual_address, address, sizeof(address));
    (void)snprintf(address, sizeof(address), "unix:/tmp/handshake_test.%d.group", (int)getpid());
    assert_int_equal(tdm__rpc_create_like(pair.rpcs[1], pair.loop, &group), TDM_OK);
    assert_int_equal(tdm__rpc_listen(group, address, NULL, 0), TDM_OK);
    for (int i = 0; i < PLACES; i++) {
        fds[i] = connect_raw();
    }
    pair_run_for(&pair, PAST_THE_HELLO_MS);
    for (int i = 0; i < PLACES; i++) {
        assert_false(is_closed(fds[i]));
    }
    fds[PLACES] = connect_raw();
    assert_int_equal(tdm__loop_run(pair.loop, oldest_is_closed, fds, tdm__clock_ms() + 10000),
                     TDM_OK);
    for (int i = 0; i <= PLACES; i++) {
        (void)close(fds[i]);
    }
    tdm__rpc_destroy(group);
    memcpy(address, usual_address, sizeof(address));
}

/* There are fewer descriptors than clients without a proof may have. The process itself may need a
 * few of its reserve meanwhile. */
static void silent_clients_leave_descriptors_for_the_process(void **state)
{
    enum { LEFT = TDM__DESCRIPTORS_RESERVED + 24 };

    (void)state;
    flood_listener(open_descriptors() + LEFT, LEFT - TDM__DESCRIPTORS_RESERVED / 2);
}

static void begin_hello(uint8_t *hello, uint32_t version, uint8_t role)
{
    const uint8_t start[10] = {'T', 'D', 'M', 'R', 'P', 'C', 0, 0, role, TDM__PEER_DRIVER};
    uint32_t wire_version = htole32(version);

    memset(hello, 0, HELLO_BYTES);
    memcpy(hello, start, sizeof(start));
    memcpy(hello + 12, &wire_version, sizeof(wire_version));
}

/* A correct hello is followed by a wrong MAC and a call. The call must be ignored. */
static void client_with_a_good_hello_and_no_token_is_dropped_at_the_proof(void **state)
{
    static const uint8_t method[] = {'e', 'c', 'h', 'o'};
    uint8_t message[HELLO_BYTES + MAC_BYTES + TDM__FRAME_HEADER_BYTES + sizeof(method)] = {0};
    struct tdm__frame frame = {
        .kind = TDM__FRAME_CALL, .method_bytes = sizeof(method), .call_id = 1, .remaining_ms = -1};
    int fd = connect_raw();

    (void)state;
    begin_hello(message, tdm__protocol_version(), 1);
    tdm__frame_encode(&frame, message + HELLO_BYTES + MAC_BYTES);
    memcpy(message + sizeof(message) - sizeof(method), method, sizeof(method));
    assert_int_equal(write(fd, message, sizeof(message)), sizeof(message));
    expect_answer(fd, message, HELLO_BYTES + MAC_BYTES);
    expect_end(fd);
}

/* A client that sends the server's own MAC back is not authenticated. */
static void reflected_proof_is_refused(void **state)
{
    uint8_t message[HELLO_BYTES + MAC_BYTES] = {0};
    int fd = connect_raw();

    (void)state;
    begin_hello(message, tdm__protocol_version(), 1);
    assert_int_equal(write(fd, message, HELLO_BYTES), HELLO_BYTES);
    expect_answer(fd, message, sizeof(message));
    assert_int_equal(write(fd, message + HELLO_BYTES, MAC_BYTES), MAC_BYTES);
    expect_end(fd);
}

static void expect_wrong_hello(size_t offset, uint8_t byte)
{
    uint8_t hello[HELLO_BYTES];
    int fd = connect_raw();

    begin_hello(hello, tdm__protocol_version(), 1);
    hello[offset] = byte;
    assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
    expect_end(fd);
}

static void every_wrong_field_of_a_hello_is_refused(void **state)
{
    (void)state;
    expect_wrong_hello(8, 2); /* A server that connects. */
    expect_wrong_hello(8, 0); /* no role */
    expect_wrong_hello(9, 0); /* no kind */
    expect_wrong_hello(9, 4); /* unknown kind */
    expect_wrong_hello(9, 9);
    expect_wrong_hello(10, 1); /* reserved */
    expect_wrong_hello(11, 1);
    expect_wrong_hello(96, '\n'); /* name */
}

static void expect_ours(uint32_t foreign_version, uint8_t old_version)
{
    uint8_t hello[HELLO_BYTES];
    uint8_t told[HELLO_BYTES];
    int fd = connect_raw();

    begin_hello(hello, foreign_version, 1);
    hello[6] = old_version;
    assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
    expect_answer(fd, told, sizeof(told));
    begin_hello(hello, tdm__protocol_version(), 2);
    assert_memory_equal(told, hello, 9);
    assert_memory_equal(told + 12, hello + 12, 4);
    expect_end(fd);
}

/* This includes earlier builds, whose version was a small number. */
static void client_of_another_version_receives_our_hello(void **state)
{
    (void)state;
    expect_ours(0, 3);
    expect_ours(tdm__protocol_version() - 1, 0);
    expect_ours(tdm__protocol_version() + 1, 0);
    expect_ours(tdm__protocol_version(), 1);
}

static void expect_both_named(uint32_t foreign_version, uint8_t old_version, const char *detail)
{
    uint8_t hello[HELLO_BYTES];
    struct tdm__conn *conn;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(tdm__rpc_adopt(pair.rpcs[0], fds[0], false, &conn), TDM_OK);
    tdm__conn_on_closed(conn, note_end, NULL);
    begin_hello(hello, foreign_version, 2);
    hello[6] = old_version;
    assert_int_equal(write(fds[1], hello, sizeof(hello)), sizeof(hello));
    pair.closed = 0;
    pair_run_until(&pair, &pair.closed, 1);
    assert_int_equal(pair.reasons[0], TDM_E_PROTOCOL);
    assert_non_null(strstr(pair.details[0], detail));
    (void)close(fds[1]);
}

static void server_of_another_version_is_named_with_both(void **state)
{
    char detail[160];

    (void)state;
    (void)snprintf(detail, sizeof(detail),
                   "speaks version 3 of the protocol, this process version %08x: "
                   "install the same Tandem for both",
                   tdm__protocol_version());
    expect_both_named(0, 3, detail);
    (void)snprintf(detail, sizeof(detail),
                   "speaks version 0000abcd of the protocol, this process version %08x: ",
                   tdm__protocol_version());
    expect_both_named(0xabcd, 0, detail);
}

static void silent_unauthenticated_client_is_dropped_after_the_limit(void **state)
{
    int64_t start_ms = tdm__clock_ms();
    int fd = connect_raw();

    (void)state;
    expect_end(fd);
    assert_in_range(tdm__clock_ms() - start_ms, HANDSHAKE_MS - 100, HANDSHAKE_MS + 2000);
}

/* ---- addresses -------------------------------------------------------------------------- */

static void tcp_works_and_tells_its_port(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    const int fds[1] = {0};
    struct tdm__conn *conn;
    char bound[64];

    (void)state;
    assert_int_equal(tdm__rpc_listen(pair.rpcs[1], "tcp:127.0.0.1:0", bound, sizeof(bound)),
                     TDM_OK);
    assert_true(strncmp(bound, "tcp:127.0.0.1:", 14) == 0 && strcmp(bound + 14, "0") != 0);
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], bound, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_OK);
    request.fds = fds;
    request.fds_count = 1;
    assert_int_equal(tdm__conn_call(conn, &request, NULL, NULL, NULL), TDM_E_UNSUPPORTED);
}

/* Returns whether the kernel probes the other end of a connection. */
static int is_probed(const struct tdm__conn *conn)
{
    int value = -1;
    socklen_t bytes = sizeof(value);

    assert_int_equal(getsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &value, &bytes), 0);
    return value;
}

/* The probes of thousands of connections on one machine would be lost, and end the connections. */
static void neither_end_probes_a_process_of_the_same_machine(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    struct tdm__conn *conn;
    char bound[64];

    (void)state;
    assert_int_equal(tdm__rpc_listen(pair.rpcs[1], "tcp:127.0.0.1:0", bound, sizeof(bound)),
                     TDM_OK);
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], bound, &conn), TDM_OK);
    assert_int_equal(tdm__conn_call_wait(conn, &request, NULL, NULL, NULL), TDM_OK);
    assert_int_equal(is_probed(conn), 0);
    assert_int_equal(is_probed(pair.conns[1]), 0);
}

static void connecting_to_an_address_without_listener_fails(void **state)
{
    struct tdm__conn *conn;
    char bound[64];
    tdm_status status;

    (void)state;
    assert_int_equal(tdm__rpc_connect(pair.rpcs[0], "unix:/tmp/no/such/socket", &conn), TDM_E_IO);
    assert_int_equal(tdm__rpc_listen(pair.rpcs[1], "tcp:127.0.0.1:0", bound, sizeof(bound)),
                     TDM_OK);
    tdm__rpc_destroy(pair.rpcs[1]); /* The port is free again. */
    pair.rpcs[1] = NULL;
    status = tdm__rpc_connect(pair.rpcs[0], bound, &conn);
    if (status == TDM_OK) {
        tdm__conn_on_closed(conn, note_end, NULL);
        pair_run_until(&pair, &pair.closed, 1);
        status = pair.reasons[0];
    }
    assert_int_equal(status, TDM_E_IO);
}

#define HANDSHAKE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDSHAKE_TEST(both_sides_authenticate_and_exchange_identities),
        HANDSHAKE_TEST(socket_file_is_for_its_user_only),
        HANDSHAKE_TEST(live_address_is_not_taken_and_a_stale_one_is),
        HANDSHAKE_TEST(wrong_token_is_refused_on_both_sides),
        HANDSHAKE_TEST(connection_opens_to_the_expected_process_only),
        HANDSHAKE_TEST(garbage_of_an_unauthenticated_client_is_dropped),
        HANDSHAKE_TEST(silent_clients_take_each_others_place),
        HANDSHAKE_TEST(oldest_silent_client_is_dropped_for_a_new_one),
        HANDSHAKE_TEST(endpoint_of_a_group_has_places_for_all_its_members),
        HANDSHAKE_TEST(silent_clients_leave_descriptors_for_the_process),
        HANDSHAKE_TEST(client_that_speaks_http_is_told_what_the_port_is),
        HANDSHAKE_TEST(unauthenticated_clients_cannot_fill_the_log),
        HANDSHAKE_TEST(client_with_a_good_hello_and_no_token_is_dropped_at_the_proof),
        HANDSHAKE_TEST(reflected_proof_is_refused),
        HANDSHAKE_TEST(every_wrong_field_of_a_hello_is_refused),
        HANDSHAKE_TEST(client_of_another_version_receives_our_hello),
        HANDSHAKE_TEST(server_of_another_version_is_named_with_both),
        HANDSHAKE_TEST(silent_unauthenticated_client_is_dropped_after_the_limit),
        HANDSHAKE_TEST(tcp_works_and_tells_its_port),
        HANDSHAKE_TEST(neither_end_probes_a_process_of_the_same_machine),
        HANDSHAKE_TEST(connecting_to_an_address_without_listener_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
