/* connection.c - one connection to Redis that reconnects automatically. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The states are: waiting for the next attempt (no context), asking a sentinel (a context whose
 * other end is a sentinel), handshake with the server (a context that is not ready), ready. The
 * timer is the next attempt in the first state and a time limit in the next two. master_search.c
 * decides whether an attempt asks a sentinel or connects to the server, and how long to wait before
 * it. The server that a sentinel has named must say by ROLE that it is a master.
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
#include "runtime/redis/master_search.h"
#include "runtime/redis/reply.h"
#include "runtime/socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limits of a connection to Redis, and the capacity of its texts. */
enum {
    /* Milliseconds within which the server must reply to AUTH, SELECT, ROLE and PING. */
    HANDSHAKE_MS = 2000,
    SENTINEL_MS = 1000, /* Milliseconds within which a sentinel must accept and reply. */
    /* Milliseconds without a connection after which the trouble is logged. */
    LOG_AFTER_MS = 1000,
    REASON_BYTES = 256,    /* Capacity of the text that says why an attempt has failed. */
    FAILURES_BYTES = 1024, /* Capacity of the text with the failures of several sentinels. */
    TROUBLE_BYTES = 1536,  /* Capacity of the text that says why there is no connection. */
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
    struct tdm__master_search search; /* What the next attempt contacts, and when. */
    bool is_asking;                   /* Whether the other end of `context` is a sentinel. */
    /* The master that a sentinel has named last; "" before, and while a sentinel is asked. */
    struct tdm__redis_host master;
    /* Whether the handshake with the server has succeeded, so that commands can be sent. */
    bool ready;
    /* Time since when the connection is ready, in milliseconds on CLOCK_MONOTONIC. */
    int64_t ready_since_ms;
    /* Whether the connection ends because the server may not be the master any more. Its end is not
     * logged: it repeats as long as replicas are missing, which the caller reports. */
    bool is_doubted;
    bool destroyed; /* Whether the owner is destroying the connection. */
    /* Time since when there has been no connection, in milliseconds on CLOCK_MONOTONIC; 0 if there
     * is one. */
    int64_t trouble_since_ms;
    bool logged;               /* Whether the current lack of a connection has been logged. */
    char reason[REASON_BYTES]; /* Why the current or last attempt has failed; "" if unknown. */
    /* Failures of the sentinels that were asked since the last delay; "" without any. */
    char failures[FAILURES_BYTES];
    char trouble[TROUBLE_BYTES]; /* Why there is no connection to the server; "" if unknown. */
};

/* Sets the connection's timer to fire `in_ms` milliseconds from now. */
static void connection_set_timer(struct tdm__redis_connection *connection, int64_t in_ms)
{
    TDM_ASSERT(tdm__timer_set(connection->timer, tdm__clock_ms() + in_ms) == TDM_OK);
}

