/* embedded.h - a private redis-server of this node, for clusters without a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_EMBEDDED_H
#define TDM_REDIS_EMBEDDED_H

#include "runtime/loop/loop.h"

#include <sys/types.h>

/* A redis-server process that this process starts and supervises. Its socket, log and append-only
 * file are in <directory>/redis (mode 0700). It is restarted when it ends, or when it has not
 * replied for five seconds, and recovers its data from the file. It ends with the thread that
 * started it. */
struct tdm__redis_embedded;

/* Starts a redis-server and blocks until it replies to PING, at most ten seconds. Returns
 * TDM_E_NOT_FOUND if no server program is found (server_program.h). The caller must ensure that a
 * directory has only one server. */
tdm_status tdm__redis_embedded_start(struct tdm__loop *loop, const char *directory,
                                     struct tdm__redis_embedded **server_out);
/* Stops the redis-server with SIGTERM, and after two seconds with SIGKILL; blocks meanwhile and
 * runs the loop. Must not be called from a callback. NULL is allowed. */
void tdm__redis_embedded_stop(struct tdm__redis_embedded *server);

/* Returns the URL of the redis-server, "unix://...", for tdm__store_redis_open(); borrowed from
 * `server`. */
const char *tdm__redis_embedded_url(const struct tdm__redis_embedded *server);
/* Returns the process ID of the redis-server, or 0 between the end of one process and the start of
 * the next. */
pid_t tdm__redis_embedded_pid(const struct tdm__redis_embedded *server);

#endif
