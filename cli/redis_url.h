/* redis_url.h - the URL of a Redis server on a command line or in a file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_REDIS_URL_H
#define TDM_CLI_REDIS_URL_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether `url`, the value of the option `name` on a command line, contains no password,
 * since every user of the machine can read command lines. Prints the error otherwise. */
bool cli_redis_url_check(const char *name, const char *url);
/* Reads the URL of a Redis server from the first line of the file `path` and stores it in
 * `url_out`; the caller frees it. Prints the error and returns false if the file cannot be read, or
 * if other users may read it although the URL contains a password. */
bool cli_redis_url_read(const char *path, const char **url_out);

/* Checks that connections with the Redis server of this URL leave no machine, because they are not
 * encrypted. Prints why not, with the remedies, and returns false. Returns true for a wrong URL. */
bool cli_redis_url_check_plain(const char *url);
/* Returns what is at risk if the URL names sentinels and so few replicas must confirm a change, for
 * a warning at the start. Returns NULL if nothing is. The text is constant. */
const char *cli_redis_url_risk(const char *url, uint32_t wait_replicas);

#endif
