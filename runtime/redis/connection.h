/* connection.h - one connection to Redis that comes back by itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_CONNECTION_H
#define TDM_RUNTIME_REDIS_CONNECTION_H

#include "runtime/loop/loop.h"
#include "runtime/redis/address.h"

#include <hiredis/async.h>
#include <stdbool.h>
#include <stddef.h>

/* Connects, says who we are, asks PING; then it is ready.  When the connection ends, or the
 * server does not answer that much in time, it tries again: after 10 ms, twice that, … up to a
 * second.  A host's name is looked up at each attempt, which blocks while the resolver does. */
struct tdm__redis_connection;

/* Both run inside hiredis: they may send, and must not run the loop or destroy the link. */
struct tdm__redis_connection_ops {
    void (*ready)(void *arg);
    /* After the callback of each command without a reply has run with NULL.  Only after ready.
     */
    void (*lost)(void *arg);
};

/* `address` is copied. */
tdm_status tdm__redis_connection_create(struct tdm__loop *loop,
                                        const struct tdm__redis_address *address,
                                        const struct tdm__redis_connection_ops *ops, void *arg,
                                        struct tdm__redis_connection **link_out);
/* Commands without a reply get NULL now; `lost` does not run. */
void tdm__redis_connection_destroy(struct tdm__redis_connection *link);

bool tdm__redis_connection_is_ready(const struct tdm__redis_connection *link);
/* Sends a command in Redis' own form.  False if the connection is not ready or just ending;
 * `fn` does not run then. */
bool tdm__redis_connection_send(struct tdm__redis_connection *link, redisCallbackFn *fn, void *arg,
                                const char *command, size_t command_bytes);
/* The server does not answer: gives this connection up and makes a new one. */
void tdm__redis_connection_drop(struct tdm__redis_connection *link, const char *reason);
/* Why there is no connection, "" if nothing is known; never NULL. */
const char *tdm__redis_connection_trouble(const struct tdm__redis_connection *link);

#endif
