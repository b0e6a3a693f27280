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

/* What came back of a call. */
struct answer {
    tdm_document *document; /* owned */
    int fds[TDM__RPC_FDS_MAX];
    uint32_t fds_count;
};

static void answer_drop(struct answer *answer)
{
    for (uint32_t i = 0; i < answer->fds_count; i++) {
        (void)close(answer->fds[i]);
    }
    tdm_document_destroy(answer->document);
}

/* Calls `method` with what `writer` holds, and frees the writer in any case. */
static tdm_status call_with(struct remote *remote, const char *method, tdm_writer *writer,
                            const int *fds, uint32_t fds_count, struct answer *answer_out)
{
    struct tdm__request request = {.method = method,
                                   .packed = tdm_writer_bytes(writer),
                                   .fds = fds,
                                   .fds_count = fds_count,
                                   .deadline_ms = tdm__deadline_in(remote->timeout_ms)};
    tdm_status status = tdm_writer_status(writer);

    *answer_out = (struct answer){.fds_count = TDM__RPC_FDS_MAX};
    if (status == TDM_OK) {
        status = tdm__conn_call_wait(remote->conn, &request, &answer_out->document,
                                     answer_out->fds, &answer_out->fds_count);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status call(struct remote *remote, const char *method, tdm_writer *writer,
                       struct answer *answer_out)
{
    return call_with(remote, method, writer, NULL, 0, answer_out);
}

/* Decodes the keys of `count` blocks. */
static tdm_status answer_keys(const struct answer *answer, uint32_t count,
                              struct tdm__id keys_out[TDM__BLOCKS_MAX])
{
    struct tdm__block_keys_message message;

    TDM_TRY(tdm__block_keys_decode(tdm_document_root(answer->document), &message));
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

static void write_wish(tdm_writer *writer, const struct tdm__block_wish *wish)
{
    const struct tdm__block_wish_message message = {
        .gpu = wish->gpu,
        .tag = wish->tag,
        .sizes_bytes = {.count = wish->count, .get = get_size, .arg = wish->sizes_bytes}};

    (void)tdm__block_wish_encode(&message, writer);
}

static tdm_status answer_blocks(const struct answer *answer, const size_t *sizes_bytes,
                                uint32_t count, struct tdm__block_handle *blocks_out)
{
    struct tdm__id keys[TDM__BLOCKS_MAX];

    TDM_TRY(answer_keys(answer, count, keys));
    if (answer->fds_count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "the broker answered %u descriptors for %u blocks",
                         answer->fds_count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        blocks_out[i] = (struct tdm__block_handle){
            .key = keys[i], .size_bytes = sizes_bytes[i], .fd = answer->fds[i]};
    }
    return TDM_OK;
}

static tdm_status remote_make(struct tdm__broker_client *client,
                              const struct tdm__block_wish *wish,
                              struct tdm__block_handle *blocks_out)
{
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    struct answer answer;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_wish(writer, wish);
    TDM_TRY(call((struct remote *)client, "block.create", writer, &answer));
    status = answer_blocks(&answer, wish->sizes_bytes, wish->count, blocks);
    if (status == TDM_OK) {
        memcpy(blocks_out, blocks, wish->count * sizeof(blocks[0]));
        answer.fds_count = 0; /* they are the caller's now */
    }
    answer_drop(&answer);
    return status;
}

static tdm_status remote_adopt(struct tdm__broker_client *client,
                               const struct tdm__block_wish *wish, const int *fds,
                               struct tdm__id *keys_out)
{
    struct tdm__id keys[TDM__BLOCKS_MAX];
    struct answer answer;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_wish(writer, wish);
    TDM_TRY(
        call_with((struct remote *)client, "block.adopt", writer, fds, wish->count, &answer));
    status = answer_keys(&answer, wish->count, keys);
    if (status == TDM_OK) {
        memcpy(keys_out, keys, wish->count * sizeof(keys[0]));
    }
    answer_drop(&answer);
    return status;
}

static tdm_status remote_open(struct tdm__broker_client *client, const struct tdm__id *key,
                              struct tdm__block_handle *block_out)
{
    struct answer answer;
    tdm_writer *writer;
    const struct tdm__block_open_message message = {*key};
    struct tdm__block_opened_message opened;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__block_open_encode(&message, writer);
    TDM_TRY(call((struct remote *)client, "block.open", writer, &answer));
    status = tdm__block_opened_decode(tdm_document_root(answer.document), &opened);
    if (status == TDM_OK && answer.fds_count != 1) {
        status = tdm__fail(TDM_E_PROTOCOL, "the broker answered %u descriptors for one block",
                           answer.fds_count);
    }
    if (status == TDM_OK) {
        *block_out = (struct tdm__block_handle){
            .key = *key, .size_bytes = (size_t)opened.size_bytes, .fd = answer.fds[0]};
        answer.fds_count = 0;
    }
    answer_drop(&answer);
    return status;
}

static tdm_status call_with_keys(struct remote *remote, const char *method,
                                 const struct tdm__id *keys, uint32_t keys_count)
{
    const struct tdm__block_keys_message message = {
        .keys = {.count = keys_count, .items = keys}};
    struct answer answer;
    tdm_writer *writer;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__block_keys_encode(&message, writer);
    TDM_TRY(call(remote, method, writer, &answer));
    answer_drop(&answer);
    return TDM_OK;
}

static tdm_status remote_release(struct tdm__broker_client *client, const struct tdm__id *keys,
                                 uint32_t keys_count)
{
    return call_with_keys((struct remote *)client, "block.release", keys, keys_count);
}

static tdm_status remote_accept(struct tdm__broker_client *client, const struct tdm__id *key)
{
    return call_with_keys((struct remote *)client, "block.accept", key, 1);
}

static void remote_destroy(struct tdm__broker_client *client)
{
    free(client);
}

tdm_status tdm__broker_client_remote(struct tdm__conn *conn, int64_t timeout_ms,
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
