/* redis_url.c - the URL of a Redis server on a command line or in a file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/redis_url.h"

#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/redis/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Most bytes of a file with the URL of a Redis server. */
enum { FILE_BYTES_MAX = 4096 };

/* Returns whether the URL of a Redis server contains a password. */
static bool url_has_password(const char *url)
{
    const char *at = strrchr(url, '@');

    return strncmp(url, "redis", 5) == 0 &&
           (at != NULL || strstr(url, "sentinel_password=") != NULL);
}

bool cli_redis_url_check(const char *name, const char *url)
{
    if (!url_has_password(url)) {
        return true;
    }
    (void)fprintf(
        stderr,
        "%s: reading %s failed: it contains a password, which every user of this machine can read "
        "in the command line. Write the URL to a file and give --redis-file FILE, or set "
        "TANDEM_REDIS\n",
        program_invocation_short_name, name);
    return false;
}

bool cli_redis_url_check_plain(const char *url)
{
    struct tdm__redis_address address;

    /* A wrong URL is reported where it is used. */
    if (tdm__redis_address_parse(url, &address) != TDM_OK ||
        tdm__redis_address_is_local(&address) || address.is_encrypted) {
        return true;
    }
    (void)fprintf(
        stderr,
        "%s: starting failed: the Redis server %s may be on another machine, and connections to it "
        "are not encrypted, so that machines on the way can read and change the cluster's records. "
        "Leave the records to the head node (no --redis), or let the server accept TLS "
        "and give rediss://, or accept it by --insecure-redis\n",
        program_invocation_short_name, address.text);
    return false;
}

const char *cli_redis_url_risk(const char *url, uint32_t wait_replicas)
{
    struct tdm__redis_address address;

    if (wait_replicas > 0 || tdm__redis_address_parse(url, &address) != TDM_OK ||
        address.sentinels_count == 0) {
        return NULL;
    }
    return "sentinels name the master of Redis, and --redis-wait-replicas is 0: a failover may "
           "lose the last changes, and in a partition with a master on each side two nodes may run "
           "the same actor, and two actors may have one name. Start replicas and give "
           "--redis-wait-replicas 1 (docs/cluster.md)";
}

bool cli_redis_url_read(const char *path, const char **url_out)
{
    struct stat about;
    char *url;
    size_t bytes;

    if (tdm__file_read(path, FILE_BYTES_MAX, &url, &bytes) != TDM_OK) {
        (void)fprintf(stderr, "%s: reading --redis-file failed: %s\n",
                      program_invocation_short_name, tdm_error_detail());
        return false;
    }
    url[strcspn(url, "\r\n")] = '\0';
    if (url_has_password(url) && (stat(path, &about) != 0 || (about.st_mode & 077) != 0)) {
        (void)fprintf(stderr,
                      "%s: reading --redis-file failed: %s contains a password, but other users "
                      "may read it. Run: "
                      "chmod 600 %s\n",
                      program_invocation_short_name, path, path);
        free(url);
        return false;
    }
    *url_out = url;
    return true;
}
