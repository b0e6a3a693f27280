/* store.h - opens the store in a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_STORE_H
#define TDM_RUNTIME_REDIS_STORE_H

#include "runtime/id.h"
#include "runtime/redis/address.h"
#include "runtime/store.h"

/* Opens the store in the Redis server at `url`, of which address.h lists the forms; sentinels may
 * only name a master on this machine.  `cluster` is the prefix of every key.  Loads the
 * function library into the server if this version of it is missing.  Blocks only for the first
 * connection, at most `timeout_ms`; later it reconnects by itself with increasing delays. */
tdm_status tdm__store_redis_open(struct tdm__loop *loop, const char *url, const char *cluster,
                                 int64_t timeout_ms, struct tdm__store **store_out);
/* Does the same as tdm__store_redis_open() with an address, which is copied. */
tdm_status tdm__store_redis_open_at(struct tdm__loop *loop,
                                    const struct tdm__redis_address *address, const char *cluster,
                                    int64_t timeout_ms, struct tdm__store **store_out);
/* Makes the server keep the outcomes of the store's commits under the ID of the node, instead of a
 * random one, so that they are removed together with the node's record. To be called before the
 * first commit. */
void tdm__store_redis_set_writer(struct tdm__store *store, const struct tdm__id *node);
/* Makes the store call `fn` with `arg` on the loop's thread at each new connection, before it sends
 * what has waited for the connection. The server may be another one, or have lost changes, so a
 * node renews its lease then. */
void tdm__store_redis_on_connected(struct tdm__store *store, void (*fn)(void *arg), void *arg);
/* Waits until `replicas_count` replicas of the server have what this store has written, at most
 * `timeout_ms` milliseconds. Instead of a version, `fn` gets the number of replicas that have it,
 * which may be lower or higher. Fails with TDM_E_STORE if the connection is lost. */
void tdm__store_redis_wait(struct tdm__store *store, uint32_t replicas_count, int64_t timeout_ms,
                           tdm__store_commit_fn *fn, void *arg);

#endif
