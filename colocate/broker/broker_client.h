/* broker_client.h - the interface through which a process calls the block broker, remotely or
 * directly. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_BROKER_CLIENT_H
#define TDM_COLOCATE_BROKER_BROKER_CLIENT_H

#include "colocate/broker/broker.h"

struct tdm__broker_client;

/* Functions of a broker client, by which a process uses its node's broker. Each blocks until the
 * broker has replied. The caller owns the descriptors that a function returns. */
struct tdm__broker_client_ops {
    /* Allocates all blocks of the request, or none on failure. */
    tdm_status (*make)(struct tdm__broker_client *client, const struct tdm__block_request *request,
                       struct tdm__block_handle *blocks_out);
    /* Registers memory that this process allocated on its device. The descriptors stay the
     * caller's. */
    tdm_status (*adopt)(struct tdm__broker_client *client, const struct tdm__block_request *request,
                        const int *fds, struct tdm__id *keys_out);
    /* Opens another process's block by its key. */
    tdm_status (*open)(struct tdm__broker_client *client, const struct tdm__id *key,
                       struct tdm__block_handle *block_out);
    /* Releases blocks that this process created or opened. All keys are tried; the first failure is
     * returned. */
    tdm_status (*release)(struct tdm__broker_client *client, const struct tdm__id *keys,
                          uint32_t keys_count);
    void (*destroy)(struct tdm__broker_client *client); /* Frees the broker client. */
};

/* A broker client: a process's interface to the broker of its node. Every implementation has this
 * struct as its first member. */
struct tdm__broker_client {
    /* Table of functions of this kind of broker client; static. */
    const struct tdm__broker_client_ops *ops;
};

/* Destroys a broker client. NULL is allowed. */
static inline void tdm__broker_client_destroy(struct tdm__broker_client *client)
{
    if (client != NULL) {
        client->ops->destroy(client);
    }
}

#endif
