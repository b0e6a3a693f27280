/* address.c - parses the URL of a Redis server, or of the sentinels that name it. */
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

/* Parses the part "host", "host:port", "[v6]" or "[v6]:port" of a URL; without a port it is
 * `usual_port`. */
static tdm_status parse_host(const char *part, size_t part_bytes, uint16_t usual_port,
                             struct tdm__redis_host *host)
{
    char text[TDM__REDIS_TEXT_BYTES];
    bool bracketed = part_bytes > 0 && part[0] == '[';
    unsigned long port = usual_port;
    const char *rest;
    size_t bytes;

    TDM_TRY(url_copy_part("host", part, part_bytes, text));
    bytes = strcspn(text + bracketed, bracketed ? "]" : ":");
    rest = text + bracketed + bytes;
    if (bytes == 0 || (bracketed && *rest != ']')) {
        return tdm__fail(TDM_E_INVAL, "store url: no host in redis://host[:port]");
    }
    TDM_TRY(url_copy_part("host", text + bracketed, bytes, host->name));
    rest += bracketed;
    if (*rest == ':') {
        TDM_TRY(parse_number("port", rest + 1, UINT16_MAX, &port));
    } else if (*rest != '\0') {
        return tdm__fail(TDM_E_INVAL, "store url: \"%.20s\" after the host", rest);
    }
    host->port = (uint16_t)port;
    return TDM_OK;
}

/* Parses the number of the database, which stands in the last part of a URL; "" is 0. */
static tdm_status parse_database(const char *part, size_t part_bytes,
                                 struct tdm__redis_address *address)
{
    char text[TDM__REDIS_TEXT_BYTES];
    unsigned long database = 0;

    TDM_TRY(url_copy_part("database", part, part_bytes, text));
    if (part_bytes > 0) {
        TDM_TRY(parse_number("database", text, 65535, &database));
    }
    address->database = (uint32_t)database;
    return TDM_OK;
}

/* Parses the part of the URL behind the '?', with the path of a file for each of the `names` that
 * it has. `paths` are their texts in the address. */
static tdm_status parse_files(const char *query, struct tdm__redis_address *address)
{
    static const char *const names[] = {"cacert=", "cert=", "key="};
    char *const paths[] = {address->authorities, address->certificate, address->key};

    do {
        size_t bytes = strcspn(++query, "&");
        size_t i = 0;

        while (i < sizeof(names) / sizeof(names[0]) && text_after(query, names[i]) == NULL) {
            i++;
        }
        if (i == sizeof(names) / sizeof(names[0])) {
            return tdm__fail(TDM_E_INVAL,
                             "store url: only cacert=FILE, cert=FILE and key=FILE, with "
                             "'&' between them, may follow the '?'");
        }
        TDM_TRY(url_copy_part("path of a file", query + strlen(names[i]), bytes - strlen(names[i]),
                              paths[i]));
        TDM_TRY(url_decode_part("path of a file", paths[i]));
        if (paths[i][0] != '/') {
            return tdm__fail(TDM_E_INVAL, "store url: %.*s wants an absolute path",
                             (int)strlen(names[i]), names[i]);
        }
        query += bytes;
    } while (*query == '&');
    return TDM_OK;
}

/* Parses everything behind "redis://" or "rediss://" in a URL. */
static tdm_status parse_redis(const char *rest, struct tdm__redis_address *address)
{
    const char *query = address->is_encrypted ? strchr(rest, '?') : NULL;
    const char *end = query != NULL ? query : rest + strlen(rest);
    const char *at = memrchr(rest, '@', (size_t)(end - rest));
    size_t host_bytes;

    if (at != NULL) {
        TDM_TRY(parse_user(rest, (size_t)(at - rest), address));
        rest = at + 1;
    }
    host_bytes = strcspn(rest, query != NULL ? "/?" : "/");
    TDM_TRY(parse_host(rest, host_bytes, TDM__REDIS_PORT, &address->host));
    if (rest[host_bytes] == '/') {
        rest += host_bytes + 1;
        TDM_TRY(parse_database(rest, (size_t)(end - rest), address));
    }
    if (query != NULL) {
        TDM_TRY(parse_files(query, address));
    }
    (void)snprintf(address->text, sizeof(address->text), "redis%s://%s:%u/%u",
                   address->is_encrypted ? "s" : "", address->host.name, address->host.port,
                   address->database);
    return TDM_OK;
}

