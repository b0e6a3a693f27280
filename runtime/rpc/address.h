/* address.h - the addresses of endpoints as text and for the kernel. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_ADDRESS_H
#define TDM_RUNTIME_RPC_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tandem/error.h>

/* An address that connect(2) or bind(2) accepts. `socket` is large enough for every family. */
struct tdm__address {
    /* The address as the kernel accepts it; the family decides which member is valid. */
    union {
        struct sockaddr any;      /* The address for system calls, and its family. */
        struct sockaddr_un local; /* The address of a Unix socket. */
        /* Unused; makes the union large enough for every family. */
        struct sockaddr_storage storage;
    } socket;
    socklen_t socket_bytes; /* Number of valid bytes in `socket`. */
};

/* Parses the address of an endpoint: "unix:/path", "tcp:host:port" or "tcp:[::1]:port". Looking up
 * a host name blocks. */
tdm_status tdm__address_parse(const char *text, struct tdm__address *address_out);
/* Writes the address of the bound TCP socket `fd` as text, such as "tcp:127.0.0.1:4711". */
tdm_status tdm__address_of_socket(int fd, char *text_out, size_t text_bytes);

#endif
