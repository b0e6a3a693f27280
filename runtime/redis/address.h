/* address.h - parses the URL of a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_ADDRESS_H
#define TDM_REDIS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* Capacity of each text in a Redis server's address, and Redis' default port. */
enum { TDM__REDIS_TEXT_BYTES = 256, TDM__REDIS_PORT = 6379 };

/* Where a Redis server listens, and the credentials with which to connect. */
struct tdm__redis_address {
    char path[TDM__REDIS_TEXT_BYTES];     /* Path of the server's Unix socket; "" for TCP. */
    char host[TDM__REDIS_TEXT_BYTES];     /* Host name or IP address; "" for a Unix socket. */
    uint16_t port;                        /* TCP port of the server; unused for a Unix socket. */
    uint32_t database;                    /* Number of the server's database to select. */
    char user[TDM__REDIS_TEXT_BYTES];     /* User name; "" selects Redis' default user. */
    char password[TDM__REDIS_TEXT_BYTES]; /* Password; "" if the server requires none. */
    /* The server's address without the password, for messages. */
    char text[2 * TDM__REDIS_TEXT_BYTES];
};

/* Parses the URL of a Redis server: "unix:///path", "unix:/path" or
 * "redis://[user[:password]@]host[:port][/database]". User and password may contain %XX, and an
 * IPv6 host stands in brackets. Returns TDM_E_INVAL with the problem, or TDM_E_UNSUPPORTED for
 * other schemes of Redis. */
tdm_status tdm__redis_address_parse(const char *url, struct tdm__redis_address *address_out);
/* Returns true if the server listens at a Unix socket or a loopback address, so that what it is
 * sent leaves no machine. A host name other than "localhost" does not count as one. */
bool tdm__redis_address_is_local(const struct tdm__redis_address *address);

#endif
