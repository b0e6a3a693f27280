/* address.h - the addresses of endpoints as text and for the kernel, and connecting to them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_ADDRESS_H
#define TDM_RUNTIME_RPC_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

/* Most addresses of one host name that are tried. */
enum { TDM__ADDRESSES_MAX = 8 };

/* All addresses for which the text of one address stands: a host name may have several. */
struct tdm__addresses {
    struct tdm__address list[TDM__ADDRESSES_MAX]; /* The addresses, the preferred one first. */
    uint32_t count;                               /* Number of addresses in `list`; at least 1. */
    uint32_t tried_count; /* Number of addresses to which a socket was or is being connected. */
    /* Whether the peer may leave bytes unread for long (tdm__socket_set_options()). */
    bool peer_may_stall;
};

/* Parses the address of an endpoint: "unix:/path", "tcp:host:port" or "tcp:[::1]:port". Looking up
 * a host name blocks. Of a name with several addresses it gives the first. */
tdm_status tdm__address_parse(const char *text, struct tdm__address *address_out);
/* Returns whether it is a TCP address with port 0, for which the kernel chooses a port. */
bool tdm__address_has_port_zero(const struct tdm__address *address);
/* Replaces the port of a TCP address. */
void tdm__address_set_port(struct tdm__address *address, uint16_t port);
/* Does the same as tdm__address_parse(), and gives all addresses of a host name. */
tdm_status tdm__addresses_parse(const char *text, struct tdm__addresses *addresses_out);
/* Starts to connect a new non-blocking socket to the first address that has not been tried and that
 * the kernel does not refuse at once. Returns the failure of the last address if none is left.
 * `text` is the address in errors. The caller closes `*fd_out`. */
tdm_status tdm__addresses_connect(struct tdm__addresses *addresses, const char *text, int *fd_out);
/* Writes the address of the bound TCP socket `fd` as text, such as "tcp:127.0.0.1:4711". */
tdm_status tdm__address_of_socket(int fd, char *text_out, size_t text_bytes);

#endif
