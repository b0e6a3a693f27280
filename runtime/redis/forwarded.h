/* forwarded.h - reaches the Redis server of another node's daemon through that daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_FORWARDED_H
#define TDM_RUNTIME_REDIS_FORWARDED_H

#include "runtime/rpc/rpc.h"

/* The Redis server of another node's daemon. Each connection to the Unix socket of this object is
 * forwarded to the server: this process opens a connection to the other daemon, where both prove
 * that they know the token, and copies the bytes. */
struct tdm__redis_forwarded;

/* Asks the daemon at `address` ("tcp:host:port") for the name of its cluster, blocks until it has
 * replied, at most `timeout_ms`, and runs the loop meanwhile. Then listens at the Unix socket
 * "store.sock" in `directory`. `rpc` is borrowed and must outlive the object. Returns
 * TDM_E_CLOSED if nothing listens at the address or the daemon has another token, and
 * TDM_E_NOT_FOUND if the daemon has no Redis server of its own. */
tdm_status tdm__redis_forwarded_open(struct tdm__rpc *rpc, const char *address,
                                     const char *directory, int64_t timeout_ms,
                                     struct tdm__redis_forwarded **forwarded_out);
/* Ends all forwarded connections, removes the socket and frees the object. NULL is allowed. */
void tdm__redis_forwarded_close(struct tdm__redis_forwarded *forwarded);
/* Returns the URL at which this process reaches the server, "unix://...", for
 * tdm__store_redis_open(). Borrowed from the object. */
const char *tdm__redis_forwarded_url(const struct tdm__redis_forwarded *forwarded);
/* Returns the name of the other daemon's cluster, part of the prefix of every key in Redis.
 * Borrowed from the object. */
const char *tdm__redis_forwarded_cluster(const struct tdm__redis_forwarded *forwarded);

#endif
