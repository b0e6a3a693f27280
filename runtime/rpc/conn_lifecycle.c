/* conn_lifecycle.c - creates a connection, drives it from its watch and timer, and ends it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection moves through the states of enum conn_state: connecting, handshake, open, closing,
 * ended. conn_on_ready() runs one step of the current state whenever the socket is ready. A step
 * that fails ends the connection with that status.
 *
 * Invariants: an ended connection is in no list of its endpoint and owns no descriptor. Callbacks
 * run only after the state is final. conn_on_ready() and conn_on_timer() hold a reference while
 * they work, because a callback may end the connection. All functions run on the loop's thread.
 * handshake.c, receive.c and send.c implement the steps; conn.c has what users of a connection do
 * in any state, such as to request its end. */

#include "runtime/rpc/conn_lifecycle.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/rpc/address.h"
#include "runtime/rpc/calls.h"
#include "runtime/rpc/conn.h"
#include "runtime/rpc/handshake.h"
#include "runtime/rpc/incoming.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/receive.h"
#include "runtime/rpc/send.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ending ----------------------------------------------------------------------------- */

/* Releases what an ended connection owns, except its memory and its tables of calls. */
static void conn_unlink(struct tdm__conn *conn)
{
    tdm__fd_watch_destroy(conn->watch);
    tdm__timer_destroy(conn->timer);
    conn->watch = NULL;
    conn->timer = NULL;
    tdm__tls_destroy(conn->tls);
    conn->tls = NULL;
    if (conn->fd >= 0) {
        (void)close(conn->fd);
        conn->fd = -1;
    }
    tdm__output_clear(&conn->output);
    tdm__conn_discard_input(conn);
    free(conn->handshake);
    conn->handshake = NULL;
    free(conn->addresses);
    conn->addresses = NULL;
}

/* Removes all observers of the connection's end and runs their callbacks. */
static void conn_notify_close_watchers(struct tdm__conn *conn)
{
    struct tdm__close_watcher *watcher;

    while ((watcher = LIST_FIRST(&conn->close_watchers)) != NULL) {
        LIST_REMOVE(watcher, link);
        watcher->fn(watcher);
    }
}

/* Removes the connection from the endpoint's list of unproved connections, if it is in there. */
static void conn_leave_unproved(struct tdm__conn *conn)
{
    if (conn->unproved) {
        conn->unproved = false;
        conn->rpc->unproved_count--;
        TAILQ_REMOVE(&conn->rpc->unproved, conn, unproved_link);
    }
}

void tdm__conn_finish(struct tdm__conn *conn, tdm_status reason)
{
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    bool authenticated = conn->peer.kind != 0;

    if (conn->state == CONN_ENDED) {
        return;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (conn->accepted && !authenticated && reason != TDM_E_CLOSED && !conn->rpc->closing) {
        /* Every process can connect and could otherwise fill the log. */
        tdm__log_limited(&conn->rpc->unproved_log, TDM__WARN, "rpc", "connection with %s ends: %s",
                         conn->label, detail);
    } else if (reason == TDM_E_AUTH || reason == TDM_E_PROTOCOL) {
        tdm__log(TDM__WARN, "rpc", "connection with %s ends: %s", conn->label, detail);
    }
    conn->state = CONN_ENDED;
    tdm__conn_uncork(conn);
    conn_leave_unproved(conn);
    TAILQ_REMOVE(&conn->rpc->conns, conn, link);
    conn->rpc = NULL;
    conn_unlink(conn);
    tdm__calls_fail_all(conn, detail);
    tdm__incoming_notify_closed(conn);
    tdm__call_table_fini(&conn->calls);
    tdm__call_table_fini(&conn->incoming_calls);
    if (conn->on_closed != NULL) {
        conn->on_closed(conn->on_closed_arg, conn, reason, detail);
    }
    conn_notify_close_watchers(conn);
    tdm__conn_release(conn);
}

/* ---- driving ---------------------------------------------------------------------------- */

static void conn_on_ready(void *arg, int fd, unsigned ready);

/* Starts to connect to the next address of the peer's host in place of the one that failed. */
static tdm_status conn_connect_next(struct tdm__conn *conn)
{
    int fd;

    TDM_TRY(tdm__addresses_connect(conn->addresses, conn->label, &fd));
    tdm__fd_watch_destroy(conn->watch);
    conn->watch = NULL;
    (void)close(conn->fd);
    conn->fd = fd;
    return tdm__fd_watch_create(conn->loop, fd, TDM__WRITABLE, conn_on_ready, conn, &conn->watch);
}

/* Finishes a non-blocking connect(2) and starts the handshake, or connects to the next address of
 * the peer's host. Returns the error of the connect if there is no other address. */
static tdm_status conn_finish_connect(struct tdm__conn *conn)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);

    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0) {
        error = errno;
    }
    if (error != 0 && conn->addresses != NULL &&
        conn->addresses->tried_count < conn->addresses->count) {
        return conn_connect_next(conn);
    }
    if (error != 0) {
        conn->was_refused = error == ECONNREFUSED;
        return tdm__fail_errno(error, "connect %s", conn->label);
    }
    free(conn->addresses);
    conn->addresses = NULL;
    return tdm__handshake_start(conn);
}

