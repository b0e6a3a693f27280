/* forwarded.c - reaches the Redis server of another node's daemon through that daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The object listens at a Unix socket in the daemon's private directory (local_socket.h). For each
 * client it opens a connection to the other daemon and calls
 * "store.connect". Until the reply arrives the client is pending. Then the socket is taken out of
 * the connection, and a relay copies the bytes between it and the client.
 *
 * If anything fails, the client's socket is closed. The client (runtime/redis/connection.c) then
 * connects again, with delays, so that no attempt is repeated here. Everything runs on the thread
 * of the endpoint's loop. */
#include "runtime/redis/forwarded.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/redis/local_socket.h"
#include "runtime/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

/* Milliseconds within which the other daemon must reply to "store.connect", capacity of the other
 * daemon's address, and capacity of the name of its cluster. */
enum { CONNECT_MS = 5000, ADDRESS_BYTES = 160, CLUSTER_BYTES = 128 };

/* A client of the local socket whose connection to the other daemon is being opened. */
struct pending {
    LIST_ENTRY(pending) link;               /* Links the client into the list of its object. */
    struct tdm__redis_forwarded *forwarded; /* Object that owns the client. */
    int fd;                                 /* Socket of the client (owned). */
    struct tdm__conn *conn;                 /* Connection to the other daemon (borrowed). */
    uint64_t call_id;                       /* ID of the call "store.connect". */
};

struct tdm__redis_forwarded {
    struct tdm__rpc *rpc;           /* Endpoint that connects to the other daemon (borrowed). */
    char address[ADDRESS_BYTES];    /* Address of the other daemon. */
    char cluster[CLUSTER_BYTES];    /* Name of the other daemon's cluster. */
    struct tdm__local_socket local; /* Where clients connect. */
    char url[sizeof(struct sockaddr_un) + 8]; /* URL of the local socket. */
    LIST_HEAD(, pending) pending; /* Clients without a connection to the other daemon. */
    bool failure_is_logged;       /* Whether a failure was logged since the last success. */
    struct tdm__relays *relays;   /* Clients that are connected (owned). */
};

/* Removes a client from the list of pending ones and frees it. Its socket stays open. */
static void pending_free(struct pending *pending)
{
    LIST_REMOVE(pending, link);
    free(pending);
}

/* Logs the failure in tdm_error_detail(), unless there was no success since the last failure. */
static void log_failure(struct tdm__redis_forwarded *forwarded)
{
    if (!forwarded->failure_is_logged) {
        tdm__log(TDM__WARN, "redis",
                 "no connection to the Redis server through %s: %s: trying again",
                 forwarded->address, tdm_error_detail());
    }
    forwarded->failure_is_logged = true;
}

/* Handles the other daemon's reply to "store.connect": relays the client's bytes from now on, or
 * closes the client's socket after a failure. */
static void on_connected(void *arg, struct tdm__rpc_reply *reply)
{
    struct pending *pending = arg;
    struct tdm__tls *tls = NULL;
    int daemon_fd = -1;
    tdm_status status = reply->status;

    if (status == TDM_OK) {
        status = tdm__conn_detach(pending->conn, &daemon_fd, &tls);
    } else {
        (void)tdm__fail(status, "%s", reply->detail);
        tdm__conn_close(pending->conn);
    }
    if (status == TDM_OK) {
        status = tdm__relays_add(pending->forwarded->relays, daemon_fd, tls, pending->fd);
    }
    if (status != TDM_OK) {
        log_failure(pending->forwarded);
        (void)close(pending->fd);
        tdm__tls_destroy(tls);
        if (daemon_fd >= 0) {
            (void)close(daemon_fd);
        }
    } else {
        pending->forwarded->failure_is_logged = false;
    }
    pending_free(pending);
}

/* Opens a connection to the other daemon for a client and calls "store.connect". On failure the
 * caller frees the client. */
static tdm_status pending_connect(struct pending *pending)
{
    const struct tdm__rpc_request request = {.method = "store.connect",
                                             .packed = {"\x90", 1},
                                             .deadline_ms = tdm__deadline_after(CONNECT_MS)};
    tdm_status status;

    TDM_TRY(tdm__rpc_connect(pending->forwarded->rpc, pending->forwarded->address, &pending->conn));
    status = tdm__conn_call(pending->conn, &request, on_connected, pending, &pending->call_id);
    if (status != TDM_OK) {
        tdm__conn_close(pending->conn);
    }
    return status;
}

