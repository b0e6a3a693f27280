/* address.h - where a Redis server is and who we are there: its URL, taken apart. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_ADDRESS_H
#define TDM_REDIS_ADDRESS_H

#include <stdint.h>
#include <tandem/error.h>

enum { TDM__REDIS_TEXT_BYTES = 256, TDM__REDIS_PORT = 6379 };

struct tdm__redis_address {
    char path[TDM__REDIS_TEXT_BYTES]; /* of a unix socket, or "" */
    char host[TDM__REDIS_TEXT_BYTES];
    uint16_t port;
    uint32_t database;
    char user[TDM__REDIS_TEXT_BYTES]; /* "": the default user */
    char password[TDM__REDIS_TEXT_BYTES];
    char text[2 * TDM__REDIS_TEXT_BYTES]; /* for messages: without the password */
};

/* "unix:///path", "unix:/path", "redis://[user[:password]@]host[:port][/database]"; user and
 * password may hold %XX, an IPv6 host stands in brackets.  TDM_E_INVAL with what is wrong;
 * TDM_E_UNSUPPORTED for schemes that are Redis' but not here yet. */
tdm_status tdm__redis_address_parse(const char *url, struct tdm__redis_address *address_out);

#endif
