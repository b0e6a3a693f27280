/* encrypted.c - reaches a Redis server by TLS. */
/* SPDX-License-Identifier: Apache-2.0 */
/* hiredis 0.14, which Debian has, knows no TLS. So this object listens at a Unix socket in the
 * daemon's private directory (local_socket.h). For each client it connects a socket to the server
 * and starts TLS on it. Until the handshake has succeeded the client is pending; then a relay
 * copies the bytes between both sockets.
 *
 * If anything fails, the client's socket is closed. The client (runtime/redis/connection.c) then
 * connects again, with delays, so that no attempt is repeated here. Everything runs on the thread
 * of the loop. */
#include "runtime/redis/encrypted.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/redis/local_socket.h"
#include "runtime/relay.h"
#include "runtime/rpc/address.h"
#include "runtime/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

/* Milliseconds within which the server must accept a connection and finish the handshake. */
enum { CONNECT_MS = 5000 };

/* A client of the local socket whose connection to the server is not encrypted yet. */
struct pending {
    LIST_ENTRY(pending) link;               /* Links the client into the list of its object. */
    struct tdm__redis_encrypted *encrypted; /* Object that owns the client. */
    int client_fd;                          /* Socket of the client (owned). */
    struct tdm__addresses addresses;        /* Addresses of the server, and which were tried. */
    int server_fd;                          /* Socket to the server (owned); -1 before it exists. */
    struct tdm__tls *tls;                   /* TLS on `server_fd` (owned); NULL before it starts. */
    struct tdm__fd_watch *watch;            /* Reports events of `server_fd` (owned). */
    struct tdm__timer *timer;               /* Ends the attempt after CONNECT_MS (owned). */
};

struct tdm__redis_encrypted {
    struct tdm__loop *loop;           /* Event loop on which everything runs (borrowed). */
    struct tdm__redis_address server; /* Address of the server. */
    struct tdm__tls_context *context; /* What all connections share (owned). */
    struct tdm__local_socket local;   /* Where clients connect. */
    LIST_HEAD(, pending) pending;     /* Clients whose connections are not encrypted yet. */
    bool failure_is_logged;           /* Whether a failure was logged since the last success. */
    struct tdm__relays *relays;       /* Clients that are connected (owned). */
};

/* Removes a client from the list of pending ones and frees it with all that it owns. */
static void pending_free(struct pending *pending)
{
    LIST_REMOVE(pending, link);
    tdm__fd_watch_destroy(pending->watch);
    tdm__timer_destroy(pending->timer);
    tdm__tls_destroy(pending->tls);
    if (pending->server_fd >= 0) {
        (void)close(pending->server_fd);
    }
    if (pending->client_fd >= 0) {
        (void)close(pending->client_fd);
    }
    free(pending);
}

/* Closes the client's socket. Logs the failure in tdm_error_detail(), unless there was no success
 * since the last failure. */
static void pending_fail(struct pending *pending)
{
    struct tdm__redis_encrypted *encrypted = pending->encrypted;

    if (!encrypted->failure_is_logged) {
        tdm__log(TDM__WARN, "redis", "no connection to the Redis server %s: %s: trying again",
                 encrypted->server.text, tdm_error_detail());
    }
    encrypted->failure_is_logged = true;
    pending_free(pending);
}

/* Runs when the server has not finished the handshake in time. */
static void on_timer(void *arg)
{
    struct pending *pending = arg;

    (void)tdm__fail(TDM_E_TIMEOUT, "%s within %d ms",
                    pending->tls == NULL ? "it accepted no connection" : "no TLS handshake ended",
                    CONNECT_MS);
    pending_fail(pending);
}

/* Relays the bytes of a client whose connection is encrypted now. */
static tdm_status pending_finish(struct pending *pending)
{
    struct tdm__redis_encrypted *encrypted = pending->encrypted;

    tdm__fd_watch_destroy(pending->watch);
    pending->watch = NULL;
    TDM_TRY(
        tdm__relays_add(encrypted->relays, pending->server_fd, pending->tls, pending->client_fd));
    pending->server_fd = -1;
    pending->client_fd = -1;
    pending->tls = NULL;
    encrypted->failure_is_logged = false;
    pending_free(pending);
    return TDM_OK;
}

/* Continues the handshake. */
static tdm_status pending_shake_hands(struct pending *pending)
{
    bool is_done;

    TDM_TRY(tdm__tls_handshake(pending->tls, pending->encrypted->server.host.name, &is_done));
    if (is_done) {
        return pending_finish(pending);
    }
    return tdm__fd_watch_set_events(
        pending->watch,
        TDM__READABLE | (tdm__tls_has_output(pending->tls) ? (unsigned)TDM__WRITABLE : 0U));
}

static tdm_status pending_connect(struct pending *pending);