/* Continues the handshake of the connection. After its success, sends the queued calls and reports
 * an accepted connection. */
static tdm_status conn_step_handshake(struct tdm__conn *conn)
{
    TDM_TRY(tdm__handshake_step(conn));
    if (conn->state != CONN_OPEN) {
        return TDM_OK;
    }
    conn_leave_unproved(conn);
    tdm__conn_flush(conn);
    if (conn->accepted && conn->rpc->on_accepted != NULL) {
        conn->rpc->on_accepted(conn->rpc->on_accepted_arg, conn);
    }
    return TDM_OK;
}

/* Passes a frame that arrived to the function for its kind, which owns the frame. */
static tdm_status conn_handle_frame(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    switch (incoming->frame.kind) {
    case TDM__FRAME_CALL:
        return tdm__conn_serve(conn, incoming);
    case TDM__FRAME_REPLY:
        tdm__calls_complete(conn, incoming);
        return TDM_OK;
    case TDM__FRAME_ITEM:
        return tdm__calls_deliver_item(conn, incoming);
    case TDM__FRAME_CANCEL:
    case TDM__FRAME_CREDIT:
        return tdm__conn_notice(conn, incoming);
    }
    return TDM_OK;
}

/* Returns whether TLS may have bytes for the connection although its socket is not readable. */
static bool conn_has_decrypted(const struct tdm__conn *conn)
{
    return conn->tls != NULL && tdm__tls_has_input(conn->tls);
}

/* Handles all frames that one read of an open connection brought. A callback that runs the loop
 * handles the remaining frames there. */
static tdm_status conn_step_open(struct tdm__conn *conn, unsigned ready)
{
    struct tdm__incoming_call *incoming = NULL;

    if ((ready & TDM__WRITABLE) != 0) {
        tdm__conn_unblock(conn);
    }
    TDM_TRY(tdm__conn_receive(conn, (ready & TDM__READABLE) != 0 || conn_has_decrypted(conn),
                              &incoming));
    while (incoming != NULL) {
        conn->peer_cpu = incoming->frame.cpu;
        if (conn->input_begin < conn->input_end || conn_has_decrypted(conn)) {
            tdm__fd_watch_call_again(conn->watch);
        }
        TDM_TRY(conn_handle_frame(conn, incoming));
        if (conn->state != CONN_OPEN) {
            return TDM_OK;
        }
        TDM_TRY(tdm__conn_receive(conn, false, &incoming));
    }
    return TDM_OK;
}

/* Continues the connection according to its state: connect, handshake or frames. A failure makes
 * the caller end the connection. */
static tdm_status conn_step(struct tdm__conn *conn, unsigned ready)
{
    switch (conn->state) {
    case CONN_CONNECTING:
        return conn_finish_connect(conn);
    case CONN_HANDSHAKE:
        return conn_step_handshake(conn);
    case CONN_OPEN:
        return conn_step_open(conn, ready);
    case CONN_CLOSING:
        return tdm__fail(TDM_E_CLOSED, "closed here");
    case CONN_ENDED:
        break;
    }
    return TDM_OK;
}

/* Runs when the connection's socket is ready, and continues the connection. Holds a reference
 * meanwhile. */
