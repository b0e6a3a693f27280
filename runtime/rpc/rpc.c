/* rpc.c - endpoints: their listeners and their list of connections. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint owns listeners and the list of connections, which conn_lifecycle.c drives. rpc.h
 * describes the interface and internal.h the lifetime of a connection.
 *
 * Invariants: conns contains exactly the connections that have not ended. corked is a subset of
 * them and is empty after each flush hook. After closing is set, no connection is added. All
 * functions run on the thread of the endpoint's loop.
 *
 * Whoever reaches the port can connect, so a listener limits what clients cost that have not proved
 * that they know the token. At most unproved_max of them are connected at a time. One more takes
 * the place of the oldest one, after that one had UNPROVED_SILENT_MS to send its hello and
 * UNPROVED_MS to prove itself; until then new clients wait in the queue of the kernel. A listener
 * does not take the last TDM__DESCRIPTORS_RESERVED descriptors of the process; without others it
 * drops the oldest unproved client, or pauses for SHORTAGE_PAUSE_MS. */

#include "runtime/rpc/rpc.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/rpc/address.h"
#include "runtime/rpc/conn_lifecycle.h"
#include "runtime/rpc/handshake.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/send.h"
#include "runtime/socket.h"
#include "runtime/wire/value.h"

#include <openssl/crypto.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tandem/collective.h>
#include <unistd.h>

/* Limits of accepting clients. */
enum {
    /* Most connections of an endpoint whose clients have not proved that they know the token; an
     * endpoint of a collective group, whose members all connect at once, may have as many more as a
     * group has members. */
    UNPROVED_MAX = 64,
    /* Milliseconds that a client has to send its hello before it may be dropped for another one. */
    UNPROVED_SILENT_MS = 100,
    /* Milliseconds that a client has to prove itself before it may be dropped for another one. */
    UNPROVED_MS = 1000,
    /* Milliseconds for which a listener stops accepting if no unproved client may be dropped yet.
     */
    UNPROVED_PAUSE_MS = 20,
    /* Milliseconds for which a listener stops accepting if the process lacks descriptors. */
    SHORTAGE_PAUSE_MS = 100
};

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
    status = tdm__tls_mode_of_environment(&rpc->tcp.tls_mode);
    if (status == TDM_OK) {
        status = tdm_writer_create(&rpc->writer);
    }
    if (status != TDM_OK) {
        free(rpc);
        return status;
    }
    rpc->loop = loop;
    rpc->unproved_max = UNPROVED_MAX;
    rpc->self = *self;
    rpc->values_max = TDM__DOCUMENT_VALUES_MAX;
    memcpy(rpc->token, token, sizeof(rpc->token));
    TAILQ_INIT(&rpc->conns);
    TAILQ_INIT(&rpc->unproved);
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
    (*rpc_out)->unproved_max += TDM_COLLECTIVE_RANKS_MAX;
    (*rpc_out)->tcp = like->tcp;
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
    tdm__tls_context_destroy(rpc->tls_context);
    OPENSSL_cleanse(rpc->token, sizeof(rpc->token));
    free(rpc);
}

struct tdm__loop *tdm__rpc_loop(struct tdm__rpc *rpc)
{
    return rpc->loop;
}

void tdm__rpc_set_tcp_settings(struct tdm__rpc *rpc, const struct tdm__tcp_settings *settings)
{
    rpc->tcp = *settings;
}

