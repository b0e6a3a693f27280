/* socket.c - checks before listening at an address, and the options of sockets to other processes.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/socket.h"

#include "runtime/error.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Seconds without a byte from the other machine before the kernel probes it, seconds between two
 * probes, and probes without an answer after which the connection ends. */
enum { PROBE_AFTER_S = 4, PROBE_EVERY_S = 2, PROBES_MAX = 3 };

enum { PORT_DIGITS_MAX = 5, PORT_MAX = 65535 }; /* Most digits of a port, and the highest port. */

bool tdm__port_is_valid(const char *port)
{
    size_t digits = strspn(port, "0123456789");

    return digits > 0 && digits <= PORT_DIGITS_MAX && port[digits] == '\0' &&
           strtoul(port, NULL, 10) <= PORT_MAX;
}

/* Tries to connect the socket `fd` to the Unix socket `path`. Returns 0 if a process listens there,
 * else the error number of connect(2). */
static int socket_connect(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
}

tdm_status tdm__socket_remove_stale(const char *path)
{
    struct stat file;
    int fd;
    int rc;

    if (lstat(path, &file) != 0) {
        return errno == ENOENT ? TDM_OK : tdm__fail_errno(errno, "lstat %s", path);
    }
    if (!S_ISSOCK(file.st_mode)) {
        return tdm__fail(TDM_E_EXISTS, "%s exists and is not a socket", path);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    rc = socket_connect(fd, path);
    (void)close(fd);
    if (rc == 0 || rc == EAGAIN) { /* EAGAIN: a process listens, but its queue is full. */
        return tdm__fail(TDM_E_EXISTS, "a process listens at %s already", path);
    }
    if (rc != ECONNREFUSED) {
        return tdm__fail_errno(rc, "connect to %s, to check whether a process listens there", path);
    }
    return unlink(path) == 0 ? TDM_OK : tdm__fail_errno(errno, "unlink %s", path);
}

/* Returns the bytes of an IP address, without the prefix of an IPv4 address that stands in IPv6,
 * and stores their number; 0 for other families. */
static const uint8_t *address_bytes(const struct sockaddr_storage *address, size_t *count_out)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

    *count_out = 0;
    if (address->ss_family == AF_INET) {
        *count_out = sizeof(four->sin_addr);
        return (const uint8_t *)&four->sin_addr;
    }
    if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        *count_out = sizeof(four->sin_addr);
        return six->sin6_addr.s6_addr + sizeof(six->sin6_addr) - sizeof(four->sin_addr);
    }
    if (address->ss_family == AF_INET6) {
        *count_out = sizeof(six->sin6_addr);
    }
    return six->sin6_addr.s6_addr;
}

bool tdm__socket_is_on_this_machine(int fd)
{
    /* The address of this end and that of the other one. */
    struct sockaddr_storage addresses[2] = {{.ss_family = 0}, {.ss_family = 0}};
    socklen_t sizes[2] = {sizeof(addresses[0]), sizeof(addresses[1])};
    const uint8_t *own;
    const uint8_t *other;
    size_t own_count;
    size_t other_count;

    if (getsockname(fd, (struct sockaddr *)&addresses[0], &sizes[0]) != 0 ||
        getpeername(fd, (struct sockaddr *)&addresses[1], &sizes[1]) != 0) {
        return false;
    }
    own = address_bytes(&addresses[0], &own_count);
    other = address_bytes(&addresses[1], &other_count);
    if (other_count == sizeof(struct in_addr) && other[0] == IN_LOOPBACKNET) {
        return true;
    }
    /* The address ::1 is also the one of this end. */
    return own_count > 0 && own_count == other_count && memcmp(own, other, own_count) == 0;
}

/* TCP_USER_TIMEOUT also ends a connection whose peer acknowledges everything but has no space for
 * more bytes, so it is not for peers that may stall. Probes find a machine that is gone while no
 * byte is under way. */
void tdm__socket_set_options(int fd, bool peer_may_stall)
{
    const struct {
        int level;  /* Level of the option. */
        int option; /* Option of setsockopt(2). */
        int value;  /* Value of the option. */
    } settings[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, PROBES_MAX},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, peer_may_stall ? 0 : TDM__SOCKET_UNANSWERED_MS}};

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        (void)setsockopt(fd, settings[i].level, settings[i].option, &settings[i].value,
                         sizeof(settings[i].value));
    }
}

/* Thousands of connections, as between the ranks of large groups, become silent at the same moment,
 * so that their probes are sent at the same moment, too. The loopback device queues a thousand
 * packets (net.core.netdev_max_backlog) and drops the others, and a connection that loses three
 * probes ends. */
void tdm__socket_limit_probes(int fd)
{
    const int off = 0;

    if (tdm__socket_is_on_this_machine(fd)) {
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof(off));
    }
}
