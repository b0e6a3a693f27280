/* embedded.h - a private redis-server of this node, for clusters that bring none. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_EMBEDDED_H
#define TDM_REDIS_EMBEDDED_H

#include "runtime/loop/loop.h"

#include <sys/types.h>

/* Lives in <directory>/redis (0700, ours): its socket, its log, its append-only file.  It is
 * started again when it dies, and its data comes back from the file.  It dies with the thread
 * that started it. */
struct tdm__redis_embedded;

/* Waits until it answers PING, at most ten seconds.  TDM_E_NOT_FOUND if redis-server is not
 * installed.  One per directory: that is the caller's duty. */
tdm_status tdm__redis_embedded_start(struct tdm__loop *loop, const char *directory,
                                     struct tdm__redis_embedded **server_out);
/* Asks it to end, waits two seconds for that, ends it.  Never from a callback.  NULL is
 * allowed.
 */
void tdm__redis_embedded_stop(struct tdm__redis_embedded *server);

/* "unix://…" for tdm__store_redis_open(); borrowed. */
const char *tdm__redis_embedded_url(const struct tdm__redis_embedded *server);
/* 0 while it is down between two lives. */
pid_t tdm__redis_embedded_pid(const struct tdm__redis_embedded *server);

#endif
