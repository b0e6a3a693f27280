/* connection.c - one connection to Redis that reconnects automatically. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The states are: waiting for the next attempt (no context), handshake (a context that is not
 * ready), ready. The timer is the next attempt in the first state and the time limit of the
 * handshake in the second.
 *
 * hiredis frees its context when the connection ends, after all its callbacks. The only hook that
 * always runs then is `cleanup`, so the connection learns of its end there. hiredis 0.14 has no
 * time limits and no reconnection, so both are implemented here. Everything runs on the loop's
 * thread. */
#include "runtime/redis/connection.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/redis/reply.h"
#include "runtime/socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limits and delays of a connection to Redis. */
enum {
    /* Milliseconds within which the server must reply to AUTH, SELECT and PING. */
    HANDSHAKE_MS = 2000,
    BACK_OFF_MS_MIN = 10,   /* First delay between attempts to connect in milliseconds. */
    BACK_OFF_MS_MAX = 1000, /* Longest delay between attempts to connect in milliseconds. */
    /* Milliseconds without a connection after which the trouble is logged. */
    LOG_AFTER_MS = 1000,
};

/* A connection to a Redis server that reconnects automatically. Its creator owns it. */
struct tdm__redis_connection {
    struct tdm__loop *loop;            /* Event loop on which the connection runs (borrowed). */
    struct tdm__redis_address address; /* Address of the Redis server. */
    /* Callbacks that report the connection's events (borrowed). */
    const struct tdm__redis_connection_ops *ops;
    void *arg; /* Passed to the callbacks of `ops`. */
    /* Connection of hiredis, which frees it; NULL while there is no connection. */
    redisAsyncContext *context;
    /* Watch of the socket of `context` (owned); NULL without a context. */
    struct tdm__fd_watch *watch;
    unsigned watched_events; /* Events that `watch` reports now. */
    /* Timer of the next attempt to connect, or of the handshake's time limit (owned). */
    struct tdm__timer *timer;
    int64_t back_off_ms; /* Delay before the next attempt to connect, in milliseconds. */
    /* Whether the handshake with the server has succeeded, so that commands can be sent. */
    bool ready;
    bool destroyed; /* Whether the owner is destroying the connection. */
    /* Time since when there has been no connection, in milliseconds on CLOCK_MONOTONIC; 0 if there
     * is one. */
    int64_t trouble_since_ms;
    bool logged;       /* Whether the current lack of a connection has been logged. */
    char trouble[160]; /* Why there is no connection to the server; "" if unknown. */
};

/* Makes one attempt to connect to the server; declared here for the hooks of hiredis. */
static void connection_connect(struct tdm__redis_connection *connection);

/* Sets the connection's timer to fire `in_ms` milliseconds from now. */
static void connection_set_timer(struct tdm__redis_connection *connection, int64_t in_ms)
{
    TDM_ASSERT(tdm__timer_set(connection->timer, tdm__clock_ms() + in_ms) == TDM_OK);
}

/* Remembers why there is no connection to the server. */
static void connection_note_trouble(struct tdm__redis_connection *connection, const char *trouble)
{
    (void)snprintf(connection->trouble, sizeof(connection->trouble), "%s", trouble);
}

/* ---- hiredis' side of the loop ---------------------------------------------------------- */

/* Makes the connection's watch report the events that hiredis wants. */
static void connection_want_events(struct tdm__redis_connection *connection, unsigned events)
{
    if (events == connection->watched_events) {
        return;
    }
    connection->watched_events = events;
    if (tdm__fd_watch_set_events(connection->watch, events) != TDM_OK) {
        connection_note_trouble(connection, tdm_error_detail());
        /* The failed connection is ended by the timer, outside of hiredis. */
        connection_set_timer(connection, 0);
    }
}

/* Hook of hiredis: hiredis wants to read from the socket. */
static void add_read(void *arg)
{
    struct tdm__redis_connection *connection = arg;

    connection_want_events(connection, connection->watched_events | TDM__READABLE);
}

/* Hook of hiredis: hiredis no longer wants to read from the socket. */
static void delete_read(void *arg)
{
    struct tdm__redis_connection *connection = arg;

    connection_want_events(connection, connection->watched_events & ~(unsigned)TDM__READABLE);
}

/* Hook of hiredis: hiredis wants to write to the socket. */
static void add_write(void *arg)
{
    struct tdm__redis_connection *connection = arg;

    connection_want_events(connection, connection->watched_events | TDM__WRITABLE);
}