/* Opens a connection to the other daemon for a client of the local socket. */
static void on_client(void *arg, int client)
{
    struct tdm__redis_forwarded *forwarded = arg;
    struct pending *pending = calloc(1, sizeof(*pending));

    if (pending == NULL) {
        (void)close(client);
        return;
    }
    *pending = (struct pending){.forwarded = forwarded, .fd = client};
    LIST_INSERT_HEAD(&forwarded->pending, pending, link);
    if (pending_connect(pending) != TDM_OK) {
        log_failure(forwarded);
        (void)close(client);
        pending_free(pending);
    }
}

/* Asks the other daemon for the name of its cluster. Blocks until `deadline_ms` at most. */
static tdm_status forwarded_describe(struct tdm__redis_forwarded *forwarded, int64_t deadline_ms)
{
    const struct tdm__rpc_request request = {
        .method = "store.describe", .packed = {"\x90", 1}, .deadline_ms = deadline_ms};
    struct tdm__store_description_message description;
    struct tdm__conn *conn;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm__rpc_connect(forwarded->rpc, forwarded->address, &conn));
    /* After a failure the connection may have been freed. If not, it ends with the endpoint. */
    TDM_TRY(tdm__conn_call_wait(conn, &request, &document, NULL, NULL));
    status = tdm__store_description_decode(tdm_document_root(document), &description);
    if (status == TDM_OK && strlen(description.cluster) >= sizeof(forwarded->cluster)) {
        status = tdm__fail(TDM_E_LIMIT, "the name of the cluster is too long");
    }
    if (status == TDM_OK) {
        (void)snprintf(forwarded->cluster, sizeof(forwarded->cluster), "%s", description.cluster);
    }
    tdm_document_destroy(document);
    tdm__conn_close(conn);
    return status;
}

/* Adds what the user can do to the errors that say that this daemon cannot join. */
static tdm_status explain_failure(tdm_status status, const char *address)
{
    if (status == TDM_OK) {
        return TDM_OK;
    }
    if (status == TDM_E_NOT_FOUND) {
        return tdm__fail(status,
                         "joining the cluster at %s failed: the daemon there has no Redis server "
                         "of its own. Start this node with the Redis server of that cluster",
                         address);
    }
    return tdm__fail(status,
                     "joining the cluster at %s failed: %s. Check that its head node runs, and "
                     "that TANDEM_TOKEN_FILE names a copy of the token file of that node",
                     address, tdm_error_detail());
}

tdm_status tdm__redis_forwarded_open(struct tdm__rpc *rpc, const char *address,
                                     const char *directory, int64_t timeout_ms,
                                     struct tdm__redis_forwarded **forwarded_out)
{
    struct tdm__redis_forwarded *forwarded = calloc(1, sizeof(*forwarded));
    tdm_status status;

    if (forwarded == NULL) {
        return tdm__fail(TDM_E_NOMEM, "connections to the Redis server of another node");
    }
    forwarded->rpc = rpc;
    forwarded->local = TDM__LOCAL_SOCKET_CLOSED;
    LIST_INIT(&forwarded->pending);
    (void)snprintf(forwarded->address, sizeof(forwarded->address), "%s", address);
    status =
        explain_failure(forwarded_describe(forwarded, tdm__deadline_after(timeout_ms)), address);
    if (status == TDM_OK) {
        status = tdm__relays_create(tdm__rpc_loop(rpc), TDM__RELAY_STALL_MS, &forwarded->relays);
    }
    if (status == TDM_OK) {
        status = tdm__local_socket_open(tdm__rpc_loop(rpc), directory, on_client, forwarded,
                                        &forwarded->local);
    }
    if (status != TDM_OK) {
        tdm__redis_forwarded_close(forwarded);
        return status;
    }
    (void)snprintf(forwarded->url, sizeof(forwarded->url), "unix://%s",
                   forwarded->local.address.sun_path);
    *forwarded_out = forwarded;
    return TDM_OK;
}

void tdm__redis_forwarded_close(struct tdm__redis_forwarded *forwarded)
{
    struct pending *pending;

    if (forwarded == NULL) {
        return;
    }
    tdm__local_socket_close(&forwarded->local);
    while ((pending = LIST_FIRST(&forwarded->pending)) != NULL) {
        tdm__conn_forget_call(pending->conn, pending->call_id);
        tdm__conn_close(pending->conn);
        (void)close(pending->fd);
        pending_free(pending);
    }
    tdm__relays_destroy(forwarded->relays);
    free(forwarded);
}

const char *tdm__redis_forwarded_url(const struct tdm__redis_forwarded *forwarded)
{
    return forwarded->url;
}

const char *tdm__redis_forwarded_cluster(const struct tdm__redis_forwarded *forwarded)
{
    return forwarded->cluster;
}
