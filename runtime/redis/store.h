/* store.h - opens the store in a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_STORE_H
#define TDM_RUNTIME_REDIS_STORE_H

#include "runtime/store.h"

/* Opens the store in the Redis server at `url`: "unix:///path/sock" or
 * "redis://[user:password@]host:port[/db]".  `cluster` is the prefix of every key.  Loads the
 * function library into the server if this version of it is missing.  Blocks only for the first
 * connection, at most `timeout_ms`; later it reconnects by itself with increasing delays. */
tdm_status tdm__store_redis_open(struct tdm__loop *loop, const char *url, const char *cluster,
                                 int64_t timeout_ms, struct tdm__store **store_out);

#endif
