/* server_watch.c - notices that a redis-server process does not reply any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/server_watch.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/redis/connection.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { TICKS_COUNT = 10 }; /* Number of looks at the server until it counts as silent. */

/* Definition of the watch. Its creator owns it. */
struct tdm__redis_server_watch {
    struct tdm__redis_connection *connection; /* Connection to the watched server (owned). */
    struct tdm__timer *timer;                 /* Timer of the next look (owned). */
    void (*fn)(void *arg); /* Callback that is called when the server is silent. */
    void *arg;             /* First argument of `fn`. */
    int64_t tick_ms;       /* Time between two looks at the server, in milliseconds. */
    int64_t ticked_ms;     /* Time of the last look, in milliseconds on CLOCK_MONOTONIC. */
    /* Milliseconds without a reply of the server, as far as they count. */
    int64_t silent_ms;
    bool awaits_reply; /* Whether a PING was sent that has no reply. */
};

/* Handles the reply to PING, or the end of the connection, which gives NULL. */
static void on_reply(redisAsyncContext *context, void *reply, void *arg)
{
    struct tdm__redis_server_watch *watch = arg;

    (void)context;
    watch->awaits_reply = false;
    if (reply != NULL) {
        watch->silent_ms = 0;
    }
}

/* Handles that the connection is ready: the server has replied to its handshake. */
static void on_ready(void *arg)
{
    struct tdm__redis_server_watch *watch = arg;

    watch->silent_ms = 0;
}

/* Ignores the end of the connection, which connects again by itself. */
static void on_lost(void *arg)
{
    (void)arg;
}

/* Callbacks of the connection to the watched server. */
static const struct tdm__redis_connection_ops watch_ops = {.ready = on_ready, .lost = on_lost};

/* Returns whether the server has refused the connection because it is loading its data. */
static bool server_is_loading(const struct tdm__redis_server_watch *watch)
{
    return strncmp(tdm__redis_connection_trouble(watch->connection), "LOADING", 7) == 0;
}

/* Sets the timer of the next look. */
static void tick_later(struct tdm__redis_server_watch *watch)
{
    TDM_ASSERT(tdm__timer_set(watch->timer, watch->ticked_ms + watch->tick_ms) == TDM_OK);
}

/* Looks at the server: counts the time without a reply, and sends the next PING. */
static void on_tick(void *arg)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    struct tdm__redis_server_watch *watch = arg;
    int64_t now_ms = tdm__clock_ms();
    int64_t passed_ms = now_ms - watch->ticked_ms;

    /* After a longer time the loop stood still, and may not have read the replies. */
    watch->silent_ms += passed_ms < 2 * watch->tick_ms ? passed_ms : watch->tick_ms;
    watch->ticked_ms = now_ms;
    if (server_is_loading(watch)) {
        watch->silent_ms = 0;
    }
    if (!watch->awaits_reply) {
        watch->awaits_reply =
            tdm__redis_connection_send(watch->connection, on_reply, watch, ping, sizeof(ping) - 1);
    }
    if (watch->silent_ms >= watch->tick_ms * TICKS_COUNT) {
        watch->silent_ms = 0;
        watch->fn(watch->arg);
    }
    tick_later(watch);
}

tdm_status tdm__redis_server_watch_create(struct tdm__loop *loop,
                                          const struct tdm__redis_address *address,
                                          int64_t silent_ms, void (*fn)(void *arg), void *arg,
                                          struct tdm__redis_server_watch **watch_out)
{
    struct tdm__redis_server_watch *watch = calloc(1, sizeof(*watch));
    tdm_status status;

    if (watch == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the watch of a redis-server");
    }
    *watch = (struct tdm__redis_server_watch){
        .fn = fn, .arg = arg, .tick_ms = silent_ms / TICKS_COUNT, .ticked_ms = tdm__clock_ms()};
    status = tdm__timer_create(loop, on_tick, watch, &watch->timer);
    if (status == TDM_OK) {
        status = tdm__redis_connection_create(loop, address, &watch_ops, watch, &watch->connection);
    }
    if (status != TDM_OK) {
        tdm__redis_server_watch_destroy(watch);
        return status;
    }
    tick_later(watch);
    *watch_out = watch;
    return TDM_OK;
}

void tdm__redis_server_watch_destroy(struct tdm__redis_server_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    if (watch->connection != NULL) {
        tdm__redis_connection_destroy(watch->connection);
    }
    if (watch->timer != NULL) {
        tdm__timer_destroy(watch->timer);
    }
    free(watch);
}