/* Starts TLS on a connection that the server has accepted, or tries its next address. */
static tdm_status pending_start_tls(struct pending *pending)
{
    struct tdm__redis_encrypted *encrypted = pending->encrypted;
    int error_number = 0;
    socklen_t bytes = sizeof(error_number);

    if (getsockopt(pending->server_fd, SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) {
        error_number = errno;
    }
    if (error_number != 0) {
        tdm_status status = tdm__fail_errno(error_number, "connecting");

        return pending->addresses.tried_count < pending->addresses.count ? pending_connect(pending)
                                                                         : status;
    }
    tdm__socket_set_options(pending->server_fd, false);
    TDM_TRY(tdm__tls_create(encrypted->context, pending->server_fd, false, &pending->tls));
    TDM_TRY(tdm__tls_expect_host(pending->tls, encrypted->server.host.name));
    return pending_shake_hands(pending);
}

/* Runs when the socket to the server is connected or readable. */
static void on_ready(void *arg, int fd, unsigned ready)
{
    struct pending *pending = arg;

    (void)fd;
    (void)ready;
    if ((pending->tls == NULL ? pending_start_tls(pending) : pending_shake_hands(pending)) !=
        TDM_OK) {
        pending_fail(pending);
    }
}

/* Starts to connect to the next address of the server. */
static tdm_status pending_connect(struct pending *pending)
{
    tdm__fd_watch_destroy(pending->watch);
    pending->watch = NULL;
    if (pending->server_fd >= 0) {
        (void)close(pending->server_fd);
        pending->server_fd = -1;
    }
    TDM_TRY(tdm__addresses_connect(&pending->addresses, pending->encrypted->server.text,
                                   &pending->server_fd));
    return tdm__fd_watch_create(pending->encrypted->loop, pending->server_fd, TDM__WRITABLE,
                                on_ready, pending, &pending->watch);
}

/* Starts a connection to the server with its time limit. */
static tdm_status pending_start(struct pending *pending)
{
    const struct tdm__redis_host *host = &pending->encrypted->server.host;
    char text[TDM__REDIS_TEXT_BYTES + 16];

    (void)snprintf(text, sizeof(text),
                   strchr(host->name, ':') != NULL ? "tcp:[%s]:%u" : "tcp:%s:%u", host->name,
                   host->port);
    TDM_TRY(tdm__addresses_parse(text, &pending->addresses));
    TDM_TRY(tdm__timer_create(pending->encrypted->loop, on_timer, pending, &pending->timer));
    TDM_TRY(tdm__timer_set(pending->timer, tdm__deadline_after(CONNECT_MS)));
    return pending_connect(pending);
}

/* Connects to the server for a client of the local socket. */
static void on_client(void *arg, int client)
{
    struct tdm__redis_encrypted *encrypted = arg;
    struct pending *pending = calloc(1, sizeof(*pending));

    if (pending == NULL) {
        (void)close(client);
        return;
    }
    pending->encrypted = encrypted;
    pending->client_fd = client;
    pending->server_fd = -1;
    LIST_INSERT_HEAD(&encrypted->pending, pending, link);
    if (pending_start(pending) != TDM_OK) {
        pending_fail(pending);
    }
}

/* Returns a path of the address, or NULL if it is "". */
static const char *path_or_null(const char *path)
{
    return path[0] == '\0' ? NULL : path;
}

tdm_status tdm__redis_encrypted_open(struct tdm__loop *loop,
                                     const struct tdm__redis_address *address,
                                     const char *directory, struct tdm__redis_address *local_out,
                                     struct tdm__redis_encrypted **encrypted_out)
{
    const struct tdm__tls_files files = {.authorities = path_or_null(address->authorities),
                                         .certificate = path_or_null(address->certificate),
                                         .key = path_or_null(address->key)};
    struct tdm__redis_encrypted *encrypted = calloc(1, sizeof(*encrypted));
    tdm_status status;

    if (encrypted == NULL) {
        return tdm__fail(TDM_E_NOMEM, "encrypted connections to a Redis server");
    }
    encrypted->loop = loop;
    encrypted->server = *address;
    encrypted->local = TDM__LOCAL_SOCKET_CLOSED;
    LIST_INIT(&encrypted->pending);
    status =
        tdm__wrap(tdm__tls_context_create_client(&files, &encrypted->context), "%s", address->text);
    if (status == TDM_OK) {
        status = tdm__relays_create(loop, TDM__RELAY_STALL_MS, &encrypted->relays);
    }
    if (status == TDM_OK) {
        status = tdm__local_socket_open(loop, directory, on_client, encrypted, &encrypted->local);
    }
    if (status != TDM_OK) {
        tdm__redis_encrypted_close(encrypted);
        return status;
    }
    *local_out = *address;
    local_out->is_encrypted = false;
    local_out->host = (struct tdm__redis_host){.port = 0};
    (void)snprintf(local_out->path, sizeof(local_out->path), "%s",
                   encrypted->local.address.sun_path);
    *encrypted_out = encrypted;
    return TDM_OK;
}

void tdm__redis_encrypted_close(struct tdm__redis_encrypted *encrypted)
{
    if (encrypted == NULL) {
        return;
    }
    tdm__local_socket_close(&encrypted->local);
    while (!LIST_EMPTY(&encrypted->pending)) {
        pending_free(LIST_FIRST(&encrypted->pending));
    }
    tdm__relays_destroy(encrypted->relays);
    tdm__tls_context_destroy(encrypted->context);
    free(encrypted);
}
