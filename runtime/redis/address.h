/* address.h - parses the URL of a Redis server, or of the sentinels that name it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_ADDRESS_H
#define TDM_REDIS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* Capacity of each text in a Redis server's address, the default ports of Redis and of Sentinel,
 * and the most sentinels of an address. */
enum {
    TDM__REDIS_TEXT_BYTES = 256,
    TDM__REDIS_PORT = 6379,
    TDM__REDIS_SENTINEL_PORT = 26379,
    TDM__REDIS_SENTINELS_MAX = 8
};

/* Where a Redis server or a sentinel listens on TCP. */
struct tdm__redis_host {
    char name[TDM__REDIS_TEXT_BYTES]; /* Host name or IP address; "" if there is no host. */
    uint16_t port;                    /* TCP port. */
};

/* Where a Redis server listens, and the credentials with which to connect. With sentinels the
 * server is the master that they name. */
struct tdm__redis_address {
    char path[TDM__REDIS_TEXT_BYTES];     /* Path of the server's Unix socket; "" for TCP. */
    struct tdm__redis_host host;          /* The server; "" for a Unix socket or with sentinels. */
    uint32_t database;                    /* Number of the server's database to select. */
    char user[TDM__REDIS_TEXT_BYTES];     /* User name; "" selects Redis' default user. */
    char password[TDM__REDIS_TEXT_BYTES]; /* Password; "" if the server requires none. */
    uint32_t sentinels_count; /* Number of sentinels; 0 if the server itself is given. */
    struct tdm__redis_host
        sentinels[TDM__REDIS_SENTINELS_MAX];   /* Sentinels that name the server. */
    char master[TDM__REDIS_TEXT_BYTES];        /* Name of the master that the sentinels watch. */
    char sentinel_user[TDM__REDIS_TEXT_BYTES]; /* User at the sentinels; "" selects the default. */
    char sentinel_password[TDM__REDIS_TEXT_BYTES]; /* Password of the sentinels; "" if none. */
    /* Whether connections are encrypted (runtime/redis/encrypted.h). */
    bool is_encrypted;
    /* Paths of files in PEM format for such connections, as in struct tdm__tls_files; "" for none.
     */
    char authorities[TDM__REDIS_TEXT_BYTES];
    char certificate[TDM__REDIS_TEXT_BYTES]; /* This client's certificate. */
    char key[TDM__REDIS_TEXT_BYTES];         /* Private key of the certificate. */
    /* Whether the sentinels may name a master on another machine, although connections with it are
     * not encrypted. The parser sets it to false. */
    bool allows_remote_master;
    /* The server's address without the passwords, for messages. */
    char text[2 * TDM__REDIS_TEXT_BYTES];
};

/* Parses the URL of a Redis server: "unix:///path", "unix:/path",
 * "redis://[user[:password]@]host[:port][/database]", the same with "rediss://" for encrypted
 * connections, which "?cacert=FILE&cert=FILE&key=FILE" may follow, or
 * "redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/MASTER[/database]" with up to
 * TDM__REDIS_SENTINELS_MAX sentinels, which "?sentinel_user=U&sentinel_password=P" may follow.
 * Users and passwords may contain %XX, and an IPv6 host stands in brackets. Returns TDM_E_INVAL or
 * TDM_E_LIMIT with the problem. */
tdm_status tdm__redis_address_parse(const char *url, struct tdm__redis_address *address_out);
/* Returns true if the server, or each of its sentinels, listens at a Unix socket or a loopback
 * address, so that what it is sent leaves no machine. A host name other than "localhost" does not
 * count as one. The master that sentinels name is not known yet. */
bool tdm__redis_address_is_local(const struct tdm__redis_address *address);
/* Returns true if two hosts have the same name and port. */
bool tdm__redis_host_equal(const struct tdm__redis_host *one, const struct tdm__redis_host *other);
/* Returns true if a host is "localhost" or a loopback address. */
bool tdm__redis_host_is_local(const struct tdm__redis_host *host);

#endif
