/* connection.h - one connection to Redis that reconnects automatically. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_CONNECTION_H
#define TDM_RUNTIME_REDIS_CONNECTION_H

#include "runtime/loop/loop.h"
#include "runtime/redis/address.h"

#include <hiredis/async.h>
#include <stdbool.h>
#include <stddef.h>

/* A connection to a Redis server. It connects, authenticates and sends PING; after the reply it is
 * ready. If the connection ends, or the server does not reply in time, it reconnects after 10 ms,
 * doubled at each attempt up to one second. Each attempt looks up the host name, which blocks.
 *
 * If the address has sentinels, the connection asks them in turn for the master before it connects.
 * A sentinel that does not reply within one second is skipped. The master must say by ROLE that it
 * is one; else the sentinels are asked again after the delay. */
struct tdm__redis_connection;

/* Least milliseconds of a connection until doubts about the master end it. */
enum { TDM__REDIS_DOUBT_MS = 3000 };

/* Callbacks that report events of a connection to Redis. They run inside hiredis: they may send
 * commands, but must not run the loop or destroy the connection. */
struct tdm__redis_connection_ops {
    void (*ready)(void *arg); /* Reports that the connection can send commands. */
    /* Reports that a ready connection has ended. It runs after the callbacks of all commands
     * without a reply have run with NULL. */
    void (*lost)(void *arg);
};

/* Creates a connection to a Redis server and starts to connect. `address` is copied, `loop` and
 * `ops` are borrowed. */
tdm_status tdm__redis_connection_create(struct tdm__loop *loop,
                                        const struct tdm__redis_address *address,
                                        const struct tdm__redis_connection_ops *ops, void *arg,
                                        struct tdm__redis_connection **connection_out);
/* Closes and frees the connection to Redis. Callbacks of commands without a reply run now with
 * NULL; `lost` does not run. */
void tdm__redis_connection_destroy(struct tdm__redis_connection *connection);

/* Returns whether commands can be sent over the connection now. */
bool tdm__redis_connection_is_ready(const struct tdm__redis_connection *connection);
/* Sends an encoded command to Redis. `fn` receives the reply, or NULL if the connection ends
 * before. Returns false if the connection is not ready or is just ending; `fn` does not run then.
 */
bool tdm__redis_connection_send(struct tdm__redis_connection *connection, redisCallbackFn *fn,
                                void *arg, const char *command, size_t command_bytes);
/* Checks a reply to a command. If it says that the server is not a master any more, and the address
 * has sentinels, the connection is dropped, and the sentinels are asked. Returns false then: the
 * server has not carried out the command. */
bool tdm__redis_connection_check_master(struct tdm__redis_connection *connection,
                                        const redisReply *reply);
/* Handles that fewer replicas than are wanted have a change that the server has accepted. It may be
 * an old master, cut off from the replica that has taken its place. If the address has sentinels,
 * and the connection has been ready for TDM__REDIS_DOUBT_MS, the connection is dropped, and the
 * next sentinel is asked. */
void tdm__redis_connection_doubt_master(struct tdm__redis_connection *connection);
/* Returns the master that a sentinel has named for the current connection or attempt. Its name is
 * "" if the address has no sentinels, and while a sentinel is asked. Borrowed from the connection.
 */
const struct tdm__redis_host *
tdm__redis_connection_master(const struct tdm__redis_connection *connection);
/* Ends the current connection to the server because of `reason`, and reconnects. */
void tdm__redis_connection_drop(struct tdm__redis_connection *connection, const char *reason);
/* Ends the current connection or attempt because of `reason`, and connects to the master that a
 * sentinel has named for another connection. Must not be called in callbacks of this connection. */
void tdm__redis_connection_use_master(struct tdm__redis_connection *connection,
                                      const struct tdm__redis_host *master, const char *reason);
/* Returns the text that says why there is no connection to the server; "" if the reason is unknown.
 * Never NULL. Borrowed until the next call with `connection`. */
const char *tdm__redis_connection_trouble(const struct tdm__redis_connection *connection);

#endif
