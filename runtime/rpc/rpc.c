/* rpc.c - endpoints: their listeners and their list of connections. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint owns listeners and the list of connections, which conn_lifecycle.c drives. rpc.h
 * describes the interface and internal.h the lifetime of a connection.
 *
 * Invariants: conns contains exactly the connections that have not ended. corked is a subset of
 * them and is empty after each flush hook. After closing is set, no connection is added. A listener
 * that lacks descriptors pauses for ACCEPT_PAUSE_MS instead of failing. All functions run on the
 * thread of the endpoint's loop. */

#include "runtime/rpc/rpc.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/rpc/address.h"
#include "runtime/rpc/conn_lifecycle.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/send.h"
#include "runtime/socket.h"

#include <openssl/crypto.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Milliseconds for which a listener stops accepting after the process ran out of descriptors. */
enum { ACCEPT_PAUSE_MS = 100 };

/* A listening socket that accepts connections for an endpoint. */
struct listener {
    /* Next listener of the same endpoint; NULL at the end. */
    struct listener *next;
    struct tdm__rpc *rpc;        /* Endpoint that owns the listener (borrowed). */
    struct tdm__fd_watch *watch; /* Reports clients that want to connect (owned). */
    /* Timer that makes the listener accept again after a lack of descriptors (owned). */
    struct tdm__timer *pause_timer;
    int fd; /* Listening socket (owned); -1 before it exists. */
    /* Path of the Unix socket, which is unlinked at the end; "" for TCP. */
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

tdm_status tdm__rpc_create(struct tdm__loop *loop, const struct tdm__peer_identity *self,
                           const uint8_t token[TDM__TOKEN_BYTES], struct tdm__rpc **rpc_out)
{
    struct tdm__rpc *rpc = calloc(1, sizeof(*rpc));
    tdm_status status;

    if (rpc == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an endpoint");
    }
    /* A program may exit() while another thread uses libcrypto, so libcrypto must not clean up at
     * exit. */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    status = tdm_writer_create(&rpc->writer);
    if (status != TDM_OK) {
        free(rpc);
        return status;
    }
    rpc->loop = loop;
    rpc->self = *self;
    memcpy(rpc->token, token, sizeof(rpc->token));
    TAILQ_INIT(&rpc->conns);
    TAILQ_INIT(&rpc->corked);
    rpc->flush_hook.fn = tdm__rpc_flush;
    rpc->flush_hook.arg = rpc;
    tdm__loop_add_poll_hook(loop, &rpc->flush_hook);
    *rpc_out = rpc;
    return TDM_OK;
}

tdm_status tdm__rpc_create_like(const struct tdm__rpc *like, struct tdm__loop *loop,
                                struct tdm__rpc **rpc_out)
{
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__rpc_create(loop, &like->self, like->token, rpc_out));
    (*rpc_out)->peers_may_stall = true;
    for (uint32_t i = 0; i < like->lost_nodes.count && status == TDM_OK; i++) {
        status = tdm__lost_nodes_add(&(*rpc_out)->lost_nodes, &like->lost_nodes.entries[i].node,
                                     like->lost_nodes.entries[i].epoch);
    }
    if (status != TDM_OK) {
        tdm__rpc_destroy(*rpc_out);
    }
    return status;
}

/* Stops and frees a listener, and unlinks its socket file. Works for partly initialised listeners.
 */
static void listener_destroy(struct listener *listener)
{
    tdm__fd_watch_destroy(listener->watch);
    tdm__timer_destroy(listener->pause_timer);
    if (listener->path[0] != '\0') {
        (void)unlink(listener->path);
    }
    if (listener->fd >= 0) {
        (void)close(listener->fd);
    }
    free(listener);
}

void tdm__rpc_destroy(struct tdm__rpc *rpc)
{
    if (rpc == NULL || rpc->closing) {
        return;
    }
    rpc->closing = true;
    while (rpc->listeners != NULL) {
        struct listener *listener = rpc->listeners;

        rpc->listeners = listener->next;
        listener_destroy(listener);
    }
    while (!TAILQ_EMPTY(&rpc->conns)) {
        struct tdm__conn *conn = TAILQ_FIRST(&rpc->conns);

        tdm__conn_flush(conn);
        tdm__conn_finish(conn, tdm__fail(TDM_E_CLOSED, "this process left"));
    }
    tdm__loop_remove_poll_hook(rpc->loop, &rpc->flush_hook);
    tdm_writer_destroy(rpc->writer);
    tdm__lost_nodes_fini(&rpc->lost_nodes);
    OPENSSL_cleanse(rpc->token, sizeof(rpc->token));
    free(rpc);
}

