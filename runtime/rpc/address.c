/* address.c - parses and prints the addresses of endpoints, and connects to them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/address.h"

#include "runtime/error.h"
#include "runtime/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Fills the address of a Unix socket with the path `path`. Fails if the path is empty or too long
 * for the kernel. */
static tdm_status parse_unix(const char *path, struct tdm__address *address)
{
    size_t length = strlen(path);

    if (length == 0 || length >= sizeof(address->socket.local.sun_path)) {
        return tdm__fail(TDM_E_INVAL, "socket path \"%s\" has %zu bytes, wanted 1 to %zu", path,
                         length, sizeof(address->socket.local.sun_path) - 1);
    }
    address->socket.local.sun_family = AF_UNIX;
    memcpy(address->socket.local.sun_path, path, length + 1);
    address->socket_bytes = sizeof(address->socket.local);
    return TDM_OK;
}

/* Resolves host and port of a TCP address to all addresses of the host. It tries a numeric address
 * first, and blocks only for a host name. */
static tdm_status look_up(const char *host, const char *port, struct tdm__addresses *addresses)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    const struct addrinfo numeric = {.ai_family = AF_UNSPEC,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, port, &numeric, &found);

    if (rc == EAI_NONAME) {
        rc = getaddrinfo(host, port, &hints, &found);
    }
    if (rc != 0) {
        return tdm__fail(TDM_E_INVAL, "address tcp:%s:%s: %s", host, port, gai_strerror(rc));
    }
    for (const struct addrinfo *one = found; one != NULL && addresses->count < TDM__ADDRESSES_MAX;
         one = one->ai_next) {
        struct tdm__address *address = &addresses->list[addresses->count++];

        memcpy(&address->socket, one->ai_addr, one->ai_addrlen);
        address->socket_bytes = one->ai_addrlen;
    }
    freeaddrinfo(found);
    return TDM_OK;
}

/* Parses "host:port" of a TCP address, where an IPv6 host stands in brackets. */
static tdm_status parse_tcp(const char *text, struct tdm__addresses *addresses)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    char host[256];

    if (length == 0 || length >= sizeof(host)) {
        return tdm__fail(TDM_E_INVAL, "address tcp:%s: wanted tcp:host:port", text);
    }
    if (!tdm__port_is_valid(colon + 1)) {
        return tdm__fail(TDM_E_INVAL, "address tcp:%s: wanted a port from 0 to 65535", text);
    }
    if (text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    return look_up(host, colon + 1, addresses);
}

tdm_status tdm__addresses_parse(const char *text, struct tdm__addresses *addresses_out)
{
    memset(addresses_out, 0, sizeof(*addresses_out));
    if (strncmp(text, "unix:", 5) == 0) {
        addresses_out->count = 1;
        return parse_unix(text + 5, &addresses_out->list[0]);
    }
    if (strncmp(text, "tcp:", 4) == 0) {
        return parse_tcp(text + 4, addresses_out);
    }
    return tdm__fail(TDM_E_INVAL, "address \"%s\": wanted unix:/path or tcp:host:port", text);
}

tdm_status tdm__address_parse(const char *text, struct tdm__address *address_out)
{
    struct tdm__addresses addresses;

    TDM_TRY(tdm__addresses_parse(text, &addresses));
    *address_out = addresses.list[0];
    return TDM_OK;
}

bool tdm__address_has_port_zero(const struct tdm__address *address)
{
    const struct sockaddr *any = &address->socket.any;

    return (any->sa_family == AF_INET && ((const struct sockaddr_in *)any)->sin_port == 0) ||
           (any->sa_family == AF_INET6 && ((const struct sockaddr_in6 *)any)->sin6_port == 0);
}

void tdm__address_set_port(struct tdm__address *address, uint16_t port)
{
    struct sockaddr *any = &address->socket.any;

    if (any->sa_family == AF_INET) {
        ((struct sockaddr_in *)any)->sin_port = htons(port);
    } else if (any->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)any)->sin6_port = htons(port);
    }
}

/* ---- connecting ------------------------------------------------------------------------- */

/* Starts to connect a new non-blocking socket to one address. */
static tdm_status address_connect(const struct tdm__address *address, bool peer_may_stall,
                                  const char *text, int *fd_out)
{
    int fd = socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc;

    if (fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    tdm__socket_set_options(fd, peer_may_stall);
    rc = connect(fd, &address->socket.any, address->socket_bytes) == 0 ? 0 : errno;
    if (rc != 0 && rc != EINPROGRESS) {
        (void)close(fd);
        return rc == EAGAIN ? tdm__fail(TDM_E_AGAIN, "connect %s: its queue is full", text)
                            : tdm__fail_errno(rc, "connect %s", text);
    }
    *fd_out = fd;
    return TDM_OK;
}

tdm_status tdm__addresses_connect(struct tdm__addresses *addresses, const char *text, int *fd_out)
{
    tdm_status status = tdm__fail(TDM_E_NOT_FOUND, "%s has no more addresses", text);

    while (status != TDM_OK && addresses->tried_count < addresses->count) {
        status = address_connect(&addresses->list[addresses->tried_count++],
                                 addresses->peer_may_stall, text, fd_out);
    }
    return status;
}

tdm_status tdm__address_of_socket(int fd, char *text_out, size_t text_bytes)
{
    struct sockaddr_storage bound = {.ss_family = AF_UNSPEC};
    socklen_t bound_bytes = sizeof(bound);
    char host[64];
    char port[8];
    bool six;
    int rc;

    if (getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0) {
        return tdm__fail_errno(errno, "getsockname");
    }
    rc = getnameinfo((struct sockaddr *)&bound, bound_bytes, host, sizeof(host), port, sizeof(port),
                     NI_NUMERICHOST | NI_NUMERICSERV);
    if (rc != 0) {
        return tdm__fail(TDM_E_IO, "getnameinfo: %s", gai_strerror(rc));
    }
    six = bound.ss_family == AF_INET6;
    if (snprintf(text_out, text_bytes, "tcp:%s%s%s:%s", six ? "[" : "", host, six ? "]" : "",
                 port) >= (int)text_bytes) {
        return tdm__fail(TDM_E_LIMIT, "address tcp:%s:%s does not fit %zu bytes", host, port,
                         text_bytes);
    }
    return TDM_OK;
}
