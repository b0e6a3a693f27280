/* server_watch.h - notices that a redis-server process does not reply any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_SERVER_WATCH_H
#define TDM_RUNTIME_REDIS_SERVER_WATCH_H

#include "runtime/loop/loop.h"
#include "runtime/redis/address.h"

/* A connection of its own to a redis-server, on which PING is sent again and again. Used on the
 * loop's thread only. */
struct tdm__redis_server_watch;

/* Starts to watch the server at `address`. `fn` is called with `arg` each time that the server has
 * not replied for `silent_ms` milliseconds of the time in which the loop ran; it must not destroy
 * the watch. Time in which the loop itself stood still does not count, because the server's replies
 * were not read then. A server that refuses, because it is loading its data, is not silent.
 * `address` is copied, `loop` is borrowed. */
tdm_status tdm__redis_server_watch_create(struct tdm__loop *loop,
                                          const struct tdm__redis_address *address,
                                          int64_t silent_ms, void (*fn)(void *arg), void *arg,
                                          struct tdm__redis_server_watch **watch_out);
/* Ends the watch and frees it. NULL is allowed. */
void tdm__redis_server_watch_destroy(struct tdm__redis_server_watch *watch);

#endif