struct tdm__loop *tdm__rpc_loop(struct tdm__rpc *rpc)
{
    return rpc->loop;
}

void tdm__rpc_set_identity(struct tdm__rpc *rpc, const struct tdm__peer_identity *self)
{
    rpc->self = *self;
}

void tdm__rpc_set_node_epoch(struct tdm__rpc *rpc, uint64_t epoch)
{
    rpc->self.node_epoch = epoch;
}

void tdm__rpc_each_conn(struct tdm__rpc *rpc, void (*fn)(void *arg, struct tdm__conn *conn),
                        void *arg)
{
    struct tdm__conn *conn;

    TAILQ_FOREACH(conn, &rpc->conns, link)
    {
        if (tdm__conn_is_open(conn)) {
            fn(arg, conn);
        }
    }
}

tdm_status tdm__rpc_lose_node(struct tdm__rpc *rpc, const struct tdm__id *node, uint64_t epoch)
{
    struct tdm__conn *conn;
    tdm_status status = tdm__lost_nodes_add(&rpc->lost_nodes, node, epoch);

    TAILQ_FOREACH(conn, &rpc->conns, link)
    {
        if (conn->peer.kind != 0 && tdm__id_equal(&conn->peer.node, node) &&
            conn->peer.node_epoch <= epoch) {
            tdm__conn_close(conn);
        }
    }
    return status;
}

void tdm__rpc_set_call_handler(struct tdm__rpc *rpc, tdm__call_handler_fn *fn, void *arg)
{
    rpc->call_handler = fn;
    rpc->call_handler_arg = arg;
}

void tdm__rpc_on_accepted(struct tdm__rpc *rpc, tdm__accepted_fn *fn, void *arg)
{
    rpc->on_accepted = fn;
    rpc->on_accepted_arg = arg;
}

void tdm__rpc_on_late_reply(struct tdm__rpc *rpc, tdm__late_reply_fn *fn, void *arg)
{
    rpc->on_late_reply = fn;
    rpc->on_late_reply_arg = arg;
}

/* ---- listening -------------------------------------------------------------------------- */

/* Makes the listener accept again after a pause. */
static void listener_on_pause_end(void *arg)
{
    struct listener *listener = arg;

    (void)tdm__fd_watch_set_events(listener->watch, TDM__READABLE);
}

/* Accepts one client and creates its connection. Without free descriptors the listener pauses,
 * instead of being called in a busy loop. */
static void listener_on_client(void *arg, int fd, unsigned ready)
{
    struct listener *listener = arg;
    struct tdm__conn *conn;
    int client;

    (void)ready;
    client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        tdm__log(TDM__WARN, "rpc", "accept4: errno %d, no connection is taken for %d ms", errno,
                 ACCEPT_PAUSE_MS);
        if (tdm__timer_set(listener->pause_timer, tdm__deadline_after(ACCEPT_PAUSE_MS)) == TDM_OK) {
            (void)tdm__fd_watch_set_events(listener->watch, 0);
        }
    }
    if (client < 0) {
        return; /* The client may have disconnected already. */
    }
    tdm__socket_set_options(client, listener->rpc->peers_may_stall);
    if (tdm__conn_create(listener->rpc, client, true, "a client", &conn) != TDM_OK) {
        tdm__log(TDM__WARN, "rpc", "a client is dropped: %s", tdm_error_detail());
        (void)close(client);
        return;
    }
    conn->accepted = true;
}

/* Binds the socket `fd` to an address and starts to listen. No client can connect before listen(),
 * so a socket file has its mode in time. */
