/* forward_service.h - lets daemons of other nodes use the Redis server of this daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_FORWARD_SERVICE_H
#define TDM_RUNTIME_REDIS_FORWARD_SERVICE_H

#include "runtime/redis/embedded.h"
#include "runtime/service.h"

/* What the service needs. All pointers are borrowed for the life of the service. */
struct tdm__redis_forward_options {
    struct tdm__loop *loop; /* Event loop of the daemon. */
    /* Redis server of the daemon, to which connections are forwarded. */
    const struct tdm__redis_embedded *server;
    const char *cluster; /* Name of the cluster, part of the prefix of every key in Redis. */
    /* Callback that runs when a daemon of another node is about to use the server. */
    void (*shared)(void *arg);
    void *arg; /* Argument of `shared`. */
};

/* Creates the service "store". `*service_out` is the service for tdm__services_add(). */
tdm_status tdm__redis_forward_create(const struct tdm__redis_forward_options *options,
                                     void **service_out);
/* The service "store" with the calls "store.describe" (reply: message store_description) and
 * "store.connect". After the reply to "store.connect" both sides take the socket out of the
 * connection (tdm__conn_detach()), and it carries the bytes of a connection to the Redis server. */
extern const struct tdm__service_ops tdm__redis_forward_service;

#endif