/* ---- sentinels -------------------------------------------------------------------------- */

/* Parses the part "host[:port][,host[:port]...]" of the URL of sentinels. */
static tdm_status parse_sentinels(const char *part, size_t part_bytes,
                                  struct tdm__redis_address *address)
{
    const char *end = part + part_bytes;

    for (;;) {
        const char *comma = memchr(part, ',', (size_t)(end - part));
        const char *host_end = comma != NULL ? comma : end;

        if (address->sentinels_count == TDM__REDIS_SENTINELS_MAX) {
            return tdm__fail(TDM_E_LIMIT, "store url: more than %d sentinels",
                             (int)TDM__REDIS_SENTINELS_MAX);
        }
        TDM_TRY(parse_host(part, (size_t)(host_end - part), TDM__REDIS_SENTINEL_PORT,
                           &address->sentinels[address->sentinels_count]));
        address->sentinels_count++;
        if (comma == NULL) {
            return TDM_OK;
        }
        part = comma + 1;
    }
}

/* Parses the part "MASTER" or "MASTER/database" of the URL of sentinels. */
static tdm_status parse_master(const char *part, size_t part_bytes,
                               struct tdm__redis_address *address)
{
    const char *slash = memchr(part, '/', part_bytes);
    size_t name_bytes = slash != NULL ? (size_t)(slash - part) : part_bytes;

    TDM_TRY(url_copy_part("name of the master", part, name_bytes, address->master));
    /* Sentinel accepts no other characters. */
    if (name_bytes == 0 || strspn(address->master, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                   "abcdefghijklmnopqrstuvwxyz"
                                                   "0123456789.-_") != name_bytes) {
        return tdm__fail(TDM_E_INVAL,
                         "store url: redis+sentinel://host[:port],.../MASTER[/database] wants the "
                         "name of the master, of letters, digits, '.', '-' and '_'");
    }
    return slash == NULL ? TDM_OK : parse_database(slash + 1, part_bytes - name_bytes - 1, address);
}

/* Parses the part "?sentinel_user=U&sentinel_password=P" of the URL of sentinels. */
static tdm_status parse_sentinel_user(const char *query, struct tdm__redis_address *address)
{
    do {
        const char *value;
        size_t bytes = strcspn(++query, "&");

        if ((value = text_after(query, "sentinel_user=")) != NULL) {
            TDM_TRY(url_copy_part("sentinel_user", value, bytes - (size_t)(value - query),
                                  address->sentinel_user));
            TDM_TRY(url_decode_part("sentinel_user", address->sentinel_user));
        } else if ((value = text_after(query, "sentinel_password=")) != NULL) {
            TDM_TRY(url_copy_part("sentinel_password", value, bytes - (size_t)(value - query),
                                  address->sentinel_password));
            TDM_TRY(url_decode_part("sentinel_password", address->sentinel_password));
        } else {
            return tdm__fail(TDM_E_INVAL, "store url: only sentinel_user=USER and "
                                          "sentinel_password=PASSWORD, with '&' between them, may "
                                          "follow the '?'");
        }
        query += bytes;
    } while (*query == '&');
    return TDM_OK;
}

