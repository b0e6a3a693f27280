/* broker_remote.c - the broker client that calls the daemon's service "block" over a connection. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The client owns nothing but itself: the connection is borrowed from the runtime. Each function
 * encodes its arguments, calls the daemon, blocks until the reply or the deadline, and decodes
 * the reply. Descriptors that a failed call received are closed. One thread uses a client.
 *
 * If this process has no free descriptors for the blocks of a reply, the client gives the blocks
 * back and repeats the call after a pause, until the deadline.
 *
 * The methods are specified in broker_service.h. */

#include "colocate/broker/broker_remote.h"

#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/rpc/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Milliseconds of the pause before a call is repeated that lacked descriptors. */
enum { SHORTAGE_PAUSE_MS = 20 };

/* A broker client that calls the daemon over a connection. */
struct remote {
    /* Must be the first field, because the client is cast to this structure. */
    struct tdm__broker_client base;
    struct tdm__conn *conn; /* Connection to the daemon of this node; borrowed. */
    int64_t timeout_ms;     /* Milliseconds after which each call of the broker fails. */
};

/* The reply to a call of the broker. */
struct reply {
    tdm_document *document;    /* Message of the reply; owned. */
    int fds[TDM__RPC_FDS_MAX]; /* Descriptors that came with the reply; owned. */
    uint32_t fds_count;        /* Number of valid entries in `fds`. */
};

/* Frees a reply and closes the descriptors that it still owns. */
static void reply_fini(struct reply *reply)
{
    for (uint32_t i = 0; i < reply->fds_count; i++) {
        (void)close(reply->fds[i]);
    }
    tdm_document_destroy(reply->document);
}

/* Calls a method of the broker with the arguments in `writer` and descriptors, and waits for the
 * reply. Frees the writer in any case. */
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

/* Calls a method of the broker with the arguments in `writer`, without descriptors. Frees the
 * writer in any case. */
static tdm_status broker_call(struct remote *remote, const char *method, tdm_writer *writer,
                              struct reply *reply_out)
{
    return broker_call_with_fds(remote, method, writer, NULL, 0, reply_out);
}

/* Condition of a loop that only waits for its deadline. */
static bool is_never_done(void *arg)
{
    (void)arg;
    return false;
}

/* Waits a moment for free descriptors, with the loop running. Fails with TDM_E_LIMIT after the
 * deadline. */
static tdm_status remote_await_descriptors(const struct remote *remote, int64_t deadline_ms)
{
    tdm_status status;

    if (tdm__clock_ms() >= deadline_ms) {
        return tdm__fail(TDM_E_LIMIT,
                         "no free descriptors for blocks within %lld ms: this process may have "
                         "%llu, raise that limit (ulimit -n)",
                         (long long)remote->timeout_ms,
                         (unsigned long long)tdm__descriptors_limit());
    }
    status = tdm__loop_run(tdm__conn_loop(remote->conn), is_never_done, NULL,
                           tdm__deadline_after(SHORTAGE_PAUSE_MS));
    return status == TDM_E_TIMEOUT ? TDM_OK : status;
}