/* Hook of hiredis: hiredis no longer wants to write to the socket. */
static void delete_write(void *arg)
{
    struct tdm__redis_connection *connection = arg;

    connection_want_events(connection, connection->watched_events & ~(unsigned)TDM__WRITABLE);
}

/* Schedules the next attempt to connect and doubles the delay. Logs a lack of a connection that
 * lasts longer than LOG_AFTER_MS. */
static void connection_retry_later(struct tdm__redis_connection *connection)
{
    if (connection->trouble_since_ms == 0) {
        connection->trouble_since_ms = tdm__clock_ms();
    }
    if (!connection->logged && tdm__clock_ms() - connection->trouble_since_ms >= LOG_AFTER_MS) {
        /* Not logged earlier, because the embedded server may be starting. */
        connection->logged = true;
        tdm__log(TDM__WARN, "redis", "%s: %s: trying again", connection->address.text,
                 connection->trouble);
    }
    connection_set_timer(connection, connection->back_off_ms);
    connection->back_off_ms *= 2;
    if (connection->back_off_ms > BACK_OFF_MS_MAX) {
        connection->back_off_ms = BACK_OFF_MS_MAX;
    }
}

/* Hook of hiredis: the context is about to be freed, and all its callbacks have run. Schedules the
 * next attempt to connect and reports the loss of a ready connection. */
static void cleanup(void *arg)
{
    struct tdm__redis_connection *connection = arg;
    bool was_ready = connection->ready;

    if (connection->context->c.errstr[0] != '\0') {
        connection_note_trouble(connection, connection->context->c.errstr);
    }
    tdm__fd_watch_destroy(connection->watch);
    connection->watch = NULL;
    connection->context = NULL;
    connection->ready = false;
    if (connection->destroyed) {
        return;
    }
    if (was_ready) {
        connection->logged = true;
        tdm__log(TDM__WARN, "redis", "%s: connection lost: %s", connection->address.text,
                 connection->trouble);
    }
    connection_retry_later(connection);
    if (was_ready) {
        connection->ops->lost(connection->arg);
    }
}

/* Runs when the socket is ready: lets hiredis read and write. Reading may end the connection, so
 * the context is checked before writing. */
static void on_events(void *arg, int fd, unsigned ready)
{
    struct tdm__redis_connection *connection = arg;
    redisAsyncContext *context = connection->context;

    (void)fd;
    if ((ready & TDM__READABLE) != 0) {
        redisAsyncHandleRead(context);
    }
    if ((ready & TDM__WRITABLE) != 0 && connection->context == context) {
        redisAsyncHandleWrite(context);
    }
}

/* ---- handshake -------------------------------------------------------------------------- */

/* Returns whether the server's reply in the handshake is not `expected`; the connection is dropped
 * then. */
static bool handshake_refused(struct tdm__redis_connection *connection, const redisReply *reply,
                              const char *expected)
{
    char text[128];

    if (reply == NULL) {
        return true; /* The connection is ending. */
    }
    if (reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, expected) == 0) {
        return false;
    }
    tdm__redis_connection_drop(connection, tdm__redis_reply_text(reply, text, sizeof(text)));
    return true;
}

/* Handles the server's reply to AUTH or SELECT. After a refusal the callbacks of the later commands
 * receive NULL. */
static void on_auth_reply(redisAsyncContext *context, void *reply, void *arg)
{
    (void)context;
    (void)handshake_refused(arg, reply, "OK");
}

/* Handles the server's reply to PING, which makes the connection ready. */
static void on_pong(redisAsyncContext *context, void *reply, void *arg)
{
    struct tdm__redis_connection *connection = arg;

    (void)context;
    if (handshake_refused(connection, reply, "PONG")) {
        return;
    }
    connection->ready = true;
    connection->logged = false;
    connection->trouble_since_ms = 0;
    connection->back_off_ms = BACK_OFF_MS_MIN;
    connection->trouble[0] = '\0';
    tdm__timer_clear(connection->timer);
    connection->ops->ready(connection->arg);
}

/* Sends the commands of the handshake to the server: AUTH, SELECT and PING as needed. Returns false
 * without memory. */
static bool handshake_send(struct tdm__redis_connection *connection)
{
    const struct tdm__redis_address *address = &connection->address;
    redisAsyncContext *context = connection->context;
    int sent = REDIS_OK;

    if (address->password[0] != '\0' || address->user[0] != '\0') {
        const char *user = address->user[0] != '\0' ? address->user : "default";

        sent |= redisAsyncCommand(context, on_auth_reply, connection, "AUTH %s %s", user,
                                  address->password);
    }
    if (address->database != 0) {
        sent |=
            redisAsyncCommand(context, on_auth_reply, connection, "SELECT %u", address->database);
    }
    sent |= redisAsyncCommand(context, on_pong, connection, "PING");
    return sent == REDIS_OK;
}