/* Notes why the current attempt to connect, or the current connection, ends. */
static void connection_note_reason(struct tdm__redis_connection *connection, const char *reason)
{
    (void)snprintf(connection->reason, sizeof(connection->reason), "%s", reason);
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
        connection_note_reason(connection, tdm_error_detail());
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

/* Appends the failure of the sentinel that was asked to the list of such failures. */
static void connection_add_failure(struct tdm__redis_connection *connection)
{
    const struct tdm__redis_host *sentinel =
        &connection->address.sentinels[connection->search.sentinel];
    size_t bytes = strlen(connection->failures);

    (void)snprintf(connection->failures + bytes, sizeof(connection->failures) - bytes,
                   "%ssentinel %s:%u: %s", bytes > 0 ? "; " : "", sentinel->name, sentinel->port,
                   connection->reason);
}

/* Handles that a sentinel has not named a master. After the last one of a round the failures of all
 * are the connection's trouble. Returns the milliseconds until the next attempt. */
static int64_t connection_end_asking(struct tdm__redis_connection *connection)
{
    int64_t delay_ms;

    connection_add_failure(connection);
    delay_ms = tdm__master_search_sentinel_failed(&connection->search);
    if (delay_ms > 0) {
        (void)snprintf(connection->trouble, sizeof(connection->trouble),
                       "no sentinel has named the master \"%s\": %s", connection->address.master,
                       connection->failures);
        connection->failures[0] = '\0';
    }
    return delay_ms;
}

/* Handles that the attempt to connect to the server, or the connection with it, has ended. Returns
 * the milliseconds until the next attempt. */
static int64_t connection_end_server(struct tdm__redis_connection *connection)
{
    if (connection->master.name[0] != '\0') {
        (void)snprintf(connection->trouble, sizeof(connection->trouble),
                       "the master \"%s\" at %s:%u: %s", connection->address.master,
                       connection->master.name, connection->master.port, connection->reason);
    } else {
        (void)snprintf(connection->trouble, sizeof(connection->trouble), "%s", connection->reason);
    }
    return tdm__master_search_server_failed(&connection->search);
}

/* Schedules the next attempt after one that has failed, or after the end of a connection. Logs a
 * lack of a connection that lasts longer than LOG_AFTER_MS. */
static void connection_retry(struct tdm__redis_connection *connection)
{
    int64_t delay_ms = connection->is_asking ? connection_end_asking(connection)
                                             : connection_end_server(connection);

    if (connection->trouble_since_ms == 0) {
        connection->trouble_since_ms = tdm__clock_ms();
    }
    if (!connection->logged && connection->trouble[0] != '\0' &&
        tdm__clock_ms() - connection->trouble_since_ms >= LOG_AFTER_MS) {
        /* Not logged earlier, because the embedded server may be starting. */
        connection->logged = true;
        tdm__log(TDM__WARN, "redis", "%s: %s: trying again", connection->address.text,
                 connection->trouble);
    }
    connection_set_timer(connection, delay_ms);
}

/* Hook of hiredis: the context is about to be freed, and all its callbacks have run. Schedules the
 * next attempt and reports the loss of a ready connection. */
static void cleanup(void *arg)
{
    struct tdm__redis_connection *connection = arg;
    bool was_ready = connection->ready;

    if (connection->context->c.errstr[0] != '\0') {
        connection_note_reason(connection, connection->context->c.errstr);
    }
    tdm__fd_watch_destroy(connection->watch);
    connection->watch = NULL;
    connection->context = NULL;
    connection->ready = false;
    if (connection->destroyed) {
        return;
    }
    if (was_ready && !connection->is_doubted) {
        connection->logged = true;
        tdm__log(TDM__WARN, "redis", "%s: connection lost: %s", connection->address.text,
                 connection->reason);
    }
    if (connection->is_asking && connection->search.is_named) {
        connection_set_timer(connection, 0); /* The sentinel has done its part. */
    } else {
        connection_retry(connection);
    }
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

/* ---- asking a sentinel ------------------------------------------------------------------ */

/* Checks that connections with the master that `sentinel` has named leave no machine, or that this
 * was accepted, and that the master's address means the same on every machine. */
static tdm_status check_named_master(const struct tdm__redis_address *address,
                                     const struct tdm__redis_host *sentinel,
                                     const struct tdm__redis_host *master)
{
    bool is_local = tdm__redis_host_is_local(master);

    if (!is_local && !address->allows_remote_master) {
        return tdm__fail(TDM_E_STORE,
                         "names the master %s:%u, which may be on another machine, and connections "
                         "with it are not encrypted: accept it by --insecure-redis",
                         master->name, master->port);
    }
    if (is_local && !tdm__redis_host_is_local(sentinel)) {
        return tdm__fail(TDM_E_STORE,
                         "names the master %s:%u, which is another server on each machine: give "
                         "SENTINEL MONITOR the address by which all machines reach it",
                         master->name, master->port);
    }
    return TDM_OK;
}

/* Handles the sentinel's reply: notes the master, or why there is none, and ends the connection
 * with the sentinel. */
static void on_sentinel_reply(redisAsyncContext *context, void *reply, void *arg)
{
    struct tdm__redis_connection *connection = arg;
    const struct tdm__redis_address *address = &connection->address;
    struct tdm__redis_host master;
    tdm_status status;

    if (reply == NULL) {
        return; /* The connection is ending. */
    }
    status = tdm__redis_reply_master(reply, &master);
    if (status == TDM_OK) {
        status =
            check_named_master(address, &address->sentinels[connection->search.sentinel], &master);
    }
    if (status != TDM_OK) {
        tdm__redis_connection_drop(connection, tdm_error_detail());
        return;
    }
    connection->master = master;
    connection->failures[0] = '\0';
    tdm__master_search_named(&connection->search);
    redisAsyncFree(context);
}

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

/* Sends AUTH, unless user and password are empty. Returns the result of hiredis. */
static int send_auth(struct tdm__redis_connection *connection, const char *user,
                     const char *password)
{
    if (password[0] == '\0' && user[0] == '\0') {
        return REDIS_OK;
    }
    return redisAsyncCommand(connection->context, on_auth_reply, connection, "AUTH %s %s",
                             user[0] != '\0' ? user : "default", password);
}

/* Asks a sentinel for the master. Returns false without memory. */
static bool question_send(struct tdm__redis_connection *connection)
{
    const struct tdm__redis_address *address = &connection->address;
    int sent = send_auth(connection, address->sentinel_user, address->sentinel_password);

    sent |= redisAsyncCommand(connection->context, on_sentinel_reply, connection,
                              "SENTINEL GET-MASTER-ADDR-BY-NAME %s", address->master);
    return sent == REDIS_OK;
}

/* Handles the reply to ROLE of the server that a sentinel has named, which must be a master. */
static void on_role_reply(redisAsyncContext *context, void *reply, void *arg)
{
    (void)context;
    if (reply != NULL && tdm__redis_reply_role(reply) != TDM_OK) {
        tdm__redis_connection_drop(arg, tdm_error_detail());
    }
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
    connection->ready_since_ms = tdm__clock_ms();
    connection->is_doubted = false;
    connection->logged = false;
    connection->trouble_since_ms = 0;
    connection->trouble[0] = '\0';
    tdm__master_search_ready(&connection->search);
    tdm__timer_clear(connection->timer);
    connection->ops->ready(connection->arg);
}

/* Sends the commands of the handshake to the server: AUTH, SELECT, ROLE and PING as needed. Returns
 * false without memory. */
static bool handshake_send(struct tdm__redis_connection *connection)
{
    const struct tdm__redis_address *address = &connection->address;
    redisAsyncContext *context = connection->context;
    int sent = send_auth(connection, address->user, address->password);

    if (address->database != 0) {
        sent |=
            redisAsyncCommand(context, on_auth_reply, connection, "SELECT %u", address->database);
    }
    if (address->sentinels_count > 0) {
        sent |= redisAsyncCommand(context, on_role_reply, connection, "ROLE");
    }
    sent |= redisAsyncCommand(context, on_pong, connection, "PING");
    return sent == REDIS_OK;
}

/* ---- connecting ------------------------------------------------------------------------- */

/* Starts a connection of hiredis to what the attempt contacts: a sentinel, the master that one has
 * named, or the only server. Returns NULL without memory. */
static redisAsyncContext *context_create(const struct tdm__redis_connection *connection)
{
    const struct tdm__redis_address *address = &connection->address;
    const struct tdm__redis_host *host = &address->host;

    if (address->path[0] != '\0') {
        return redisAsyncConnectUnix(address->path);
    }
    if (address->sentinels_count > 0) {
        host = connection->is_asking ? &address->sentinels[connection->search.sentinel]
                                     : &connection->master;
    }
    return redisAsyncConnect(host->name, host->port);
}

/* Starts a connection of hiredis and a watch of its socket. Returns NULL after a failure, whose
 * reason is noted. */
static redisAsyncContext *open_context(struct tdm__redis_connection *connection)
{
    redisAsyncContext *context = context_create(connection);

    if (context == NULL) {
        connection_note_reason(connection, "out of memory");
        return NULL;
    }
    if (context->err != REDIS_OK) {
        connection_note_reason(connection, context->errstr);
        redisAsyncFree(context);
        return NULL;
    }
    (void)fcntl(context->c.fd, F_SETFD, FD_CLOEXEC);
    tdm__socket_set_options(context->c.fd, false);
    connection->watched_events = 0;
    if (tdm__fd_watch_create(connection->loop, context->c.fd, 0, on_events, connection,
                             &connection->watch) != TDM_OK) {
        connection_note_reason(connection, tdm_error_detail());
        redisAsyncFree(context);
        return NULL;
    }
    return context;
}

/* Makes one attempt: asks a sentinel for the master, or connects to the server. */
static void connection_connect(struct tdm__redis_connection *connection)
{
    redisAsyncContext *context;

    connection->reason[0] = '\0';
    connection->is_asking = tdm__master_search_asks(&connection->search);
    if (connection->is_asking) {
        connection->master = (struct tdm__redis_host){.port = 0};
    }
    context = open_context(connection);
    if (context == NULL) {
        connection_retry(connection);
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
    connection_set_timer(connection, connection->is_asking ? SENTINEL_MS : HANDSHAKE_MS);
    if (!(connection->is_asking ? question_send(connection) : handshake_send(connection))) {
        tdm__redis_connection_drop(connection, "out of memory");
    }
}

/* Runs when the connection's timer fires: starts the next attempt, or ends one that took too long.
 */
static void on_timer(void *arg)
{
    struct tdm__redis_connection *connection = arg;
    char reason[64];

    if (connection->context == NULL) {
        connection_connect(connection);
        return;
    }
    (void)snprintf(reason, sizeof(reason), "no answer within %d ms",
                   connection->is_asking ? (int)SENTINEL_MS : (int)HANDSHAKE_MS);
    tdm__redis_connection_drop(connection, reason);
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
    tdm__master_search_init(&connection->search, address->sentinels_count);
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
        connection_note_reason(connection, reason);
        redisAsyncFree(connection->context);
    }
}

bool tdm__redis_connection_check_master(struct tdm__redis_connection *connection,
                                        const redisReply *reply)
{
    if (connection->address.sentinels_count == 0 || !tdm__redis_reply_not_master(reply)) {
        return true;
    }
    tdm__redis_connection_drop(connection, reply->str);
    return false;
}

void tdm__redis_connection_doubt_master(struct tdm__redis_connection *connection)
{
    if (connection->address.sentinels_count == 0 || !connection->ready ||
        tdm__clock_ms() - connection->ready_since_ms < TDM__REDIS_DOUBT_MS) {
        return;
    }
    connection->is_doubted = true;
    tdm__master_search_doubted(&connection->search);
    tdm__redis_connection_drop(connection,
                               "replicas are missing: another server may be the master");
}

const struct tdm__redis_host *
tdm__redis_connection_master(const struct tdm__redis_connection *connection)
{
    return &connection->master;
}

void tdm__redis_connection_use_master(struct tdm__redis_connection *connection,
                                      const struct tdm__redis_host *master, const char *reason)
{
    tdm__redis_connection_drop(connection, reason);
    connection->master = *master;
    tdm__master_search_named(&connection->search);
    connection_set_timer(connection, 0);
}

const char *tdm__redis_connection_trouble(const struct tdm__redis_connection *connection)
{
    return connection->trouble;
}