static void conn_on_ready(void *arg, int fd, unsigned ready)
{
    struct tdm__conn *conn = arg;
    tdm_status status;

    (void)fd;
    tdm__conn_retain(conn);
    status = conn_step(conn, ready);
    if (status != TDM_OK) {
        tdm__conn_finish(conn, status);
    } else if (conn->state < CONN_CLOSING && conn_has_decrypted(conn)) {
        tdm__fd_watch_call_again(conn->watch);
    }
    tdm__conn_release(conn);
}

/* Runs at the connection's earliest deadline: fails the handshake, or one expired call. */
static void conn_on_timer(void *arg)
{
    struct tdm__conn *conn = arg;
    tdm_status status;

    tdm__conn_retain(conn);
    conn->timer_ms = TDM__NEVER;
    if (tdm__clock_ms() >= conn->handshake_deadline_ms && conn->handshake != NULL) {
        tdm__conn_finish(conn,
                         tdm__fail(TDM_E_AUTH, "%s did not prove itself in time", conn->label));
    } else {
        status = tdm__calls_fail_expired(conn);
        if (status != TDM_OK) {
            tdm__conn_finish(conn, status);
        }
    }
    tdm__conn_release(conn);
}

/* ---- creating --------------------------------------------------------------------------- */

/* Returns whether the socket `fd` is connected to a peer, as after connect(2) without EINPROGRESS.
 */
static bool socket_is_connected(int fd)
{
    struct sockaddr_storage peer;
    socklen_t peer_bytes = sizeof(peer);

    return getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0;
}

/* Returns whether the socket `fd` is a Unix socket. */
static bool socket_is_unix(int fd)
{
    int domain = 0;
    socklen_t domain_bytes = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) == 0 && domain == AF_UNIX;
}

/* Creates the connection's tables, timer and watch, and starts the handshake if the socket is
 * connected. On failure the caller releases what exists. */
static tdm_status conn_init(struct tdm__conn *conn)
{
    struct tdm__loop *loop = conn->rpc->loop;

    TDM_TRY(tdm__call_table_init(&conn->calls));
    TDM_TRY(tdm__call_table_init(&conn->incoming_calls));
    conn->handshake = calloc(1, sizeof(*conn->handshake));
    if (conn->handshake == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a handshake with %s", conn->label);
    }
    TDM_TRY(tdm__timer_create(loop, conn_on_timer, conn, &conn->timer));
    conn->handshake_deadline_ms = tdm__deadline_after(HANDSHAKE_MS);
    TDM_TRY(tdm__conn_set_timer(conn, conn->handshake_deadline_ms));
    TDM_TRY(tdm__fd_watch_create(loop, conn->fd, TDM__WRITABLE, conn_on_ready, conn, &conn->watch));
    return socket_is_connected(conn->fd) ? tdm__handshake_start(conn) : TDM_OK;
}

void tdm__conn_keep_addresses(struct tdm__conn *conn, const struct tdm__addresses *addresses)
{
    if (conn->state != CONN_CONNECTING || addresses->tried_count == addresses->count) {
        return;
    }
    conn->addresses = malloc(sizeof(*conn->addresses));
    if (conn->addresses != NULL) {
        *conn->addresses = *addresses; /* Without memory no other address is tried. */
    }
}

tdm_status tdm__conn_create(struct tdm__rpc *rpc, int fd, bool server, const char *label,
                            struct tdm__conn **conn_out)
{
    struct tdm__conn *conn = calloc(1, sizeof(*conn));
    tdm_status status;

    if (conn == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a connection with %s", label);
    }
    conn->rpc = rpc;
    conn->loop = rpc->loop;
    conn->references_count = 1;
    conn->number = ++rpc->conns_created;
    conn->fd = fd;
    conn->server = server;
    conn->local = socket_is_unix(fd);
    conn->timer_ms = TDM__NEVER;
    tdm__output_init(&conn->output);
    (void)snprintf(conn->label, sizeof(conn->label), "%s", label);
    status = conn_init(conn);
    if (status != TDM_OK) {
        conn->fd = -1;
        conn_unlink(conn);
        tdm__call_table_fini(&conn->calls);
        tdm__call_table_fini(&conn->incoming_calls);
        free(conn);
        return status;
    }
    TAILQ_INSERT_TAIL(&rpc->conns, conn, link);
    *conn_out = conn;
    return TDM_OK;
}