/* Writes the address of sentinels for messages: as many of them as there is space for. */
static void write_sentinels_text(struct tdm__redis_address *address)
{
    char hosts[TDM__REDIS_TEXT_BYTES] = "";
    size_t bytes = 0;

    for (uint32_t i = 0; i < address->sentinels_count && bytes < sizeof(hosts); i++) {
        int written = snprintf(hosts + bytes, sizeof(hosts) - bytes, "%s%s:%u", i > 0 ? "," : "",
                               address->sentinels[i].name, address->sentinels[i].port);

        bytes += written > 0 ? (size_t)written : 0;
    }
    (void)snprintf(address->text, sizeof(address->text), "redis+sentinel://%s/%.200s/%u", hosts,
                   address->master, address->database);
}

/* Parses everything behind "redis+sentinel://" in a URL. */
static tdm_status parse_sentinel_url(const char *rest, struct tdm__redis_address *address)
{
    const char *query = strstr(rest, "?sentinel_");
    const char *end = query != NULL ? query : rest + strlen(rest);
    const char *at = memrchr(rest, '@', (size_t)(end - rest));
    const char *slash;

    if (at != NULL) {
        TDM_TRY(parse_user(rest, (size_t)(at - rest), address));
        rest = at + 1;
    }
    slash = memchr(rest, '/', (size_t)(end - rest));
    TDM_TRY(parse_sentinels(rest, (size_t)((slash != NULL ? slash : end) - rest), address));
    rest = slash != NULL ? slash + 1 : end;
    TDM_TRY(parse_master(rest, (size_t)(end - rest), address));
    if (query != NULL) {
        TDM_TRY(parse_sentinel_user(query, address));
    }
    write_sentinels_text(address);
    return TDM_OK;
}

/* ---- interface -------------------------------------------------------------------------- */

tdm_status tdm__redis_address_parse(const char *url, struct tdm__redis_address *address_out)
{
    struct tdm__redis_address address = {.database = 0};
    const char *rest;

    if ((rest = text_after(url, "unix://")) != NULL || (rest = text_after(url, "unix:")) != NULL) {
        TDM_TRY(parse_unix(rest, &address));
    } else if ((rest = text_after(url, "redis://")) != NULL) {
        TDM_TRY(parse_redis(rest, &address));
    } else if ((rest = text_after(url, "rediss://")) != NULL) {
        address.is_encrypted = true;
        TDM_TRY(parse_redis(rest, &address));
    } else if ((rest = text_after(url, "redis+sentinel://")) != NULL) {
        TDM_TRY(parse_sentinel_url(rest, &address));
    } else if (text_after(url, "rediss+sentinel://") != NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "store url: sentinels, and the masters that they name, are not reached by "
                         "TLS: give rediss:// to one server, or redis+sentinel:// on a network "
                         "that nobody else can reach");
    } else {
        return tdm__fail(TDM_E_INVAL,
                         "store url: wanted unix:///path, redis://[user[:password]@]host[:port]"
                         "[/database], the same with rediss:// for TLS, or "
                         "redis+sentinel://[user[:password]@]host[:port][,...]"
                         "/MASTER[/database]");
    }
    *address_out = address;
    return TDM_OK;
}

bool tdm__redis_host_equal(const struct tdm__redis_host *one, const struct tdm__redis_host *other)
{
    return one->port == other->port && strcmp(one->name, other->name) == 0;
}

bool tdm__redis_host_is_local(const struct tdm__redis_host *host)
{
    struct in_addr four;
    struct in6_addr six;

    if (strcmp(host->name, "localhost") == 0) {
        return true;
    }
    if (inet_pton(AF_INET, host->name, &four) == 1) {
        return ntohl(four.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
    }
    return inet_pton(AF_INET6, host->name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool tdm__redis_address_is_local(const struct tdm__redis_address *address)
{
    for (uint32_t i = 0; i < address->sentinels_count; i++) {
        if (!tdm__redis_host_is_local(&address->sentinels[i])) {
            return false;
        }
    }
    return address->sentinels_count > 0 || address->path[0] != '\0' ||
           tdm__redis_host_is_local(&address->host);
}
