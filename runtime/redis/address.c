/* address.c - parses the URL of a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parser tdm__redis_address_parse() splits the URL into its parts, copies each part with a
 * length check, and decodes %XX in user and password. The result is written only on success. No
 * error message quotes the URL, because it may contain a password. The functions have no state and
 * any thread may call them. */
#include "runtime/redis/address.h"

#include "runtime/error.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* Returns the rest of `text` behind `start` if `text` begins with `start`, else NULL. */
static const char *text_after(const char *text, const char *start)
{
    size_t bytes = strlen(start);

    return strncmp(text, start, bytes) == 0 ? text + bytes : NULL;
}

/* Copies one part of the URL to `to`. Fails if the part is too long; `what` names the part in the
 * error. */
static tdm_status url_copy_part(const char *what, const char *from, size_t bytes,
                                char to[TDM__REDIS_TEXT_BYTES])
{
    if (bytes >= TDM__REDIS_TEXT_BYTES) {
        return tdm__fail(TDM_E_LIMIT, "store url: %s of %zu bytes, at most %d", what, bytes,
                         TDM__REDIS_TEXT_BYTES - 1);
    }
    memcpy(to, from, bytes);
    to[bytes] = '\0';
    return TDM_OK;
}

/* Replaces each %XX in a part of the URL by its byte, in place. `what` names the part in errors. */
static tdm_status url_decode_part(const char *what, char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; from++) {
        char digits[3] = "";
        char *end = digits;

        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        (void)strncat(digits, from + 1, 2);
        *to = (char)strtoul(digits, &end, 16);
        if (end != digits + 2 || *to == '\0' || digits[0] == '+' || digits[0] == '-') {
            return tdm__fail(TDM_E_INVAL, "store url: %s: '%%' wants two hexadecimal digits", what);
        }
        to++;
        from += 2;
    }
    *to = '\0';
    return TDM_OK;
}

/* Parses a part of the URL that is a decimal number from 0 to `max`. `what` names the part in
 * errors. */
static tdm_status parse_number(const char *what, const char *text, unsigned long max,
                               unsigned long *number_out)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > max) {
        return tdm__fail(TDM_E_INVAL, "store url: %s \"%.20s\" is no number up to %lu", what, text,
                         max);
    }
    *number_out = number;
    return TDM_OK;
}

/* Parses the path of a URL "unix:/path" or "unix:///path". */
static tdm_status parse_unix(const char *path, struct tdm__redis_address *address)
{
    struct sockaddr_un socket_address;

    if (path[0] != '/') {
        return tdm__fail(TDM_E_INVAL, "store url: unix:///path wants an absolute path");
    }
    if (strlen(path) >= sizeof(socket_address.sun_path)) {
        return tdm__fail(TDM_E_LIMIT, "store url: a unix path of %zu bytes, at most %zu",
                         strlen(path), sizeof(socket_address.sun_path) - 1);
    }
    TDM_TRY(url_copy_part("path", path, strlen(path), address->path));
    (void)snprintf(address->text, sizeof(address->text), "unix://%s", path);
    return TDM_OK;
}

/* Parses the part "user" or "user:password" of a URL. */
static tdm_status parse_user(const char *text, size_t bytes, struct tdm__redis_address *address)
{
    const char *colon = memchr(text, ':', bytes);
    size_t user_bytes = colon != NULL ? (size_t)(colon - text) : bytes;

    TDM_TRY(url_copy_part("user", text, user_bytes, address->user));
    TDM_TRY(url_decode_part("user", address->user));
    if (colon == NULL) {
        return TDM_OK;
    }
    TDM_TRY(url_copy_part("password", colon + 1, bytes - user_bytes - 1, address->password));
    return url_decode_part("password", address->password);
}

/* Parses the part "host", "host:port", "[v6]" or "[v6]:port" of a URL. */
static tdm_status parse_host(const char *text, struct tdm__redis_address *address)
{
    bool bracketed = text[0] == '[';
    size_t bytes = strcspn(text + bracketed, bracketed ? "]" : ":");
    const char *rest = text + bracketed + bytes;
    unsigned long port = TDM__REDIS_PORT;

    TDM_TRY(url_copy_part("host", text + bracketed, bytes, address->host));
    if (bytes == 0 || (bracketed && *rest != ']')) {
        return tdm__fail(TDM_E_INVAL, "store url: no host in redis://host[:port]");
    }
    rest += bracketed;
    if (*rest == ':') {
        TDM_TRY(parse_number("port", rest + 1, UINT16_MAX, &port));
    } else if (*rest != '\0') {
        return tdm__fail(TDM_E_INVAL, "store url: \"%.20s\" after the host", rest);
    }
    address->port = (uint16_t)port;
    return TDM_OK;
}

/* Parses everything behind "redis://" in a URL. */
static tdm_status parse_redis(const char *rest, struct tdm__redis_address *address)
{
    char host_and_database[TDM__REDIS_TEXT_BYTES];
    const char *at = strrchr(rest, '@');
    unsigned long database = 0;
    char *slash;

    if (at != NULL) {
        TDM_TRY(parse_user(rest, (size_t)(at - rest), address));
        rest = at + 1;
    }
    TDM_TRY(url_copy_part("host", rest, strlen(rest), host_and_database));
    slash = strchr(host_and_database, '/');
    if (slash != NULL) {
        *slash++ = '\0';
    }
    if (slash != NULL && *slash != '\0') {
        TDM_TRY(parse_number("database", slash, 65535, &database));
    }
    TDM_TRY(parse_host(host_and_database, address));
    address->database = (uint32_t)database;
    (void)snprintf(address->text, sizeof(address->text), "redis://%s:%u/%u", address->host,
                   address->port, address->database);
    return TDM_OK;
}

tdm_status tdm__redis_address_parse(const char *url, struct tdm__redis_address *address_out)
{
    struct tdm__redis_address address = {.port = 0};
    const char *rest;

    if (text_after(url, "rediss://") != NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "store url: rediss:// needs hiredis 1.0 or newer; until then run stunnel "
                         "and give its unix:// socket");
    }
    if (text_after(url, "redis+sentinel://") != NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "store url: redis+sentinel:// is not there yet; give the master's "
                         "redis:// url");
    }
    if ((rest = text_after(url, "unix://")) != NULL || (rest = text_after(url, "unix:")) != NULL) {
        TDM_TRY(parse_unix(rest, &address));
    } else if ((rest = text_after(url, "redis://")) != NULL) {
        TDM_TRY(parse_redis(rest, &address));
    } else {
        return tdm__fail(TDM_E_INVAL,
                         "store url: wanted unix:///path or redis://[user[:password]@]host[:port]"
                         "[/database]");
    }
    *address_out = address;
    return TDM_OK;
}

bool tdm__redis_address_is_local(const struct tdm__redis_address *address)
{
    struct in_addr four;
    struct in6_addr six;

    if (address->path[0] != '\0' || strcmp(address->host, "localhost") == 0) {
        return true;
    }
    if (inet_pton(AF_INET, address->host, &four) == 1) {
        return ntohl(four.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
    }
    return inet_pton(AF_INET6, address->host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}