static tdm_status bind_and_listen(int fd, const struct tdm__address *address, const char *text)
{
    const int one = 1;

    if (address->socket.any.sa_family == AF_UNIX) {
        TDM_TRY(tdm__socket_remove_stale(address->socket.local.sun_path));
    } else {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    }
    if (bind(fd, &address->socket.any, address->socket_bytes) != 0) {
        return tdm__fail_errno(errno, "bind %s", text);
    }
    if (address->socket.any.sa_family == AF_UNIX &&
        chmod(address->socket.local.sun_path, 0600) != 0) {
        return tdm__fail_errno(errno, "chmod %s", text);
    }
    return listen(fd, SOMAXCONN) == 0 ? TDM_OK : tdm__fail_errno(errno, "listen %s", text);
}

/* Writes the address of a listening socket that peers can use, with the port that the kernel chose.
 */
static tdm_status listener_write_address(int fd, const struct tdm__address *address,
                                         const char *text, char *bound_out, size_t bound_bytes)
{
    if (bound_out == NULL) {
        return TDM_OK;
    }
    if (address->socket.any.sa_family != AF_UNIX) {
        return tdm__address_of_socket(fd, bound_out, bound_bytes);
    }
    if (snprintf(bound_out, bound_bytes, "%s", text) >= (int)bound_bytes) {
        return tdm__fail(TDM_E_LIMIT, "address %s does not fit %zu bytes", text, bound_bytes);
    }
    return TDM_OK;
}

/* Opens the socket, the timer and the watch of a listener. On failure the caller destroys it. */
static tdm_status listener_init(struct listener *listener, const char *text, char *bound_out,
                                size_t bound_bytes)
{
    struct tdm__loop *loop = listener->rpc->loop;
    struct tdm__address address;

    TDM_TRY(tdm__address_parse(text, &address));
    listener->fd =
        socket(address.socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    TDM_TRY(bind_and_listen(listener->fd, &address, text));
    if (address.socket.any.sa_family == AF_UNIX) {
        memcpy(listener->path, address.socket.local.sun_path, sizeof(listener->path));
    }
    TDM_TRY(listener_write_address(listener->fd, &address, text, bound_out, bound_bytes));
    TDM_TRY(tdm__timer_create(loop, listener_on_pause_end, listener, &listener->pause_timer));
    return tdm__fd_watch_create(loop, listener->fd, TDM__READABLE, listener_on_client, listener,
                                &listener->watch);
}

tdm_status tdm__rpc_listen(struct tdm__rpc *rpc, const char *address, char *bound_out,
                           size_t bound_bytes)
{
    struct listener *listener = calloc(1, sizeof(*listener));
    tdm_status status;

    if (listener == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a listener at %s", address);
    }
    listener->rpc = rpc;
    listener->fd = -1;
    status = listener_init(listener, address, bound_out, bound_bytes);
    if (status != TDM_OK) {
        listener_destroy(listener);
        return status;
    }
    listener->next = rpc->listeners;
    rpc->listeners = listener;
    return TDM_OK;
}

/* ---- connecting ------------------------------------------------------------------------- */

/* Returns a failure if the endpoint is being destroyed. */
static tdm_status rpc_check_open(const struct tdm__rpc *rpc)
{
    return rpc->closing ? tdm__fail(TDM_E_CLOSED, "this process is leaving") : TDM_OK;
}

tdm_status tdm__rpc_connect(struct tdm__rpc *rpc, const char *address, struct tdm__conn **conn_out)
{
    struct tdm__addresses addresses;
    tdm_status status;
    int fd;

    TDM_TRY(rpc_check_open(rpc));
    TDM_TRY(tdm__addresses_parse(address, &addresses));
    addresses.peer_may_stall = rpc->peers_may_stall;
    TDM_TRY(tdm__addresses_connect(&addresses, address, &fd));
    status = tdm__conn_create(rpc, fd, false, address, conn_out);
    if (status != TDM_OK) {
        (void)close(fd);
        return status;
    }
    tdm__conn_keep_addresses(*conn_out, &addresses);
    return TDM_OK;
}

tdm_status tdm__rpc_adopt(struct tdm__rpc *rpc, int fd, bool server, struct tdm__conn **conn_out)
{
    int flags;

    TDM_TRY(rpc_check_open(rpc));
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return tdm__fail_errno(errno, "fcntl of fd %d", fd);
    }
    TDM_TRY(tdm__conn_create(rpc, fd, server, "the other end", conn_out));
    (*conn_out)->handshake_deadline_ms = tdm__deadline_after(ADOPTED_HANDSHAKE_MS);
    return TDM_OK;
}
