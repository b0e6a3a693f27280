/* forward_service.c - lets daemons of other nodes use the Redis server of this daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/forward_service.h"

#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/redis/address.h"
#include "runtime/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The service "store". The daemon's list of services owns it. */
struct forward_service {
    struct tdm__redis_forward_options options; /* What the daemon gave to the service. */
    struct tdm__relays *relays; /* Connections of other daemons to the Redis server (owned). */
};

/* Connects a new socket to the Redis server's Unix socket. The caller closes it. */
static tdm_status server_connect(const struct tdm__redis_embedded *server, int *fd_out)
{
    struct tdm__redis_address redis;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    TDM_TRY(tdm__redis_address_parse(tdm__redis_embedded_url(server), &redis));
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.*s",
                   (int)sizeof(address.sun_path) - 1, redis.path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        int error_number = errno;

        (void)close(fd);
        return tdm__fail_errno(error_number, "connecting to the Redis server of the head node");
    }
    *fd_out = fd;
    return TDM_OK;
}

/* Takes the socket out of the connection that brought the call and relays it to the Redis server's
 * socket `server_fd`. On failure the caller still owns `server_fd`. */
static tdm_status service_relay(struct forward_service *service, struct tdm__conn *conn,
                                int server_fd)
{
    struct tdm__tls *tls;
    int peer_fd;
    tdm_status status;

    TDM_TRY(tdm__conn_detach(conn, &peer_fd, &tls));
    status = tdm__relays_add(service->relays, peer_fd, tls, server_fd);
    if (status != TDM_OK) {
        tdm__tls_destroy(tls);
        (void)close(peer_fd);
    }
    return status;
}

/* Serves "store.connect". */
static void serve_connect(struct forward_service *service, struct tdm__incoming_call *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    int server_fd = -1;

    if (conn == NULL || tdm__incoming_peer(incoming)->kind != TDM__PEER_DAEMON) {
        tdm__incoming_fail(incoming, TDM_E_AUTH, "only daemons may use the Redis server");
        return;
    }
    if (server_connect(service->options.server, &server_fd) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_STORE, tdm_error_detail());
        return;
    }
    service->options.shared(service->options.arg);
    tdm__incoming_reply(incoming, (struct tdm_bytes){"\x90", 1}, NULL, 0);
    if (service_relay(service, conn, server_fd) != TDM_OK) {
        tdm__log(TDM__WARN, "redis", "forwarding a connection of another daemon: %s",
                 tdm_error_detail());
        (void)close(server_fd);
    }
}

/* Serves the calls of the service "store". */
static void forward_serve(void *self, struct tdm__incoming_call *incoming)
{
    struct forward_service *service = self;
    const char *method = tdm__incoming_method(incoming);
    const struct tdm__store_description_message description = {.cluster = service->options.cluster};

    if (strcmp(method, "store.describe") == 0) {
        tdm__incoming_reply_message(incoming, tdm__store_description_table(), &description);
    } else if (strcmp(method, "store.connect") == 0) {
        serve_connect(service, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

/* Ends all forwarded connections and frees the service. */
static void forward_destroy(void *self)
{
    struct forward_service *service = self;

    tdm__relays_destroy(service->relays);
    free(service);
}

tdm_status tdm__redis_forward_create(const struct tdm__redis_forward_options *options,
                                     void **service_out)
{
    struct forward_service *service = calloc(1, sizeof(*service));
    tdm_status status;

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the service \"store\"");
    }
    service->options = *options;
    status = tdm__relays_create(options->loop, TDM__RELAY_STALL_MS, &service->relays);
    if (status != TDM_OK) {
        free(service);
        return status;
    }
    *service_out = service;
    return TDM_OK;
}

const struct tdm__service_ops tdm__redis_forward_service = {
    .prefix = "store", .serve = forward_serve, .destroy = forward_destroy};