/* ---- connecting ------------------------------------------------------------------------- */

/* Starts a connection of hiredis and a watch of its socket. Returns NULL after a failure, which is
 * noted as the connection's trouble. */
static redisAsyncContext *open_context(struct tdm__redis_connection *connection)
{
    const struct tdm__redis_address *address = &connection->address;
    redisAsyncContext *context = address->path[0] != '\0'
                                     ? redisAsyncConnectUnix(address->path)
                                     : redisAsyncConnect(address->host, address->port);

    if (context == NULL) {
        connection_note_trouble(connection, "out of memory");
        return NULL;
    }
    if (context->err != REDIS_OK) {
        connection_note_trouble(connection, context->errstr);
        redisAsyncFree(context);
        return NULL;
    }
    (void)fcntl(context->c.fd, F_SETFD, FD_CLOEXEC);
    tdm__socket_set_options(context->c.fd, false);
    connection->watched_events = 0;
    if (tdm__fd_watch_create(connection->loop, context->c.fd, 0, on_events, connection,
                             &connection->watch) != TDM_OK) {
        connection_note_trouble(connection, tdm_error_detail());
        redisAsyncFree(context);
        return NULL;
    }
    return context;
}

/* Makes one attempt to connect to the server. */
static void connection_connect(struct tdm__redis_connection *connection)
{
    redisAsyncContext *context = open_context(connection);

    if (context == NULL) {
        connection_retry_later(connection);
        return;
    }
    connection->context = context;
    tdm__redis_reader_limit(context->c.reader);
    context->ev.data = connection;
    context->ev.addRead = add_read;
    context->ev.delRead = delete_read;
    context->ev.addWrite = add_write;
    context->ev.delWrite = delete_write;
    context->ev.cleanup = cleanup;
    connection_set_timer(connection, HANDSHAKE_MS);
    if (!handshake_send(connection)) {
        tdm__redis_connection_drop(connection, "out of memory");
    }
}

/* Runs when the connection's timer fires: starts the next attempt to connect, or ends a handshake
 * that took too long. */
static void on_timer(void *arg)
{
    struct tdm__redis_connection *connection = arg;

    if (connection->context == NULL) {
        connection_connect(connection);
    } else {
        tdm__redis_connection_drop(connection, "no answer in time");
    }
}

/* ---- interface -------------------------------------------------------------------------- */

tdm_status tdm__redis_connection_create(struct tdm__loop *loop,
                                        const struct tdm__redis_address *address,
                                        const struct tdm__redis_connection_ops *ops, void *arg,
                                        struct tdm__redis_connection **connection_out)
{
    struct tdm__redis_connection *connection = calloc(1, sizeof(*connection));
    tdm_status status;

    if (connection == NULL) {
        return tdm__fail(TDM_E_NOMEM, "redis connection");
    }
    connection->loop = loop;
    connection->address = *address;
    connection->ops = ops;
    connection->arg = arg;
    connection->back_off_ms = BACK_OFF_MS_MIN;
    status = tdm__timer_create(loop, on_timer, connection, &connection->timer);
    if (status != TDM_OK) {
        free(connection);
        return status;
    }
    connection_set_timer(connection, 0);
    *connection_out = connection;
    return TDM_OK;
}

void tdm__redis_connection_destroy(struct tdm__redis_connection *connection)
{
    connection->destroyed = true;
    if (connection->context != NULL) {
        redisAsyncFree(connection->context);
        TDM_ASSERT(connection->context == NULL); /* The caller is not inside hiredis. */
    }
    tdm__timer_destroy(connection->timer);
    free(connection);
}

bool tdm__redis_connection_is_ready(const struct tdm__redis_connection *connection)
{
    return connection->ready;
}

bool tdm__redis_connection_send(struct tdm__redis_connection *connection, redisCallbackFn *fn,
                                void *arg, const char *command, size_t command_bytes)
{
    return connection->ready && redisAsyncFormattedCommand(connection->context, fn, arg, command,
                                                           command_bytes) == REDIS_OK;
}

void tdm__redis_connection_drop(struct tdm__redis_connection *connection, const char *reason)
{
    if (connection->context != NULL) {
        connection_note_trouble(connection, reason);
        redisAsyncFree(connection->context);
    }
}

const char *tdm__redis_connection_trouble(const struct tdm__redis_connection *connection)
{
    return connection->trouble;
}
