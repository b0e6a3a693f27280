/* address.c - parses and prints the addresses of endpoints. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/address.h"

#include "runtime/error.h"
#include "runtime/socket.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

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

/* Resolves host and port of a TCP address. It tries a numeric address first, and blocks only for a
 * host name. */
static tdm_status look_up(const char *host, const char *port, struct tdm__address *address)
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
    memcpy(&address->socket, found->ai_addr, found->ai_addrlen);
    address->socket_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return TDM_OK;
}

/* Parses "host:port" of a TCP address, where an IPv6 host stands in brackets. */
static tdm_status parse_tcp(const char *text, struct tdm__address *address)
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
    return look_up(host, colon + 1, address);
}

tdm_status tdm__address_parse(const char *text, struct tdm__address *address_out)
{
    memset(address_out, 0, sizeof(*address_out));
    if (strncmp(text, "unix:", 5) == 0) {
        return parse_unix(text + 5, address_out);
    }
    if (strncmp(text, "tcp:", 4) == 0) {
        return parse_tcp(text + 4, address_out);
    }
    return tdm__fail(TDM_E_INVAL, "address \"%s\": wanted unix:/path or tcp:host:port", text);
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
