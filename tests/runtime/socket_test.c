/* socket_test.c - ports are checked, only stale socket files are removed, and TCP notices loss. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tds-XXXXXX";
static char path[64];

static int bind_there(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void port_has_sixteen_bits(void **state)
{
    static const char *const wrong[] = {"",   "65536", "99999", "4294967376", "-1",
                                        "+1", " 1",    "1 ",    "0x1",        "http"};

    (void)state;
    assert_true(tdm__port_is_valid("0"));
    assert_true(tdm__port_is_valid("7000"));
    assert_true(tdm__port_is_valid("65535"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(tdm__port_is_valid(wrong[i]));
    }
}

static void absent_file_is_no_error(void **state)
{
    (void)state;
    assert_int_equal(tdm__socket_remove_stale(path), TDM_OK);
}

static void file_that_is_no_socket_stays(void **state)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(tdm__socket_remove_stale(path), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), path));
    assert_int_equal(unlink(path), 0);
}

static void listening_socket_stays(void **state)
{
    int fd = bind_there();

    (void)state;
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(tdm__socket_remove_stale(path), TDM_E_EXISTS);
    /* The queue of the listening process is full. */
    assert_int_equal(tdm__socket_remove_stale(path), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "a process listens"));
    (void)close(fd);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
}

static void stale_socket_is_removed(void **state)
{
    (void)state;
    (void)close(bind_there());
    assert_int_equal(tdm__socket_remove_stale(path), TDM_OK);
    assert_int_equal(access(path, F_OK), -1);
}

static int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t value_bytes = sizeof(value);

    assert_int_equal(getsockopt(fd, level, option, &value, &value_bytes), 0);
    return value;
}

static void kernel_ends_a_connection_to_a_machine_that_is_gone(void **state)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    tdm__socket_set_options(fd, false);
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), TDM__SOCKET_UNANSWERED_MS);
    /* Without bytes under way the probes notice it as early. */
    assert_int_equal(1000 * (option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                             option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) *
                                 option_of(fd, IPPROTO_TCP, TCP_KEEPCNT)),
                     TDM__SOCKET_UNANSWERED_MS);
    tdm__socket_set_options(fd, true); /* The peer may leave bytes unread. */
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    assert_int_equal(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    (void)close(fd);
}

/* Returns an IPv4 address of this machine's network, or 0 if it has none. */
static uint32_t find_network_address(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = false;

    (void)inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
    found = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
            getsockname(fd, (struct sockaddr *)&address, &bytes) == 0;
    (void)close(fd);
    return found ? address.sin_addr.s_addr : 0;
}

/* Connects two sockets with these addresses and returns what the accepted one sees. Only a socket
 * whose other end is on another machine is probed. */
static bool is_on_this_machine(uint32_t client_address, uint32_t server_address)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = server_address};
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = client_address};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int server;
    bool is_here;

    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(bind(client, (const struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof(address)), 0);
    server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    is_here = tdm__socket_is_on_this_machine(server);
    tdm__socket_set_options(server, true);
    tdm__socket_limit_probes(server);
    assert_int_equal(option_of(server, SOL_SOCKET, SO_KEEPALIVE), is_here ? 0 : 1);
    (void)close(server);
    (void)close(client);
    (void)close(listener);
    return is_here;
}

static void loopback_and_the_own_address_are_on_this_machine(void **state)
{
    uint32_t network = find_network_address();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_false(tdm__socket_is_on_this_machine(fd)); /* It is not connected. */
    (void)close(fd);
    assert_true(is_on_this_machine(htonl(INADDR_LOOPBACK), htonl(INADDR_LOOPBACK)));
    assert_true(is_on_this_machine(htonl(INADDR_LOOPBACK + 1), htonl(INADDR_LOOPBACK)));
    if (network != 0) {
        assert_true(is_on_this_machine(network, network));
        /* The address of a network that is not the one of this end may be another machine. */
        assert_false(is_on_this_machine(network, htonl(INADDR_LOOPBACK)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_has_sixteen_bits),
        cmocka_unit_test(absent_file_is_no_error),
        cmocka_unit_test(file_that_is_no_socket_stays),
        cmocka_unit_test(listening_socket_stays),
        cmocka_unit_test(stale_socket_is_removed),
        cmocka_unit_test(loopback_and_the_own_address_are_on_this_machine),
        cmocka_unit_test(kernel_ends_a_connection_to_a_machine_that_is_gone),
    };
    int failed;

    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    (void)snprintf(path, sizeof(path), "%s/socket", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(directory);
    return failed;
}
