/* direct_broker.c - the way to a broker in this same process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/direct_broker.h"

#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct direct {
    struct tdm__broker_client base;
    struct tdm__broker *broker; /* Broker that is called directly (borrowed). */
    struct tdm__tenant tenant;
};

static tdm_status duplicate(struct tdm__block_handle *block)
{
    int fd = fcntl(block->fd, F_DUPFD_CLOEXEC, 3);

    if (fd < 0) {
        return tdm__fail_errno(errno, "fcntl(F_DUPFD_CLOEXEC) of a block");
    }
    block->fd = fd;
    return TDM_OK;
}

static tdm_status direct_release(struct tdm__broker_client *client, const struct tdm__id *keys,
                                 uint32_t keys_count)
{
    struct direct *direct = (struct direct *)client;
    tdm_status first = TDM_OK;

    for (uint32_t i = 0; i < keys_count; i++) {
        tdm_status status = tdm__broker_release_block(direct->broker, &keys[i], &direct->tenant.id);

        first = first == TDM_OK ? status : first;
    }
    return first;
}

static tdm_status direct_make(struct tdm__broker_client *client,
                              const struct tdm__block_request *request,
                              struct tdm__block_handle *blocks_out)
{
    struct direct *direct = (struct direct *)client;
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    tdm_status status = tdm__broker_create_blocks(direct->broker, &direct->tenant, request, blocks);
    uint32_t duplicated = 0;

    if (status != TDM_OK) {
        return status;
    }
    while (duplicated < request->count && status == TDM_OK) {
        status = duplicate(&blocks[duplicated]);
        duplicated += status == TDM_OK ? 1 : 0;
    }
    if (status == TDM_OK) {
        memcpy(blocks_out, blocks, request->count * sizeof(blocks[0]));
        return TDM_OK;
    }
    for (uint32_t i = 0; i < request->count; i++) {
        (void)direct_release(client, &blocks[i].key, 1);
    }
    while (duplicated > 0) {
        duplicated--;
        (void)close(blocks[duplicated].fd);
    }
    return status;
}

static tdm_status direct_adopt(struct tdm__broker_client *client,
                               const struct tdm__block_request *request, const int *fds,
                               struct tdm__id *keys_out)
{
    struct direct *direct = (struct direct *)client;

    return tdm__broker_register_blocks(direct->broker, &direct->tenant, request, fds, keys_out);
}

static tdm_status direct_open(struct tdm__broker_client *client, const struct tdm__id *key,
                              struct tdm__block_handle *block_out)
{
    struct direct *direct = (struct direct *)client;
    struct tdm__block_handle block;
    tdm_status status;

    TDM_TRY(tdm__broker_open_block(direct->broker, key, &direct->tenant, &block));
    status = duplicate(&block);
    if (status != TDM_OK) {
        (void)direct_release(client, key, 1);
        return status;
    }
    *block_out = block;
    return TDM_OK;
}

static void direct_destroy(struct tdm__broker_client *client)
{
    free(client);
}

tdm_status tdm__broker_client_open_direct(struct tdm__broker *broker,
                                          const struct tdm__tenant *tenant,
                                          struct tdm__broker_client **client_out)
{
    static const struct tdm__broker_client_ops ops = {.make = direct_make,
                                                      .adopt = direct_adopt,
                                                      .open = direct_open,
                                                      .release = direct_release,
                                                      .destroy = direct_destroy};
    struct direct *direct = calloc(1, sizeof(*direct));

    if (direct == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a way to the broker");
    }
    direct->base.ops = &ops;
    direct->broker = broker;
    direct->tenant = *tenant;
    *client_out = &direct->base;
    return TDM_OK;
}
