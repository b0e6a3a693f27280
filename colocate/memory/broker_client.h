/* broker_client.h - a process's way to the block broker: over a connection, or directly. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_BROKER_CLIENT_H
#define TDM_COLOCATE_MEMORY_BROKER_CLIENT_H

#include "colocate/memory/broker.h"

struct tdm__conn;
struct tdm__broker_client;

/* Each entry blocks until the broker has answered, and speaks for this process as the tenant.
 * Descriptors that come out are the caller's to close. */
struct tdm__broker_client_ops {
    tdm_status (*make)(struct tdm__broker_client *client, const struct tdm__block_request *request,
                       struct tdm__block_handle *blocks_out);
    /* Memory that this process made on its device; the descriptors stay the caller's. */
    tdm_status (*adopt)(struct tdm__broker_client *client, const struct tdm__block_request *request,
                        const int *fds, struct tdm__id *keys_out);
    tdm_status (*open)(struct tdm__broker_client *client, const struct tdm__id *key,
                       struct tdm__block_handle *block_out);
    /* Of blocks made or opened before; all are tried, the first failure is returned. */
    tdm_status (*release)(struct tdm__broker_client *client, const struct tdm__id *keys,
                          uint32_t keys_count);
    tdm_status (*accept)(struct tdm__broker_client *client, const struct tdm__id *key);
    void (*destroy)(struct tdm__broker_client *client);
};

/* First member of every filling. */
struct tdm__broker_client {
    const struct tdm__broker_client_ops *ops;
};

/* Calls to the service "block" of the daemon at the other end of `conn` (borrowed), each with
 * this deadline. */
tdm_status tdm__broker_client_open_remote(struct tdm__conn *conn, int64_t timeout_ms,
                                          struct tdm__broker_client **client_out);
static inline void tdm__broker_client_destroy(struct tdm__broker_client *client)
{
    if (client != NULL) { /* NULL is allowed */
        client->ops->destroy(client);
    }
}

#endif