/* Decodes the keys of exactly `count` blocks from the reply. */
static tdm_status reply_decode_keys(const struct reply *reply, uint32_t count,
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

/* Gives the encoder of a list one block size of a request. */
static void request_get_size(const void *arg, uint32_t index, void *item_out)
{
    *(uint64_t *)item_out = ((const size_t *)arg)[index];
}

/* Encodes a request for blocks. A failure stays in the status of the writer. */
static void write_block_request(tdm_writer *writer, const struct tdm__block_request *block_request)
{
    const struct tdm__block_request_message message = {
        .gpu = block_request->gpu,
        .tag = block_request->tag,
        .sizes_bytes = {.count = block_request->count,
                        .get = request_get_size,
                        .arg = block_request->sizes_bytes}};

    (void)tdm__block_request_encode(&message, writer);
}

/* Decodes the keys of `count` blocks and combines them with the descriptors of the reply. */
static tdm_status reply_decode_blocks(const struct reply *reply, const size_t *sizes_bytes,
                                      uint32_t count, struct tdm__block_handle *blocks_out)
{
    struct tdm__id keys[TDM__BLOCKS_MAX];

    TDM_TRY(reply_decode_keys(reply, count, keys));
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

/* Calls block.create of the daemon once: allocates all requested blocks, or none on failure.
 * `*lost_out` is true if the blocks were created and released again, because this process had no
 * free descriptors for them. */
static tdm_status remote_make_once(struct tdm__broker_client *client,
                                   const struct tdm__block_request *block_request,
                                   struct tdm__block_handle *blocks_out, bool *lost_out)
{
    struct tdm__id keys[TDM__BLOCKS_MAX];
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    struct reply reply;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_block_request(writer, block_request);
    status = broker_call((struct remote *)client, "block.create", writer, &reply);
    *lost_out = reply.document != NULL && status == TDM_E_AGAIN;
    if (*lost_out) {
        status = reply_decode_keys(&reply, block_request->count, keys);
        if (status == TDM_OK) {
            status = client->ops->release(client, keys, block_request->count);
        }
        tdm_document_destroy(reply.document);
        return status;
    }
    TDM_TRY(status);
    status = reply_decode_blocks(&reply, block_request->sizes_bytes, block_request->count, blocks);
    if (status == TDM_OK) {
        memcpy(blocks_out, blocks, block_request->count * sizeof(blocks[0]));
        reply.fds_count = 0; /* The caller owns the descriptors now. */
    }
    reply_fini(&reply);
    return status;
}

/* Allocates all requested blocks, or none on failure. */
static tdm_status remote_make(struct tdm__broker_client *client,
                              const struct tdm__block_request *block_request,
                              struct tdm__block_handle *blocks_out)
{
    struct remote *remote = (struct remote *)client;
    int64_t deadline_ms = tdm__deadline_after(remote->timeout_ms);
    bool lost = false;

    do {
        TDM_TRY(remote_make_once(client, block_request, blocks_out, &lost));
        TDM_TRY(lost ? remote_await_descriptors(remote, deadline_ms) : TDM_OK);
    } while (lost);
    return TDM_OK;
}

/* Calls block.adopt of the daemon: registers memory that this process allocated on its device. */
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
    status = reply_decode_keys(&reply, block_request->count, keys);
    if (status == TDM_OK) {
        memcpy(keys_out, keys, block_request->count * sizeof(keys[0]));
    }
    reply_fini(&reply);
    return status;
}

/* Calls block.open of the daemon once: opens another process's block by its key. `*lost_out` is
 * true if the block was opened and released again, because this process had no free descriptor for
 * it. */
static tdm_status remote_open_once(struct tdm__broker_client *client, const struct tdm__id *key,
                                   struct tdm__block_handle *block_out, bool *lost_out)
{
    struct reply reply;
    tdm_writer *writer;
    const struct tdm__block_open_message message = {*key};
    struct tdm__block_opened_message opened;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__block_open_encode(&message, writer);
    status = broker_call((struct remote *)client, "block.open", writer, &reply);
    *lost_out = reply.document != NULL && status == TDM_E_AGAIN;
    if (*lost_out) {
        tdm_document_destroy(reply.document);
        return client->ops->release(client, key, 1);
    }
    TDM_TRY(status);
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
    reply_fini(&reply);
    return status;
}

/* Opens another process's block by its key. */
static tdm_status remote_open(struct tdm__broker_client *client, const struct tdm__id *key,
                              struct tdm__block_handle *block_out)
{
    struct remote *remote = (struct remote *)client;
    int64_t deadline_ms = tdm__deadline_after(remote->timeout_ms);
    bool lost = false;

    do {
        TDM_TRY(remote_open_once(client, key, block_out, &lost));
        TDM_TRY(lost ? remote_await_descriptors(remote, deadline_ms) : TDM_OK);
    } while (lost);
    return TDM_OK;
}

/* Calls a method of the broker whose arguments are block keys and whose reply is empty. */
static tdm_status broker_call_with_keys(struct remote *remote, const char *method,
                                        const struct tdm__id *keys, uint32_t keys_count)
{
    const struct tdm__block_keys_message message = {.keys = {.count = keys_count, .items = keys}};
    struct reply reply;
    tdm_writer *writer;

    TDM_TRY(tdm_writer_create(&writer));
    (void)tdm__block_keys_encode(&message, writer);
    TDM_TRY(broker_call(remote, method, writer, &reply));
    reply_fini(&reply);
    return TDM_OK;
}

/* Calls block.release of the daemon: releases blocks that this process created or opened. */
static tdm_status remote_release(struct tdm__broker_client *client, const struct tdm__id *keys,
                                 uint32_t keys_count)
{
    return broker_call_with_keys((struct remote *)client, "block.release", keys, keys_count);
}

/* Frees a broker client over a connection. */
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
