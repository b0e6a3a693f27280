/* tcp_sockets.c - TCP ports for tests, and the options of the TCP connections of a process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tcp_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FDS_MAX = 1024, /* Descriptors from this number on are not looked at. */
    GONE_MS_MIN =
        8000, /* The least and the most milliseconds after which a machine counts as gone. */
    GONE_MS_MAX = 12000
};

/* Returns the value of an integer option of the socket, or -1. */
static int option_of(int fd, int level, int option)
{
    socklen_t value_bytes = sizeof(int);
    int value = -1;

    return getsockopt(fd, level, option, &value, &value_bytes) == 0 ? value : -1;
}

uint32_t tcp_sockets_check(bool sends_probes)
{
    uint32_t count = 0;

    for (int fd = 0; fd < FDS_MAX; fd++) {
        struct sockaddr_storage peer;
        socklen_t peer_bytes = sizeof(peer);
        int unacknowledged_ms = option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT);

        if (unacknowledged_ms < 0 ||
            getpeername(fd, (struct sockaddr *)(void *)&peer, &peer_bytes) != 0) {
            continue;
        }
        count++;
        assert_int_equal(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), sends_probes);
        assert_in_range(1000 * (option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                                option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) *
                                    option_of(fd, IPPROTO_TCP, TCP_KEEPCNT)),
                        GONE_MS_MIN, GONE_MS_MAX);
        assert_in_range(unacknowledged_ms, GONE_MS_MIN, GONE_MS_MAX);
    }
    return count;
}

uint16_t tcp_sockets_free_port(void)
{
    static unsigned next;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool is_free = false;

    if (next == 0) {
        next = (unsigned)getpid();
    }
    while (!is_free) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        address.sin_port = htons((uint16_t)(20000 + next++ % 12000));
        is_free = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
        (void)close(fd);
    }
    return ntohs(address.sin_port);
}
