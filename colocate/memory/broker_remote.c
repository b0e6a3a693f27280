/* broker_remote.c - the way to the broker in this node's daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/broker_client.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/rpc/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct remote {
    struct tdm__broker_client base;
    struct tdm__conn *conn; /* borrowed */
    int64_t timeout_ms;
};

/* What came back of a broker_call. */
struct reply {
    tdm_document *document; /* owned */
    int fds[TDM__RPC_FDS_MAX];
    uint32_t fds_count;
};

static void drop_reply(struct reply *reply)
{
    for (uint32_t i = 0; i < reply->fds_count; i++) {
        (void)close(reply->fds[i]);
    }
    tdm_document_destroy(reply->document);
}

/* Calls `method` with what `writer` holds, and frees the writer in any case. */
static tdm_status broker_call_with_fds(struct remote *remote, const char *method,
                                       tdm_writer *writer, const int *fds, uint32_t fds_count,
                                       struct reply *reply_out)
{
    struct tdm__rpc_request request = {.method = method,
                                       .packed = tdm_writer_bytes(writer),
                                       .fds = fds,
                                       .fds_count = fds_count,
                                       .deadline_ms = tdm__deadline_after(remote->timeout_ms)};
    tdm_status status = tdm_writer_status(writer);

    *reply_out = (struct reply){.fds_count = TDM__RPC_FDS_MAX};
    if (status == TDM_OK) {
        status = tdm__conn_call_wait(remote->conn, &request, &reply_out->document, reply_out->fds,
                                     &reply_out->fds_count);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status broker_call(struct remote *remote, const char *method, tdm_writer *writer,
                              struct reply *reply_out)
{
    return broker_call_with_fds(remote, method, writer, NULL, 0, reply_out);
}

/* Decodes the keys of `count` blocks. */
static tdm_status answer_keys(const struct reply *reply, uint32_t count,
                              struct tdm__id keys_out[TDM__BLOCKS_MAX])
{
    struct tdm__block_keys_message message;

    TDM_TRY(tdm__block_keys_decode(tdm_document_root(reply->document), &message));
    if (message.keys.count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "the broker answered %u keys for %u blocks",
                         message.keys.count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        tdm__message_list_read(&message.keys, i, &keys_out[i], sizeof(keys_out[i]));
    }
    return TDM_OK;
}

static void get_size(const void *arg, uint32_t index, void *item_out)
{
    *(uint64_t *)item_out = ((const size_t *)arg)[index];
}

static void write_block_request(tdm_writer *writer, const struct tdm__block_request *block_request)
{
    const struct tdm__block_wish_message message = {
        .gpu = block_request->gpu,
        .tag = block_request->tag,
        .sizes_bytes = {
            .count = block_request->count, .get = get_size, .arg = block_request->sizes_bytes}};

    (void)tdm__block_wish_encode(&message, writer);
}

static tdm_status read_reply_blocks(const struct reply *reply, const size_t *sizes_bytes,
                                    uint32_t count, struct tdm__block_handle *blocks_out)
{
    struct tdm__id keys[TDM__BLOCKS_MAX];

    TDM_TRY(answer_keys(reply, count, keys));
    if (reply->fds_count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "the broker answered %u descriptors for %u blocks",
                         reply->fds_count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        blocks_out[i] = (struct tdm__block_handle){
            .key = keys[i], .size_bytes = sizes_bytes[i], .fd = reply->fds[i]};
    }
    return TDM_OK;
}

static tdm_status remote_make(struct tdm__broker_client *client,
                              const struct tdm__block_request *block_request,
                              struct tdm__block_handle *blocks_out)
{
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    struct reply reply;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_block_request(writer, block_request);
    TDM_TRY(broker_call((struct remote *)client, "block.create", writer, &reply));
    status = read_reply_blocks(&reply, block_request->sizes_bytes, block_request->count, blocks);
    if (status == TDM_OK) {
        memcpy(blocks_out, blocks, block_request->count * sizeof(blocks[0]));
        reply.fds_count = 0; /* they are the caller's now */
    }
    drop_reply(&reply);
    return status;
}

static tdm_status remote_adopt(struct tdm__broker_client *client,
                               const struct tdm__block_request *block_request, const int *fds,
                               struct tdm__id *keys_out)
{
    struct tdm__id keys[TDM__BLOCKS_MAX];
    struct reply reply;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_block_request(writer, block_request);
    TDM_TRY(broker_call_with_fds((struct remote *)client, "block.adopt", writer, fds,
                                 block_request->count, &reply));
    status = answer_keys(&reply, block_request->count, keys);
    if (status == TDM_OK) {
        memcpy(keys_out, keys, block_request->count * sizeof(keys[0]));
    }
    drop_reply(&reply);
    return status;
}

static tdm_status remote_open(struct tdm__broker_client *client, const struct tdm__id *key,
                              struct tdm__block_handle *block_out)
{
    struct reply reply;
    tdm_writer *writer;
    const struct tdm__block_open_message message = {*key};
    struct tdm__block_opened_message opened;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__block_open_encode(&message, writer);
    TDM_TRY(broker_call((struct remote *)client, "block.open", writer, &reply));
    status = tdm__block_opened_decode(tdm_document_root(reply.document), &opened);
    if (status == TDM_OK && reply.fds_count != 1) {
        status = tdm__fail(TDM_E_PROTOCOL, "the broker answered %u descriptors for one block",
                           reply.fds_count);
    }
    if (status == TDM_OK) {
        *block_out = (struct tdm__block_handle){
            .key = *key, .size_bytes = (size_t)opened.size_bytes, .fd = reply.fds[0]};
        reply.fds_count = 0;
    }
    drop_reply(&reply);
    return status;
}

static tdm_status broker_call_with_keys(struct remote *remote, const char *method,
                                        const struct tdm__id *keys, uint32_t keys_count)
{
    const struct tdm__block_keys_message message = {.keys = {.count = keys_count, .items = keys}};
    struct reply reply;
    tdm_writer *writer;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__block_keys_encode(&message, writer);
    TDM_TRY(broker_call(remote, method, writer, &reply));
    drop_reply(&reply);
    return TDM_OK;
}

static tdm_status remote_release(struct tdm__broker_client *client, const struct tdm__id *keys,
                                 uint32_t keys_count)
{
    return broker_call_with_keys((struct remote *)client, "block.release", keys, keys_count);
}

static tdm_status remote_accept(struct tdm__broker_client *client, const struct tdm__id *key)
{
    return broker_call_with_keys((struct remote *)client, "block.accept", key, 1);
}

static void remote_destroy(struct tdm__broker_client *client)
{
    free(client);
}

tdm_status tdm__broker_client_open_remote(struct tdm__conn *conn, int64_t timeout_ms,
                                          struct tdm__broker_client **client_out)
{
    static const struct tdm__broker_client_ops ops = {.make = remote_make,
                                                      .adopt = remote_adopt,
                                                      .open = remote_open,
                                                      .release = remote_release,
                                                      .accept = remote_accept,
                                                      .destroy = remote_destroy};
    struct remote *remote = calloc(1, sizeof(*remote));

    if (remote == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a way to the broker");
    }
    remote->base.ops = &ops;
    remote->conn = conn;
    remote->timeout_ms = timeout_ms;
    *client_out = &remote->base;
    return TDM_OK;
}