const struct tdm__tcp_settings *tdm__rpc_tcp_settings(const struct tdm__rpc *rpc)
{
    return &rpc->tcp;
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

void tdm__rpc_set_values_max(struct tdm__rpc *rpc, uint32_t values_max)
{
    rpc->values_max = values_max;
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

/* Makes the listener accept no client for `pause_ms` milliseconds, instead of being called in a
 * busy loop. */
static void listener_pause(struct listener *listener, int64_t pause_ms)
{
    if (tdm__timer_set(listener->pause_timer, tdm__deadline_after(pause_ms)) == TDM_OK) {
        (void)tdm__fd_watch_set_events(listener->watch, 0);
    }
}

/* Returns the unproved client that has to go first: the oldest one of those that have not sent
 * their hello in time, else the oldest one that has not proved itself in time. NULL if all of them
 * still have time. */
static struct tdm__conn *rpc_unproved_to_drop(const struct tdm__rpc *rpc)
{
    struct tdm__conn *oldest = TAILQ_FIRST(&rpc->unproved);
    int64_t now_ms = tdm__clock_ms();
    struct tdm__conn *conn;

    TAILQ_FOREACH(conn, &rpc->unproved, unproved_link)
    {
        if (now_ms - conn->accepted_ms < UNPROVED_SILENT_MS) {
            break;
        }
        if (conn->handshake->input_bytes < HELLO_BYTES) {
            return conn;
        }
    }
    return oldest != NULL && now_ms - oldest->accepted_ms >= UNPROVED_MS ? oldest : NULL;
}

/* Makes room for one more client by dropping an unproved one. Returns false if none may be dropped
 * yet. */
static bool rpc_drop_unproved(struct tdm__rpc *rpc)
{
    struct tdm__conn *conn = rpc_unproved_to_drop(rpc);

    if (conn == NULL) {
        return false;
    }
    tdm__conn_finish(conn, tdm__fail(TDM_E_AUTH,
                                     "%s had not proved that it knows the cluster's token, and is "
                                     "the oldest of %u such clients (at most %u)",
                                     conn->label, rpc->unproved_count, rpc->unproved_max));
    return true;
}

/* Returns true if one more client may be accepted now. Otherwise the listener pauses. */
static bool listener_has_room(struct listener *listener)
{
    struct tdm__rpc *rpc = listener->rpc;

    if (tdm__descriptors_are_few(TDM__DESCRIPTORS_RESERVED) && !rpc_drop_unproved(rpc)) {
        tdm__log_limited(&rpc->refused_log, TDM__WARN, "rpc",
                         "clients wait: this process has no more than %d of %llu descriptors left "
                         "(ulimit -n), which connections may not take",
                         (int)TDM__DESCRIPTORS_RESERVED,
                         (unsigned long long)tdm__descriptors_limit());
        listener_pause(listener, SHORTAGE_PAUSE_MS);
        return false;
    }
    if (rpc->unproved_count >= rpc->unproved_max && !rpc_drop_unproved(rpc)) {
        listener_pause(listener, UNPROVED_PAUSE_MS);
        return false;
    }
    return true;
}

/* Adds an accepted connection to those whose peer has not proved itself. */
static void rpc_add_unproved(struct tdm__rpc *rpc, struct tdm__conn *conn)
{
    conn->accepted = true;
    conn->accepted_ms = tdm__clock_ms();
    conn->unproved = true;
    rpc->unproved_count++;
    TAILQ_INSERT_TAIL(&rpc->unproved, conn, unproved_link);
}

/* Accepts one client and creates its connection, if there is room. */
static void listener_on_client(void *arg, int fd, unsigned ready)
{
    struct listener *listener = arg;
    struct tdm__conn *conn;
    int client;

    (void)ready;
    if (!listener_has_room(listener)) {
        return;
    }
    client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        tdm__log_limited(&listener->rpc->refused_log, TDM__WARN, "rpc",
                         "accept4: errno %d, no connection is taken for %d ms", errno,
                         SHORTAGE_PAUSE_MS);
        listener_pause(listener, SHORTAGE_PAUSE_MS);
    }
    if (client < 0) {
        return; /* The client may have disconnected already. */
    }
    tdm__socket_set_options(client, listener->rpc->peers_may_stall);
    if (tdm__conn_create(listener->rpc, client, true, "a client", &conn) != TDM_OK) {
        tdm__log_limited(&listener->rpc->refused_log, TDM__WARN, "rpc", "a client is dropped: %s",
                         tdm_error_detail());
        (void)close(client);
        return;
    }
    rpc_add_unproved(listener->rpc, conn);
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

/* Opens the listening socket at an address. */
static tdm_status listener_open(struct listener *listener, const struct tdm__address *address,
                                const char *text)
{
    tdm_status status;

    listener->fd =
        socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    status = bind_and_listen(listener->fd, address, text);
    if (status != TDM_OK) {
        (void)close(listener->fd);
        listener->fd = -1;
    }
    return status;
}

/* Opens the listening socket at the first free port of those that the settings allow, from a port
 * on that depends on the process. */
static tdm_status listener_open_in_range(struct listener *listener, struct tdm__address *address,
                                         const char *text)
{
    const struct tdm__tcp_settings *tcp = &listener->rpc->tcp;
    uint32_t count = (uint32_t)tcp->last_port - tcp->first_port + 1;
    tdm_status status = TDM_E_IO;

    for (uint32_t i = 0; i < count && status != TDM_OK; i++) {
        uint32_t port = tcp->first_port + ((uint32_t)getpid() + i) % count;

        tdm__address_set_port(address, (uint16_t)port);
        status = listener_open(listener, address, text);
    }
    return tdm__wrap(status, "none of the ports %u to %u (--ports) is free", tcp->first_port,
                     tcp->last_port);
}

/* Writes the address of a TCP socket as the settings advertise it. */
static tdm_status listener_write_advertised(const struct listener *listener, char *bound_out,
                                            size_t bound_bytes)
{
    const char *host = listener->rpc->tcp.advertised_host;
    bool is_six = strchr(host, ':') != NULL;
    char bound[128];

    TDM_TRY(tdm__address_of_socket(listener->fd, bound, sizeof(bound)));
    if (snprintf(bound_out, bound_bytes, "tcp:%s%s%s%s", is_six ? "[" : "", host, is_six ? "]" : "",
                 strrchr(bound, ':')) >= (int)bound_bytes) {
        return tdm__fail(TDM_E_LIMIT, "address %s does not fit %zu bytes", host, bound_bytes);
    }
    return TDM_OK;
}

/* Writes the address of a listening socket that peers can use, with the port that the kernel chose.
 */
static tdm_status listener_write_address(const struct listener *listener,
                                         const struct tdm__address *address, const char *text,
                                         char *bound_out, size_t bound_bytes)
{
    if (bound_out == NULL) {
        return TDM_OK;
    }
    if (address->socket.any.sa_family != AF_UNIX && listener->rpc->tcp.advertised_host[0] != '\0') {
        return listener_write_advertised(listener, bound_out, bound_bytes);
    }
    if (address->socket.any.sa_family != AF_UNIX) {
        return tdm__address_of_socket(listener->fd, bound_out, bound_bytes);
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
    if (tdm__address_has_port_zero(&address) && listener->rpc->tcp.first_port != 0) {
        TDM_TRY(listener_open_in_range(listener, &address, text));
    } else {
        TDM_TRY(listener_open(listener, &address, text));
    }
    if (address.socket.any.sa_family == AF_UNIX) {
        memcpy(listener->path, address.socket.local.sun_path, sizeof(listener->path));
    }
    TDM_TRY(listener_write_address(listener, &address, text, bound_out, bound_bytes));
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
