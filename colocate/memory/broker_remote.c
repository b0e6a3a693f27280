/* broker_remote.c - the way to the broker in this node's daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/broker_client.h"

#include "runtime/clock.h"
#include "runtime/error.h"
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

static tdm_status answer_key(const struct answer *answer, uint32_t index,
                             struct tdm__id *key_out)
{
    const tdm_value *keys = tdm_document_root(answer->document);
    struct tdm_bytes key = tdm_value_bytes(tdm_value_at(keys, index));

    if (key.size_bytes != sizeof(key_out->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "a block's key of %zu bytes", key.size_bytes);
    }
    memcpy(key_out->bytes, key.data, key.size_bytes);
    return TDM_OK;
}

static void write_wish(tdm_writer *writer, const struct tdm__block_wish *wish)
{
    tdm_write_array(writer, 3);
    tdm_write_uint(writer, wish->gpu);
    tdm_write_string(writer, wish->tag);
    tdm_write_array(writer, wish->count);
    for (uint32_t i = 0; i < wish->count; i++) {
        tdm_write_uint(writer, wish->sizes_bytes[i]);
    }
}

static tdm_status answer_blocks(const struct answer *answer, const size_t *sizes_bytes,
                                uint32_t count, struct tdm__block_handle *blocks_out)
{
    const tdm_value *keys = tdm_document_root(answer->document);

    if (tdm_value_count(keys) != count || answer->fds_count != count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "the broker answered %u keys and %u descriptors for %u blocks",
                         tdm_value_count(keys), answer->fds_count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(answer_key(answer, i, &blocks_out[i].key));
        blocks_out[i].size_bytes = sizes_bytes[i];
        blocks_out[i].fd = answer->fds[i];
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
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_writer_create(&writer));
    write_wish(writer, wish);
    TDM_TRY(
        call_with((struct remote *)client, "block.adopt", writer, fds, wish->count, &answer));
    for (uint32_t i = 0; i < wish->count && status == TDM_OK; i++) {
        status = answer_key(&answer, i, &keys[i]);
    }
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
    uint64_t size_bytes;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 1);
    tdm_write_bytes(writer, key->bytes, sizeof(key->bytes));
    TDM_TRY(call((struct remote *)client, "block.open", writer, &answer));
    status = tdm_unpack(tdm_document_root(answer.document), "u", &size_bytes);
    if (status == TDM_OK && answer.fds_count != 1) {
        status = tdm__fail(TDM_E_PROTOCOL, "the broker answered %u descriptors for one block",
                           answer.fds_count);
    }
    if (status == TDM_OK) {
        *block_out = (struct tdm__block_handle){
            .key = *key, .size_bytes = (size_t)size_bytes, .fd = answer.fds[0]};
        answer.fds_count = 0;
    }
    answer_drop(&answer);
    return status;
}

static tdm_status call_with_keys(struct remote *remote, const char *method,
                                 const struct tdm__id *keys, uint32_t keys_count)
{
    struct answer answer;
    tdm_writer *writer;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, keys_count);
    for (uint32_t i = 0; i < keys_count; i++) {
        tdm_write_bytes(writer, keys[i].bytes, sizeof(keys[i].bytes));
    }
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
